"""Put a knowledge base in the place of another engine's, and back: one rename decides.

Both lie in one folder for a moment. Which one counts is decided by the embedded engine's file
(`engines.base.engine_of`): it comes last, or goes first. A kill before it is taken back, one after
it is finished, by whoever migrates next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from vmrag_link import locks, paths, permissions
from vmrag_link.engines import migrated
from vmrag_link.engines.base import DOLT_FOLDER, DOLTLITE_FILE, SERVER_FILE, EngineName, detect_engine
from vmrag_link.errors import FileFailed, file_failures, set_aside
from vmrag_link.formats import require_known_format
from vmrag_link.models import Record
from vmrag_link.paths import Places

_FORMAT = 1
_LONGEST = 1 << 20

_DECISIVE: dict[EngineName, Sequence[str]] = {"doltlite": (DOLTLITE_FILE,), "dolt": (DOLT_FOLDER, SERVER_FILE)}
_BESIDE: dict[EngineName, Sequence[str]] = {
    "doltlite": ("compacted", "extent", migrated.MAP_NAMES["doltlite"]),
    "dolt": ("remotes.json", migrated.MAP_NAMES["dolt"]),
}
"""What else belongs to an engine's knowledge base. Locks belong to the folder, and stay."""


class RewrittenFile(Record, frozen=True):
    """What a migration made of a file of the work tree; both are the whole file."""

    before: str
    after: str


class MigrationState(Record, frozen=True):
    """A migration whose exchange was begun, and what would undo it.

    `carried`: the name of the folder with what was carried. `stage`: `exchanging` and `undoing`
    until the knowledge bases have changed places and the work tree says so. `settings`, `pin`: of
    the work tree in which it was asked for.
    """

    origin: EngineName
    to: EngineName
    carried: str
    stage: Literal["exchanging", "done", "undoing"]
    settings: RewrittenFile | None = None
    pin: RewrittenFile | None = None
    format: int = _FORMAT


def read_state(places: Places) -> MigrationState | None:
    """The migration that is under way, or can be undone. Raises `FileFailed`, `FormatTooNew`."""
    path = _state(places)
    try:
        data = paths.read_regular(path, _LONGEST)
    except FileNotFoundError:
        return None
    try:
        require_known_format(data, _FORMAT, what="The note of a migration", path=path)
        return msgspec.json.decode(data, type=MigrationState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileFailed(
            f"{path} cannot be read.",
            hint=f"It says what a migration has done; without it none can be undone. Set it aside: {set_aside(path)}",
            path=str(path),
        ) from error


def write_state(places: Places, state: MigrationState) -> None:
    paths.write_atomically(_state(places), msgspec.json.encode(state))


def delete_state(places: Places) -> None:
    _state(places).unlink(missing_ok=True)


def replaced_kb(places: Places) -> Path:
    """The folder of the knowledge base that was replaced."""
    return places.migration / "before"


def list_unneeded(places: Places) -> list[Path]:
    """What is left of migrations that are over or were stopped; a stopped one begins again without
    it, and none can be undone. Nothing while one is under way.
    """
    state = read_state(places)
    if locks.read_holder(lock_path(places)) or (state and state.stage != "done") or not places.migration.exists():
        return []
    return sorted(places.migration.iterdir())


def lock_path(places: Places) -> Path:
    """One migration at a time holds it."""
    return places.locks / "migrate.lock"


def exchange_kb(places: Places, state: MigrationState) -> None:
    """Let the knowledge base that was carried take the place of the present one.

    `state.stage` says which way. Call it with the state noted, and the present one's write lock
    held.
    """
    undoing = state.stage == "undoing"
    come, go = _folders(places, state)
    new, old = (state.origin, state.to) if undoing else (state.to, state.origin)
    with file_failures():
        permissions.make_folder(go)
        _move(come, places.kb, [*_BESIDE[new], *_DECISIVE[new]])
        _move(places.kb, go, [*_DECISIVE[old], *_BESIDE[old]])


def finish_exchange(places: Places, state: MigrationState) -> bool:
    """After a kill: finish an exchange that had decided, take one back that had not; whether it
    was finished.

    Nothing that was committed meanwhile is lost by it: only the one that counts was written.
    """
    undoing = state.stage == "undoing"
    come, _ = _folders(places, state)
    new = state.origin if undoing else state.to
    with file_failures():
        if detect_engine(places.kb) == new:
            exchange_kb(places, state)
            return True
        _move(places.kb, come, [*_DECISIVE[new], *_BESIDE[new]])
        return False


def _folders(places: Places, state: MigrationState) -> tuple[Path, Path]:
    carried, replaced = places.migration / state.carried / "kb", replaced_kb(places)
    return (replaced, carried) if state.stage == "undoing" else (carried, replaced)


def _move(source: Path, target: Path, names: Sequence[str]) -> None:
    for name in names:
        if (source / name).exists():
            _rename(source / name, target / name)


def _rename(source: Path, target: Path) -> None:
    source.rename(target)
    paths.sync_to_disk(source.parent)
    paths.sync_to_disk(target.parent)


def _state(places: Places) -> Path:
    return places.migration / "state.json"
