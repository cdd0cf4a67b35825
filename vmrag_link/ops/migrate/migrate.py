"""`vmrag migrate`: move the knowledge base to another engine, with its whole history."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link import locks, paths, pin_values
from vmrag_link.engines import opening
from vmrag_link.engines.base import LOCK_NAME, Engine, EngineName, detect_engine, read_root
from vmrag_link.engines.limits import continuation_message
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
from vmrag_link.git import sidecar_repo
from vmrag_link.models import Record
from vmrag_link.ops.migrate import exchange, references
from vmrag_link.ops.migrate.carry import CarriedRevisions, MigrationPlan, carry_revisions, is_carried, plan_migration
from vmrag_link.ops.migrate.exchange import MigrationState
from vmrag_link.ops.migrate.references import ChangedFiles
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations

_NAMED = 5
_ATTEMPTS = 5
"""How often what was committed meanwhile is carried, too."""

_SECONDS: dict[EngineName, tuple[float, float]] = {"doltlite": (0.03, 0.0002), "dolt": (0.05, 0.0004)}
"""What a revision, and a document of the branches, takes to be made (bench/README.md)."""


class MigrateReport(Record, frozen=True):
    """`revisions` that are in the new knowledge base, of which this run `made` some. `branches` and
    `anchors`: what reaches them. `bytes` of the old one.

    `applied` False: nothing was done; `seconds` is how long it may take. `remote`: what pin or
    settings name as the place where the old one is kept, and which the new one cannot share.
    `absent`: revisions that git's history pins and that are not here, so they stay behind.
    """

    applied: bool
    origin: EngineName
    to: EngineName
    revisions: int
    made: int
    branches: tuple[str, ...]
    anchors: int
    bytes: int
    seconds: float | None = None
    changed: ChangedFiles = ChangedFiles()
    remote: str = ""
    absent: int = 0


class UndoReport(Record, frozen=True):
    """`engine`: what stores the knowledge base again."""

    engine: EngineName
    changed: ChangedFiles


def migrate(ws: Workspace, to: EngineName, *, dry_run: bool = False) -> MigrateReport:
    """Make every revision again in an engine, and let the result take the present one's place.

    What was stopped is gone on with. The knowledge base of before stays until `vmrag gc`. Raises
    `AlreadyInitialized` where it is stored by that engine, `Uncommitted`, `Busy` where another
    operation is unfinished, `MergeConflict`, and as `opening.require`.
    """
    with _alone(ws):
        settled = _settle(ws)
        origin = ws.engine.name
        if origin == to:
            if settled and settled.now:
                report = MigrateReport(True, settled.state.origin, to, *_counts(ws), changed=settled.now)
                return msgspec.structs.replace(report, remote=_remote(ws))
            raise AlreadyInitialized(
                f"The knowledge base is stored by {to} already: there is nothing to migrate.",
                hint="vmrag status",
                engine=to,
            )
        references.require_nothing_open(ws)
        _require_own(ws.engine)
        opening.require_runnable(to, ws.settings.dolt_access)
        pins, size = history_pins.list_pinned(ws.places), paths.measure_size(ws.places.kb)
        missing = set(pins) - ws.engine.map_parents(pins).keys()
        # Who migrated first pins new names, which this run makes.
        wanted, absent = (
            plan_migration(ws.engine, pins),
            sum(pin_values.engine_of_revision(each) != to for each in missing),
        )
        _note_other_contents(ws, wanted, to)
        if dry_run:
            return msgspec.structs.replace(_planned(ws, to, wanted, size), absent=absent)
        paths.require_space(ws.places.shared, 2 * size, "a second knowledge base")
        settings = references.plan_settings_change(ws, to)  # one that cannot be changed stops here
        carried, state = _carry(ws, to, wanted, settings)
        changed = _conclude(ws, state)
    _index(ws)
    anchors = len(wanted.anchors)
    numbers = len(carried.entries), carried.new, _branches(wanted), anchors, size
    return MigrateReport(True, origin, to, *numbers, changed=changed, remote=_remote(ws), absent=absent)


def undo_migration(ws: Workspace) -> UndoReport:
    """Go back to the knowledge base of before.

    Raises `AlreadyInitialized` where it is not here, and `KnowledgeMoved` or `Uncommitted` where
    the new one holds what it does not.
    """
    with _alone(ws):
        settled = _settle(ws)
        if settled and settled.now and settled.state.stage == "undoing":
            return UndoReport(settled.state.origin, settled.now)
        before = exchange.replaced_kb(ws.places)
        if (
            not settled
            or detect_engine(ws.places.kb) != settled.state.to
            or detect_engine(before) != settled.state.origin
        ):
            raise AlreadyInitialized(
                "There is no migration to undo: the knowledge base of before is not here.",
                hint="To move this one, with all that it holds: vmrag migrate --to doltlite (or dolt)",
            )
        references.require_nothing_open(ws)
        state = msgspec.structs.replace(settled.state, stage="undoing")
        references.require_nothing_new(ws.engine)
        exchange.write_state(ws.places, state)
        _change(ws, state)  # first: the new knowledge base knows the old names, the old one not the new ones
        with _still(ws, "undo a migration"):
            references.require_nothing_new(ws.engine)
            _exchange(ws, state)
        return UndoReport(state.origin, _conclude(ws, state))


# -- carrying


def _carry(
    ws: Workspace, to: EngineName, wanted: MigrationPlan, settings: exchange.RewrittenFile
) -> tuple[CarriedRevisions, MigrationState]:
    """Carry until nothing is committed meanwhile, then exchange the two."""
    folder = ws.places.migration / f"{to}-{wanted.root[:12]}"
    made = 0
    for _ in range(_ATTEMPTS):
        with contextlib.closing(_open_new(ws, to, wanted, folder / "kb")) as new:
            done = carry_revisions(ws.engine, new, wanted, folder / "made", ws.progress)
            references.transfer_names(ws.engine, new, wanted, done.entries)
        made += done.new
        pins = history_pins.list_pinned(ws.places)
        with _still(ws, "migrate"):
            wanted, before = plan_migration(ws.engine, pins), wanted
            if wanted == before:
                pin = references.plan_pin_change(ws, done.entries)
                state = MigrationState(ws.engine.name, to, folder.name, "exchanging", settings, pin)
                if exchange.replaced_kb(ws.places).exists():  # of an earlier migration
                    with file_failures():
                        shutil.rmtree(exchange.replaced_kb(ws.places))
                _exchange(ws, state)
                return CarriedRevisions(done.entries, made), state
    raise Busy("Something goes on committing to the knowledge base, which was not replaced.", hint="vmrag migrate")


def _open_new(ws: Workspace, to: EngineName, wanted: MigrationPlan, folder: Path) -> Engine:
    """The new knowledge base, as far as it was made here, or on its server by somebody else."""
    access = ws.settings.dolt_access
    if opening.engine_exists(folder):
        return opening.open_engine(folder, lock_timeout=ws.lock_timeout, limits=ws.settings.limits, access=access)
    first = ws.engine.read_revision(wanted.root)
    try:
        return opening.create_engine(
            to, folder, author=first.author, date=first.date, access=access, origin=wanted.root
        )
    except AlreadyInitialized:
        if to != "dolt" or not access.server:
            raise
    new = opening.join_server_database(folder, access)
    if [each.message for each in new.log(read_root(new))][1:] != [continuation_message(wanted.root)]:
        new.close()
        shutil.rmtree(folder)
        raise AlreadyInitialized(
            f"The server {access.server} holds another knowledge base in the database {access.database!r}.",
            hint="Name another database: git config vmrag.dolt.database NAME",
            database=access.database,
        )
    return new


def _require_own(engine: Engine) -> None:
    if engine.shared:
        raise EngineFailed(
            "The knowledge base is on a Dolt server, which others use: it is not migrated from there.",
            hint="push a copy that the server can reach: vmrag push --all REMOTE; then, in a clone without the setting"
            " dolt.server: vmrag clone REMOTE && vmrag migrate --to doltlite",
        )


def _note_other_contents(ws: Workspace, wanted: MigrationPlan, to: EngineName) -> None:
    """Name what the new engine does not store; the old knowledge base keeps it until `vmrag gc`."""
    names = ws.engine.list_docs_and_tags(wanted.revisions) if to != "dolt" else []
    if names:
        ws.progress.note(
            f"warning: {to} does not store the docs and tags of Dolt: {first_of(names, _NAMED)}."
            " To keep the docs, import them as documents before you migrate: vmrag import."
        )


def _remote(ws: Workspace) -> str:
    """A remote that holds one knowledge base; the code's own has a place for each engine."""
    found = destinations.read_stated_remote(ws)
    return "" if found == pin_values.GIT_REMOTE or ws.engine.shared else found


def _planned(ws: Workspace, to: EngineName, wanted: MigrationPlan, size: int) -> MigrateReport:
    each, row = _SECONDS[to]
    documents = sum(ws.engine.count_documents(head) for head in set(wanted.branches.values()))
    seconds = round(1 + len(wanted.revisions) * each + documents * row, 1)
    numbers = len(wanted.revisions) + 1, 0, _branches(wanted), len(wanted.anchors), size
    return MigrateReport(False, ws.engine.name, to, *numbers, seconds)


# -- exchanging


@contextlib.contextmanager
def _alone(ws: Workspace) -> Iterator[None]:
    sidecar_repo.prepare_folders(ws.places)
    with locks.hold_exclusive(exchange.lock_path(ws.places), purpose="migrate the knowledge base", timeout=0):
        yield


@contextlib.contextmanager
def _still(ws: Workspace, purpose: str) -> Iterator[None]:
    """Nobody commits within. The knowledge base's own lock is not the engine's to take here: it is
    closed before its files move.
    """
    with (
        locks.hold_exclusive(ws.places.workspace_lock, purpose=purpose, timeout=ws.lock_timeout),
        locks.hold_exclusive(ws.places.kb / LOCK_NAME, purpose=purpose, timeout=ws.lock_timeout),
    ):
        yield


def _exchange(ws: Workspace, state: MigrationState) -> None:
    ws.close()
    exchange.write_state(ws.places, state)
    exchange.exchange_kb(ws.places, state)


def _conclude(ws: Workspace, state: MigrationState) -> ChangedFiles:
    """What follows when the knowledge bases have changed places. It can be repeated."""
    with file_failures():
        shutil.rmtree(ws.places.remotes, ignore_errors=True)  # derived, of what the other one knew
    changed = _change(ws, state)
    if state.stage == "undoing":
        exchange.delete_state(ws.places)
    else:
        exchange.write_state(ws.places, msgspec.structs.replace(state, stage="done"))
    return changed


def _index(ws: Workspace) -> None:
    """Let the index follow to the new names, from cached vectors, and fetch what the pin names
    where somebody else went on since.
    """
    try:
        follow(ws)
    except (*INDEXING_FAILURES, GitBusy, LockError) as error:
        ws.progress.note(f"The index follows with the next command: {error.sentence}")


def _change(ws: Workspace, state: MigrationState) -> ChangedFiles:
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="pin what was migrated", timeout=ws.lock_timeout):
        changed = references.change_files(ws, state, back=state.stage == "undoing")
    ws.reload_settings()
    return changed


class _Settled(NamedTuple):
    """The last migration, or the undoing of it. `now`: what of the work tree was changed just now,
    where a kill had left it; None: it was over.
    """

    state: MigrationState
    now: ChangedFiles | None


def _settle(ws: Workspace) -> _Settled | None:
    """Finish what a kill left, or take it back."""
    state = exchange.read_state(ws.places)
    if state is None or state.stage == "done":
        return _Settled(state, None) if state else None
    with _still(ws, "finish a migration"):
        finished = exchange.finish_exchange(ws.places, state)
    if finished:
        return _Settled(state, _conclude(ws, state))
    if state.stage == "exchanging":
        exchange.delete_state(ws.places)
        return None
    state = msgspec.structs.replace(state, stage="done")
    exchange.write_state(ws.places, state)
    return _Settled(state, None)


def _branches(wanted: MigrationPlan) -> tuple[str, ...]:
    return tuple(filter(is_carried, wanted.branches))


def _counts(ws: Workspace) -> tuple[int, int, tuple[str, ...], int, int]:
    """The numbers of a report on a migration that a kill had all but ended."""
    wanted = plan_migration(ws.engine, history_pins.list_pinned(ws.places))
    return len(wanted.revisions) + 1, 0, _branches(wanted), len(wanted.anchors), paths.measure_size(ws.places.kb)
