"""The SQLite file of the cache of vectors: opened, locked, and replaced when it is damaged.

A connection lives for one call, under a lock that all users of the file share. A damaged file is
replaced under the lock held alone: other connections would go on, by name, with the journal of a
file that is not theirs. The journal is SQLite's rollback journal, waited for `BUSY_SECONDS`. The
next process undoes a killed writer's transaction, and it works on network file systems, where WAL
does not. Opening takes half a millisecond.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from vmrag_link import locks, permissions
from vmrag_link.embedding import cache_table as table
from vmrag_link.errors import Busy, FileFailed, is_too_long, path_too_long, plural
from vmrag_link.progress import Progress

BUSY_SECONDS = 30.0

T = TypeVar("T")


class UnusableCache(Exception):
    """The file is damaged, or is not this cache."""


class CacheFile:
    """Safe for several processes; holds nothing between calls."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress

    def lock_shared(self, purpose: str) -> contextlib.AbstractContextManager[object]:
        return locks.hold_shared(self._lock, purpose=purpose, timeout=BUSY_SECONDS)

    def lock_exclusive(self, purpose: str) -> contextlib.AbstractContextManager[object]:
        return locks.hold_exclusive(self._lock, purpose=purpose, timeout=BUSY_SECONDS)

    @property
    def _lock(self) -> Path:
        return self._path.with_name(self._path.name + ".lock")

    def run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The action's result, on a fresh cache if there is none or the file proves damaged, even
        half way.
        """
        try:
            with contextlib.suppress(UnusableCache), self.lock_shared("use the embedding cache"):
                return self.run_once(action)
            with self.lock_exclusive("repair the embedding cache"):
                try:
                    return self.run_once(action)  # another process may have repaired it meanwhile
                except UnusableCache as damage:
                    self._note_loss(damage, *self.salvage_file())
                return self.run_once(action)
        except OSError as error:
            raise self.make_unreachable_error(error) from error

    def make_unreachable_error(self, error: OSError) -> FileFailed:
        return FileFailed(f"Cannot use the embedding cache {self._path}: {error}", path=str(self._path))

    def run_once(self, action: Callable[[sqlite3.Connection], T], *, new: bool = False) -> T:
        """Raises `UnusableCache` for a missing, damaged or foreign file, unless it is `new`."""
        if not new and not self._path.exists():
            raise UnusableCache("There is no embedding cache yet.")
        try:
            if new:
                permissions.make_file(self._path)  # what SQLite puts beside it is as open as the database
            connection = table.open_connection(self._path, BUSY_SECONDS)
            with contextlib.closing(connection):
                if not new and connection.execute("PRAGMA application_id").fetchone() != (table.APPLICATION_ID,):
                    raise UnusableCache(f"{self._path} is a database of another program or version.")
                return action(connection)
        except sqlite3.Error as error:
            raise self._public_error(error) from error

    def salvage_file(self) -> tuple[Path | None, int]:
        """Replace a damaged file by a cache of its sound rows. Hold the lock.

        Returns the damaged file's new path, and the number of rows.
        """
        aside = self._set_aside()
        self.run_once(table.create_tables, new=True)
        return aside, self.run_once(lambda connection: table.salvage_rows(connection, aside)) if aside else 0

    def _note_loss(self, damage: UnusableCache, aside: Path | None, kept: int) -> None:
        if aside:
            rest = f"{plural(kept, 'vector')} that prove themselves were kept, others" if kept else "its vectors"
            self._progress.note(f"{damage} It was set aside as {aside.name}; {rest} are computed again when needed.")

    def _set_aside(self) -> Path | None:
        """Rename the file; None for a missing or empty one, as a killed creation leaves it."""
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        names = (self._path.with_name(f"{self._path.name}.corrupt-{number}") for number in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        for mine, other in zip(_files(self._path), _files(aside), strict=True):
            with contextlib.suppress(FileNotFoundError):
                mine.replace(other)
        return aside

    def _public_error(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # All SQL here is constant: an error in it (SQLITE_ERROR) says that the file's tables are
        # not ours.
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return UnusableCache(f"The embedding cache {self._path} is damaged ({error}).")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(
                f"The embedding cache {self._path} was in use for {BUSY_SECONDS:g} s.",
                hint="Wait for the other command to finish and run this one again.",
                path=str(self._path),
            )
        if code == sqlite3.SQLITE_CANTOPEN and is_too_long(self._path):
            return path_too_long(self._path)
        return FileFailed(
            f"The embedding cache {self._path} failed: {error}.",
            hint="Check free space and permissions of its folder; the file can be deleted while no command runs.",
            path=str(self._path),
        )


def _files(database: Path) -> list[Path]:
    """The file and what SQLite keeps beside it; a new database must never meet the old one's
    journal, so that goes first.
    """
    return [database.with_name(database.name + suffix) for suffix in ("-journal", "-wal", "-shm", "")]


def remove_database(database: Path) -> None:
    for file in _files(database):
        file.unlink(missing_ok=True)
