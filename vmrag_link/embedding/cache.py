"""The cache of vectors: no chunk is embedded twice. One SQLite file for all worktrees; losing it costs only time.

A connection lives for one call, under a lock that all users of the file share; who replaces a damaged file holds it
alone. Otherwise the connections of others would go on working, by name, with the journal of a file that is not theirs.
The journal is SQLite's rollback journal, waited for `BUSY_SECONDS`: a killed writer's transaction is undone by the next
process, and it works on network file systems, where WAL does not. Opening costs half a millisecond.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from vmrag_link import locks
from vmrag_link.embedding.base import Vector
from vmrag_link.errors import Busy, FileFailed
from vmrag_link.progress import QUIET, Progress

APPLICATION_ID = 0x766D6563  # "vmec" in the file's header: says that a database is this cache, in this format
BUSY_SECONDS = 30.0
KEYS_A_QUERY = 500
FLOAT32 = 4

T = TypeVar("T")


class _Unusable(Exception):
    """The file is damaged, or is not this cache."""


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
            for keys in _batches(sorted(names), KEYS_A_QUERY):  # neighbours in the index are read together
                marks = ",".join("?" * len(keys))
                rows = connection.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", keys)  # noqa: S608
                found.update((names[key], vector) for key, vector in rows if len(vector) == dimensions * FLOAT32)
            return found

        return self._run(read)

    def put(self, model_fingerprint: str, vectors: Mapping[str, Vector]) -> None:
        """Store in one transaction, durable on return."""
        rows = sorted((_key(model_fingerprint, chunk), vector) for chunk, vector in vectors.items())

        def write(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                connection.executemany("INSERT OR REPLACE INTO vectors (key, vector) VALUES (?, ?)", rows)

        self._run(write)

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The action's result, on a fresh cache where there is none or the file proves damaged, even half way."""
        lock = self._path.with_name(self._path.name + ".lock")
        try:
            with (
                contextlib.suppress(_Unusable),
                locks.shared(lock, purpose="use the embedding cache", timeout=BUSY_SECONDS),
            ):
                return self._on_connection(action)
            with locks.exclusive(lock, purpose="repair the embedding cache", timeout=BUSY_SECONDS):
                try:
                    return self._on_connection(action)  # another process may have repaired it meanwhile
                except _Unusable as damage:
                    self._set_aside(damage)
                self._on_connection(_create, new=True)
                return self._on_connection(action)
        except OSError as error:
            raise FileFailed(f"Cannot use the embedding cache {self._path}: {error}", path=str(self._path)) from error

    def _on_connection(self, action: Callable[[sqlite3.Connection], T], *, new: bool = False) -> T:
        """Raises `_Unusable` for a missing, damaged or foreign file, unless it is `new`."""
        if not new and not self._path.exists():
            raise _Unusable("There is no embedding cache yet.")
        try:
            connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            with contextlib.closing(connection):
                if not new and connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
                    raise _Unusable(f"{self._path} is a database of another program or version.")
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
    with _transaction(connection):  # a rowid table: WITHOUT ROWID is four times as slow with rows of 1 KiB
        connection.execute("CREATE TABLE vectors (key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


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
