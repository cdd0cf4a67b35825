"""`vmrag migrate` as people use it: alone, as a team, stopped, undone, and back again."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.support import dolt, people
from tests.support import dolt_server as servers
from tests.support.cli import start
from tests.support.dolt import await_next_second
from tests.support.dolt_server import DoltServer, database_for
from tests.support.long import LONG
from tests.support.people import User, World
from tests.support.repos import ON
from vmrag_link.engines import contents
from vmrag_link.errors import AlreadyInitialized
from vmrag_link.ops.migrate import exchange, migrate, references
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.remotes import revision_map

pytestmark = [pytest.mark.hooks("off"), dolt.embedded]

shared, dolt_server = people.shared, servers.dolt_server

KILLS = int(os.environ.get("VMRAG_MIGRATE_KILLS") or 3)


@pytest.fixture
def world(shared: object, people_world: World) -> World:
    dolt.require()
    return people_world


people_world = pytest.fixture(name="people_world")(people.world.__wrapped__)  # type: ignore[attr-defined]


def moved(user: User, to: str = "dolt") -> dict[str, object]:
    report: dict[str, object] = user.ask("migrate", "--to", to)
    user.git("commit", "-q", "-m", f"Store the knowledge with {to}")
    return report


def engine_of(user: User) -> str:
    engine: str = user.status()["kb"]["engine"]
    return engine


def state(user: User) -> str:
    user.vmrag("sync", code=None)
    result: str = user.status()["state"]
    return result


def share(user: User, *refs: str) -> None:
    user.vmrag("push")
    user.git("push", "-q", "origin", *(refs or ("main",)))


def test_team_migrates_and_each_old_commit_keeps_its_meaning(world: World) -> None:
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("sync")
    before, first = ada.fingerprint(), ada.git("rev-parse", "HEAD").strip()
    bob.git("checkout", "-q", "-b", "draft")
    of_bob = bob.write_document("draft.md", "What Bob wrote while Ada moved.\n")
    drafted = bob.fingerprint()

    share(bob, "draft~0:refs/heads/unfetched")
    ada.git("fetch", "-q")
    assert "1 pinned revision is not in this clone" in ada.vmrag("migrate", "--to", "dolt", "--dry-run").out
    ada.git("push", "-q", "origin", ":unfetched")
    ada.git("fetch", "-q", "--prune")
    planned = ada.ask("migrate", "--to", "dolt", "--dry-run")
    assert planned["absent"] == 0
    assert (planned["applied"], engine_of(ada), planned["revisions"]) == (False, "doltlite", 2)
    report = moved(ada)
    assert (report["revisions"], report["changed"]["written"]) == (2, [".vmrag.yaml", ".dolt-version"])  # type: ignore[index]
    assert ada.status()["in_sync"], "before anything else has looked"
    assert (engine_of(ada), ada.fingerprint(), len(ada.pinned)) == ("dolt", before, 32)
    assert ada.vmrag("fingerprint", "--at", first).out.strip() == before
    assert "handbook/" in ada.vmrag("query", "rest", "--at", first).out
    news = ada.write_document("news.md", "Written after the move.\n")
    share(ada)

    # A fresh clone gets what the code pins now, and knows the old names.
    cleo = world.join("cleo")
    assert (state(cleo), engine_of(cleo), cleo.pinned) == ("in_sync", "dolt", news)
    cleo.git("checkout", "-q", first)
    assert (state(cleo), cleo.fingerprint()) == ("in_sync", before)
    assert "pinned by" in cleo.vmrag("log", first).out

    # Bob's clone is behind and prints a hint; its own branch still works.
    bob.git("checkout", "-q", "main")
    bob.git("pull", "-q")
    assert bob.status()["state"] == "missing"
    assert "vmrag migrate --to dolt" in bob.vmrag("status", code=1).out
    assert "not in this knowledge base" in bob.vmrag("query", "rest").out
    moving = bob.vmrag("migrate", "--to", "dolt").out
    assert "nothing to commit" in moving
    assert "not in this clone" not in moving
    assert bob.status()["in_sync"]
    assert bob.git("status", "--porcelain") == ""
    assert (state(bob), bob.fingerprint()) == ("in_sync", ada.fingerprint())
    bob.git("checkout", "-q", "draft")
    assert (bob.pinned, bob.fingerprint()) == (of_bob, drafted)

    # His branch is merged with main by git, across the move.
    bob.vmrag("install")
    bob.git("merge", "-q", "-m", "Take the move in", "main", env=ON)
    texts = {document["doc_id"] for document in bob.ask("list")["documents"]}
    assert {"draft.md", "news.md"} <= texts
    share(bob, "draft")
    ada.git("fetch", "-q")
    ada.vmrag("fetch")
    ada.git("checkout", "-q", "origin/draft~1")
    assert (ada.pinned, state(ada), ada.fingerprint()) == (of_bob, "in_sync", drafted)
    assert ada.vmrag("verify", "origin/draft").code == 0


def test_fetch_refuses_wrong_revision_map_and_accepts_the_rest(world: World) -> None:
    ada = world.ada
    await_next_second()  # pins contain the seconds of their revisions
    ada.write_document("second.md", "A second revision.\n")
    moved(ada)
    share(ada)
    cleo = world.join("cleo")
    cleo.vmrag("sync")
    ada.write_document("news.md", "Written after the move.\n")
    workspace = Workspace.open(ada.top, QUIET)
    entries = revision_map.read_map(workspace.engine)
    one, two = (json.loads(ada.git("show", f"HEAD~{back}:.dolt-version"))["dolt_commit"] for back in (3, 2))
    revision_map.store_entries(workspace.engine, {one: entries[two], two: entries[one]})
    workspace.close()
    share(ada)
    result = cleo.vmrag("fetch", code=3)
    assert "map of migrated revisions" in result.err
    assert "vmrag migrate" in result.err
    cleo.git("pull", "-q")
    assert state(cleo) == "in_sync"
    cleo.git("checkout", "-q", "HEAD~3")
    assert state(cleo) == "in_sync"  # the names that were sound still count
    late = world.join("late")
    assert "map of migrated revisions" in late.vmrag("clone").err
    assert state(late) == "in_sync"

    # The owner of the right map replaces the other one, as the hint advises.
    cleo.git("checkout", "-q", "main")
    cleo.vmrag("push", "--force")
    late.vmrag("fetch")
    late.git("checkout", "-q", "HEAD~3")
    assert state(late) == "in_sync"


def test_migration_can_be_reverted_until_a_new_commit(world: World) -> None:
    ada = world.ada
    before, pinned, settings = ada.fingerprint(), ada.pinned, (ada.top / ".vmrag.yaml").read_text()
    ada.vmrag("migrate", "--to", "dolt")
    assert ada.ask("migrate", "--undo")["changed"]["written"] == [".vmrag.yaml", ".dolt-version"]
    assert (engine_of(ada), ada.pinned, ada.fingerprint()) == ("doltlite", pinned, before)
    assert (ada.git("status", "--porcelain"), (ada.top / ".vmrag.yaml").read_text()) == ("", settings)
    assert ada.vmrag("migrate", "--undo", "--json", code=2).error["code"] == "ALREADY_INITIALIZED"

    assert moved(ada)["made"] == 0  # what was made before is still there
    ada.put("late.md", "late")
    assert ada.vmrag("migrate", "--undo", "--json", code=1).error["code"] == "UNCOMMITTED_CHANGES"
    ada.vmrag("commit", "-m", "late")
    assert "1 revision that was made since the migration" in ada.vmrag("migrate", "--undo", code=1).err
    assert engine_of(ada) == "dolt"


@pytest.mark.parametrize("staged", [False, True])
def test_migrate_does_not_stage_unstaged_settings(world: World, staged: bool) -> None:
    ada = world.ada
    text = (ada.top / ".vmrag.yaml").read_text() + "# not done yet\n"
    ada.write(".vmrag.yaml", text)
    if staged:
        ada.git("add", ".vmrag.yaml")
    changed = ada.ask("migrate", "--to", "dolt")["changed"]
    assert changed["written"] == [".vmrag.yaml", ".dolt-version"]
    assert changed["unstaged"] == ([] if staged else [".vmrag.yaml"])
    assert ("# not done yet" in ada.git("show", ":.vmrag.yaml")) is staged
    assert "# not done yet" in (ada.top / ".vmrag.yaml").read_text()
    assert 'engine: "dolt"' in (ada.top / ".vmrag.yaml").read_text()


def test_migration_there_and_back_keeps_intermediate_commits(world: World) -> None:
    ada = world.ada
    first = ada.git("rev-parse", "HEAD").strip()
    before = ada.fingerprint()
    moved(ada)
    ada.write_document("news.md", "Written with Dolt.\n")
    after, second = ada.fingerprint(), ada.git("rev-parse", "HEAD").strip()
    moved(ada, "doltlite")
    assert (engine_of(ada), ada.fingerprint()) == ("doltlite", after)
    for commit, expected in ((first, before), (second, after)):
        ada.git("checkout", "-q", commit)
        assert (state(ada), ada.fingerprint()) == ("in_sync", expected)
    ada.git("checkout", "-q", "main")
    assert ada.vmrag("migrate", "--undo").code == 0
    assert engine_of(ada) == "dolt"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--to", "doltlite"), 2, "already doltlite"),
        ((), 2, "--dry-run"),
        (("--to", "dolt", "--undo"), 2, "'--to' or '--undo'"),
        (("--undo", "--dry-run"), 2, "'--to' or '--undo'"),
        (("--undo",), 2, "no migration to undo"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_impossible_migration_is_rejected_with_a_hint(
    world: World, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = world.ada.vmrag("migrate", *arguments, code=code)
    assert said in result.err
    assert "hint: " in result.err
    assert state(world.ada) == "in_sync"


def test_uncommitted_documents_an_open_merge_and_a_missing_program_stop_it(world: World) -> None:
    ada = world.ada
    ada.put("new.md", "new")
    assert "uncommitted documents" in ada.vmrag("migrate", "--to", "dolt", code=1).err
    ada.vmrag("restore", ".", "--yes")
    ada.git("bisect", "start")
    assert "git has an unfinished bisect" in ada.vmrag("migrate", "--to", "dolt", code=3).err
    ada.git("bisect", "reset")
    missing = ada.vmrag("migrate", "--to", "dolt", code=2, env={"PATH": "/usr/bin:/bin"})
    assert "dolt, which is not on PATH" in missing.err
    assert not (ada.shared / "migration").exists()


@pytest.mark.parametrize(("content", "said"), [("{", "cannot read"), ('{"format": 2}', "newer one wrote")])
def test_note_of_a_migration_that_cannot_be_read_is_named(world: World, content: str, said: str) -> None:
    world.ada.write(".git/vmrag/migration/state.json", content)
    for arguments in (("migrate", "--undo"), ("migrate", "--to", "dolt"), ("gc",)):
        result = world.ada.vmrag(*arguments, code=3)
        assert said in result.err.replace("a newer one", "newer one")
        assert "hint: " in result.err


def test_gc_lets_the_knowledge_base_of_before_go(world: World) -> None:
    ada = world.ada
    moved(ada)
    before = ada.fingerprint()
    assert "before" in ada.ask("gc")["leftovers"]["replaced"]["names"]
    assert (ada.shared / "migration" / "before" / "kb.doltlite").exists()
    assert "migration leftovers" in ada.vmrag("gc", "--apply").out
    assert not (ada.shared / "migration").exists()
    assert "does not exist" in ada.vmrag("migrate", "--undo", code=2).err
    assert ada.fingerprint() == before
    ada.git("checkout", "-q", "HEAD~1")
    assert state(ada) == "in_sync"


def test_two_users_migrate_to_one_server_and_meet_there(
    world: World, dolt_server: DoltServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMRAG_DOLT_PASSWORD", dolt_server.password)
    ada, bob = world.ada, world.join("bob")
    bob.vmrag("sync")
    bob.git("checkout", "-q", "-b", "draft")
    of_bob = bob.write_document("draft.md", "What Bob wrote while Ada moved.\n")
    drafted, before = bob.fingerprint(), ada.fingerprint()
    access = dolt_server.access(database_for(world.top / "kb"))
    for user in (ada, bob):
        for name, value in (("server", access.server), ("database", access.database), ("user", access.user)):
            user.git("config", f"vmrag.dolt.{name}", value)
        user.vmrag("migrate", "--to", "dolt")
        user.git("commit", "-q", "-m", "Move to the server")
    assert (json.loads((bob.shared / "kb" / "server.json").read_text())["database"], bob.pinned == of_bob) == (
        access.database,
        False,
    )
    assert (ada.fingerprint(), bob.fingerprint()) == (before, drafted)
    ada.git("fetch", "-q", str(bob.top), "draft")
    ada.git("checkout", "-q", "FETCH_HEAD~1")
    assert (ada.pinned, state(ada), ada.fingerprint()) == (of_bob, "in_sync", drafted)
    assert "shared Dolt server" in ada.vmrag("migrate", "--to", "doltlite", code=3).err


# -- kills


def histories(user: User) -> dict[str, str]:
    """The fingerprint of what each commit pins."""
    commits = user.git("rev-list", "--all").split()
    return {commit: user.vmrag("fingerprint", "--at", commit).out.strip() for commit in commits}


def test_kills_at_any_moment_are_gone_on_with(world: World) -> None:
    ada = world.ada
    for number in range(4):
        ada.write_document(f"{number}.md", f"Number {number}\n")
    expected, dice = histories(ada), random.Random(int(os.environ.get("VMRAG_TEST_SEED") or 1))
    began = time.monotonic()
    with ada._here():
        start(ada, "migrate", "--to", "dolt", "--dry-run").done()
    usual = time.monotonic() - began
    killed = 0
    for _ in range(KILLS):
        with ada._here():
            running = start(ada, "migrate", "--to", "dolt")
            time.sleep(dice.uniform(0.3, 2.5) * usual)
            running.signal(signal.SIGKILL)
            killed += running.done().code == -signal.SIGKILL
        assert ada.vmrag("list", code=None).code == 0
        if engine_of(ada) == "dolt":
            ada.vmrag("migrate", "--undo")
    assert killed
    ada.vmrag("migrate", "--to", "dolt")
    assert engine_of(ada) == "dolt"
    assert json.loads((ada.shared / "migration" / "state.json").read_text())["stage"] == "done"
    assert histories(ada) == expected


class Killed(BaseException):
    """Simulate a kill: only locks are released."""


def _until(user: User, patch: pytest.MonkeyPatch, what: str, step: int) -> bool:
    """Run it up to a rename or a written file of the exchange; whether it ended before."""
    remaining = iter(range(step))

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **keywords: object) -> object:
            if next(remaining, None) is None:
                raise Killed
            return function(*args, **keywords)

        return run

    with patch.context() as counting, user._here():
        counting.setattr(exchange, "_rename_durably", counted(exchange._rename_durably))
        for module in (exchange.file_access, references):
            counting.setattr(module, "write_atomically", counted(module.write_atomically))
        try:
            _run(user, what)
        except Killed:
            return False
    return True


def _run(user: User, what: str) -> None:
    workspace = Workspace.open(user.top, QUIET)
    try:
        if what == "undo":
            migrate.undo_migration(workspace)
        elif what in ("dolt", "doltlite"):
            migrate.migrate(workspace, what)  # type: ignore[arg-type]
    except AlreadyInitialized:
        pass  # there was nothing to finish
    finally:
        workspace.close()


def _whole(user: User) -> tuple[str, str, str]:
    """Return the engine, the pin's revision in it, and the changed files."""
    workspace = Workspace.open(user.top, QUIET)
    try:
        revision = workspace.resolve_target().revision
        assert workspace.resolve_target().state == "pinned"
        return workspace.engine.name, contents.read_row_set(workspace.engine, revision).fingerprint, user.git("diff")
    finally:
        workspace.close()


@pytest.mark.parametrize("to", ["dolt", pytest.param("doltlite", marks=pytest.mark.long)])
def test_kill_at_any_exchange_step_leaves_one_sound_knowledge_base(
    world: World, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """Forward, and undone, at every rename and every file that is written; a third of them in a
    short run.
    """
    ada = world.ada
    if to == "doltlite":
        moved(ada)
    origin, expected, _ = _whole(ada)
    for what, end in ((to, to), ("undo", origin)):
        for step in range(0, 40, 1 if LONG else 3):
            with ada._here():
                _run(ada, "undo" if what == to else to)  # to where it begins
            over = _until(ada, monkeypatch, what, step)
            assert _whole(ada)[:2] in ((origin, expected), (to, expected))
            with ada._here():
                _run(ada, what)
            assert _whole(ada) == (end, expected, "")
            if over:
                assert step > 5
                break
        else:
            pytest.fail("the exchange has more steps than were looked at")
