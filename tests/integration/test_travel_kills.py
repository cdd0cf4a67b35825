"""SIGKILL at random moments while knowledge travels: what a finished command reported is on both
sides, and the next command goes on.

Eight kills; `VMRAG_TRAVEL_KILLS=200` makes it 200, and `tests/check.py --long` thirty.
VMRAG_TEST_SEED repeats a run whose seed was printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.integration.test_kills import KILLED, Dice, documents
from tests.support import people
from tests.support.cli import VMRAG, measure_duration, run_killed, run_patched
from tests.support.people import User, World
from tests.support.terminal import Done
from vmrag_link.engines.own_branches import RESERVED_PREFIX
from vmrag_link.git import plumbing, sidecar_repo, transfer
from vmrag_link.progress import QUIET
from vmrag_link.transport import address, copies, direct_transport, publish, segments
from vmrag_link.workspace import Workspace

shared, world = people.shared, people.world

KILLS = int(os.environ.get("VMRAG_TRAVEL_KILLS") or 8)
PARTS = max(1, KILLS // 30)
"""Each in a repository of its own, so that none grows without bounds."""
GIT = ("git",)
OWN_BRANCHES = {"vmrag_root", "vmrag_keep", "vmrag_links"}


class Moments(Dice):
    """The first third of what a command takes, Python spends on starting."""

    def moment(self, duration: float) -> float:
        return self.random.uniform(0.3 * duration, 1.1 * duration)


def share(command: int, part: int) -> int:
    """How many of the kills one part of the tests of one command gets."""
    return KILLS // (4 * PARTS) + (command * PARTS + part < KILLS % (4 * PARTS))


Durations = dict[tuple[str, ...], float]
"""Seconds that an unharmed run of a command takes."""


def hit(dice: Dice, user: User, durations: Durations, program: tuple[str, ...], *arguments: str) -> Done:
    """The command, killed on its way; the first one of its kind is measured and left alone."""
    command = (*program, *arguments)
    if command not in durations:
        durations[command] = measure_duration(user, *arguments, program=program)
        return Done(0, "", "")
    result = run_killed(user, dice.moment(durations[command]), *arguments, program=program)
    dice.count(result)
    return result


def put_right(world: World, user: User) -> None:
    """Remove files that a killed git leaves; git names them, and its user or the operator of the
    server must remove them.
    """
    for lock in (*world.hub.top.rglob("*.lock"), *(user.top / ".git").rglob("*.lock")):
        if "vmrag" not in lock.parts or world.hub.top in lock.parents:
            lock.unlink()
    if (user.top / ".git" / "MERGE_HEAD").exists() or user.run("diff", "--quiet", "HEAD").returncode:
        user.git("reset", "-q", "--hard")


def missing(user: User, revisions: set[str]) -> set[str]:
    workspace = Workspace.open(user.top, QUIET)
    try:
        return {revision for revision in revisions if not workspace.engine.has_revision(revision)}
    finally:
        workspace.close()


def assert_tidy(world: World, *users: User) -> None:
    """The remote is sound, and nothing has piled up that only an unfinished command needs."""
    result = world.hub.run("fsck", "--full", "--no-dangling")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    for user in users:
        remotes = {path.name for path in (user.shared / "remotes").glob("*/*")}
        assert remotes <= {"remote.doltlite", ".remote.doltlite-lock", "stands-at"}
        assert not [path for path in (user.shared / "kb").iterdir() if path.is_dir()]
        assert not list((user.shared / "journal").glob("*.json"))
        workspace = Workspace.open(user.top, QUIET)
        try:
            reserved = {
                branch.name for branch in workspace.engine.list_branches() if branch.name.startswith(RESERVED_PREFIX)
            }
        finally:
            workspace.close()
        assert reserved <= OWN_BRANCHES
        assert user.git("for-each-ref", "refs/vmrag") == "", "the code's repository has nothing of it"
        assert not list(user.shared.glob("remotes.git.*"))


def noted(user: User, number: int) -> str:
    return user.write_document("note.md", f"Note {number} of {user.home.name}.")


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_push_has_pushed_or_the_next_one_does(world, part):
    dice, durations = Moments(f"push {part}", share(0, part)), Durations()
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    acknowledged: set[str] = {ada.pinned}
    for number in dice.rounds():
        revision = noted(ada, number)
        result = hit(dice, ada, durations, *((VMRAG, "push") if number % 2 else (GIT, "push", "-q")))
        put_right(world, ada)
        if result.code == 0:
            acknowledged.add(revision)
        bob.vmrag("fetch", code=None)
        assert not missing(bob, acknowledged)
        assert ada.status()["state"] == "in_sync"
        if dice.random.random() < 0.7:  # else the next kill comes on top of it
            ada.vmrag("push")
            ada.git("push", "-q")
            bob.vmrag("fetch")
            acknowledged.add(revision)
            assert not missing(bob, acknowledged)
            assert_tidy(world, ada)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_fetch_is_made_good_by_the_next_command(world, part):
    dice, durations = Moments(f"fetch {part}", share(1, part)), Durations()
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    revision = noted(bob, 0)
    bob.put("draft.md", "Not committed.")
    acknowledged = {revision}
    for number in dice.rounds():
        acknowledged.add(noted(ada, number))
        ada.git("push", "-q")
        hit(dice, bob, durations, VMRAG, "fetch")
        bob.vmrag(*dice.random.choice([("fetch",), ("sync",), ("query", "note")]), code=None)
        bob.vmrag("fetch", code=None)
        assert not missing(bob, acknowledged)
        assert bob.pinned == revision
        assert bob.marks()["draft.md"] == "added"
        assert_tidy(world, bob)


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_clone_is_made_good_by_the_next_command(world, part):
    dice, durations = Moments(f"clone {part}", share(2, part)), Durations()
    noted(world.ada, 0)
    world.ada.git("push", "-q")
    for number in dice.rounds():
        bob = world.join(f"bob-{number}")
        hit(dice, bob, durations, VMRAG, "clone")
        bob.vmrag(
            *dice.random.choice(
                [
                    ("clone",),
                    ("install",),
                    ("query", "note"),
                    (
                        "init",
                        "--knowledge-base",
                        "--no-sources",
                    ),
                ]
            ),
            code=None,
        )
        assert bob.ask("query", "note")["kb"]["commit"] == world.ada.pinned
        assert bob.fingerprint() == world.ada.fingerprint()
        bob.vmrag("fetch")
        bob.vmrag("gc", "--apply")
        assert_tidy(world, bob)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_pull_is_whole_after_the_next_one(world, part):
    dice, durations = Moments(f"pull {part}", share(3, part)), Durations()
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    texts = {}
    for number in dice.rounds():
        for user in (ada, bob):
            name = f"{user.top.name}-{number}.md"
            texts[name] = f"{user.top.name} {number}"
            user.put(name, texts[name])
            user.vmrag("commit", "-m", name)
        ada.vmrag("push")
        by_git = not number % 2
        if by_git:
            bob.git("commit", "-q", "-m", "bob")
            ada.git("commit", "-q", "-m", "ada")
            ada.git("push", "-q")
            hit(dice, bob, durations, GIT, "pull", "-q", "--no-rebase", "--no-edit")
            put_right(world, bob)
            bob.git("pull", "-q", "--no-rebase", "--no-edit")
        else:
            hit(dice, bob, durations, VMRAG, "pull", "--branch", "main")
            (bob.top / ".git" / "index.lock").unlink(missing_ok=True)
            bob.vmrag("pull", "--branch", "main")
            bob.git("commit", "-q", "-a", "-m", "bob")
            ada.git("commit", "-q", "-m", "ada")
            ada.git("push", "-q")
            bob.git("pull", "-q", "--no-rebase", "--no-edit")
        assert bob.ask("query", "bob")["kb"]["in_sync"]
        result = documents(bob)
        assert result == result | texts
        bob.git("push", "-q")
        ada.git("pull", "-q")
        assert ada.fingerprint() == bob.fingerprint()
        assert_tidy(world, ada, bob)


def test_locks_left_by_a_killed_git_do_not_block_a_push(world):
    ada = world.ada
    revision = noted(ada, 1)
    ada.vmrag("fetch")
    key = address.parse_remote(plumbing.locate_work_tree(ada.top), "origin", branch="main")[0].key
    folder = ada.shared / "remotes.git" / "refs" / "remotes" / key
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("data.lock", "data-fetched.lock"):
        (folder / name).touch()
    ada.vmrag("push")
    ada.vmrag("fetch")
    assert not list(folder.glob("*.lock"))
    assert world.holds(revision)


Step = Callable[..., object]

PUSHING: tuple[Step, ...] = (
    publish._push_plan,
    segments.store_file,
    transfer.push,
    transfer.set_ref,
    copies.record_file,
    sidecar_repo.pack_objects,
)
FETCHING: tuple[Step, ...] = (
    segments.restore_file,
    direct_transport.fetch_related,
    copies.record_file,
    transfer.set_ref,
    sidecar_repo.pack_objects,
)


def died(user: User, step: Step, *arguments: str) -> None:
    """The command, killed when it comes to that step of it."""
    body = f"import {step.__module__} as module\nmodule.{step.__name__} = die"
    assert run_patched(user, body, *arguments).code == KILLED, step


def test_push_that_dies_before_any_of_its_steps_is_made_good(world):
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    for number, step in enumerate(PUSHING):
        revision = noted(ada, number)
        died(ada, step, "push")
        bob.vmrag("fetch")
        ada.vmrag("push")
        bob.vmrag("fetch")
        assert not missing(bob, {revision})
        assert_tidy(world, ada, bob)


def test_fetch_that_dies_before_any_of_its_steps_is_made_good(world):
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("install")
    bob.git("switch", "-q", "-c", "own")
    for number, step in enumerate(FETCHING):
        revision = noted(ada, number)
        ada.vmrag("push")
        died(bob, step, "fetch")
        if number % 2:
            noted(bob, number)
            bob.vmrag("push")
        bob.vmrag("fetch")
        assert not missing(bob, {revision})
        assert_tidy(world, ada, bob)
    ada.vmrag("fetch")
    assert not missing(ada, {bob.pinned})
