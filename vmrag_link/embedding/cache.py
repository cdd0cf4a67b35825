"""The cache of vectors: no chunk is embedded twice.

One SQLite file for all work trees, derived data. A connection lives for one call, under a lock that
all users of the file share. A damaged file is replaced under the lock held alone: other connections
would go on, by name, with the journal of a file that is not theirs. The journal is SQLite's
rollback journal, waited for `BUSY_SECONDS`. The next process undoes a killed writer's transaction,
and it works on network file systems, where WAL does not. Opening takes half a millisecond.

A row with a wrong checksum counts as absent; it is embedded again and replaced (two microseconds
per row). Older rows have no checksum. Those that a service was paid for get one; those of a local
model are made again. The tables are in `cache_table`.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from vmrag_link import locks, permissions
from vmrag_link.embedding import cache_table as table
from vmrag_link.embedding.base import Vector
from vmrag_link.errors import Busy, FileFailed, plural
from vmrag_link.models import Record
from vmrag_link.paths import fsync
from vmrag_link.progress import QUIET, Progress

BUSY_SECONDS = 30.0
KEYS_A_QUERY = 500

T = TypeVar("T")


class _Unusable(Exception):
    """The file is damaged, or is not this cache."""


class Excess(Record, frozen=True):
    """Vectors beyond the limits: how many, and the bytes of the file that they take."""

    number: int = 0
    bytes: int = 0


class EmbeddingCache:
    """Vectors by (model fingerprint, chunk hash).

    Safe for several processes; holds nothing between calls. Any call sets a damaged or foreign file
    aside as `<name>.corrupt-<n>`, tells `progress`, and makes a new cache with the rows that are
    sound. Calls raise `FileFailed` (disk full, no permission) and `Busy`.
    """

    def __init__(self, path: Path, *, progress: Progress = QUIET) -> None:
        self._path = path
        self._progress = progress

    def get(
        self, model_fingerprint: str, hashes: Sequence[str], *, dimensions: int, adopt: bool = False
    ) -> dict[str, Vector]:
        """The vectors that are there.

        Damaged ones, and ones not `dimensions` long, count as absent. `adopt`: rows without a
        checksum count and get one, because their vectors were paid for.
        """
        names = {_key(model_fingerprint, chunk): chunk for chunk in hashes}

        def read(connection: sqlite3.Connection) -> dict[str, Vector]:
            found: dict[bytes, Vector] = {}
            used: set[int] = set()
            unproven: list[int] = []
            for keys in _batches(sorted(names), KEYS_A_QUERY):  # neighbours in the index are read together
                marks = ",".join("?" * len(keys))
                rows = connection.execute(
                    f"SELECT rowid, key, vector, checksum FROM vectors WHERE key IN ({marks})",  # noqa: S608
                    keys,
                )
                for row, key, vector, checksum in rows.fetchall():
                    used.add(row // table.BLOCK)
                    if table.is_proven(key, vector, checksum):
                        found[key] = vector
                    elif checksum is None:
                        unproven.append(row)
            if adopt and unproven:
                found |= table.adopt(connection, unproven)
            table.note(connection, used)
            size = dimensions * table.FLOAT32
            return {names[key]: vector for key, vector in found.items() if len(vector) == size and key in names}

        return self._run(read)

    def put(self, model_fingerprint: str, vectors: Mapping[str, Vector]) -> None:
        """Store in one transaction, durable on return."""
        keyed = sorted((_key(model_fingerprint, chunk), vector) for chunk, vector in vectors.items())
        rows = [(key, vector, table.checksum(key, vector)) for key, vector in keyed]

        def write(connection: sqlite3.Connection) -> None:
            with table.transaction(connection):
                before = table.last_block(connection)
                connection.executemany(table.STORE, rows)
                table.use(connection, range(before, table.last_block(connection) + 1))

        self._run(write)

    def excess(self, *, megabytes: int, days: int) -> Excess:
        """What `prune` would remove."""
        if not self._path.exists():
            return Excess()

        def measure(connection: sqlite3.Connection) -> Excess:
            number = table.boundary(connection, megabytes, days).number
            return Excess(number, round(number * table.bytes_each(connection)))

        return self._run(measure)

    def prune(self, *, megabytes: int, days: int) -> Excess:
        """Remove vectors unused for `days`, then the oldest until the file is within its size; 0 is
        no limit.

        The rest is copied to a file that replaces this one. So the space is free at once, and a
        kill leaves one or the other.
        """
        if not self.excess(megabytes=megabytes, days=days).number:
            return Excess()
        before = self._path.stat().st_size
        temporary = self._path.with_name(f".{self._path.name}.{os.urandom(6).hex()}.tmp")
        with locks.exclusive(self._lock, purpose="shrink the embedding cache", timeout=BUSY_SECONDS):
            try:
                number = self._on_connection(lambda connection: table.copy(connection, temporary, megabytes, days))
                fsync(temporary)
                permissions.settle(temporary)
                temporary.replace(self._path)
            except _Unusable:
                return Excess()  # it was damaged a moment ago: the next use sets it aside
            except OSError as error:
                raise self._unreachable(error) from error
            finally:
                temporary.unlink(missing_ok=True)
        return Excess(number, before - self._path.stat().st_size)

    def damage(self) -> str:
        """The problem of the file or of rows, as a sentence; empty if there is none, or no file.

        Takes 3 ms per megabyte. Unlike all other calls, it leaves the file as it is.
        """
        if not self._path.exists():
            return ""

        def look(connection: sqlite3.Connection) -> tuple[str, int]:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            return str(found), len(table.damaged_rows(connection)) if found == "ok" else 0

        try:
            with locks.shared(self._lock, purpose="check the embedding cache", timeout=BUSY_SECONDS):
                found, wrong = self._on_connection(look, upgrade=False)
        except _Unusable as damage:
            return str(damage)
        if found != "ok":
            return f"The embedding cache {self._path} is damaged ({found})."
        number = f"{plural(wrong, 'vector')} in the embedding cache {self._path}"
        return f"{number} cannot be trusted: not what was stored." if wrong else ""

    def mend(self) -> None:
        """Keep only the rows that are sound or older than checksums, in a new file if need be."""

        def remove(connection: sqlite3.Connection) -> None:
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise _Unusable(f"The embedding cache {self._path} is damaged.")
            with table.transaction(connection):
                wrong = [(row,) for row in table.damaged_rows(connection)]
                connection.executemany("DELETE FROM vectors WHERE rowid = ?", wrong)

        with locks.exclusive(self._lock, purpose="repair the embedding cache", timeout=BUSY_SECONDS):
            try:
                self._on_connection(remove)
            except _Unusable:
                aside, _ = self._make_anew()
                if aside:
                    for suffix in ("-journal", "-wal", "-shm", ""):
                        aside.with_name(aside.name + suffix).unlink(missing_ok=True)

    def export(self, target: Path) -> None:
        """Write the vectors to a new file, which `take_in` reads; none where there are none."""
        if self._path.exists():
            self._run(lambda connection: table.copy(connection, target, 0, 0))

    def take_in(self, source: Path) -> int:
        """Copy the rows that prove themselves from a cache's file of unknown origin.

        Returns their number. The rows are copied, because the file itself may hold more than
        tables. A proof shows that a row is what was written, not that the model made it.
        """

        def read(connection: sqlite3.Connection) -> int:
            return table.salvage(connection, source) if table.is_ours(source) else 0

        return self._run(read)

    def discard(self) -> None:
        """Forget every vector."""
        with locks.exclusive(self._lock, purpose="empty the embedding cache", timeout=BUSY_SECONDS):
            for suffix in ("-journal", "-wal", "-shm", ""):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    @property
    def _lock(self) -> Path:
        return self._path.with_name(self._path.name + ".lock")

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The action's result, on a fresh cache if there is none or the file proves damaged, even
        half way.
        """
        try:
            with (
                contextlib.suppress(_Unusable),
                locks.shared(self._lock, purpose="use the embedding cache", timeout=BUSY_SECONDS),
            ):
                return self._on_connection(action)
            with locks.exclusive(self._lock, purpose="repair the embedding cache", timeout=BUSY_SECONDS):
                try:
                    return self._on_connection(action)  # another process may have repaired it meanwhile
                except _Unusable as damage:
                    self._note_loss(damage, *self._make_anew())
                return self._on_connection(action)
        except OSError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError) -> FileFailed:
        return FileFailed(f"Cannot use the embedding cache {self._path}: {error}", path=str(self._path))

    def _on_connection(
        self, action: Callable[[sqlite3.Connection], T], *, new: bool = False, upgrade: bool = True
    ) -> T:
        """Raises `_Unusable` for a missing, damaged or foreign file, unless it is `new`.

        `upgrade`: add checksums to an older file.
        """
        if not new and not self._path.exists():
            raise _Unusable("There is no embedding cache yet.")
        try:
            if new:
                permissions.make_file(self._path)  # what SQLite puts beside it is as open as the database
            connection = table.connect(self._path, BUSY_SECONDS)
            with contextlib.closing(connection):
                if not new and connection.execute("PRAGMA application_id").fetchone() != (table.APPLICATION_ID,):
                    raise _Unusable(f"{self._path} is a database of another program or version.")
                if not new and connection.execute("PRAGMA user_version").fetchone() == (0,):
                    table.begin_noting(connection)  # a file from before uses were noted
                if not new and upgrade:
                    table.require_checksums(connection)
                return action(connection)
        except sqlite3.Error as error:
            raise self._public_error(error) from error

    def _make_anew(self) -> tuple[Path | None, int]:
        """Replace a damaged file by a cache of its sound rows. Hold the lock.

        Returns the damaged file's new path, and the number of rows.
        """
        aside = self._set_aside()
        self._on_connection(table.create, new=True)
        return aside, self._on_connection(lambda connection: table.salvage(connection, aside)) if aside else 0

    def _note_loss(self, damage: _Unusable, aside: Path | None, kept: int) -> None:
        if aside:
            rest = f"{plural(kept, 'vector')} that prove themselves were kept, others" if kept else "its vectors"
            self._progress.note(f"{damage} It was set aside as {aside.name}; {rest} are computed again when needed.")

    def _set_aside(self) -> Path | None:
        """Rename the file; None for a missing or empty one, as a killed creation leaves it."""
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        names = (self._path.with_name(f"{self._path.name}.corrupt-{number}") for number in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        for suffix in ("-journal", "-wal", "-shm", ""):  # a new database must never meet the old one's journal
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).replace(aside.with_name(aside.name + suffix))
        return aside

    def _public_error(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # All SQL here is constant: an error in it (SQLITE_ERROR) says that the file's tables are
        # not ours.
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return _Unusable(f"The embedding cache {self._path} is damaged ({error}).")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(
                f"The embedding cache {self._path} was in use for {BUSY_SECONDS:g} s.",
                hint="Wait for the other command to finish and run this one again.",
                path=str(self._path),
            )
        return FileFailed(
            f"The embedding cache {self._path} failed: {error}.",
            hint="Check free space and permissions of its folder; the file can be deleted while no command runs.",
            path=str(self._path),
        )


def _key(model_fingerprint: str, chunk_hash: str) -> bytes:
    return hashlib.blake2b(f"{model_fingerprint}\0{chunk_hash}".encode(), digest_size=table.KEY_BYTES).digest()


def _batches(items: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch
