"""The cache of vectors: no chunk is embedded twice.

One SQLite file for all work trees (`cache_file`), derived data. A row with a wrong checksum counts
as absent; it is embedded again and replaced (two microseconds per row). The tables are in
`cache_table`. `vectors_for` takes from it what it can, and asks the model only for what was never
seen before.
"""

from __future__ import annotations

import array
import hashlib
import itertools
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.embedding import cache_file
from vmrag_link.embedding import cache_table as table
from vmrag_link.embedding.base import Model, Vector
from vmrag_link.embedding.cache_file import CacheFile, UnusableCache
from vmrag_link.errors import EmbeddingFailed, FileFailed, plural, refuses_writing
from vmrag_link.models import Record
from vmrag_link.paths import sync_to_disk
from vmrag_link.progress import ASKING, EMBEDDING, QUIET, Progress

KEYS_A_QUERY = 500


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
        self._file = CacheFile(path, progress)

    def read_vectors(self, model_fingerprint: str, hashes: Sequence[str], *, dimensions: int) -> dict[str, Vector]:
        """The vectors that are there.

        Damaged ones, and ones not `dimensions` long, count as absent. Where no file can be written,
        a missing cache is an empty one.
        """
        names = {_key(model_fingerprint, chunk): chunk for chunk in hashes}

        def read(connection: sqlite3.Connection) -> dict[str, Vector]:
            found: dict[bytes, Vector] = {}
            used: set[int] = set()
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
            table.note_use(connection, used)
            size = dimensions * table.FLOAT32
            return {names[key]: vector for key, vector in found.items() if len(vector) == size and key in names}

        try:
            return self._file.run(read)
        except FileFailed as error:
            if not refuses_writing(error):
                raise
            return {}

    def store_vectors(self, model_fingerprint: str, vectors: Mapping[str, Vector]) -> None:
        """Store in one transaction, durable on return."""
        keyed = sorted((_key(model_fingerprint, chunk), vector) for chunk, vector in vectors.items())
        rows = [(key, vector, table.compute_checksum(key, vector)) for key, vector in keyed]

        def write(connection: sqlite3.Connection) -> None:
            with table.transaction(connection):
                before = table.find_last_block(connection)
                connection.executemany(table.STORE, rows)
                table.mark_used(connection, range(before, table.find_last_block(connection) + 1))

        self._file.run(write)

    def measure_excess(self, *, megabytes: int, days: int) -> Excess:
        """What `prune` would remove."""
        if not self._path.exists():
            return Excess()

        def measure(connection: sqlite3.Connection) -> Excess:
            number = table.find_boundary(connection, megabytes, days).number
            return Excess(number, round(number * table.measure_vector_bytes(connection)))

        return self._file.run(measure)

    def prune(self, *, megabytes: int, days: int) -> Excess:
        """Remove vectors unused for `days`, then the oldest until the file is within its size; 0 is
        no limit.

        The rest is copied to a file that replaces this one. So the space is free at once, and a
        kill leaves one or the other.
        """
        if not self.measure_excess(megabytes=megabytes, days=days).number:
            return Excess()
        before = self._path.stat().st_size
        temporary = self._path.with_name(f".{self._path.name}.{os.urandom(6).hex()}.tmp")
        with self._file.lock_exclusive("shrink the embedding cache"):
            try:
                number = self._file.run_once(lambda connection: table.copy_rows(connection, temporary, megabytes, days))
                sync_to_disk(temporary)
                permissions.apply_folder_mode(temporary)
                temporary.replace(self._path)
            except UnusableCache:
                return Excess()  # it was damaged a moment ago: the next use sets it aside
            except OSError as error:
                raise self._file.make_unreachable_error(error) from error
            finally:
                temporary.unlink(missing_ok=True)
        return Excess(number, before - self._path.stat().st_size)

    def find_damage(self) -> str:
        """The problem of the file or of rows, as a sentence; empty if there is none, or no file.

        Takes 3 ms per megabyte. Unlike all other calls, it leaves the file as it is.
        """
        if not self._path.exists():
            return ""

        def look(connection: sqlite3.Connection) -> tuple[str, int]:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            return str(found), len(table.find_damaged_rows(connection)) if found == "ok" else 0

        try:
            with self._file.lock_shared("check the embedding cache"):
                found, wrong = self._file.run_once(look)
        except UnusableCache as damage:
            return str(damage)
        if found != "ok":
            return f"The embedding cache {self._path} is damaged ({found})."
        number = f"{plural(wrong, 'vector')} in the embedding cache {self._path}"
        return f"{number} cannot be trusted: not what was stored." if wrong else ""

    def repair(self) -> None:
        """Keep only the rows that are sound, in a new file if need be."""

        def remove(connection: sqlite3.Connection) -> None:
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise UnusableCache(f"The embedding cache {self._path} is damaged.")
            with table.transaction(connection):
                wrong = [(row,) for row in table.find_damaged_rows(connection)]
                connection.executemany("DELETE FROM vectors WHERE rowid = ?", wrong)

        with self._file.lock_exclusive("repair the embedding cache"):
            try:
                self._file.run_once(remove)
            except UnusableCache:
                aside, _ = self._file.salvage_file()
                if aside:
                    cache_file.remove_database(aside)

    def export_vectors(self, target: Path) -> None:
        """Write the vectors to a new file, which `take_in` reads; none where there are none."""
        if self._path.exists():
            self._file.run(lambda connection: table.copy_rows(connection, target, 0, 0))

    def import_vectors(self, source: Path) -> int:
        """Copy the rows that prove themselves from a cache's file of unknown origin.

        Returns their number. The rows are copied, because the file itself may hold more than
        tables. A proof shows that a row is what was written, not that the model made it.
        """

        def read(connection: sqlite3.Connection) -> int:
            return table.salvage_rows(connection, source) if table.has_cache_table(source) else 0

        return self._file.run(read)

    def delete_vectors(self) -> None:
        """Forget every vector."""
        with self._file.lock_exclusive("empty the embedding cache"):
            cache_file.remove_database(self._path)


def _key(model_fingerprint: str, chunk_hash: str) -> bytes:
    return hashlib.blake2b(f"{model_fingerprint}\0{chunk_hash}".encode(), digest_size=table.KEY_BYTES).digest()


def _batches(items: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


BATCH, LOCAL_BATCH = 256, 4096
"""Texts whose vectors are stored at once: a local model makes them again for nothing."""


class EmbeddingCounts(Record, frozen=True):
    """Numbers of texts: embedded just now, and taken from the cache."""

    embedded: int
    cached: int


def embed_texts(
    cache: EmbeddingCache,
    model: Model,
    texts: Mapping[str, str],
    progress: Progress = QUIET,
    *,
    elsewhere: Callable[[], bool] | None = None,
) -> tuple[dict[str, Vector], EmbeddingCounts]:
    """The vector of every text, by `models.content_hash`.

    A kill loses at most one batch. `elsewhere` is called before a service is asked; it returns
    whether it put vectors into the cache. Raises `EmbeddingFailed`.
    """

    def cached(names: list[str]) -> dict[str, Vector]:
        return cache.read_vectors(model.fingerprint, names, dimensions=model.dimensions)

    vectors = cached(list(texts))
    missing = [chunk for chunk in texts if chunk not in vectors]
    if missing and elsewhere and not model.local and elsewhere():
        vectors = cached(list(texts))  # all: vectors that were here may have been replaced
        missing = [chunk for chunk in texts if chunk not in vectors]
    counts = EmbeddingCounts(embedded=len(missing), cached=len(vectors))
    if missing:
        with progress.task(EMBEDDING if model.local else ASKING, len(missing)) as task:
            size = LOCAL_BATCH if model.local else BATCH
            for start in range(0, len(missing), size):
                batch = missing[start : start + size]
                fresh = dict(zip(batch, model.embed([texts[chunk] for chunk in batch]), strict=True))
                _require_numbers(model, fresh)
                try:
                    cache.store_vectors(model.fingerprint, fresh)
                except FileFailed as error:
                    if not (model.local and refuses_writing(error)):  # a service is paid for each vector
                        raise
                vectors.update(fresh)
                task.advance(len(batch))
    return vectors, counts


def _require_numbers(model: Model, vectors: Mapping[str, Vector]) -> None:
    """Refuse NaN and infinity, which have no distance to anything, before they are stored."""
    if not all(math.isfinite(sum(array.array("f", vector))) for vector in vectors.values()):
        raise EmbeddingFailed(
            f"The embedding model {model.name!r} answered with a vector whose components are no numbers.",
            hint="Run the command again; if that does not help, the model's files or its service are damaged.",
            model=model.fingerprint,
        )
