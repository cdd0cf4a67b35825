"""The cache of vectors: no chunk is embedded twice. One SQLite file for all worktrees; losing it costs only time.

A connection lives for one call, under a lock that all users of the file share; who replaces a damaged file holds it
alone. Otherwise the connections of others would go on working, by name, with the journal of a file that is not theirs.
The journal is SQLite's rollback journal, waited for `BUSY_SECONDS`: a killed writer's transaction is undone by the next
process, and it works on network file systems, where WAL does not. Opening costs half a millisecond.

`uses` says on which day something of each block of 64 neighbouring rows was asked for last; what is stored together is
mostly used together. A day for each vector would make finding 10,000 of them a third slower, a day in the vectors' own
rows would rewrite them all once a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from vmrag_link import locks, permissions
from vmrag_link.embedding.base import Vector
from vmrag_link.errors import Busy, FileFailed
from vmrag_link.models import Record
from vmrag_link.progress import QUIET, Progress

APPLICATION_ID = 0x766D6563  # "vmec" in the file's header: says that a database is this cache, in this format
BUSY_SECONDS = 30.0
KEYS_A_QUERY = 500
FLOAT32 = 4
BLOCK = 64
MEGABYTE = 1_000_000
DAY_SECONDS = 86_400

_VECTORS = (
    "vectors (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)"  # a rowid table: WITHOUT ROWID is four times as slow
)
_USES = "uses (block INTEGER PRIMARY KEY, day INTEGER NOT NULL)"
# A block that nobody has noted a use of counts as used on the day when uses began to be noted in this file.
_DAY = "coalesce(uses.day, (SELECT user_version FROM pragma_user_version))"
_BLOCKS = f"FROM vectors LEFT JOIN uses ON uses.block = vectors.rowid / {BLOCK}"

T = TypeVar("T")


class _Unusable(Exception):
    """The file is damaged, or is not this cache."""


class Excess(Record, frozen=True):
    """Vectors beyond the limits: how many, and the bytes of the file that they take."""

    number: int = 0
    bytes: int = 0


class _Boundary(Record, frozen=True):
    """The first `number` vectors in the order of (day, block), up to this place, are beyond the limits."""

    number: int = 0
    day: int = 0
    block: int = 0


class EmbeddingCache:
    """Vectors by (model fingerprint, chunk hash). Safe for several processes; nothing is held between calls.

    A damaged or foreign file is set aside as `<name>.corrupt-<n>`, `progress` gets a note, and an empty cache takes its
    place, at any call. Calls raise `FileFailed` (disk full, no permission) and `Busy`.
    """

    def __init__(self, path: Path, *, progress: Progress = QUIET) -> None:
        self._path = path
        self._progress = progress

    def get(self, model_fingerprint: str, hashes: Sequence[str], *, dimensions: int) -> dict[str, Vector]:
        """The vectors that are there. A stored vector that is not `dimensions` long counts as absent."""
        names = {_key(model_fingerprint, chunk): chunk for chunk in hashes}

        def read(connection: sqlite3.Connection) -> dict[str, Vector]:
            found: dict[str, Vector] = {}
            used: set[int] = set()
            for keys in _batches(sorted(names), KEYS_A_QUERY):  # neighbours in the index are read together
                marks = ",".join("?" * len(keys))
                rows = connection.execute(
                    f"SELECT key, vector, rowid / {BLOCK} FROM vectors WHERE key IN ({marks})",  # noqa: S608
                    keys,
                ).fetchall()
                found.update((names[key], vector) for key, vector, _ in rows if len(vector) == dimensions * FLOAT32)
                used.update([block for _, _, block in rows])
            _note(connection, used)
            return found

        return self._run(read)

    def put(self, model_fingerprint: str, vectors: Mapping[str, Vector]) -> None:
        """Store in one transaction, durable on return."""
        rows = sorted((_key(model_fingerprint, chunk), vector) for chunk, vector in vectors.items())

        def write(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                before = _last_block(connection)
                connection.executemany("INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)", rows)
                _use(connection, range(before, _last_block(connection) + 1))

        self._run(write)

    def excess(self, *, megabytes: int, days: int) -> Excess:
        """What `prune` would remove."""
        if not self._path.exists():
            return Excess()

        def measure(connection: sqlite3.Connection) -> Excess:
            number = _boundary(connection, megabytes, days).number
            return Excess(number, round(number * _bytes_each(connection)))

        return self._run(measure)

    def prune(self, *, megabytes: int, days: int) -> Excess:
        """Remove what was not used for so many days, and then the oldest until the file is no larger; 0 is no limit.

        The rest is copied to a file that takes the place of this one: the space is given back at once, and a kill at any
        moment leaves the one or the other.
        """
        if not self.excess(megabytes=megabytes, days=days).number:
            return Excess()
        before = self._path.stat().st_size
        temporary = self._path.with_name(f".{self._path.name}.{os.urandom(6).hex()}.tmp")
        with locks.exclusive(self._lock, purpose="shrink the embedding cache", timeout=BUSY_SECONDS):
            try:
                number = self._on_connection(lambda connection: _copy(connection, temporary, megabytes, days))
                with temporary.open("rb") as copied:
                    os.fsync(copied.fileno())
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
        """A sentence about what is wrong with the file; empty where nothing is, or no file. A millisecond a megabyte.

        The file stays as it is, unlike with all other calls.
        """
        if not self._path.exists():
            return ""
        try:
            with locks.shared(self._lock, purpose="check the embedding cache", timeout=BUSY_SECONDS):
                found = self._on_connection(
                    lambda connection: connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                )
        except _Unusable as damage:
            return str(damage)
        return "" if found == "ok" else f"The embedding cache {self._path} is damaged ({found})."

    def discard(self) -> None:
        """Remove the file and all vectors."""
        with locks.exclusive(self._lock, purpose="remove the embedding cache", timeout=BUSY_SECONDS):
            for suffix in ("-journal", "-wal", "-shm", ""):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    @property
    def _lock(self) -> Path:
        return self._path.with_name(self._path.name + ".lock")

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The action's result, on a fresh cache where there is none or the file proves damaged, even half way."""
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
                    self._set_aside(damage)
                self._on_connection(_create, new=True)
                return self._on_connection(action)
        except OSError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: OSError) -> FileFailed:
        return FileFailed(f"Cannot use the embedding cache {self._path}: {error}", path=str(self._path))

    def _on_connection(self, action: Callable[[sqlite3.Connection], T], *, new: bool = False) -> T:
        """Raises `_Unusable` for a missing, damaged or foreign file, unless it is `new`."""
        if not new and not self._path.exists():
            raise _Unusable("There is no embedding cache yet.")
        try:
            if new:
                permissions.make_file(self._path)  # what SQLite puts beside it is as open as the database
            connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            with contextlib.closing(connection):
                if not new and connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                    raise _Unusable(f"{self._path} is a database of another program or version.")
                if not new and connection.execute("PRAGMA user_version").fetchone() == (0,):
                    _begin_noting(connection)  # a file from before uses were noted
                return action(connection)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _set_aside(self, damage: _Unusable) -> None:
        """Rename the file; what holds nothing at all (a creation that was killed) goes without a word."""
        if not self._path.exists() or not self._path.stat().st_size:
            return
        names = (self._path.with_name(f"{self._path.name}.corrupt-{number}") for number in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        for suffix in ("-journal", "-wal", "-shm", ""):  # a new database must never meet the old one's journal
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).replace(aside.with_name(aside.name + suffix))
        self._progress.note(f"{damage} It was set aside as {aside.name}; its vectors are computed again when needed.")

    def _translated(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
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


def _create(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        connection.execute(f"CREATE TABLE {_VECTORS}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _begin_noting(connection)


def _begin_noting(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        connection.execute(f"CREATE TABLE IF NOT EXISTS {_USES}")
        connection.execute(f"PRAGMA user_version = {_today()}")


# -- use and age


def _today() -> int:
    """Days since 1970, UTC."""
    return int(time.time() // DAY_SECONDS)


def _note(connection: sqlite3.Connection, used: set[int]) -> None:
    """Note that these blocks were used today, unless it was noted already."""
    if not used:
        return
    bounds = (_today(), min(used), max(used))
    noted = connection.execute("SELECT block FROM uses WHERE day >= ? AND block BETWEEN ? AND ?", bounds)
    if fresh := used.difference(block for (block,) in noted):
        connection.execute("PRAGMA busy_timeout = 0")
        # Busy, read-only, disk full: whoever uses them next notes it. What was found is found.
        with contextlib.suppress(sqlite3.OperationalError), _transaction(connection):
            _use(connection, fresh)


def _use(connection: sqlite3.Connection, blocks: Iterable[int]) -> None:
    today = _today()
    rows = [(block, today) for block in sorted(blocks)]
    connection.executemany("INSERT OR REPLACE INTO uses (block, day) VALUES (?, ?)", rows)


def _last_block(connection: sqlite3.Connection) -> int:
    last: int = connection.execute("SELECT coalesce(max(rowid), 0) FROM vectors").fetchone()[0]
    return last // BLOCK


def _boundary(connection: sqlite3.Connection, megabytes: int, days: int) -> _Boundary:
    rows = connection.execute(
        f"SELECT {_DAY} AS day, vectors.rowid / {BLOCK} AS block, count(*) {_BLOCKS} GROUP BY 1, 2 ORDER BY 1, 2"
    ).fetchall()
    there = sum(count for _, _, count in rows)
    allowed = math.floor(megabytes * MEGABYTE / _bytes_each(connection)) if megabytes and there else there
    oldest = _today() - days if days else 0
    boundary = _Boundary()
    for day, block, count in rows:
        if day >= oldest and there - boundary.number <= allowed:
            break
        boundary = _Boundary(boundary.number + count, day, block)
    return boundary


def _bytes_each(connection: sqlite3.Connection) -> float:
    """Bytes of the file for each vector."""
    pages, size, number = connection.execute(
        "SELECT page_count, page_size, (SELECT count(*) FROM vectors) FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    return float(pages * size / max(number, 1))


def _copy(connection: sqlite3.Connection, target: Path, megabytes: int, days: int) -> int:
    """Write what is within the limits to a new file; returns how many vectors that leaves out. Not durable on return."""
    boundary = _boundary(connection, megabytes, days)
    place = boundary.day, boundary.block
    connection.execute("ATTACH ? AS kept", (str(target),))
    connection.execute("PRAGMA kept.journal_mode = OFF")
    connection.execute("PRAGMA kept.synchronous = OFF")
    since = connection.execute("PRAGMA user_version").fetchone()[0]
    with _transaction(connection):
        connection.execute(f"CREATE TABLE kept.{_VECTORS}")
        connection.execute(f"CREATE TABLE kept.{_USES}")
        within = f"WHERE ({_DAY}, vectors.rowid / {BLOCK}) > (?, ?)"
        connection.execute(
            f"INSERT INTO kept.vectors (rowid, key, vector) SELECT vectors.rowid, key, vector {_BLOCKS} {within}",
            place,
        )
        connection.execute("INSERT INTO kept.uses SELECT * FROM main.uses WHERE (day, block) > (?, ?)", place)
        connection.execute(f"PRAGMA kept.application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA kept.user_version = {since}")
    connection.execute("DETACH kept")
    return boundary.number


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _key(model_fingerprint: str, chunk_hash: str) -> bytes:
    return hashlib.blake2b(f"{model_fingerprint}\0{chunk_hash}".encode(), digest_size=16).digest()


def _batches(items: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch
