"""Commands that read and remove rows use only the knowledge base: they need no index, wait for
none, and build none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.test_concurrency import holding
from tests.integration.test_hostile_text import on_a_terminal
from tests.support import cli, terminal
from tests.support.cli import run_patched, start
from tests.support.mcp import Tools
from tests.support.terminal import Done, Project
from vmrag_link.documents import chunking

template, project = terminal.template, terminal.project

EXTRA = ("chromadb", "chromadb_rust_bindings", "numpy", "tokenizers")
READING = (("list",), ("show", "handbook/note.md"), ("status",), ("log",), ("diff",), ("report", "main~1"))
COPY = "ws.sync_context.working_copy(ws.find_kb_branch().name, ws.require_revision()).lock_for_writing()"


@pytest.fixture
def without_extra(tmp_path: Path) -> str:
    """A `PYTHONPATH` on which nothing of the extra `index` can be imported."""
    folder = tmp_path / "broken"
    for name in EXTRA:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise ImportError('this installation is broken')\n")
    return f"{folder}:{cli.ROOT}"


def each(project: Project, commands: tuple[tuple[str, ...], ...], path: str) -> list[tuple[int, dict[str, object]]]:
    """Exit codes and reports, by one process."""
    script = (
        "import contextlib, io, json, sys\nfrom vmrag_link.cli.main import run\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    out = io.StringIO()\n"
        "    with contextlib.redirect_stdout(out):\n        code = run([*command, '--json'])\n"
        "    print(json.dumps([code, json.loads(out.getvalue() or '{}')]))\n"
    )
    result = start(project, json.dumps(commands), program=(sys.executable, "-c", script), PYTHONPATH=path).done()
    assert result.code == 0, result
    return [tuple(json.loads(line)) for line in result.out.splitlines()]


def indexes(project: Project) -> list[Path]:
    return [
        path
        for name in ("views", "uncommitted", "segments")
        for path in (project.shared / name).glob("*")
        if path.is_dir()
    ]


def test_rows_are_read_and_removed_without_index_modules(project, without_extra):
    project.put("note.md", "A note about zebras.")
    project.forget_indexes()
    commands = (*READING, ("rm", "rest.md", "--collection", "handbook"), ("list",))
    result = each(project, commands, without_extra)
    assert [code for code, _ in result] == [0, 0, 1, 0, 0, 0, 0, 0], (
        "status says that there is no index, the rest does not care"
    )
    listed, shown, status, logged, changed, difference_report, removed, after = (report for _, report in result)
    assert difference_report["summary"]["counts"]["added"] == 1
    assert {row["doc_id"] for row in listed["documents"]} == {
        "setup.md",
        "rest.md",
        "deep/tls.txt",
        "faq.md",
        "note.md",
    }
    assert {row["chunks"] for row in listed["documents"]} == {None}
    assert shown["content"] == "A note about zebras."
    assert (status["state"], status["hint"]) == ("drift", "run 'vmrag sync' to sync to the pin")
    assert logged["revisions"][0]["revision"] == project.pinned
    assert [row["doc_id"] for row in changed["documents"]] == ["note.md"]
    assert removed["removed"] == [{"collection": "handbook", "doc_id": "rest.md"}]
    assert {row["doc_id"]: row["uncommitted"] for row in after["documents"]}["rest.md"] == "removed"
    assert indexes(project) == []
    assert project.consistent()


def test_checkout_moves_rows_first_and_the_index_on_demand(project):
    project.put("note.md", "A note about zebras.")
    bound = json.loads((project.own / "workspace.json").read_text())
    # The pin moves without any hook, and the uncommitted note must follow it.
    project.git("checkout", "first", "--", ".dolt-version", env={"VMRAG": "0"})
    project.forget_indexes()
    said = project.vmrag("list").err
    assert "moved to" in said
    assert project.marks()["note.md"] == "added"
    assert "faq.md" not in project.texts()
    assert project.vmrag("diff").err == "", "said once"
    assert indexes(project) == []
    assert json.loads((project.own / "workspace.json").read_text()) == bound
    assert project.run_quietly("status", "--json").json["reasons"][0].startswith("the index is at")
    assert "note.md" in {result["doc_id"] for result in project.ask("query", "zebras")["results"]}
    assert project.status()["in_sync"]
    assert project.consistent()


def test_commands_on_rows_do_not_wait_for_index_builds(project):
    project.put("note.md", "A note about zebras.")
    busy = holding(project, COPY)
    try:
        rows = {row["doc_id"]: row["chunks"] for row in project.ask("list")["documents"]}
        assert rows["note.md"] is None
        project.vmrag("rm", "rest.md", "--collection", "handbook")
    finally:
        busy.signal(9)
        busy.done()
    assert project.consistent()
    assert "rest.md" not in project.texts()


def test_list_counts_chunks_if_the_index_exists(project):
    project.put("note.md", "A note about zebras.")
    assert {row["chunks"] for row in project.ask("list")["documents"]} == {1}
    project.drop("rest.md")  # the index follows only on the next query
    assert {row["chunks"] for row in project.ask("list")["documents"]} == {None}
    project.vmrag("query", "zebras")
    assert {row["doc_id"]: row["chunks"] for row in project.ask("list")["documents"]}["note.md"] == 1


def test_tools_that_read_rows_make_no_index(project):
    project.put("note.md", "A note about zebras.")
    project.forget_indexes()
    tools = Tools(project.top)
    for tool, arguments in {
        "chroma_list_collections": {},
        "chroma_peek_collection": {"collection_name": "handbook"},
        "chroma_get_documents": {"collection_name": "handbook", "ids": '["note.md"]'},
        "chroma_get_collection_count": {"collection_name": "handbook"},
        "dolt_status": {},
        "dolt_commits": {},
        "get_diff": {},
    }.items():
        assert tools(tool, **arguments)["kb"]["in_sync"], tool
        assert indexes(project) == [], tool


def test_waiting_query_prints_progress_of_the_index(project, monkeypatch):
    monkeypatch.setattr("vmrag_link.cli.terminal.LINE_SECONDS", 0.0)
    monkeypatch.setattr("vmrag_link.sync.adding.BATCH_CHUNKS", 1)
    project.forget_indexes()
    assert "building the index: 2 of 4\n" in project.vmrag("query", "rest").err


def test_output_to_a_file_is_complete_despite_progress_bars(project, monkeypatch, tmp_path):
    monkeypatch.setattr("vmrag_link.cli.terminal.PATIENCE", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    project.record("two documents", one="one", two="two")
    with (tmp_path / "file").open("w") as file:
        said = on_a_terminal(project, "report", "HEAD~1", stdout=file)
    assert "comparing" in said
    assert (tmp_path / "file").read_text() == project.vmrag("report", "HEAD~1", "--markdown", "-").out


COUNTING = """
from pathlib import Path
from vmrag_link.embedding.hash_model import HashModel
embed = HashModel.embed
def counted(self, texts):
    with Path(os.environ["COUNTED"]).open("a") as out:
        out.write(f"{len(texts)}\\n")
    return embed(self, texts)
HashModel.embed = counted
"""
DYING = """
from vmrag_link.embedding import cache
from vmrag_link.embedding.cache import EmbeddingCache
cache.LOCAL_BATCH = 256
put, puts = EmbeddingCache.store_vectors, []
def some(self, *given):
    puts.append(1)
    die() if len(puts) > 3 else put(self, *given)
EmbeddingCache.store_vectors = some
"""


def embedded(project: Project, body: str, counted: Path, *command: str) -> tuple[Done, int]:
    counted.unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTED", str(counted))
        result = run_patched(project, COUNTING + body, *command)
    return result, sum(map(int, counted.read_text().split()))


def test_chunks_embedded_before_a_kill_are_not_embedded_again(project, tmp_path):
    project.write("more/big.md", "\n\n".join(f"Sentence {n} about zebra {n}." * 12 for n in range(2000)))
    adding = ("add", "more/big.md", "--collection", "handbook", "--id", "big.md")
    died, first = embedded(project, DYING, tmp_path / "counted", *adding)
    assert died.code == -9
    assert first == 4 * 256, "stored batch by batch, and killed with the fourth one in hand"
    result, second = embedded(project, "", tmp_path / "counted", "query", "zebra", "--json")
    assert result.code == 0
    chunks = {row["doc_id"]: row["chunks"] for row in project.ask("list")["documents"]}["big.md"]
    assert second == chunks - 3 * 256 + 1, "and the question"


def test_unindexable_documents_are_stored_committed_and_removed(project, monkeypatch):
    monkeypatch.setattr(chunking, "MAX_CHUNKS", 3)
    project.write("long/endless.txt", "x" * 20_000)
    imported = project.vmrag("import", "long", "--collection", "handbook", "--base", "long", "--json").json
    assert "cannot index a document of 20,000 characters" in imported["pending"]
    committed = project.vmrag("commit", "-m", "Endless", "--json").json
    assert "cannot index a document of 20,000 characters" in committed["pending"]
    assert committed["revision"] == project.pinned
    assert "cannot index a document of 20,000 characters" in project.vmrag("pin", "--json").json["pending"]
    assert "cannot index a document" in project.vmrag("sync", code=None).err
    (note,) = project.vmrag("query", "zebras", "--json").json["notes"]
    assert "cannot index a document of 20,000 characters" in note
    project.vmrag("rm", "endless.txt", "--collection", "handbook")
    project.vmrag("commit", "-m", "Without it")
    assert project.vmrag("query", "zebras", "--json").json["notes"] == []


def test_doctor_suggests_pin_after_reading_without_index(project):
    (project.shared / "workspace.json").unlink()
    project.vmrag("list")
    project.git("rm", "-q", ".dolt-version")
    project.git("commit", "-q", "-m", "Without the pin", env={"VMRAG": "0"})
    topics = project.run_quietly("doctor", "--json").json["topics"]
    (fix,) = [finding["fix"] for topic in topics for finding in topic["findings"] if finding["code"] == "PIN_NOT_THERE"]
    assert fix == "run 'vmrag pin' to write the pin"
