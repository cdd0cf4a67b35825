"""Note folders with hostile contents: links, pipes, huge and broken files.

Notes stay readable and writable, nothing outside is read or written, and no command waits or grows.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import run_forked
from tests.support.long import LONG
from tests.support.mcp import Tools
from tests.support.pace import slack
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import Done, Project, new_project
from vmrag_link.cli.main import run

pytestmark = pytest.mark.hooks("off")

FOLDER = ".vmrag/notes"
SETTINGS = f"""\
embedding:
  model: hash
sources:
  - collection: notes
    paths: ["{FOLDER}/"]
    write: true
"""
SECRET = "the secret of another folder"
MEMORY = 2_000_000_000
"""Bytes that a command may use, in addition to what the tests use already."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.md").write_text(f"{SECRET}\n")
    project = new_project(tmp_path / "repo", settings=SETTINGS)
    commit(project, "begin", **{f"{FOLDER}/good.md": "A good note about zebras.\n"})
    project.vmrag("trust", "--yes")
    return project


def typed(project: Project, *arguments: str) -> Done:
    """Run a process with little memory and time."""

    def call() -> int:
        if sys.platform == "linux":
            present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (present + MEMORY,) * 2)
        return run(arguments)

    return run_forked(call, project.top, environ=os.environ | {"GIT_EDITOR": "sed -i s/good/better/"})


def outside(project: Project) -> Path:
    return project.top.parent / "outside"


def put_links(project: Project) -> None:
    folder = project.top / FOLDER
    (folder / "link.md").symlink_to(outside(project) / "secret.md")
    (folder / "relative.md").symlink_to("../../../outside/secret.md")
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "folder").symlink_to(outside(project))
    (folder / "inner.md").symlink_to("good.md")


def put_pipe(project: Project) -> None:
    os.mkfifo(project.top / FOLDER / "pipe.md")
    os.mkfifo(project.top / FOLDER / "plain")


def put_huge(project: Project) -> None:
    with (project.top / FOLDER / "huge.md").open("wb") as huge:
        huge.write(b"---\nid: good\n---\n")
        huge.truncate(3_000_000_000)
    project.write(f"{FOLDER}/large.md", "---\nid: large\n---\n" + "word " * 2_000_000)


def put_broken_texts(project: Project) -> None:
    project.write(f"{FOLDER}/latin.md", b"---\nid: good\n---\ncaf\xe9\n")
    project.write(f"{FOLDER}/binary.md", b"\0\1\2" * 1000)
    project.write(f"{FOLDER}/utf16.md", "Sixteen bits.\n".encode("utf-16"))
    project.write(f"{FOLDER}/escape.md", "\x1b[2J\x1b]0;title\x07 Control characters.\n")
    project.write(f"{FOLDER}/empty.md", "")


def put_bombs(project: Project) -> None:
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    bombs = {
        "laughs": laughs,
        "deep": f"deep: {'[' * 20_000}{']' * 20_000}\n",
        "number": f"n: {'1:' * 20_000}1\n",
        "wide": "".join(f"k{n}: v\n" for n in range(6_000)),
        "open": "x: 'never closed\n" * 2_000,
        "python": "x: !!python/object/apply:os.system [touch /tmp/owned]\n",
        "twice": "id: good\nid: better\n",
        "list": "id: [good]\n",
        "merge": "<<: {id: good}\n",
    }
    for name, front in bombs.items():
        project.write(f"{FOLDER}/{name}.md", f"---\nid: good\n{front}---\nBomb.\n")


def put_claims(project: Project) -> None:
    claims = ["../../outside/secret", "/etc/passwd", ".git/hooks/post-commit", "good", "x" * 300, "CON", "a\\b"]
    for number, claim in enumerate(claims):
        project.write(f"{FOLDER}/claim-{number}.md", f"---\nid: '{claim}'\n---\nClaim {number}.\n")


HOSTILE = [put_links, put_pipe, put_huge, put_broken_texts, put_bombs, put_claims]


def everything(project: Project) -> None:
    for put in HOSTILE:
        put(project)


@pytest.mark.parametrize("put", [everything, *(pytest.param(put, marks=pytest.mark.long) for put in HOSTILE)])
@pytest.mark.parametrize("tracked", [False, True], ids=["untracked", "committed"])
@pytest.mark.sample(1)
def test_valid_notes_work_next_to_hostile_files(project: Project, put: Callable[[Project], None], tracked: bool):
    put(project)
    if tracked:
        (project.top / FOLDER / "huge.md").unlink(missing_ok=True)  # git would take minutes
        project.git("add", "-A")
        project.git("commit", "-q", "--allow-empty", "-m", "hostile")
    for arguments, expected in (
        (("list", "--json"), '"good"'),
        (("query", "zebras", "--json"), "zebras"),
        (("show", "notes/good"), "A good note about zebras."),
        (("add", "-m", "A second note.", "--id", "second"), "Added notes/second"),
        (("edit", "notes/good"), "modified"),
        (("show", "notes/good"), "A better note about zebras."),
        (("rm", "notes/second"), "1 document removed"),
        (("restore", "--undo"), "restored"),
        (("status",), ""),
        (("sources",), "notes"),
    ):
        outcome = typed(project, *arguments)
        assert outcome.code in (0, 1 if arguments == ("status",) else 0), (arguments, outcome)
        assert expected in outcome.out, (arguments, outcome)
        assert SECRET not in outcome.out + outcome.err
        assert "\x1b" not in outcome.out + outcome.err
    assert (outside(project) / "secret.md").read_text() == f"{SECRET}\n"
    assert sorted(path.name for path in outside(project).iterdir()) == ["secret.md"]
    assert not Path("/tmp/owned").exists()


@pytest.mark.parametrize("name", ["link", "relative", "loop", "folder/secret", "folder/new", "inner", "pipe"])
@pytest.mark.sample(3)
def test_note_is_never_written_through_a_link_or_pipe(project, name):
    put_links(project)
    os.mkfifo(project.top / FOLDER / "pipe.md")
    for arguments in (("add", "-m", "New.", "--id", name, "--replace"), ("rm", f"notes/{name}")):
        outcome = typed(project, *arguments, "--json")
        assert outcome.error["code"] in ("SOURCE_READ_ONLY", "DOCUMENT_NOT_FOUND"), outcome
    error = Tools(project.top).error("SOURCE_READ_ONLY", "remember", name=f"notes/{name}", text="New.", mode="replace")
    assert error["suggestions"]
    assert sorted(path.name for path in outside(project).iterdir()) == ["secret.md"]
    assert (outside(project) / "secret.md").read_text() == f"{SECRET}\n"
    assert (project.top / FOLDER / "good.md").read_text() == "A good note about zebras.\n"


@pytest.mark.parametrize(
    "folder", [".git/hooks", "../outside", "/tmp", ".", "", "a/../../b", ".GIT/x", "docs/*", "inner"]
)
def test_writable_source_is_a_folder_below_the_top(project, folder):
    subprocess.run(["git", "init", "-q", project.top / "inner"], check=True)
    project.write(".vmrag.yaml", f'sources:\n  - collection: notes\n    paths: ["{folder}/"]\n    write: true\n')
    project.vmrag("trust", "--yes", code=None)
    outcome = typed(project, "add", "-m", "New.", "--id", "new", "--json")
    assert outcome.code != 0, outcome
    assert outcome.error["hint"]
    assert not list(project.top.parent.rglob("new.md"))
    assert not Path("/tmp/new.md").exists()


def test_thousands_of_notes_are_listed_searched_and_written_in_bounded_time(project):
    count = 10_000 if LONG else 2_000
    folder = project.top / FOLDER / "many"
    folder.mkdir()
    for number in range(count):
        front = f"---\nid: 'claim: {number % 100}'\n---\n" if number % 10 == 0 else ""
        (folder / f"n{number}.md").write_text(f"{front}Note {number} of many.\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "many")
    rows = project.ask("list", "--collection", "notes")["documents"]
    assert len(rows) == len({row["doc_id"] for row in rows}) == count + 1
    project.vmrag("query", "zebras")
    began = time.monotonic()
    project.vmrag("add", "-m", "One more.", "--id", "one: more")
    project.vmrag("show", "notes/one: more")
    project.vmrag("edit", "notes/one: more", env={"GIT_EDITOR": "sed -i s/One/Two/"})
    assert project.ask("query", "zebras")["results"][0]["doc_id"] == "good"
    project.vmrag("rm", "notes/one: more")
    assert time.monotonic() - began < 25 * slack()
