"""Notes that several processes write at once, in one work tree and in linked ones, while a person
uses git: nothing is lost, and nothing waits forever.
"""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.support.long import examples
from tests.support.mcp import Tools
from tests.support.repos import isolate
from tests.support.sources import commit
from tests.support.terminal import SCRIPT, Project, new_project, opened
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
PATIENCE = 240


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "repo", settings=SETTINGS)
    commit(project, "begin", **{f"{FOLDER}/log.md": "Begun.\n", "code.py": "x = 0\n"})
    project.vmrag("trust", "--yes")
    return project


def start(project: Project, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [SCRIPT, *arguments], cwd=project.top, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(*processes: subprocess.Popen[str]) -> list[str]:
    """Wait for commands that succeed; return what they printed."""
    printed = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert {process.returncode for process in processes} == {0}, printed
    return printed


def note(project: Project, doc_id: str) -> str:
    return (project.top / FOLDER / f"{doc_id}.md").read_text()


class User(threading.Thread):
    """Stages and commits in a work tree until it is stopped, and tries again if the index is
    locked.
    """

    def __init__(self, project: Project) -> None:
        super().__init__()
        self.project, self.stopped, self.commits, self.strange = project, threading.Event(), 0, list[str]()

    def run(self) -> None:
        while not self.stopped.is_set():
            self.commits += 1
            self.project.write("code.py", f"x = {self.commits}\n")
            for arguments in (("add", "-A"), ("commit", "-q", "-m", f"Work {self.commits}")):
                outcome = self.project.run(*arguments)
                expected = ("index.lock", "nothing to commit", "nothing added", "unable to create")
                if outcome.returncode and not any(part in outcome.stdout + outcome.stderr for part in expected):
                    self.strange.append(outcome.stdout + outcome.stderr)
            time.sleep(0.05)


def test_writers_and_a_user_of_git_lose_no_note(project):
    user = User(project)
    user.start()
    try:
        number = examples(18)
        appending = [start(project, "add", "-m", f"Line {at}.", "--id", "log", "--append") for at in range(number)]
        adding = [start(project, "add", "-m", f"Text {at}.", "--id", f"new/{at}") for at in range(number)]
        finish(*appending, *adding)
    finally:
        user.stopped.set()
        user.join()
    assert user.strange == []
    assert sorted(note(project, "log").splitlines()) == sorted(["Begun.", *(f"Line {at}." for at in range(number))])
    assert [note(project, f"new/{at}") for at in range(number)] == [f"Text {at}.\n" for at in range(number)]
    project.git("add", "-A")
    project.git("commit", "-q", "--allow-empty", "-m", "All")
    tracked = project.git("ls-files", FOLDER).split("\n")
    assert len(tracked) == number + 1
    assert {project.git("show", f"HEAD:{path}") for path in tracked if "/new/" in path} == {
        f"Text {at}." for at in range(number)
    }


def test_writers_in_linked_worktrees_write_notes_of_their_own(project, tmp_path):
    trees = [project]
    for at in range(3):
        project.git("worktree", "add", "-q", "-b", f"topic-{at}", str(tmp_path / f"tree-{at}"))
        trees.append(Project(tmp_path / f"tree-{at}"))
    users = [User(tree) for tree in trees[:2]]
    for user in users:
        user.start()
    try:
        running = [
            start(tree, "add", "-m", f"Tree {number}, line {at}.", "--id", "log", "--append")
            for number, tree in enumerate(trees)
            for at in range(examples(9))
        ]
        running += [start(tree, "add", "-m", f"Of {number}.", "--id", "same") for number, tree in enumerate(trees)]
        finish(*running)
    finally:
        for user in users:
            user.stopped.set()
            user.join()
    assert [user.strange for user in users] == [[], []]
    for number, tree in enumerate(trees):
        lines = [f"Tree {number}, line {at}." for at in range(examples(9))]
        assert sorted(note(tree, "log").splitlines()) == sorted(["Begun.", *lines])
        assert note(tree, "same") == f"Of {number}.\n"
        tree.git("add", "-A")
        tree.git("commit", "-q", "--allow-empty", "-m", "All")
        assert len(tree.ask("list", "--collection", "notes")["documents"]) == 2


def test_every_text_that_writers_replace_is_kept(project):
    number = examples(15)
    finish(*(start(project, "add", "-m", f"Edition {at}.", "--id", "a", "--replace") for at in range(number)))
    with opened(project) as ws:
        kept = [entry.data.decode() for _, entry in undo.list_kept_notes(ws.places)]
    assert sorted([note(project, "a"), *kept]) == sorted(f"Edition {at}.\n" for at in range(number))


def test_undo_restores_the_texts_of_its_own_worktree(project, tmp_path):
    project.git("worktree", "add", "-q", "-b", "topic", str(tmp_path / "tree"))
    tree = Project(tmp_path / "tree")
    for place, text in ((project, "Main."), (tree, "Topic.")):
        place.vmrag("add", "-m", text, "--id", "a")
        place.vmrag("rm", "a")
    project.vmrag("restore", "--undo")
    assert (note(project, "a"), (tree.top / FOLDER / "a.md").exists()) == ("Main.\n", False)
    project.vmrag("rm", "a")
    project.git("worktree", "remove", "--force", str(tree.top))
    project.vmrag("restore", "--undo")
    project.vmrag("restore", "--undo")
    assert note(project, "a") == "Topic.\n"


def test_second_writer_of_a_new_id_is_rejected(project):
    running = [start(project, "add", "-m", f"Writer {at}.", "--id", "same") for at in range(4)]
    printed = [process.communicate(timeout=PATIENCE)[0] for process in running]
    assert sorted(process.returncode for process in running) == [0, 3, 3, 3], printed
    winner = next(at for at, process in enumerate(running) if process.returncode == 0)
    assert note(project, "same") == f"Writer {winner}.\n"


def test_tools_and_commands_write_one_note_in_turn(project):
    servers = [Tools(project.top) for _ in range(3)]
    failed: list[dict[str, object]] = []

    def remember(number: int) -> None:
        for at in range(3):
            arguments = {"name": "notes/log", "text": f"Tool {number}, {at}.", "mode": "append"}
            result, refused = servers[number].run("remember", arguments)
            failed.extend([result] if refused else [])

    threads = [threading.Thread(target=remember, args=(number,)) for number in range(3)]
    commands = [start(project, "add", "-m", f"Command {at}.", "--id", "log", "--append") for at in range(3)]
    for thread in threads:
        thread.start()
    finish(*commands)
    for thread in threads:
        thread.join(PATIENCE)
    assert failed == []
    assert len(note(project, "log").splitlines()) == 1 + 9 + 3


def test_add_waits_for_a_short_index_lock_and_stages_note(project):
    lock = project.top / ".git/index.lock"
    lock.touch()
    running = start(project, "add", "-m", "First.", "--id", "a")
    time.sleep(1.5)
    lock.unlink()
    (printed,) = finish(running)
    staged = project.git("status", "--porcelain") == f"A  {FOLDER}/a.md"
    assert staged == ("git add" not in printed)
    assert note(project, "a") == "First.\n"


def test_note_commit_during_work_of_a_user_holds_the_note_alone(project):
    project.write("code.py", "x = 1\n")
    project.git("add", "code.py")
    running = [start(project, "add", "-m", f"Text {at}.", "--id", f"n{at}", "--commit") for at in range(4)]
    printed = [process.communicate(timeout=PATIENCE)[0] for process in running]
    for at, process in enumerate(running):
        assert note(project, f"n{at}") == f"Text {at}.\n"
        if process.returncode:  # git's index or HEAD was locked; the hint names the command
            assert "git commit" in printed[at]
    assert project.git("diff", "--cached", "--name-only", "--diff-filter=M") == "code.py"
    for name in project.git("log", "--format=", "--name-only", "HEAD").split():
        assert name in ("code.py", ".vmrag.yaml") or name.startswith(FOLDER)
