"""The SQLite file of the cache of vectors: opened, locked, and replaced if it is damaged.

A connection lives for one call, and all users of the file share a lock. A damaged file is replaced
under the exclusive lock. Otherwise another connection would continue with the journal of the wrong
file, because SQLite finds the journal by name. The journal is SQLite's rollback journal: the next
process rolls back the transaction of a killed writer, and it works on network file systems, where
WAL does not. A call waits for the journal up to `BUSY_SECONDS`. Opening the file takes half a
millisecond.
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
    """The file is missing, damaged, or not this cache."""


class CacheFile:
    """The file of a cache. Several processes may use it at once, and it keeps nothing in memory
    between calls.
    """

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
        """Run an action on the cache, and return its result.

        If the file is missing or turns out to be damaged, a new cache is created and the action
        runs again.
        """
        try:
            with contextlib.suppress(UnusableCache), self.lock_shared("use the embedding cache"):
                return self.run_once(action)
            with self.lock_exclusive("repair the embedding cache"):
                try:
                    return self.run_once(action)  # another process may have repaired it
                except UnusableCache as damage:
                    self._report_loss(damage, *self.salvage_file())
                return self.run_once(action)
        except OSError as error:
            raise self.make_unreachable_error(error) from error

    def make_unreachable_error(self, error: OSError) -> FileFailed:
        return FileFailed(f"cannot use the embedding cache {self._path}: {error}", path=str(self._path))

    def run_once(self, action: Callable[[sqlite3.Connection], T], *, new: bool = False) -> T:
        """Run an action on the cache without repairing it.

        Raises `UnusableCache` for a missing, damaged or foreign file, unless it is `new`.
        """
        if not new and not self._path.exists():
            raise UnusableCache("no embedding cache exists yet.")
        try:
            if new:
                permissions.make_file(self._path)  # SQLite gives the journal the permissions of the database
            connection = table.open_connection(self._path, BUSY_SECONDS)
            with contextlib.closing(connection):
                if not new and connection.execute("PRAGMA application_id").fetchone() != (table.APPLICATION_ID,):
                    raise UnusableCache(f"{self._path} is a database of another program or version.")
                return action(connection)
        except sqlite3.Error as error:
            raise self._convert_error(error) from error

    def salvage_file(self) -> tuple[Path | None, int]:
        """Replace a damaged file by a cache of its undamaged rows. The caller holds the lock.

        Return the new path of the damaged file, and the number of rows.
        """
        renamed = self._rename_damaged_file()
        self.run_once(table.create_tables, new=True)
        if renamed is None:
            return None, 0
        return renamed, self.run_once(lambda connection: table.salvage_rows(connection, renamed))

    def _report_loss(self, damage: UnusableCache, aside: Path | None, kept: int) -> None:
        if aside:
            rest = f"{plural(kept, 'undamaged vector')} were kept, and others" if kept else "its vectors"
            self._progress.note(f"{damage} It was renamed to {aside.name}; {rest} are computed again when needed.")

    def _rename_damaged_file(self) -> Path | None:
        """Rename the file, and return its new path; None for a missing or empty file, like after a
        kill.
        """
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        names = (self._path.with_name(f"{self._path.name}.corrupt-{number}") for number in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        for file, renamed in zip(_list_files(self._path), _list_files(aside), strict=True):
            with contextlib.suppress(FileNotFoundError):
                file.replace(renamed)
        return aside

    def _convert_error(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # All SQL here is constant, so SQLITE_ERROR means that the file has other tables.
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return UnusableCache(f"the embedding cache {self._path} is damaged ({error}).")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(
                f"the embedding cache {self._path} was in use for {BUSY_SECONDS:g} s.",
                hint="wait for the other command to finish and run this one again",
                path=str(self._path),
            )
        if code == sqlite3.SQLITE_CANTOPEN and is_too_long(self._path):
            return path_too_long(self._path)
        return FileFailed(
            f"the embedding cache {self._path} failed: {error}.",
            hint="check the free space and the permissions of its folder, or delete the file while no command runs",
            path=str(self._path),
        )


def _list_files(database: Path) -> list[Path]:
    """Return the database and SQLite's files for it. The journals come first, because a new
    database must never find an old journal.
    """
    return [database.with_name(database.name + suffix) for suffix in ("-journal", "-wal", "-shm", "")]


def remove_database(database: Path) -> None:
    for file in _list_files(database):
        file.unlink(missing_ok=True)
