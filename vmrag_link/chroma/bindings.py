"""The only module that talks to Chroma: an adapter of the Rust bindings of chromadb.

The bindings are a private API, but a process that uses them starts in 0.1 s; importing the public
client takes 2 s. So they are used for the versions that `test_chroma_contract.py` was run with, and
any other version is an error. The library aborts the process where a limit of it is too low, so the
limits are checked first. One process at a time writes to a store: `stores` names what is made
aside, and nobody changes it afterwards.
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
from vmrag_link.errors import IndexExtraMissing, IndexFailed, LimitTooLow, is_too_long, no_space, path_too_long
from vmrag_link.index.metadata import MetadataValue
from vmrag_link.models import Distance, Record

TENANT = "default_tenant"
DATABASE = "default_database"
SUPPORTED = "chromadb>=1.5.4,<1.6"
"""As in `pyproject.toml`. 1.5.2 fails the contract test, and 1.5.3 is withdrawn."""

_SUPPORTED_PATTERN = re.compile(r"1\.5\.(?:[4-9]|[1-9]\d+)(?!\d)")

BATCH = 5_000
"""Rows per call. Chroma takes 5,461 at most, and its SQL 32,766 variables."""

HNSW_CACHE = 64
"""HNSW indexes that a process keeps open; each holds five files."""

LOW_SPACE_BYTES = 1 << 20
"""Bytes. A failure on a disk with less free space is reported as a full disk."""

NO_SETTINGS: Mapping[str, int] = MappingProxyType({})


class RowBatch(msgspec.Struct, frozen=True):
    """Chunks to add, as parallel lists.

    `vectors` are little-endian float32. Without `documents`, texts are not stored.
    """

    ids: list[str]
    vectors: list[bytes]
    metadatas: list[Mapping[str, MetadataValue]]
    documents: list[str] | None


class StoredRow(Record, frozen=True):
    """A chunk as the store holds it. `vector` is empty where it was not asked for."""

    id: str
    text: str | None
    metadata: dict[str, Any]
    vector: Sequence[float]


class ChromaCollection(msgspec.Struct, frozen=True):
    """A collection of any program's store: `space` is its distance, `metadata` its owner's."""

    id: str
    name: str
    space: Distance
    metadata: dict[str, Any]


def open_store(folder: Path) -> ChromaStore:
    """Open or make the store in `folder`.

    Raises `IndexExtraMissing`, `IndexFailed`, `LimitTooLow`.
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
    """Why no store can be made here; None if a supported version of chromadb is installed."""
    spec = importlib.util.find_spec("chromadb")
    if spec is None or not spec.submodule_search_locations:
        return extras.missing_extra_error(
            "chroma", "Chroma's store needs chromadb, which only the extra 'chroma' installs."
        )
    version = _installed_version(Path(spec.submodule_search_locations[0]).parent)
    if _SUPPORTED_PATTERN.match(version):
        return None
    return IndexExtraMissing(
        f"Chroma's store needs {SUPPORTED}, and chromadb {version or 'of an unknown version'} is installed.",
        hint=f"pip install '{SUPPORTED}'",
        installed=version,
    )


def _installed_version(folder: Path) -> str:
    """The version of chromadb in this folder of packages; empty where its metadata is missing.

    Read from the name of its metadata, because `importlib.metadata` takes 20 ms.
    """
    names = (path.name for path in folder.glob("chromadb-*.dist-info"))
    return next(names, "").removeprefix("chromadb-").removesuffix(".dist-info")


@contextlib.contextmanager
def _foreign_errors(folder: Path, doing: str) -> Iterator[None]:
    """Raise Chroma's errors as ours."""
    try:
        yield
    except (IndexFailed, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic is a BaseException of no public type
        if _is_full(folder):  # Chroma reports a full disk in many ways
            raise no_space(folder) from error
        raise IndexFailed(
            f"Chroma failed to {doing}: {error}",
            hint="The index is derived; 'vmrag sync --rebuild' builds it again.",
            folder=str(folder),
            error=type(error).__name__,
        ) from error


def _is_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < LOW_SPACE_BYTES


class ChromaStore:
    """An open store in a folder. Collections are addressed by Chroma's own id, a UUID as text.

    Use `open_store`. Its methods raise `IndexFailed`, and for a full disk `no_space`.
    """

    def __init__(self, folder: Path) -> None:
        try:
            import chromadb_rust_bindings as rust
        except ImportError as error:
            raise IndexExtraMissing(
                f"Chroma's store needs chromadb, which cannot be imported: {error}",
                hint=f"pip install --force-reinstall '{SUPPORTED}'",
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
        """Make an empty collection and return its id. `hnsw`: settings by Chroma's names."""
        wanted = {"hnsw": {**hnsw, "space": space}, "embedding_function": {"type": "legacy"}}
        settings = msgspec.json.encode(wanted).decode()
        with _foreign_errors(self._folder, f"create collection {name!r}"):
            made = self._rust.create_collection(name, settings, None, dict(metadata), False, TENANT, DATABASE)
        return str(made.id)

    def drop_collection(self, name: str) -> None:
        with _foreign_errors(self._folder, f"drop collection {name!r}"):
            self._rust.delete_collection(name, TENANT, DATABASE)

    def replace_metadata(self, collection_id: str, metadata: Mapping[str, MetadataValue]) -> None:
        """Replace the collection's own metadata."""
        with _foreign_errors(self._folder, "describe a collection"):
            self._rust.update_collection(collection_id, None, dict(metadata), None)

    def list_collection_ids(self) -> dict[str, str]:
        """The id of each collection by its name."""
        with _foreign_errors(self._folder, "list collections"):
            found = self._rust.list_collections(None, 0, TENANT, DATABASE)
        return {str(each.name): str(each.id) for each in found}

    def add_rows(self, collection_id: str, rows: RowBatch) -> None:
        for part in _parts(rows):
            with _foreign_errors(self._folder, f"add {len(part.ids)} chunks"):
                self._rust.add(
                    part.ids,
                    collection_id,
                    [_floats(vector) for vector in part.vectors],
                    [dict(metadata) for metadata in part.metadatas],
                    part.documents,
                    None,
                    TENANT,
                    DATABASE,
                )

    def delete_rows(self, collection_id: str, ids: Sequence[str]) -> None:
        for part in _batches(ids):
            with _foreign_errors(self._folder, f"delete {len(part)} chunks"):
                self._rust.delete(collection_id, part, None, None, None, TENANT, DATABASE)

    def list_ids(self, collection_id: str) -> list[str]:
        """The ids of all rows, in any order."""
        with _foreign_errors(self._folder, "read ids"):
            answer = self._rust.get(collection_id, None, None, None, 0, None, [], TENANT, DATABASE)
        return list(answer.ids)

    def describe_collections(self) -> list[ChromaCollection]:
        """Every collection, sorted by name."""
        with _foreign_errors(self._folder, "list collections"):
            found = self._rust.list_collections(None, 0, TENANT, DATABASE)
        return sorted(map(_described, found), key=lambda each: each.name)

    def read_texts(self, collection_id: str) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        """Id, text and metadata of every row; no vector is read."""
        for page in self.read_pages(collection_id, BATCH):
            for row in page:
                yield row.id, row.text, row.metadata

    def read_pages(
        self, collection_id: str, size: int, *, among: Sequence[str] | None = None, with_vectors: bool = False
    ) -> Iterator[list[StoredRow]]:
        """Every row, or those of these ids that exist, at most `size` at a time."""
        include = ["documents", "metadatas", *(["embeddings"] if with_vectors else [])]
        for at in itertools.count(0, size):
            ids, most, skipped = (None, size, at) if among is None else (list(among[at : at + size]), None, 0)
            if ids == []:
                return
            with _foreign_errors(self._folder, "read documents"):
                answer = self._rust.get(collection_id, ids, None, most, skipped, None, include, TENANT, DATABASE)
            read = answer.embeddings if with_vectors else [()] * len(answer.ids)
            rows = zip(answer.ids, answer.documents, answer.metadatas, read, strict=True)
            yield [StoredRow(name, text, dict(metadata or {}), vector) for name, text, metadata, vector in rows]
            if among is None and len(answer.ids) < size:
                return

    def close(self) -> None:
        del self._rust
        gc.collect(0)  # the store's files are closed when the Rust object goes


def _described(collection: Any) -> ChromaCollection:
    settings = collection.configuration
    space = (settings.get("hnsw") or settings.get("spann") or {}).get("space", "l2")  # Chroma's default
    return ChromaCollection(str(collection.id), str(collection.name), space, dict(collection.metadata or {}))


def _floats(vector: bytes) -> list[float]:
    values = array.array("f")
    values.frombytes(vector)
    return values.tolist()


def _batches(ids: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(ids), BATCH):
        yield list(ids[at : at + BATCH])


def _parts(rows: RowBatch) -> Iterator[RowBatch]:
    for at in range(0, len(rows.ids), BATCH):
        cut = slice(at, at + BATCH)
        documents = None if rows.documents is None else rows.documents[cut]
        yield RowBatch(rows.ids[cut], rows.vectors[cut], rows.metadatas[cut], documents)


DESCRIPTORS = 24
"""Free file descriptors: its databases, its threads, and one HNSW index of five files.

With 12 it aborts, with 16 it works.
"""

ADDRESS_SPACE = 400 << 20
"""Free bytes: opening it maps that much for threads and their arenas. With 300 MB it sometimes
aborts.
"""

LIBRARY = "chromadb_rust_bindings"


def require_resources() -> None:
    """Raises `LimitTooLow` where a limit of this process is below what Chroma needs."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files - _open_files() < DESCRIPTORS:
        raise LimitTooLow(
            f"The vector index needs {DESCRIPTORS} free file descriptors, and this process may open {files} in all.",
            hint="ulimit -n 256",
            limit="RLIMIT_NOFILE",
        )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and LIBRARY not in sys.modules and space - _address_space() < ADDRESS_SPACE:
        raise LimitTooLow(
            f"The vector index needs {ADDRESS_SPACE >> 20} MB of address space more than this process may have "
            f"({space >> 20} MB in all).",
            hint="ulimit -v unlimited",
            limit="RLIMIT_AS",
        )


def _open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))  # noqa: PTH208  numbers, not paths
    except OSError:
        return DESCRIPTORS  # not even that many are left, or nobody tells


def _address_space() -> int:
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as told:  # noqa: PTH123
        return int(told.read().split()[0]) * resource.getpagesize()
    return 0
