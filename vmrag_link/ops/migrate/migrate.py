"""`vmrag migrate`: move the knowledge base to another engine, with its whole history.

It copies the revisions into a second knowledge base (`copy_revisions`), exchanges both
(`exchange`), and updates what names revisions (`references`). The first step can be stopped and
continued at any time. A file, `MigrationState`, records the others, so that the next run finishes
or reverts them after a kill.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from vmrag_link import file_access, locks, pin_values
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine
from vmrag_link.engines.creation import continuation_message
from vmrag_link.engines.folder import LOCK_NAME, EngineName, detect_engine
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import (
    INDEXING_FAILURES,
    AlreadyInitialized,
    Busy,
    EngineFailed,
    GitBusy,
    LockError,
    file_failures,
    first_of,
)
from vmrag_link.git import folder_modes
from vmrag_link.models import Record
from vmrag_link.ops.migrate import exchange, references
from vmrag_link.ops.migrate.copy_revisions import CopiedRevisions, copy_revisions
from vmrag_link.ops.migrate.exchange import MigrationState
from vmrag_link.ops.migrate.plan import MigrationPlan, is_migrated_branch, plan_migration
from vmrag_link.ops.migrate.references import ChangedFiles
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations

_MAX_NAMES = 5
"""Maximum number of docs and tags in a warning."""

_MAX_ATTEMPTS = 5
"""Maximum number of times that concurrent commits are copied as well."""

_SECONDS_BY_ENGINE: dict[EngineName, tuple[float, float]] = {"doltlite": (0.03, 0.0002), "dolt": (0.05, 0.0004)}
"""Seconds for a revision, and for a document of the branches (bench/README.md)."""


class MigrateReport(Record, frozen=True):
    """The result of a migration, or its plan."""

    applied: bool
    """False if nothing was done."""
    origin: EngineName
    to: EngineName
    revisions: int
    """Number of revisions in the new knowledge base."""
    made: int
    """Number of revisions that this run made."""
    branches: tuple[str, ...]
    anchors: int
    """Number of revisions that no branch reaches and that reach the others."""
    bytes: int
    """Size of the old knowledge base."""
    seconds: float | None = None
    """Estimated duration, if nothing was done."""
    changed: ChangedFiles = ChangedFiles()
    remote: str = ""
    """The remote that the pin or the settings name, which has the old knowledge base and cannot
    share the new one.
    """
    absent: int = 0
    """Number of revisions that git's history pins and that this knowledge base does not have, so
    that they are not migrated.
    """


class UndoReport(Record, frozen=True):
    """The result of `undo_migration`."""

    engine: EngineName
    """The engine that stores the knowledge base again."""
    changed: ChangedFiles


def migrate(ws: Workspace, to: EngineName, *, dry_run: bool = False) -> MigrateReport:
    """Copy every revision into a knowledge base of another engine, and replace the present one by
    it.

    A stopped migration is continued. `vmrag gc` deletes the old knowledge base. Raises
    `AlreadyInitialized` if that engine already stores the knowledge base, `Uncommitted`, `Busy` if
    another operation is unfinished, `GitBusy`, `MergeConflict`, and the errors of
    `opening.require_runnable`.
    """
    with _lock_migration(ws):
        former = _finish_killed(ws)
        origin = ws.engine.name
        if origin == to:
            if former and former.just_changed:
                plan = plan_migration(ws.engine, history_pins.list_pinned(ws.places))
                return replace(
                    _describe_plan(plan, former.state.origin, to, file_access.measure_size(ws.places.kb)),
                    applied=True,
                    changed=former.just_changed,
                    remote=_find_unshared_remote(ws),
                )
            raise AlreadyInitialized(
                f"the engine of the knowledge base is already {to}.",
                hint="run 'vmrag status' to see the state",
                engine=to,
            )
        references.require_nothing_open(ws)
        _require_embedded(ws.engine)
        opening.require_runnable(to, ws.settings.dolt_access)
        pins = history_pins.list_pinned(ws.places)
        missing_pins = set(pins) - ws.engine.map_parents(pins).keys()
        # If another clone has migrated, code may already pin the names that this run makes.
        absent = sum(pin_values.engine_of_revision(revision) != to for revision in missing_pins)
        plan = plan_migration(ws.engine, pins)
        size = file_access.measure_size(ws.places.kb)
        report = replace(_describe_plan(plan, origin, to, size), absent=absent)
        _warn_of_other_contents(ws, plan, to)
        if dry_run:
            return replace(report, seconds=_estimate_seconds(ws.engine, plan, to))
        file_access.require_space(ws.places.shared, 2 * size, "a second knowledge base")
        settings = references.plan_settings_change(ws, to)  # a settings file that cannot be changed stops here
        copies, state = _copy_and_exchange(ws, to, plan, settings)
        changed = _finish_migration(ws, state)
    _update_index(ws)
    return replace(
        report,
        applied=True,
        revisions=len(copies.by_name),
        made=copies.made,
        changed=changed,
        remote=_find_unshared_remote(ws),
    )


def undo_migration(ws: Workspace) -> UndoReport:
    """Return to the knowledge base before the migration.

    Raises `AlreadyInitialized` if it no longer exists, and `KnowledgeMoved` or `Uncommitted` if the
    new knowledge base contains more.
    """
    with _lock_migration(ws):
        former = _finish_killed(ws)
        if former and former.just_changed and former.state.stage == "undoing":
            return UndoReport(former.state.origin, former.just_changed)
        engines = (detect_engine(ws.places.kb), detect_engine(exchange.replaced_kb(ws.places)))
        if not former or engines != (former.state.to, former.state.origin):
            raise AlreadyInitialized(
                "no migration to undo: the former knowledge base does not exist.",
                hint="run 'vmrag migrate --to doltlite', or 'vmrag migrate --to dolt', to move the present knowledge base",
            )
        references.require_nothing_open(ws)
        state = replace(former.state, stage="undoing")
        references.require_nothing_new(ws.engine)
        exchange.write_state(ws.places, state)
        # The pin changes first, because only the new knowledge base has the map of old names.
        _change_files(ws, state)
        with _lock_writes(ws, "undo a migration"):
            references.require_nothing_new(ws.engine)
            _record_and_exchange(ws, state)
        return UndoReport(state.origin, _finish_migration(ws, state))


@contextlib.contextmanager
def _lock_migration(ws: Workspace) -> Iterator[None]:
    folder_modes.prepare_folders(ws.places)
    with locks.hold_exclusive(exchange.lock_path(ws.places), purpose="migrate the knowledge base", timeout=0):
        yield


class _FormerMigration(NamedTuple):
    """The last migration, or its undoing."""

    state: MigrationState
    just_changed: ChangedFiles | None
    """The files of the work tree that `_finish_killed` changed; None if the migration was finished
    before.
    """


def _finish_killed(ws: Workspace) -> _FormerMigration | None:
    """Finish a killed migration, or revert it. Return None if none can be undone."""
    state = exchange.read_state(ws.places)
    if state is None:
        return None
    if state.stage == "done":
        return _FormerMigration(state, None)
    with _lock_writes(ws, "finish a migration"):
        finished = exchange.finish_exchange(ws.places, state)
    if finished:
        return _FormerMigration(state, _finish_migration(ws, state))
    if state.stage == "exchanging":
        exchange.delete_state(ws.places)
        return None
    # An undoing was reverted, so the migration is done again.
    state = replace(state, stage="done")
    exchange.write_state(ws.places, state)
    return _FormerMigration(state, None)


def _describe_plan(plan: MigrationPlan, origin: EngineName, to: EngineName, size: int) -> MigrateReport:
    """Return the report of a migration before anything is done."""
    return MigrateReport(
        applied=False,
        origin=origin,
        to=to,
        revisions=len(plan.revisions) + 1,
        made=0,
        branches=tuple(filter(is_migrated_branch, plan.branches)),
        anchors=len(plan.anchors),
        bytes=size,
    )


def _find_unshared_remote(ws: Workspace) -> str:
    """Return the remote of the pin or the settings, unless it can have a knowledge base of each
    engine, as the code's own remote can.
    """
    remote = destinations.read_stated_remote(ws)
    return "" if remote == pin_values.GIT_REMOTE or ws.engine.shared else remote


def _require_embedded(engine: Engine) -> None:
    if engine.shared:
        raise EngineFailed(
            "the knowledge base is on a shared Dolt server, from which it cannot be migrated.",
            hint="run 'vmrag push --all REMOTE', then 'vmrag clone REMOTE && vmrag migrate --to doltlite' in a clone "
            "without the setting dolt.server",
        )


def _warn_of_other_contents(ws: Workspace, plan: MigrationPlan, to: EngineName) -> None:
    """Print which contents the new engine does not store. The old knowledge base keeps them until
    `vmrag gc`.
    """
    names = ws.engine.list_docs_and_tags(plan.revisions) if to != "dolt" else []
    if names:
        ws.progress.note(
            f"warning: {to} does not store the docs and tags of Dolt: {first_of(names, _MAX_NAMES)}; "
            "run 'vmrag import' to keep the docs as documents, before you migrate"
        )


def _estimate_seconds(engine: Engine, plan: MigrationPlan, to: EngineName) -> float:
    per_revision, per_document = _SECONDS_BY_ENGINE[to]
    documents = sum(engine.count_documents(head) for head in set(plan.branches.values()))
    return round(1 + len(plan.revisions) * per_revision + documents * per_document, 1)


def _copy_and_exchange(
    ws: Workspace, to: EngineName, plan: MigrationPlan, settings: exchange.RewrittenFile
) -> tuple[CopiedRevisions, MigrationState]:
    """Copy until no commit arrives in between, then exchange the knowledge bases."""
    folder = ws.places.migration / f"{to}-{plan.root[:12]}"
    made = 0
    for _ in range(_MAX_ATTEMPTS):
        with contextlib.closing(_open_new(ws, to, plan, folder / "kb")) as new:
            copies = copy_revisions(ws.engine, new, plan, folder / "made", ws.progress)
            references.transfer_names(ws.engine, new, plan, copies.by_name)
        made += copies.made
        pins = history_pins.list_pinned(ws.places)
        with _lock_writes(ws, "migrate"):
            copied_plan = plan
            plan = plan_migration(ws.engine, pins)
            if plan == copied_plan:
                state = MigrationState(
                    origin=ws.engine.name,
                    to=to,
                    new_folder=folder.name,
                    stage="exchanging",
                    settings=settings,
                    pin=references.plan_pin_change(ws, copies.by_name),
                )
                if exchange.replaced_kb(ws.places).exists():  # left by an earlier migration
                    with file_failures():
                        shutil.rmtree(exchange.replaced_kb(ws.places))
                _record_and_exchange(ws, state)
                return copies._replace(made=made), state
    raise Busy(
        "another process keeps committing to the knowledge base, so it was not migrated.", hint="run 'vmrag migrate'"
    )


def _open_new(ws: Workspace, to: EngineName, plan: MigrationPlan, folder: Path) -> Engine:
    """Open the new knowledge base that an earlier run or, on a server, another person made, or
    create it.
    """
    access = ws.settings.dolt_access
    if opening.engine_exists(folder):
        return opening.open_engine(folder, lock_timeout=ws.lock_timeout, limits=ws.settings.limits, access=access)
    first = ws.engine.read_revision(plan.root)
    try:
        return opening.create_engine(to, folder, author=first.author, date=first.date, access=access, origin=plan.root)
    except AlreadyInitialized:
        if to != "dolt" or not access.server:
            raise
    new = opening.join_server_database(folder, access)
    messages = [info.message for info in new.log(read_root(new))]
    if messages[1:] != [continuation_message(plan.root)]:  # it does not continue this knowledge base
        new.close()
        shutil.rmtree(folder)
        raise AlreadyInitialized(
            f"the server {access.server} has another knowledge base in the database {access.database!r}.",
            hint="run 'git config vmrag.dolt.database NAME' to set the database",
            database=access.database,
        )
    return new


@contextlib.contextmanager
def _lock_writes(ws: Workspace, purpose: str) -> Iterator[None]:
    """Prevent commits in the block.

    The lock of the knowledge base is not taken by the engine, because the engine is closed before
    its files move.
    """
    with (
        locks.hold_exclusive(ws.places.workspace_lock, purpose=purpose, timeout=ws.lock_timeout),
        locks.hold_exclusive(ws.places.kb / LOCK_NAME, purpose=purpose, timeout=ws.lock_timeout),
    ):
        yield


def _record_and_exchange(ws: Workspace, state: MigrationState) -> None:
    """Record the exchange, and exchange the knowledge bases."""
    ws.close()
    exchange.write_state(ws.places, state)
    exchange.exchange_kb(ws.places, state)


def _finish_migration(ws: Workspace, state: MigrationState) -> ChangedFiles:
    """Update everything after the exchange of the knowledge bases. It can be repeated."""
    with file_failures():
        shutil.rmtree(ws.places.remotes, ignore_errors=True)  # derived from the other knowledge base
    changed = _change_files(ws, state)
    if state.stage == "undoing":
        exchange.delete_state(ws.places)
    else:
        exchange.write_state(ws.places, replace(state, stage="done"))
    return changed


def _update_index(ws: Workspace) -> None:
    """Update the index to the new names, from cached vectors.

    It also fetches what the pin names, if others committed since then.
    """
    try:
        follow(ws)
    except (*INDEXING_FAILURES, GitBusy, LockError) as error:
        ws.progress.note(f"The next command updates the index: {error.sentence}")


def _change_files(ws: Workspace, state: MigrationState) -> ChangedFiles:
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="pin what was migrated", timeout=ws.lock_timeout):
        changed = references.change_files(ws, state)
    ws.reload_settings()
    return changed
