"""A disk without room, or limits that are too low: what is derived goes first, reading goes on, and
nothing aborts.
"""

from __future__ import annotations

import sys

import pytest

from tests.support import terminal
from tests.support.chroma import needs_chroma
from tests.support.cli import error_of, small_disk, start
from vmrag_link import hints

template, project = terminal.template, terminal.project


@pytest.mark.parametrize("free", [0, 4096])
@pytest.mark.sample(1)
def test_gc_makes_its_own_room_on_a_full_disk(project, free):
    project.git("switch", "-q", "feature")
    project.git("switch", "-q", "main")
    project.put("note.md", "A note about zebras.")
    texts = project.texts()
    spare = [path for path in (project.shared / "views").iterdir() if path.is_dir()]
    assert len(spare) > 1
    with small_disk(project.shared, kilobytes=12_000) as fill:
        fill(free)
        result = project.run_quietly("gc", "--apply", "--json")
        assert result.code == 0, result
        assert result.json["leftovers"]["snapshots"]["names"]
        assert result.json["undone"] == []
        (project.shared / "filler").unlink()
        assert project.texts() == texts
        assert project.consistent()


def test_gc_reports_work_that_needs_more_room(project):
    project.vmrag("gc", "--apply")
    for path in (project.shared / "views").glob("*"):
        if path.is_dir() and not path.name.startswith(project.pinned):
            terminal.shutil.rmtree(path)
    with small_disk(project.shared / "kb", kilobytes=2_000) as fill:
        project.git("switch", "-q", "-c", "doomed", env={"VMRAG": "0"})
        project.record("doomed", doomed="To be deleted.")
        project.git("switch", "-q", "main", env={"VMRAG": "0"})
        project.git("branch", "-q", "-D", "doomed")
        fill(0)
        result = project.run_quietly("gc", "--apply")
        assert result.code == 1, result
        assert "the knowledge base could not be rewritten" in result.out
        (project.shared / "kb" / "filler").unlink()
        assert project.ask("gc", "--apply")["undone"] == []
        assert project.consistent()


@pytest.mark.parametrize("full", ["views", "segments"])
def test_query_uses_bound_index_and_notes_it_if_disk_is_full(project, full):
    before = project.pinned
    with small_disk(project.shared / full, kilobytes=6_000) as fill:
        for path in (project.shared / "views").iterdir():
            if path.is_dir() and not path.name.startswith(before):
                terminal.shutil.rmtree(path)
        project.git("switch", "-q", "feature", env={"VMRAG": "0"})
        fill(0)
        answer = project.ask("query", "rest and sleep")
        assert (answer["kb"]["commit"], answer["kb"]["in_sync"]) == (before, False)
        assert "syncing to it failed" in answer["notes"][0]
        assert "uv.md" in {document["doc_id"] for document in project.ask("list")["documents"]}, "rows need no index"
        project.vmrag("rm", "uv.md", "--collection", "handbook")
        hint = error_of(project.run_quietly("sync", "--json"))["hint"]
        assert hints.list_commands(hint) == ["vmrag gc --apply"]
        (project.shared / full / "filler").unlink()
        assert project.ask("query", "rest and sleep")["kb"]["in_sync"]
    assert project.consistent()


@needs_chroma
@pytest.mark.parametrize(
    ("limit", "most", "hint"), [("NOFILE", 20, "run 'ulimit -n 256'"), ("AS", 400 << 20, "run 'ulimit -v unlimited'")]
)
def test_index_answers_below_the_limits_of_chroma_and_names_them(project, monkeypatch, limit, most, hint):
    project.forget_indexes()
    script = (
        "import resource, sys\nfrom vmrag_link.cli.main import run\n"
        f"resource.setrlimit(resource.RLIMIT_{limit}, ({most}, {most}))\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    program = (sys.executable, "-c", script)
    for command in (("sync",), ("query", "rest", "--mode", "keyword"), ("list",)):
        assert start(project, *command, program=program).done().code == 0
    monkeypatch.delenv("VMRAG_INDEX_CHROMA")
    result = start(project, "path", "chroma", "--json", program=program).done()
    error = error_of(result)
    assert (result.code, error["hint"].partition(";")[0], error["details"]["limit"]) == (3, hint, f"RLIMIT_{limit}")
