"""SIGKILL at random moments in the merge driver, in `vmrag resolve`, `vmrag pull` and `vmrag gc`:
nothing that was acknowledged is
lost, git's own state can be continued or given up, and the same command made once more ends where
an unharmed one does.

Five kills, one each; `VMRAG_MERGE_KILLS=500` makes it a hundred each, and `tests/check.py --long`
ten. VMRAG_TEST_SEED repeats a run whose seed was printed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.test_kills import Dice, is_below, said
from tests.support import people, terminal
from tests.support.cli import measure_duration, run_killed, start
from tests.support.people import User, World
from tests.support.repos import isolate
from tests.support.terminal import Project, opened
from vmrag_link.engines.own_branches import ASIDE_PREFIX
from vmrag_link.models import WorkingSet

template, shared, world = terminal.template, people.shared, people.world

KILLS = int(os.environ.get("VMRAG_MERGE_KILLS") or 5)
EACH = KILLS // 5
pytestmark = pytest.mark.timeout(300 + 30 * EACH)
DRIVER = b"vmrag_hooks.merge_driver"
DRAFT = ("draft.md", "A draft about zebras.")
MERGED = {"setup.md", "rest.md", "faq.md", "uv.md"}
"""Documents of `main` and `feature` of the template together."""

Revisions = dict[str, dict[str, str]]


class Moments(Dice):
    """The first third of what a command takes, Python spends on starting."""

    def moment(self, duration: float) -> float:
        return self.random.uniform(0.3 * duration, 1.1 * duration)


def killed_copies(dice: Moments, copies: Callable[..., Project], source: Path, *command: str) -> Iterator[Project]:
    """A copy a round. In the first one the command comes to its end, in the others it is killed."""
    duration = 0.0
    for number in dice.rounds():
        project = copies(number, source)
        if duration:
            dice.count(run_killed(project, dice.moment(duration), *command))
        else:
            duration = measure_duration(project, *command)
        yield project


# -- what must hold --------------------------------------------------------------------------------


def held(project: Project) -> Revisions:
    """Return each revision that a commit of a git ref pins, with the texts of its documents."""
    pins = {project.git("show", f"{ref}:.dolt-version") for ref in project.git("rev-list", "--all").split()}
    with opened(project) as ws:
        revisions = {terminal.json.loads(pin)["dolt_commit"] for pin in pins}
        return {
            revision: {one.doc_id: one.content for one in ws.engine.read_documents(revision)} for revision in revisions
        }


def assert_kept(project: Project, before: Revisions, *, draft: bool = True) -> None:
    """All that was committed is whole, and the uncommitted document is on its branch or set
    aside.
    """
    with opened(project) as ws:
        branches = ws.engine.list_branches()
        reached = ws.engine.find_unreachable(list(before))
        assert reached == [], "every revision is reachable"
        for revision, texts in before.items():
            assert {one.doc_id: one.content for one in ws.engine.read_documents(revision)} == texts
        places = [ws.engine.read_documents(WorkingSet(branch.name)) for branch in branches if branch.dirty]
        places += [ws.engine.read_documents(branch.head) for branch in branches if branch.name.startswith(ASIDE_PREFIX)]
        assert not draft or DRAFT in {(one.doc_id, one.content) for place in places for one in place}
    assert not list((project.shared / "journal").glob("*.damaged"))


def given_up(project: Project, operation: str) -> None:
    """Do what git proposes after it died itself, or was stopped; the work tree is clean then, and
    on its branch.
    """
    for lock in (project.top / ".git").rglob("*.lock"):
        if "vmrag" not in lock.parts:
            lock.unlink()
    project.vmrag("list")
    aborted = project.run(operation, "--abort")
    rebasing = project.top / ".git" / "rebase-merge"
    if aborted.returncode and rebasing.exists():  # git died before it wrote the way back; its hint is: rm -fr
        shutil.rmtree(rebasing)
    project.git("checkout", "-q", "-f", "feature" if operation == "rebase" else "main")
    project.git("reset", "-q", "--hard", "ORIG" if operation == "rebase" else "TIP")


def died_in_driver(project: Project, dice: Dice, duration: float, *git: str) -> bool:
    """git, whose merge driver gets SIGKILL after a part of the seconds that it takes; whether it
    was alive then.
    """
    running = start(project, *git, program=("git",))
    deadline = time.monotonic() + 20
    try:
        while running.process.poll() is None and time.monotonic() < deadline:
            if driver := next(_drivers(running.process.pid), None):
                time.sleep(dice.random.uniform(0, duration))
                try:
                    os.kill(driver, signal.SIGKILL)
                except ProcessLookupError:
                    return False
                return True
            time.sleep(0.005)
        return False
    finally:
        running.done()


def _drivers(git: int) -> Iterator[int]:
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and DRIVER in said(process) and said(process).startswith(b"/"):
            number = int(process.name)
            if b"python" in said(process).split(b"\0")[0] and is_below(number, git):
                yield number


# -- merge and rebase ------------------------------------------------------------------------------


@pytest.fixture
def copies(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Project]:
    """Fresh copies of the template with an uncommitted document: a merge that was made once is
    found the next time.
    """
    isolate(monkeypatch, tmp_path / "home")

    def copy(number: int, source: Path = template) -> Project:
        top = tmp_path / f"project-{number}"
        if number:
            shutil.rmtree(tmp_path / f"project-{number - 1}", ignore_errors=True)
        subprocess.run(["cp", "-a", source, top], check=True)
        return Project(top)

    return copy


@pytest.mark.parametrize("operation", ["merge", "rebase"])
@pytest.mark.sample(1)
def test_merge_or_rebase_with_a_killed_driver_can_be_repeated(copies, tmp_path, operation):
    dice, duration = Moments(operation, EACH), 0.0
    git = ("merge", "-q", "--no-edit", "feature") if operation == "merge" else ("rebase", "-q", "main")
    prepared = copies(0)
    prepared.git("update-ref", "refs/tags/TIP", "main")
    prepared.git("update-ref", "refs/tags/ORIG", "feature")
    prepared.git("switch", "-q", "feature" if operation == "rebase" else "main")
    prepared.put(*DRAFT)
    before = held(prepared)
    source = tmp_path / "prepared"
    prepared.top.rename(source)
    for number in dice.rounds():
        project = copies(number, source)
        if not duration:
            duration = measure_duration(project, *git, program=("git",))
        elif number % 2:
            dice.left -= died_in_driver(project, dice, duration / 2, *git)
        else:
            dice.count(run_killed(project, dice.moment(duration), *git, program=("git",)))
        assert_kept(project, before)
        stopped = (project.top / ".git" / "MERGE_HEAD").exists() or (project.top / ".git" / "rebase-merge").exists()
        result = project.run("merge-base", "--is-ancestor", "TIP", "HEAD").returncode == 0 and not stopped
        if operation == "merge":
            result = project.run("merge-base", "--is-ancestor", "ORIG", "HEAD").returncode == 0 and not stopped
        if not result or project.run("diff", "--quiet", "HEAD").returncode:
            given_up(project, operation)
            project.git(*git)
        project.vmrag("sync")
        assert set(project.texts()) == MERGED | {DRAFT[0]}
        assert_kept(project, before)
        report = project.status()
        assert (report["state"], report["kb"]["revision"]) == ("in_sync", project.pinned)


def test_killed_resolve_has_decided_or_can_be_made_again(copies, tmp_path):
    dice = Moments("resolve", EACH)
    prepared = copies(0)
    prepared.record("another rest", rest="# Rest\n\nRest twice.\n")
    prepared.put(*DRAFT)
    assert prepared.run("merge", "-q", "feature").returncode == 1
    before = held(prepared)
    source = tmp_path / "prepared"
    prepared.top.rename(source)
    for project in killed_copies(dice, copies, source, "resolve", "--theirs"):
        for lock in (project.top / ".git").glob("index.lock"):  # of our `git add`
            lock.unlink()
        assert_kept(project, before)
        if project.git("ls-files", "-u"):
            project.vmrag("resolve", "--theirs")
        project.git("commit", "-q", "--no-edit")
        project.vmrag("sync")
        assert project.texts()["rest.md"] == "# Rest\n\nNever rest.\n"
        assert set(project.texts()) == MERGED | {DRAFT[0]}
        assert_kept(project, before)


# -- gc and pull -----------------------------------------------------------------------------------


def test_killed_gc_loses_nothing_and_the_next_one_continues(copies, tmp_path):
    dice = Moments("gc", EACH)
    prepared = copies(0)
    prepared.put(*DRAFT)
    prepared.git("switch", "-q", "-c", "doomed", env={"VMRAG": "0"})
    prepared.record("doomed", doomed="To be deleted.")
    prepared.git("tag", "kept")
    prepared.git("switch", "-q", "main")
    prepared.git("branch", "-q", "-D", "doomed")
    before = held(prepared)
    source = tmp_path / "prepared"
    prepared.top.rename(source)
    for project in killed_copies(dice, copies, source, "gc", "--apply"):
        assert_kept(project, before)
        assert project.ask("gc", "--apply")["undone"] == []
        assert_kept(project, before)
        assert project.marks()[DRAFT[0]] == "added"
        project.git("switch", "-q", "--detach", "kept", env={"VMRAG": "0"})
        assert "doomed.md" in project.texts()


@pytest.mark.long  # tests/integration/test_travel_kills.py has its steps
def test_killed_pull_loses_nothing_and_the_next_one_brings_both_sides(world: World):
    dice, duration = Moments("pull", EACH), 0.0
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    for number in dice.rounds():
        ada.put(f"ada-{number}.md", f"Number {number}.")
        ada.vmrag("commit", "-m", f"ada {number}")
        ada.git("commit", "-q", "-m", f"ada {number}")
        ada.vmrag("push")
        ada.git("push", "-q", "-f")
        bob.put(f"bob-{number}.md", f"Number {number}.")
        bob.vmrag("commit", "-m", f"bob {number}")
        bob.git("commit", "-q", "-a", "-m", f"bob {number}")
        before = held(bob)
        bob.git("fetch", "-q")
        if not duration:
            duration = measure_duration(bob, "pull")
        else:
            dice.count(run_killed(bob, dice.moment(duration), "pull"))
        settle(bob)
        assert_kept(bob, before, draft=False)
        bob.vmrag("pull", code=None)  # nothing is left to do where the killed one was done
        written = {f"{name}-{index}.md" for name in ("ada", "bob") for index in range(1, number + 1)}
        assert written <= set(bob.texts())
        bob.git("commit", "-q", "-a", "-m", f"pulled {number}")


def settle(user: User) -> None:
    """Clean up the remains of a killed git."""
    for lock in (user.top / ".git").rglob("*.lock"):
        if "vmrag" not in lock.parts:
            lock.unlink()
