"""The cache of vectors, so that no chunk is embedded twice.

It is one SQLite file for all work trees (`cache_file`), and can be deleted at any time. A row with
a wrong checksum is ignored, embedded again and replaced. Checking takes two microseconds per row.
The tables are in `cache_table`. `embed_texts` reads from the cache what it can, and asks the model
only for the rest.
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
from vmrag_link.file_access import sync_to_disk
from vmrag_link.models import Record
from vmrag_link.progress import ASKING, EMBEDDING, QUIET, Progress

KEYS_PER_QUERY = 500


class Excess(Record, frozen=True):
    """Vectors beyond the limits: their number, and their bytes in the file."""

    number: int = 0
    bytes: int = 0


class EmbeddingCache:
    """Vectors by model fingerprint and chunk hash.

    Several processes may use it at once, and it keeps nothing in memory between calls. If the file
    is damaged or foreign, any call renames it to `<name>.corrupt-<n>`, notifies `progress`, and
    creates a new cache with the undamaged rows. Calls raise `FileFailed` (disk full, no permission)
    and `Busy`.
    """

    def __init__(self, path: Path, *, progress: Progress = QUIET) -> None:
        self._path = path
        self._file = CacheFile(path, progress)

    def read_vectors(self, model_fingerprint: str, hashes: Sequence[str], *, dimensions: int) -> dict[str, Vector]:
        """Return the vectors that the cache has, by chunk hash.

        Damaged vectors, and vectors of other `dimensions`, are left out. If no cache exists and no
        file can be written, the result is empty.
        """
        names = {_make_key(model_fingerprint, chunk): chunk for chunk in hashes}

        def read(connection: sqlite3.Connection) -> dict[str, Vector]:
            by_key: dict[bytes, Vector] = {}
            used: set[int] = set()
            sorted_keys = sorted(names)  # adjacent keys are in one page of the index
            for keys in _split_batches(sorted_keys, KEYS_PER_QUERY):
                marks = ",".join("?" * len(keys))
                rows = connection.execute(
                    f"SELECT rowid, key, vector, checksum FROM vectors WHERE key IN ({marks})",  # noqa: S608
                    keys,
                )
                for row, key, vector, checksum in rows.fetchall():
                    used.add(row // table.BLOCK)
                    if table.is_proven(key, vector, checksum):
                        by_key[key] = vector
            table.note_use(connection, used)
            size = dimensions * table.FLOAT32
            return {names[key]: vector for key, vector in by_key.items() if len(vector) == size and key in names}

        try:
            return self._file.run(read)
        except FileFailed as error:
            if not refuses_writing(error):
                raise
            return {}

    def store_vectors(self, model_fingerprint: str, vectors: Mapping[str, Vector]) -> None:
        """Store vectors in one transaction. They are on the disk when it returns."""
        keyed = sorted((_make_key(model_fingerprint, chunk), vector) for chunk, vector in vectors.items())
        rows = [(key, vector, table.compute_checksum(key, vector)) for key, vector in keyed]

        def write(connection: sqlite3.Connection) -> None:
            with table.transaction(connection):
                first_block = table.find_last_block(connection)
                connection.executemany(table.STORE, rows)
                table.mark_used(connection, range(first_block, table.find_last_block(connection) + 1))

        self._file.run(write)

    def measure_excess(self, *, megabytes: int, days: int) -> Excess:
        """Return what `prune` would remove."""
        if not self._path.exists():
            return Excess()

        def measure(connection: sqlite3.Connection) -> Excess:
            number = table.find_boundary(connection, megabytes, days).number
            return Excess(number, round(number * table.measure_vector_bytes(connection)))

        return self._file.run(measure)

    def prune(self, *, megabytes: int, days: int) -> Excess:
        """Remove vectors that were not used for `days`, then the oldest until the file has
        `megabytes`. 0 means no limit.

        The other vectors are copied to a file that replaces this one. So the space is free at once,
        and a kill leaves either file intact.
        """
        if not self.measure_excess(megabytes=megabytes, days=days).number:
            return Excess()
        old_size = self._path.stat().st_size
        temporary = self._path.with_name(f".{self._path.name}.{os.urandom(6).hex()}.tmp")
        with self._file.lock_exclusive("shrink the embedding cache"):
            try:
                number = self._file.run_once(lambda connection: table.copy_rows(connection, temporary, megabytes, days))
                sync_to_disk(temporary)
                permissions.apply_folder_mode(temporary)
                temporary.replace(self._path)
            except UnusableCache:
                return Excess()  # the file was damaged just now; the next call replaces it
            except OSError as error:
                raise self._file.make_unreachable_error(error) from error
            finally:
                temporary.unlink(missing_ok=True)
        return Excess(number, old_size - self._path.stat().st_size)

    def find_damage(self) -> str:
        """Return the problem of the file or of rows, as a sentence; empty if there is none, or no
        file.

        This takes 3 ms per megabyte. Unlike all other calls, it does not change the file.
        """
        if not self._path.exists():
            return ""

        def check(connection: sqlite3.Connection) -> tuple[str, int]:
            result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            return str(result), len(table.find_damaged_rows(connection)) if result == "ok" else 0

        try:
            with self._file.lock_shared("check the embedding cache"):
                result, wrong = self._file.run_once(check)
        except UnusableCache as damage:
            return str(damage)
        if result != "ok":
            return f"the embedding cache {self._path} is damaged ({result})."
        return f"the embedding cache {self._path} has {plural(wrong, 'damaged vector')}." if wrong else ""

    def repair(self) -> None:
        """Keep only the undamaged rows, in a new file if necessary."""

        def remove_damaged_rows(connection: sqlite3.Connection) -> None:
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                raise UnusableCache(f"the embedding cache {self._path} is damaged.")
            with table.transaction(connection):
                wrong = [(row,) for row in table.find_damaged_rows(connection)]
                connection.executemany("DELETE FROM vectors WHERE rowid = ?", wrong)

        with self._file.lock_exclusive("repair the embedding cache"):
            try:
                self._file.run_once(remove_damaged_rows)
            except UnusableCache:
                aside, _ = self._file.salvage_file()
                if aside:
                    cache_file.remove_database(aside)

    def export_vectors(self, target: Path) -> None:
        """Write the vectors to a new file for `import_vectors`. An empty cache writes no file."""
        if self._path.exists():
            self._file.run(lambda connection: table.copy_rows(connection, target, 0, 0))

    def import_vectors(self, source: Path) -> int:
        """Copy the rows with a valid checksum from another cache's file, and return their number.

        The file may come from anywhere, and may contain more than tables, so only rows are copied.
        A checksum proves that a row is what was written, not that the model computed it.
        """

        def read(connection: sqlite3.Connection) -> int:
            return table.salvage_rows(connection, source) if table.has_cache_table(source) else 0

        return self._file.run(read)

    def delete_vectors(self) -> None:
        """Delete every vector."""
        with self._file.lock_exclusive("empty the embedding cache"):
            cache_file.remove_database(self._path)


def _make_key(model_fingerprint: str, chunk_hash: str) -> bytes:
    return hashlib.blake2b(f"{model_fingerprint}\0{chunk_hash}".encode(), digest_size=table.KEY_BYTES).digest()


def _split_batches(items: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


BATCH = 256
"""Number of texts of a service whose vectors are stored at once."""

LOCAL_BATCH = 4096
"""Number of texts of a local model whose vectors are stored at once. It is larger, because a local
model can compute them again for free.
"""


class EmbeddingCounts(Record, frozen=True):
    """Numbers of texts."""

    embedded: int
    """Texts that were embedded now."""

    cached: int
    """Texts whose vectors were in the cache."""


def embed_texts(
    cache: EmbeddingCache,
    model: Model,
    texts: Mapping[str, str],
    progress: Progress = QUIET,
    *,
    elsewhere: Callable[[], bool] | None = None,
) -> tuple[dict[str, Vector], EmbeddingCounts]:
    """Return the vector of every text, by `models.content_hash`.

    A kill loses at most one batch. `elsewhere` is called before any request to a service. It
    returns whether it stored vectors in the cache. Raises `EmbeddingFailed`.
    """

    def read_cached(names: list[str]) -> dict[str, Vector]:
        return cache.read_vectors(model.fingerprint, names, dimensions=model.dimensions)

    vectors = read_cached(list(texts))
    missing = [chunk for chunk in texts if chunk not in vectors]
    if missing and elsewhere and not model.local and elsewhere():
        vectors = read_cached(list(texts))  # all, because cached vectors may have been replaced
        missing = [chunk for chunk in texts if chunk not in vectors]
    counts = EmbeddingCounts(embedded=len(missing), cached=len(vectors))
    if missing:
        with progress.task(EMBEDDING if model.local else ASKING, len(missing)) as task:
            size = LOCAL_BATCH if model.local else BATCH
            for start in range(0, len(missing), size):
                batch = missing[start : start + size]
                fresh = dict(zip(batch, model.embed([texts[chunk] for chunk in batch]), strict=True))
                _check_numbers(model, fresh)
                try:
                    cache.store_vectors(model.fingerprint, fresh)
                except FileFailed as error:
                    if not (model.local and refuses_writing(error)):  # a service is paid for each vector
                        raise
                vectors.update(fresh)
                task.advance(len(batch))
    return vectors, counts


def _check_numbers(model: Model, vectors: Mapping[str, Vector]) -> None:
    """Raise `EmbeddingFailed` for NaN and infinity, which have no distance, before they are
    stored.
    """
    if not all(math.isfinite(sum(array.array("f", vector))) for vector in vectors.values()):
        raise EmbeddingFailed(
            f"the embedding model {model.name!r} returned a vector with invalid numbers.",
            hint="run the command again, or check the model's files or its service if it fails again",
            model=model.fingerprint,
        )
