"""Replace the files of a knowledge base by those of another engine, and back.

Both are in one folder for a moment. The database file decides which one is used
(`engines.folder.detect_engine`), so it is moved in last and moved out first. After a kill, the next
migration reverts an exchange that had not moved this file, and finishes one that had.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link import file_access, locks, permissions
from vmrag_link.engines import migrated
from vmrag_link.engines.folder import DOLT_FOLDER, DOLTLITE_FILE, SERVER_FILE, EngineName, detect_engine
from vmrag_link.errors import FileFailed, file_failures, set_aside
from vmrag_link.formats import require_known_format
from vmrag_link.models import Record
from vmrag_link.paths import Places

_FORMAT = 1
_MAX_BYTES = 1 << 20

_DATABASE_NAMES: dict[EngineName, Sequence[str]] = {"doltlite": (DOLTLITE_FILE,), "dolt": (DOLT_FOLDER, SERVER_FILE)}
"""The files of an engine's knowledge base that decide which engine is used."""

_OTHER_NAMES: dict[EngineName, Sequence[str]] = {
    "doltlite": ("compacted", "extent", migrated.MAP_NAMES["doltlite"]),
    "dolt": ("remotes.json", migrated.MAP_NAMES["dolt"]),
}
"""Other files of an engine's knowledge base. Locks belong to the folder, and stay."""


class RewrittenFile(Record, frozen=True):
    """A file of the work tree before and after a migration. Both are the whole file."""

    before: str
    after: str


class MigrationState(Record, frozen=True, rename={"new_folder": "carried"}):
    """A migration whose exchange has begun, with the data to undo it."""

    origin: EngineName
    to: EngineName
    new_folder: str
    """The name of the folder with the copies of the revisions."""
    stage: Literal["exchanging", "done", "undoing"]
    """`exchanging` and `undoing` until the knowledge bases are exchanged and the work tree is
    updated.
    """
    settings: RewrittenFile | None = None
    """The settings file of the work tree in which the migration was started."""
    pin: RewrittenFile | None = None
    """The pin of the work tree in which the migration was started."""
    format: int = _FORMAT


def read_state(places: Places) -> MigrationState | None:
    """Return the migration that is in progress or can be undone. Raises `FileFailed` and
    `FormatTooNew`.
    """
    path = _find_state_file(places)
    try:
        data = file_access.read_regular(path, _MAX_BYTES)
    except FileNotFoundError:
        return None
    try:
        require_known_format(data, _FORMAT, what="The file of a migration", path=path)
        return msgspec.json.decode(data, type=MigrationState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FileFailed(
            f"cannot read the file of a migration, {path}.",
            hint=f"run '{set_aside(path)}' to migrate again, which makes the earlier migration final",
            path=str(path),
        ) from error


def write_state(places: Places, state: MigrationState) -> None:
    file_access.write_atomically(_find_state_file(places), msgspec.json.encode(state))


def delete_state(places: Places) -> None:
    _find_state_file(places).unlink(missing_ok=True)


def replaced_kb(places: Places) -> Path:
    """Return the folder of the replaced knowledge base."""
    return places.migration / "before"


def list_unneeded(places: Places) -> list[Path]:
    """Return what finished and stopped migrations left; nothing while a migration is in progress.

    Without it, a stopped migration starts from the beginning, and none can be undone.
    """
    state = read_state(places)
    is_in_progress = locks.read_holder(lock_path(places)) or (state and state.stage != "done")
    return sorted(places.migration.iterdir()) if not is_in_progress and places.migration.exists() else []


def lock_path(places: Places) -> Path:
    """Return the lock that allows one migration at a time."""
    return places.locks / "migrate.lock"


def exchange_kb(places: Places, state: MigrationState) -> None:
    """Replace the present knowledge base by the other one, in the direction of `state.stage`.

    The caller has written the state and holds the write lock of the present knowledge base.
    """
    exchange = _plan_exchange(places, state)
    with file_failures():
        permissions.make_folder(exchange.target)
        _move_files(exchange.source, places.kb, [*_OTHER_NAMES[exchange.new], *_DATABASE_NAMES[exchange.new]])
        _move_files(places.kb, exchange.target, [*_DATABASE_NAMES[exchange.old], *_OTHER_NAMES[exchange.old]])


def finish_exchange(places: Places, state: MigrationState) -> bool:
    """After a kill, finish an exchange that was decided, or revert it. Return whether it was
    finished.

    Commits since then are not lost, because only the knowledge base in use was written.
    """
    exchange = _plan_exchange(places, state)
    with file_failures():
        if detect_engine(places.kb) == exchange.new:
            exchange_kb(places, state)
            return True
        _move_files(places.kb, exchange.source, [*_DATABASE_NAMES[exchange.new], *_OTHER_NAMES[exchange.new]])
        return False


class _Exchange(NamedTuple):
    """The direction of an exchange."""

    new: EngineName
    source: Path
    """The folder of the knowledge base of the engine `new`."""
    old: EngineName
    target: Path
    """The folder for the present knowledge base, of the engine `old`."""


def _plan_exchange(places: Places, state: MigrationState) -> _Exchange:
    copies = places.migration / state.new_folder / "kb"
    replaced = replaced_kb(places)
    if state.stage == "undoing":
        return _Exchange(new=state.origin, source=replaced, old=state.to, target=copies)
    return _Exchange(new=state.to, source=copies, old=state.origin, target=replaced)


def _move_files(source: Path, target: Path, names: Sequence[str]) -> None:
    for name in names:
        if (source / name).exists():
            _rename_durably(source / name, target / name)


def _rename_durably(source: Path, target: Path) -> None:
    source.rename(target)
    file_access.sync_to_disk(source.parent)
    file_access.sync_to_disk(target.parent)


def _find_state_file(places: Places) -> Path:
    return places.migration / "state.json"
