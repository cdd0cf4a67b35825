"""An adapter of the Rust bindings of chromadb. No other module calls Chroma.

The bindings are a private API, but a process that uses them starts in 0.1 s, and importing the
public client takes 2 s. So vmrag accepts only the versions with which `test_chroma_contract.py` was
run. The library aborts the process if a resource limit is too low, so the limits are checked first.
Only one process writes to a store: it builds the store under a temporary name, and no process
changes it after `stores` has renamed it.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib.util
import itertools
import os
import re
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from vmrag_link import extras
from vmrag_link.chroma import DATABASE_FILE
from vmrag_link.errors import IndexExtraMissing, IndexFailed, LimitTooLow, is_too_long, no_space, path_too_long, quoted
from vmrag_link.index.metadata import MetadataValue
from vmrag_link.models import Distance, Record

TENANT = "default_tenant"
DATABASE = "default_database"
SUPPORTED = "chromadb>=1.5.4,<1.6"
"""The requirement in `pyproject.toml`. 1.5.2 fails the contract test, and 1.5.3 was withdrawn."""

_SUPPORTED_PATTERN = re.compile(r"1\.5\.(?:[4-9]|[1-9]\d+)(?!\d)")

BATCH = 5_000
"""Rows per call. Chroma accepts at most 5,461, and its SQL 32,766 variables."""

HNSW_CACHE = 64
"""Number of HNSW indexes that a process keeps open. Each has five open files."""

LOW_SPACE_BYTES = 1 << 20
"""If the free space is less than this, a failure of Chroma is reported as a full disk."""

NO_SETTINGS: Mapping[str, int] = MappingProxyType({})


class RowBatch(msgspec.Struct, frozen=True):
    """Chunks to add, as parallel lists."""

    ids: list[str]
    vectors: list[bytes]
    """Little-endian float32."""

    metadatas: list[Mapping[str, MetadataValue]]
    documents: list[str] | None
    """The texts; None to store no texts."""


class StoredRow(Record, frozen=True):
    """A chunk in a store."""

    id: str
    text: str | None
    metadata: dict[str, Any]
    vector: Sequence[float]
    """Empty if it was not requested."""


class ChromaCollection(msgspec.Struct, frozen=True):
    """A collection in the store of any program."""

    id: str
    name: str
    space: Distance
    """The distance."""

    metadata: dict[str, Any]


def open_store(folder: Path) -> ChromaStore:
    """Open the store in `folder`, or create it.

    Raises `IndexExtraMissing`, `IndexFailed` and `LimitTooLow`.
    """
    require_supported()
    require_resources()
    if is_too_long(folder / DATABASE_FILE):
        error = path_too_long(folder / DATABASE_FILE)
        raise IndexFailed(error.message, hint=error.hint)
    return ChromaStore(folder)


def require_supported() -> None:
    """Raise `IndexExtraMissing` unless a supported version of chromadb is installed."""
    if error := find_unsupported():
        raise error


def find_unsupported() -> IndexExtraMissing | None:
    """Return the error if no store can be opened here; None if a supported version of chromadb is
    installed.
    """
    spec = importlib.util.find_spec("chromadb")
    if spec is None or not spec.submodule_search_locations:
        return extras.missing_extra_error("chroma", "Chroma's store needs chromadb, which the extra 'chroma' installs.")
    version = extras.read_version("chromadb")
    if _SUPPORTED_PATTERN.match(version):
        return None
    return IndexExtraMissing(
        f"Chroma's store needs {SUPPORTED}, but chromadb {version or 'of an unknown version'} is installed.",
        hint=f"run 'pip install {quoted(SUPPORTED)}' to install it",
        installed=version,
    )


@contextlib.contextmanager
def _foreign_errors(folder: Path, action: str) -> Iterator[None]:
    """Raise `IndexFailed` in place of Chroma's errors. `action` completes "Chroma failed to"."""
    try:
        yield
    except (IndexFailed, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic is a BaseException of no public type
        if _is_disk_full(folder):  # Chroma reports a full disk by many different errors
            raise no_space(folder) from error
        raise IndexFailed(
            f"Chroma failed to {action}: {error}",
            hint="run 'vmrag sync --rebuild' to build the index again",
            folder=str(folder),
            error=type(error).__name__,
        ) from error


def _is_disk_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < LOW_SPACE_BYTES


class ChromaStore:
    """An open store in a folder. Use `open_store` to create one.

    Collections are addressed by Chroma's id, a UUID as text. The methods raise `IndexFailed`, and
    for a full disk the error of `no_space`.
    """

    def __init__(self, folder: Path) -> None:
        try:
            import chromadb_rust_bindings as rust
        except ImportError as error:
            raise IndexExtraMissing(
                f"cannot import chromadb, which Chroma's store needs: {error}",
                hint=f"run 'pip install --force-reinstall {quoted(SUPPORTED)}' to install it again",
            ) from error

        self._folder = folder
        with _foreign_errors(folder, "open the store"):
            config = rust.SqliteDBConfig(
                hash_type=rust.MigrationHash.MD5,
                migration_mode=rust.MigrationMode.Apply,
                url=str(folder / DATABASE_FILE),
            )
            self._rust = rust.Bindings(
                allow_reset=False, sqlite_db_config=config, persist_path=str(folder), hnsw_cache_size=HNSW_CACHE
            )

    def create_collection(
        self, name: str, *, space: str, metadata: Mapping[str, MetadataValue], hnsw: Mapping[str, int] = NO_SETTINGS
    ) -> str:
        """Create an empty collection, and return its id. `hnsw`: settings by Chroma's names."""
        configuration = {"hnsw": {**hnsw, "space": space}, "embedding_function": {"type": "legacy"}}
        settings = msgspec.json.encode(configuration).decode()
        with _foreign_errors(self._folder, f"create collection {name!r}"):
            collection = self._rust.create_collection(name, settings, None, dict(metadata), False, TENANT, DATABASE)
        return str(collection.id)

    def drop_collection(self, name: str) -> None:
        with _foreign_errors(self._folder, f"drop collection {name!r}"):
            self._rust.delete_collection(name, TENANT, DATABASE)

    def replace_metadata(self, collection_id: str, metadata: Mapping[str, MetadataValue]) -> None:
        """Replace the collection's own metadata."""
        with _foreign_errors(self._folder, "describe a collection"):
            self._rust.update_collection(collection_id, None, dict(metadata), None)

    def list_collection_ids(self) -> dict[str, str]:
        """Return the id of each collection by its name."""
        with _foreign_errors(self._folder, "list collections"):
            collections = self._rust.list_collections(None, 0, TENANT, DATABASE)
        return {str(collection.name): str(collection.id) for collection in collections}

    def add_rows(self, collection_id: str, rows: RowBatch) -> None:
        for part in _split_rows(rows):
            with _foreign_errors(self._folder, f"add {len(part.ids)} chunks"):
                self._rust.add(
                    part.ids,
                    collection_id,
                    [_unpack_vector(vector) for vector in part.vectors],
                    [dict(metadata) for metadata in part.metadatas],
                    part.documents,
                    None,
                    TENANT,
                    DATABASE,
                )

    def delete_rows(self, collection_id: str, ids: Sequence[str]) -> None:
        for part in _split_ids(ids):
            with _foreign_errors(self._folder, f"delete {len(part)} chunks"):
                self._rust.delete(collection_id, part, None, None, None, TENANT, DATABASE)

    def list_ids(self, collection_id: str) -> list[str]:
        """Return the ids of all rows, in any order."""
        with _foreign_errors(self._folder, "read ids"):
            answer = self._rust.get(collection_id, None, None, None, 0, None, [], TENANT, DATABASE)
        return list(answer.ids)

    def describe_collections(self) -> list[ChromaCollection]:
        """Return every collection, sorted by name."""
        with _foreign_errors(self._folder, "list collections"):
            collections = self._rust.list_collections(None, 0, TENANT, DATABASE)
        return sorted(map(_describe_collection, collections), key=lambda described: described.name)

    def read_texts(self, collection_id: str) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        """Yield id, text and metadata of every row. Vectors are not read."""
        for page in self.read_pages(collection_id, BATCH):
            for row in page:
                yield row.id, row.text, row.metadata

    def read_pages(
        self, collection_id: str, size: int, *, among: Sequence[str] | None = None, with_vectors: bool = False
    ) -> Iterator[list[StoredRow]]:
        """Yield every row, at most `size` at a time. `among`: only those of these ids that
        exist.
        """
        include = ["documents", "metadatas", *(["embeddings"] if with_vectors else [])]
        for start in itertools.count(0, size):
            ids, limit, skipped = (None, size, start) if among is None else (list(among[start : start + size]), None, 0)
            if ids == []:
                return
            with _foreign_errors(self._folder, "read documents"):
                answer = self._rust.get(collection_id, ids, None, limit, skipped, None, include, TENANT, DATABASE)
            vectors = answer.embeddings if with_vectors else [()] * len(answer.ids)
            rows = zip(answer.ids, answer.documents, answer.metadatas, vectors, strict=True)
            yield [StoredRow(name, text, dict(metadata or {}), vector) for name, text, metadata, vector in rows]
            if among is None and len(answer.ids) < size:
                return

    def close(self) -> None:
        del self._rust
        gc.collect(0)  # the files of the store are closed when the Rust object is deleted


def _describe_collection(collection: Any) -> ChromaCollection:
    settings = collection.configuration
    space = (settings.get("hnsw") or settings.get("spann") or {}).get("space", "l2")  # Chroma's default
    return ChromaCollection(str(collection.id), str(collection.name), space, dict(collection.metadata or {}))


def _unpack_vector(vector: bytes) -> list[float]:
    values = array.array("f")
    values.frombytes(vector)
    return values.tolist()


def _split_ids(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), BATCH):
        yield list(ids[start : start + BATCH])


def _split_rows(rows: RowBatch) -> Iterator[RowBatch]:
    for start in range(0, len(rows.ids), BATCH):
        part = slice(start, start + BATCH)
        documents = None if rows.documents is None else rows.documents[part]
        yield RowBatch(rows.ids[part], rows.vectors[part], rows.metadatas[part], documents)


DESCRIPTORS = 24
"""Number of free file descriptors for the databases, the threads, and one HNSW index of five files.

With 12 the library aborts, with 16 it works.
"""

ADDRESS_SPACE = 400 << 20
"""Number of free bytes. Opening a store maps that much for threads and their arenas. With 300 MB
the library sometimes aborts.
"""

LIBRARY = "chromadb_rust_bindings"


def require_resources() -> None:
    """Raise `LimitTooLow` if a limit of this process is lower than Chroma needs."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files - _count_open_files() < DESCRIPTORS:
        raise LimitTooLow(
            f"the vector index needs {DESCRIPTORS} free file descriptors, but this process may open only {files}.",
            hint="run 'ulimit -n 256'",
            limit="RLIMIT_NOFILE",
        )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if (
        space != resource.RLIM_INFINITY
        and LIBRARY not in sys.modules
        and space - _measure_address_space() < ADDRESS_SPACE
    ):
        raise LimitTooLow(
            f"the vector index needs {ADDRESS_SPACE >> 20} MB of free address space, but this process may have only "
            f"{space >> 20} MB.",
            hint="run 'ulimit -v unlimited'",
            limit="RLIMIT_AS",
        )


def _count_open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))  # noqa: PTH208  numbers, not paths
    except OSError:
        return DESCRIPTORS  # none is free, or the system does not list them


def _measure_address_space() -> int:
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        return int(statm.read().split()[0]) * resource.getpagesize()
    return 0
