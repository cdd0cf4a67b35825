"""A repository that can be read and not written: whatever git can read, vmrag answers."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support import sources
from tests.support.cli import WITHOUT_RIGHTS, read_only, start
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

MOUNTED = (
    *("unshare", "-m", "sh", "-c"),
    'mount --bind "$PWD" "$PWD" && mount -o remount,ro,bind "$PWD" && cd "$PWD" && exec "$@"',
    "sh",
)
"""Prefix of a program that sees its working directory on a read-only mount."""

WITHOUT_FILES = (
    sys.executable,
    "-c",
    """import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
os.execvp(sys.argv[1], sys.argv[1:])""",
)
"""Prefix of a program that can write no byte to a file."""

COMMANDS = (
    "query zebra",
    "query zebra --mode keyword --json",
    "query 'three four' --budget 400",
    "query zebra --at HEAD~1",
    "list",
    "list --collection docs --json",
    "grep three",
    "show docs/page.md",
    "show note.md",
    "diff",
    "diff HEAD~1",
    "status",
    "sources",
    "fingerprint",
    "log",
    "log docs/page.md",
    "blame docs/page.md",
    "verify",
    "path",
    "remote",
    "links",
    "links show HEAD",
    "links show HEAD~1",
    "branch",
    "check",
    "report HEAD~1 HEAD",
    "issue list",
)

TOOLS = """
import json
from pathlib import Path
from tests.support.mcp import Tools
tools = Tools(Path.cwd())
calls = {
    "search_documents": {"query": "zebra"}, "read": {"name": "docs/page.md"}, "grep": {"pattern": "three"},
    "history": {"name": "docs/page.md"}, "status": {}, "chroma_list_collections": {}, "get_sync_status": {},
    "chroma_get_documents": {"collection_name": "docs"},
    "chroma_query_documents": {"collection_name": "docs", "query_texts": ["zebra"]},
}
print(json.dumps({name: tools(name, **arguments) for name, arguments in calls.items()}))
"""


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    """Sources that were never indexed, an edited file, and a knowledge base with one document."""
    isolate(monkeypatch, tmp_path / "home")
    made = sources.sourced_project(tmp_path / "work")
    made.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    made.put("note.md", "# Note\n\nA stored text about otters.\n", collection="notes")
    made.vmrag("commit", "-m", "note")
    commit(made, "with a note", **{"docs/zebra.md": "# Zebra\n\nA zebra has stripes.\n"})
    made.vmrag("links")
    queue_link(made)
    made.write("docs/page.md", "# Page\n\nAn edited text about a zebra.\n\nthree\n")
    return made


def queue_link(project: Project) -> None:
    """Do what the hook after a commit does."""
    with (project.shared / "links.queue").open("a") as queue:
        queue.write(f"commit {project.git('rev-parse', 'HEAD~1')} main\n")


@contextlib.contextmanager
def unwritable(project: Project, way: str) -> Iterator[tuple[str, ...]]:
    """Yield the prefix of programs that cannot write to the project."""
    if way == "mount":
        if subprocess.run([*MOUNTED, "true"], cwd=project.top, capture_output=True, check=False).returncode:
            pytest.skip("a read-only mount cannot be made here")
        yield MOUNTED
    elif way == "rights":
        with read_only(project.top):
            yield WITHOUT_RIGHTS
    else:
        yield WITHOUT_FILES


PROGRAM = """
import contextlib, io, json, shlex, sys
from vmrag_link.cli.main import run
from vmrag_link.index import seal
answers = {}
for line in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(shlex.split(line))
    answers[line] = (code, out.getvalue())
    for folder in list(seal.MEMORY_FOLDERS):
        from vmrag_link.index import storage
        storage.remove_memory_folder(folder)
print(json.dumps(answers))
"""


def run_commands(project: Project, prefix: tuple[str, ...], *lines: str) -> dict[str, tuple[int, str]]:
    """Code and output of each command."""
    result = start(project, *lines, program=(*prefix, sys.executable, "-c", PROGRAM)).done()
    assert result.code == 0, result
    return {line: (code, text) for line, (code, text) in result.json.items()}


@pytest.mark.parametrize("way", ["mount", "rights", "limit"])
def test_commands_answer_equally_in_a_read_only_repository(project, way):
    with unwritable(project, way) as prefix:
        answers = run_commands(project, prefix, *COMMANDS)
        assert not list(project.own.glob("tree/*")), "nothing was remembered"
    expected = run_commands(project, (), *COMMANDS)
    assert {line: answer for line, answer in answers.items() if answer != expected[line]} == {}
    assert "edited text" in answers["query zebra"][1]


@pytest.mark.parametrize("way", ["mount", "rights"])
def test_tools_answer_equally_in_a_read_only_repository(project, way, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pytest.importorskip("tests").__path__[0] + "/.."))
    program = (sys.executable, "-c", TOOLS)
    with unwritable(project, way) as prefix:
        answers = start(project, program=(*prefix, *program)).done().json
    assert answers == start(project, program=program).done().json


@pytest.mark.parametrize("way", ["mount", "rights"])
def test_doctor_reports_only_that_nothing_can_be_written(project, way):
    project.vmrag("install")
    project.vmrag("sync", code=None)
    with unwritable(project, way) as prefix:
        _, output = run_commands(project, prefix, "doctor --json")["doctor --json"]
    findings = [
        finding for topic in json.loads(output)["topics"] for finding in topic["findings"] if finding["level"] != "note"
    ]
    assert {finding["code"] for finding in findings} == {"READ_ONLY"}, findings
    assert way == "rights" or [finding["fix"] for finding in findings] == [
        f"run 'df {project.top}/.git' to see the file system"
    ]


def test_refused_write_names_a_folder_that_exists(project):
    with unwritable(project, "mount") as prefix:
        code, output = run_commands(project, prefix, "commit -m x")["commit -m x"]
    assert code == 3
    assert output.splitlines()[-1] == f"hint: run 'ls -ld {project.shared}' to check who can write there"


@pytest.mark.parametrize("state", ["nothing set up", "no knowledge base here", "no index", "no working copy"])
@pytest.mark.sample(2)
def test_query_answers_in_an_incomplete_read_only_repository(project, state):
    text = "otters"
    if state == "nothing set up":
        commit(project, "forget", **{".vmrag.yaml": None, ".dolt-version": None})
    if state in ("nothing set up", "no knowledge base here"):
        subprocess.run(["rm", "-r", project.shared], check=True)
        text = "zebra"
    if state == "no index":
        project.forget_indexes()
    if state == "no working copy":
        project.put("otter.md", "# Otter\n\nOtters swim.\n", collection="notes")
        subprocess.run(["rm", "-r", project.shared / "uncommitted"], check=True)
    with unwritable(project, "rights") as prefix:
        answers = run_commands(project, prefix, f"query {text} --json", "fingerprint --verify")
    code, answer = answers[f"query {text} --json"]
    assert code == 0, answer
    best = json.loads(answer[answer.index("{") :])["results"][0]["doc_id"]
    assert best == {"no index": "note.md", "no working copy": "otter.md"}.get(state, "docs/zebra.md"), answer
    code, answer = answers["fingerprint --verify"]
    assert (code, "and 0 files" in answer) == (0, False), answer


def test_memory_holds_only_the_latest_index_of_files(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(pytest.importorskip("tests").__path__[0] + "/.."))
    script = """
from pathlib import Path
from tests.support.mcp import Tools
from vmrag_link.index import seal
tools = Tools(Path.cwd())
for number in range(5):
    Path("docs/page.md").write_text(f"# Page\\n\\nNumber {number} is about a walrus.\\n")
    found = tools("search_documents", query="walrus")
    assert f"Number {number}" in found.shown[0].text, found
print(len(seal.MEMORY_FOLDERS))
"""
    with read_only(project.top / ".git"):
        result = start(project, program=(*WITHOUT_RIGHTS, sys.executable, "-c", script)).done()
    assert result.code == 0, result
    assert int(result.out) <= 4, result


# -- paths that SQLite cannot open


def deep_folder(folder, length: int):
    """A path of so many bytes below a folder."""
    while len(str(folder)) + 1 < length:
        folder = folder / ("d" * min(100, length - len(str(folder)) - 1))
    return folder


@pytest.mark.parametrize("length", [450, 470])
def test_query_answers_in_a_repository_with_a_long_path(tmp_path, monkeypatch, length):
    isolate(monkeypatch, tmp_path / "home")
    made = sources.sourced_project(deep_folder(tmp_path / "long", length))
    made.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    made.put("note.md", "# Note\n\nA stored text about otters.\n", collection="notes")
    made.vmrag("commit", "-m", "note")
    results = made.ask("query", "otters", "--mode", "keyword")["results"]
    assert [row["doc_id"] for row in results] == ["note.md"]
    assert made.ask("query", "three four")["results"][0]["doc_id"] == "docs/page.md"
    assert made.vmrag("fingerprint", "--verify").code == 0
    sent = length < 460
    assert ("cannot have a path" in made.vmrag("status", code=None).out) is not sent
    assert ("PATH_TOO_LONG" in made.vmrag("doctor", code=None).out) is not sent
    made.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    made.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    pushed = made.vmrag("push", code=None)
    assert pushed.code == (0 if sent else 3), pushed
    if not sent:
        assert "cannot have a path of more than 511" in pushed.err
        assert f"mv {made.top} ~/" in pushed.err


def test_init_reports_a_path_that_is_too_long(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    made = sources.sourced_project(deep_folder(tmp_path / "long", 520))
    assert (
        "cannot have a path of more than 511"
        in made.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks", code=3).err
    )
    assert made.ask("query", "three four")["results"][0]["doc_id"] == "docs/page.md"
    assert "cannot have a path of more than 511" in made.vmrag("status", code=None).out
