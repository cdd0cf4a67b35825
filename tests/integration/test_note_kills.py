"""Commands that change notes, killed before each of their system calls: a note is the old one or
the new one, and no text is lost.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import mounted, run_patched
from tests.support.long import LONG
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Done, Project, new_project, opened
from vmrag_link.workspace.documents import undo

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

COMMITTED, STAGED, NEW = "The committed text.\n", "A text that git never had.\n", "The new text.\n"
"""`decisions/old` is committed, `decisions/staged` is changed since."""

COMMANDS = {
    "add": ("add", "-m", NEW, "--id", "decisions/new"),
    "replace": ("add", "-m", NEW, "--id", "decisions/staged", "--replace"),
    "append": ("add", "-m", NEW, "--id", "decisions/staged", "--append"),
    "edit": ("edit", "notes/decisions/staged"),
    "rm": ("rm", "notes/decisions/old", "notes/decisions/staged"),
    "restore": ("restore", "notes/decisions/staged"),
    "restore --undo": ("restore", "--undo", "notes/decisions/gone"),
}

COUNTING = """
def tick():
    global number
    number += 1
    if number == {at}:
        os.write(2, b"died")
        die()

number = 0
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "fcntl.flock", "subprocess.Popen")
def audited(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if event in CHANGES or writes:
        tick()

def before(call):
    def called(*arguments, **options):
        tick()
        return call(*arguments, **options)
    return called

os.fsync, os.close = before(os.fsync), before(os.close)
sys.addaudithook(audited)
import atexit
exits = os._exit
def leave(code):
    os.write(2, b"steps: %d" % number)
    exits(code)
os._exit = leave
"""
"""Die before a step that changes a file, waits for the disk, or ends a use of a file."""


def killed(project: Project, at: int, arguments: tuple[str, ...]) -> Done:
    return run_patched(project, COUNTING.format(at=at), *arguments)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        project = new_project(folder / "project", settings=SETTINGS)
        commit(project, "begin", **{f"{FOLDER}/decisions/{name}.md": COMMITTED for name in ("old", "staged", "gone")})

    return build_once(tmp_path_factory, "killed-notes", build) / "project"


@pytest.fixture
def make(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Project]:
    """Return the same repository each time, with two notes that git never had."""
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("GIT_EDITOR", f"printf '{NEW}' >")
    project = Project(copy_tree(template, tmp_path / "project"))
    project.vmrag("trust", "--yes")
    project.vmrag("add", "-m", STAGED, "--id", "decisions/staged", "--replace")
    project.vmrag("add", "-m", STAGED, "--id", "decisions/gone", "--replace")
    project.vmrag("rm", "notes/decisions/gone")
    prepared = copy_tree(project.top, tmp_path / "prepared")

    def restore() -> Project:
        shutil.rmtree(project.top)
        copy_tree(prepared, project.top)
        return project

    return restore


def files(project: Project) -> dict[str, str]:
    folder = project.top / FOLDER
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def kept(project: Project) -> list[str]:
    with opened(project) as ws:
        return [note.data.decode() for _, note in undo.list_kept_notes(ws.places)]


def require_whole(project: Project, before: dict[str, str], after: dict[str, str]) -> None:
    """Each file is as before or as after the command, and what git does not have is not lost."""
    present = files(project)
    for name in before.keys() | after.keys() | present.keys():
        assert present.get(name) in (before.get(name), after.get(name)), name
    texts = [*present.values(), *kept(project)]
    assert texts.count(STAGED) >= 2  # of `staged` and of `gone`
    assert project.git("ls-files", "--others", "*.tmp") == ""


def require_usable(project: Project) -> None:
    """The next commands work, and see what the files are."""
    names = {path.removesuffix(".md") for path in files(project)}
    assert {row["doc_id"] for row in project.ask("list")["documents"]} == names
    project.vmrag("add", "-m", "The next note.", "--id", "next")
    assert not (project.top / ".git/index.lock").exists()
    project.git("add", "-A")
    assert {*project.git("ls-files", FOLDER).split("\n")} == {f"{FOLDER}/{path}" for path in files(project)}
    assert project.ask("query", "next note")["results"][0]["doc_id"] == "next"


@pytest.mark.parametrize("name", COMMANDS)
def test_note_is_whole_after_a_kill_before_any_system_call(make, name):
    project = make()
    before = files(project)
    outcome = killed(project, 0, COMMANDS[name])
    assert outcome.code == 0, outcome
    after, steps = files(project), int(outcome.err.rpartition("steps: ")[2])
    assert before != after
    chosen = range(1, steps + 1) if LONG else sorted({1, *range(1 + steps % 60, steps, 60), steps})
    for step in chosen:
        project = make()
        outcome = killed(project, step, COMMANDS[name])
        if outcome.code == 0:  # a run can have a few steps less than the first one
            assert int(outcome.err.rpartition("steps: ")[2]) < step, outcome
        else:
            assert outcome.code == -signal.SIGKILL, (step, outcome)
        require_whole(project, before, after)
        require_usable(project)


def test_temporary_file_of_a_killed_command_is_used_again(make):
    project = make()
    outcome = run_patched(project, "os.rename = die", *COMMANDS["replace"])
    assert outcome.code == -signal.SIGKILL
    assert (project.own / "note.tmp").read_text() == NEW
    assert "?" not in project.git("status", "--porcelain", "--untracked-files=all")
    project.vmrag(*COMMANDS["add"])
    assert not (project.own / "note.tmp").exists()


def test_note_is_written_if_git_keeps_its_data_on_another_disk(make, tmp_path):
    project, place = make(), tmp_path / "git"
    place.mkdir()
    with mounted(place, 8_000):
        shutil.move(project.top / ".git", place / "data")
        project.write(".git", f"gitdir: {place}/data\n")
        assert place.stat().st_dev != project.top.stat().st_dev
        project.vmrag("trust", "--yes")
        project.vmrag(*COMMANDS["add"])
        assert files(project)["decisions/new.md"] == NEW
        assert not list(project.top.rglob("*.tmp"))
