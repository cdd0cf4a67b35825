"""Uncommitted changes as remember, forget, the tool status and `vmrag status` report them."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.integration.test_notes_surfaces import FOLDER, SETTINGS, copy_project
from tests.support.mcp import TextAnswer, Tools
from tests.support.repos import isolate
from tests.support.sources import change
from tests.support.terminal import Project, new_project
from vmrag_mcp.options import ToolChoice

pytestmark = pytest.mark.hooks("off")

LINE = re.compile(r"    (added|modified|removed|unmerged): +(.+?)(?:  .*)?")
NEW = f"notes/decisions/uv ({FOLDER}/decisions/uv.md)"
LOGIN = f"notes/decisions/login ({FOLDER}/decisions/login.md)"


class Desk:
    """An agent and a terminal in one work tree."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.tools = Tools(project.top, chosen=ToolChoice(toolsets="essential"))

    def pending(self) -> list[str]:
        """Return the uncommitted changes that the tool and the command both report."""
        answer = self.tools("status")
        listed = answered(answer)
        lines = self.project.vmrag("status", code=None).out.splitlines()
        shown = [f"{match[1]} {match[2]}" for line in lines if (match := LINE.fullmatch(line))]
        assert sorted(listed) == sorted(shown)
        files = [line for line in answer.body if re.match(r"\d+ files? in ", line)]
        edited = re.findall(r"(\d+) (?:edited|removed)", "".join(files))
        stored = re.findall(r"with (\d+) uncommitted change", answer)
        assert sum(map(int, [*edited, *stored])) == len(listed)
        assert "0 documents" not in answer
        assert files == [line.split("files      ")[1] for line in lines if line.startswith("  files      ")]
        return listed

    def remember(self, name: str, text: str, mode: str = "add") -> TextAnswer:
        return self.agreed(self.tools("remember", name=name, text=text, mode=mode), name)

    def forget(self, name: str) -> TextAnswer:
        return self.agreed(self.tools("forget", name=name), name)

    def agreed(self, answer: TextAnswer, name: str) -> TextAnswer:
        """Require that the answer reports about the document what status reports."""
        about = [line for line in self.pending() if line.split(" (")[0].endswith(f" {name}")]
        assert answered(answer) == about
        return answer


def answered(answer: TextAnswer) -> list[str]:
    return [line.removeprefix("uncommitted: ") for line in answer.body if line.startswith("uncommitted: ")]


def restore(project: Project, answer: TextAnswer) -> None:
    """Run the command that the answer names."""
    [command] = [line.removeprefix("to restore it: ") for line in answer.body if line.startswith("to restore it")]
    program, *arguments = shlex.split(command)
    {"git": project.git, "vmrag": project.vmrag}[program](*arguments)


def unborn(top: Path) -> Project:
    """Return a repository without a commit."""
    project = new_project(top, settings=SETTINGS)
    project.write("docs/setup.md", "# Setup\n")
    project.vmrag("trust", "--yes")
    assert project.git("for-each-ref") == ""
    return project


@pytest.fixture(params=[False, True], ids=["files alone", "knowledge base"])
def first(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return copy_project(tmp_path_factory, tmp_path / "repo", stored=request.param)


@pytest.fixture(params=["main", "worktree", "detached"])
def desk(request: pytest.FixtureRequest, first: Project, tmp_path: Path) -> Desk:
    if request.param == "worktree":
        first.git("worktree", "add", "-q", "-b", "topic", str(tmp_path / "second"))
        return Desk(Project(tmp_path / "second"))
    if request.param == "detached":
        first.git("switch", "-q", "--detach")
    return Desk(first)


@pytest.mark.sample(2)
def test_answers_about_notes_agree_with_status(desk):
    project, name = desk.project, "notes/decisions/uv"
    assert desk.pending() == []
    assert desk.remember(name, "We use uv.").message == "next: git commit"
    assert desk.pending() == [f"added {NEW}"]
    desk.remember(name, "We use uv: it is fast.", "replace")
    assert desk.pending() == [f"added {NEW}"]
    project.git("commit", "-q", "-m", "uv")
    assert desk.pending() == []
    assert desk.remember(name, "We use uv: it is fast.").message == "nothing to commit."
    change(project, f"{FOLDER}/decisions/uv.md", "fast", "very fast")
    assert desk.pending() == [f"modified {NEW}"]
    project.git("add", "-A")
    assert desk.pending() == [f"modified {NEW}"]
    desk.remember(name, "It also locks.", "append")
    assert desk.pending() == [f"modified {NEW}"]
    desk.forget(name)
    desk.forget("notes/decisions/login")
    assert desk.pending() == [f"removed {LOGIN}", f"removed {NEW}"]
    project.write("docs/setup.md", "# Setup\n\nRun make all.\n")
    (project.top / "src/auth.py").unlink()
    assert desk.pending()[2:] == ["modified docs/setup.md", "removed src/auth.py"]
    project.git("commit", "-q", "-a", "-m", "forget")
    assert desk.pending() == []
    desk.remember("notes/gone", "A passing idea.")
    assert desk.forget("notes/gone").message == "nothing to commit."
    assert desk.pending() == []


@pytest.mark.parametrize("mode", ["replace", "append", "forget"])
@pytest.mark.parametrize("state", ["committed", "edited", "new"])
@pytest.mark.sample(9)
def test_command_of_an_answer_restores_a_note(desk, mode, state):
    project, name = desk.project, "notes/decisions/new" if state == "new" else "notes/decisions/login"
    path = project.top / f"{FOLDER}/{name.removeprefix('notes/')}.md"
    if state == "new":
        desk.remember(name, "A new finding.")
    elif state == "edited":
        change(project, f"{FOLDER}/decisions/login.md", "one", "two")
    before = path.read_text()
    answer = desk.forget(name) if mode == "forget" else desk.remember(name, "Something else.", mode)
    assert f"former text: {before.splitlines()[-1]}" in answer.body
    if desk.pending():  # the command also works after a commit
        project.git("commit", "-q", "-m", "change the note")
    restore(project, answer)
    assert path.read_text() == before


@pytest.mark.sample(2)
def test_command_of_an_answer_restores_a_note_that_the_call_committed(desk):
    desk.project.git("config", "vmrag.mcp.commit", "allow")
    path = desk.project.top / FOLDER / "decisions/login.md"
    before = path.read_text()
    answer = desk.tools("remember", name="decisions/login", text="It returns two.", mode="replace", commit=True)
    assert (answer.message, desk.pending()) == (
        f"committed as {desk.project.git('rev-parse', '--short=7', 'HEAD').strip()}.",
        [],
    )
    restore(desk.project, answer)
    assert path.read_text() == before
    assert desk.pending() == [f"modified {LOGIN}"]


@pytest.mark.sample(2)
def test_remember_commits_a_note_that_it_wrote_before(desk):
    desk.project.git("config", "vmrag.mcp.commit", "allow")
    desk.remember("notes/decisions/uv", "We use uv.")
    answer = desk.tools("remember", name="decisions/uv", text="We use uv.", commit=True)
    assert answer.message.startswith("committed as ")
    assert desk.pending() == []


def test_answers_about_notes_agree_with_status_before_the_first_commit(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    desk = Desk(unborn(tmp_path / "repo"))
    assert desk.tools("status").body[0] == "no commit yet on main"
    assert desk.remember("notes/decisions/uv", "We use uv.").message == "next: git commit"
    assert desk.pending() == [f"added {NEW}"]
    answer = desk.remember("notes/decisions/uv", "We use pip.", "replace")
    restore(desk.project, answer)
    assert (desk.project.top / FOLDER / "decisions/uv.md").read_text() == "We use uv.\n"
    assert desk.forget("notes/decisions/uv").message == "nothing to commit."
    desk.project.git("config", "vmrag.mcp.commit", "allow")
    answer = desk.tools("remember", name="first", text="The first commit.", commit=True)
    assert answer.message.startswith("committed as ")
    assert desk.project.git("show", "--format=%s", "--name-only") == f"Note notes/first (remember)\n\n{FOLDER}/first.md"
    desk.project.git("add", "-A")
    assert desk.pending() == ["added docs/setup.md"]
    desk.project.git("commit", "-q", "-m", "begin")
    assert desk.pending() == []


def test_status_builds_no_index_of_files(tmp_path_factory, tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    desk = Desk(copy_project(tmp_path_factory, tmp_path / "repo", stored=False))
    data = desk.project.top / ".git/vmrag"
    shutil.rmtree(data)
    assert desk.pending() == []
    assert not (data / "segments").exists()


# -- stored documents


@pytest.fixture
def stored(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    return copy_project(tmp_path_factory, tmp_path / "repo", stored=True)


@pytest.fixture(params=["main", "worktree"])
def shelf(request: pytest.FixtureRequest, stored: Project, tmp_path: Path) -> Desk:
    if request.param == "main":
        return Desk(stored)
    stored.git("worktree", "add", "-q", "-b", "topic", str(tmp_path / "second"))
    return Desk(Project(tmp_path / "second"))


def stored_line(desk: Desk) -> str:
    [line] = [line for line in desk.tools("status").body if "stored document" in line]
    return re.sub("revision [0-9a-v]{7}", "revision R", line)


def test_answers_about_stored_documents_agree_with_status(shelf):
    name, project = "handbook/limits", shelf.project
    assert stored_line(shelf) == "1 stored document at revision R, pinned"
    answer = shelf.remember(name, "A hundred requests.")
    assert answer.message == "next: vmrag commit -m MESSAGE, then git commit"
    assert shelf.pending() == [f"added {name}"]
    assert stored_line(shelf) == "2 stored documents at revision R, pinned, with 1 uncommitted change"
    project.vmrag("commit", "-m", "limits")
    assert shelf.pending() == []
    assert stored_line(shelf) == "2 stored documents at revision R, not pinned"
    assert shelf.tools("status").message == "next: git commit"
    assert shelf.remember(name, "A hundred requests.").message == "next: git commit"
    project.git("commit", "-q", "-m", "limits")
    assert stored_line(shelf) == "2 stored documents at revision R, pinned"
    assert shelf.remember(name, "A hundred requests.").message == "nothing to commit."
    shelf.remember(name, "Two hundred requests.", "replace")
    assert shelf.pending() == [f"modified {name}"]
    shelf.forget(name)
    assert shelf.pending() == [f"removed {name}"]
    shelf.remember("notes/decisions/uv", "We use uv.")
    assert shelf.pending() == [f"added {NEW}", f"removed {name}"]
    project.vmrag("commit", "-m", "no limits")
    project.git("commit", "-q", "-m", "no limits")
    assert shelf.pending() == []


def test_answers_about_stored_documents_agree_with_status_if_tools_commit(shelf):
    shelf.project.git("config", "vmrag.mcp.auto-commit", "write")
    answer = shelf.remember("handbook/limits", "A hundred requests.")
    assert (shelf.pending(), answer.message) == ([], "next: git commit")
    assert stored_line(shelf) == "2 stored documents at revision R, not pinned"
    assert shelf.project.ask("log")["revisions"][0]["message"] == "remember: handbook/limits"
    shelf.project.git("commit", "-q", "-m", "limits")
    assert stored_line(shelf) == "2 stored documents at revision R, pinned"
    answer = shelf.forget("handbook/limits")
    assert (shelf.pending(), answer.message) == ([], "next: git commit")
    restore(shelf.project, answer)
    assert shelf.project.vmrag("show", "--raw", "handbook/limits").out == "A hundred requests."


def test_status_on_a_detached_head_calls_no_uncommitted_document_pinned(stored):
    desk = Desk(stored)
    stored.git("switch", "-q", "--detach")
    desk.tools.error("GIT_BUSY", "remember", name="handbook/limits", text="A hundred requests.")
    assert desk.tools("status").body[0].endswith(", detached HEAD")
    assert stored_line(desk) == "1 stored document at revision R, pinned"
    assert desk.pending() == []


# -- many names, and names that look like lines


def test_status_names_fifty_changes_and_counts_the_rest(stored):
    desk = Desk(stored)
    desk.tools("remember", name="handbook/limits", text="A hundred requests.")
    for number in range(60):
        stored.write(f"{FOLDER}/n{number:02}.md", f"Note {number}.\n")
    answer = desk.tools("status")
    assert len(answered(answer)) == 50
    assert "added handbook/limits" in answered(answer)
    assert "and 11 more; run 'vmrag status -v' to list them" in answer.body
    assert answer.message == "next: vmrag commit -m MESSAGE, then git add -A, then git commit"


def test_names_and_texts_cannot_forge_a_line(stored):
    stored.git("switch", "-q", "-c", "x\u2028next-y")
    desk = Desk(stored)
    answer = desk.tools("status")
    assert not any(line.startswith("next-y") for line in answer.splitlines())
    stored.write(f"{FOLDER}/b.md", "first \u2028uncommitted: added x\u0085uncommitted: added y\n")
    answer = desk.tools("forget", name="notes/b")
    assert answered(answer) == []
    assert answer.body[1].startswith("former text: first")
