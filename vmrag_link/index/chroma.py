"""The only module that talks to Chroma.

`open_store` gives the thin adapter over chromadb's Rust bindings (a whole process in about 0.1 s) where the installed version is
one that the contract test knows, and the public client (2 s to import, same answers) elsewhere. A store is used by one process at
a time for writing; see `snapshots` and `working` for how that is kept.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib.util
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from vmrag_link.errors import FilterInvalid, IndexExtraMissing, IndexFailed, no_space
from vmrag_link.index import limits
from vmrag_link.models import Distance

DATABASE_FILE = "chroma.sqlite3"
TENANT = "default_tenant"
DATABASE = "default_database"
KNOWN_BINDINGS = "1.5."
METADATA = ".dist-info"
BATCH = 5_000
"""Rows a call: Chroma's own limit is 5,461, and ids go into SQL variables of which there are 32,766."""

HNSW_CACHE = 64
"""Open HNSW indexes a process; each holds five files."""

ROOM = 1 << 20
"""Bytes; a failure on a disk with less is one of space."""

MetadataValue = str | int | float | bool | list[str] | list[int] | list[float] | list[bool]

NOTHING: Mapping[str, int] = MappingProxyType({})


class Rows(msgspec.Struct, frozen=True):
    """Chunks to add: parallel lists. `vectors` are float32 little-endian bytes; `documents` None = texts are not stored."""

    ids: list[str]
    vectors: list[bytes]
    metadatas: list[Mapping[str, MetadataValue]]
    documents: list[str] | None


class Described(msgspec.Struct, frozen=True):
    """A collection as its store has it, whoever made it: `space` is its distance, `metadata` what its owner says of it."""

    id: str
    name: str
    space: Distance
    metadata: dict[str, Any]


class ChromaStore(Protocol):
    """An embedded Chroma store, open. Collections are addressed by Chroma's own id (a UUID in text)."""

    def create(
        self, name: str, *, space: str, metadata: Mapping[str, MetadataValue], hnsw: Mapping[str, int] = NOTHING
    ) -> str:
        """Make an empty collection; returns its id. `hnsw`: by the names that Chroma's configuration has."""

    def drop(self, name: str) -> None: ...

    def describe(self, collection_id: str, metadata: Mapping[str, MetadataValue]) -> None:
        """Replace the collection's own metadata."""

    def hnsw(self, name: str) -> dict[str, Any]:
        """What the collection's HNSW index was made with."""

    def collections(self) -> dict[str, str]:
        """Names and ids."""

    def add(self, collection_id: str, rows: Rows) -> None: ...

    def delete(self, collection_id: str, ids: Sequence[str]) -> None: ...

    def count(self, collection_id: str) -> int: ...

    def ids(
        self,
        collection_id: str,
        *,
        among: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        where_document: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """The ids of the rows that exist and match, in no particular order; of any number. Raises `FilterInvalid`."""

    def embeddings(self, collection_id: str, ids: Sequence[str]) -> dict[str, list[float]]:
        """The vectors of those of these rows that exist."""

    def embed(self, collection_id: str, vectors: Mapping[str, bytes]) -> None:
        """Give rows that exist other vectors."""

    def described(self) -> list[Described]:
        """Every collection, sorted by name."""

    def texts(self, collection_id: str) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        """Id, text and metadata of every row; needs no vectors."""

    def close(self) -> None: ...


def open_store(folder: Path, *, public: bool = False) -> ChromaStore:
    """Open (or make) the store in `folder`. Raises `IndexExtraMissing`, `IndexFailed`, `LimitTooLow`."""
    version = _installed_version()
    limits.require()
    if public or not version.startswith(KNOWN_BINDINGS) or not _bindings_present():
        return PublicStore(folder)
    return BindingsStore(folder)


def _installed_version() -> str:
    """From the name of its metadata folder: `importlib.metadata` takes 20 ms to say the same. Empty where that is not told."""
    spec = importlib.util.find_spec("chromadb")
    if spec is None or not spec.submodule_search_locations:
        raise IndexExtraMissing(
            "The vector index needs chromadb, which the base installation leaves out.",
            hint="pip install 'vmrag-link[index]'",
        )
    folder = Path(spec.submodule_search_locations[0]).parent
    names = (path.name for path in folder.glob(f"chromadb-*{METADATA}"))
    return next(names, "").removeprefix("chromadb-").removesuffix(METADATA)


def _bindings_present() -> bool:
    return importlib.util.find_spec("chromadb_rust_bindings") is not None


REFUSALS = frozenset({"InvalidArgumentError", "InvalidWhereError", "ValueError", "TypeError"})
"""What Chroma raises for an argument that it does not take, by name: importing the classes costs 2 s."""


@contextlib.contextmanager
def _translated(folder: Path, doing: str, *, filtered: bool = False) -> Iterator[None]:
    """`filtered`: a refused argument is the filter."""
    try:
        yield
    except (IndexFailed, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # the border to a foreign library: a Rust panic is a BaseException of no public type
        if filtered and type(error).__name__ in REFUSALS:
            raise FilterInvalid(
                f"Chroma does not take this filter: {error}",
                hint="Compare it with docs.trychroma.com/docs/querying-collections.",
            ) from error
        if _full(folder):  # which Chroma reports in many ways
            raise no_space(folder) from error
        raise IndexFailed(
            f"Chroma failed to {doing}: {error}",
            hint="The index is derived; 'vmrag sync --rebuild' builds it again.",
            folder=str(folder),
            error=type(error).__name__,
        ) from error


def _full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < ROOM


class BindingsStore:
    """The private API of chromadb 1.5's Rust bindings. `tests/integration/test_chroma_contract.py` compares it with the public client."""

    def __init__(self, folder: Path) -> None:
        import chromadb_rust_bindings as rust

        self._folder = folder
        with _translated(folder, "open the store"):
            config = rust.SqliteDBConfig(
                hash_type=rust.MigrationHash.MD5,
                migration_mode=rust.MigrationMode.Apply,
                url=str(folder / DATABASE_FILE),
            )
            self._rust = rust.Bindings(
                allow_reset=False, sqlite_db_config=config, persist_path=str(folder), hnsw_cache_size=HNSW_CACHE
            )

    def create(
        self, name: str, *, space: str, metadata: Mapping[str, MetadataValue], hnsw: Mapping[str, int] = NOTHING
    ) -> str:
        wanted = {"hnsw": {**hnsw, "space": space}, "embedding_function": {"type": "legacy"}}
        settings = msgspec.json.encode(wanted).decode()
        with _translated(self._folder, f"create collection {name!r}"):
            made = self._rust.create_collection(name, settings, None, dict(metadata), False, TENANT, DATABASE)
        return str(made.id)

    def drop(self, name: str) -> None:
        with _translated(self._folder, f"drop collection {name!r}"):
            self._rust.delete_collection(name, TENANT, DATABASE)

    def describe(self, collection_id: str, metadata: Mapping[str, MetadataValue]) -> None:
        with _translated(self._folder, "describe a collection"):
            self._rust.update_collection(collection_id, None, dict(metadata), None)

    def hnsw(self, name: str) -> dict[str, Any]:
        with _translated(self._folder, f"look at collection {name!r}"):
            return dict(self._rust.get_collection(name, TENANT, DATABASE).configuration["hnsw"])

    def collections(self) -> dict[str, str]:
        with _translated(self._folder, "list collections"):
            found = self._rust.list_collections(None, 0, TENANT, DATABASE)
        return {str(each.name): str(each.id) for each in found}

    def add(self, collection_id: str, rows: Rows) -> None:
        for part in _parts(rows):
            with _translated(self._folder, f"add {len(part.ids)} chunks"):
                self._rust.add(
                    part.ids,
                    collection_id,
                    [_floats(vector) for vector in part.vectors],
                    [dict(each) for each in part.metadatas],
                    part.documents,
                    None,
                    TENANT,
                    DATABASE,
                )

    def delete(self, collection_id: str, ids: Sequence[str]) -> None:
        for part in _batches(ids):
            with _translated(self._folder, f"delete {len(part)} chunks"):
                self._rust.delete(collection_id, part, None, None, None, TENANT, DATABASE)

    def count(self, collection_id: str) -> int:
        with _translated(self._folder, "count"):
            return int(self._rust.count(collection_id, TENANT, DATABASE))

    def ids(
        self,
        collection_id: str,
        *,
        among: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        where_document: Mapping[str, Any] | None = None,
    ) -> list[str]:
        filters = [msgspec.json.encode(each).decode() if each else None for each in (where, where_document)]
        found: list[str] = []
        for part in [None] if among is None else _batches(among):
            with _translated(self._folder, "read ids", filtered=any(filters)):
                answer = self._rust.get(collection_id, part, filters[0], None, 0, filters[1], [], TENANT, DATABASE)
            found += answer.ids
        return found

    def embeddings(self, collection_id: str, ids: Sequence[str]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for part in _batches(ids):
            with _translated(self._folder, f"read {len(part)} vectors"):
                answer = self._rust.get(collection_id, part, None, None, 0, None, ["embeddings"], TENANT, DATABASE)
            found |= zip(answer.ids, answer.embeddings, strict=True)
        return found

    def embed(self, collection_id: str, vectors: Mapping[str, bytes]) -> None:
        for part in _batches([*vectors]):
            with _translated(self._folder, f"replace {len(part)} vectors"):
                floats = [_floats(vectors[each]) for each in part]
                self._rust.update(collection_id, part, floats, None, None, None, TENANT, DATABASE)

    def described(self) -> list[Described]:
        with _translated(self._folder, "list collections"):
            found = self._rust.list_collections(None, 0, TENANT, DATABASE)
        return _described((each, each.configuration) for each in found)

    def texts(self, collection_id: str) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        for at in itertools.count(0, BATCH):
            with _translated(self._folder, "read documents"):
                answer = self._rust.get(
                    collection_id, None, None, BATCH, at, None, ["documents", "metadatas"], TENANT, DATABASE
                )
            yield from _texts(answer.ids, answer.documents, answer.metadatas)
            if len(answer.ids) < BATCH:
                return

    def close(self) -> None:
        del self._rust
        gc.collect(0)  # the store's files are closed when the Rust object goes


class PublicStore:
    """The documented client, for a chromadb whose bindings we do not know."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        chromadb = _import_public_client()
        with _translated(folder, "open the store"):
            self._client = chromadb.PersistentClient(
                str(folder), settings=chromadb.Settings(anonymized_telemetry=False, is_persistent=True)
            )

    def create(
        self, name: str, *, space: str, metadata: Mapping[str, MetadataValue], hnsw: Mapping[str, int] = NOTHING
    ) -> str:
        with _translated(self._folder, f"create collection {name!r}"):
            made = self._client.create_collection(
                name,
                configuration={"hnsw": {**hnsw, "space": space}},
                metadata=dict(metadata),
                embedding_function=None,
            )
        return str(made.id)

    def drop(self, name: str) -> None:
        with _translated(self._folder, f"drop collection {name!r}"):
            self._client.delete_collection(name)

    def describe(self, collection_id: str, metadata: Mapping[str, MetadataValue]) -> None:
        with _translated(self._folder, "describe a collection"):
            self._collection(collection_id).modify(metadata=dict(metadata))

    def hnsw(self, name: str) -> dict[str, Any]:
        with _translated(self._folder, f"look at collection {name!r}"):
            return dict(self._client.get_collection(name, embedding_function=None).configuration_json["hnsw"])

    def collections(self) -> dict[str, str]:
        with _translated(self._folder, "list collections"):
            return {each.name: str(each.id) for each in self._client.list_collections()}

    def add(self, collection_id: str, rows: Rows) -> None:
        for part in _parts(rows):
            with _translated(self._folder, f"add {len(part.ids)} chunks"):
                self._collection(collection_id).add(
                    ids=part.ids,
                    embeddings=[_floats(vector) for vector in part.vectors],
                    metadatas=[dict(each) for each in part.metadatas],
                    documents=part.documents,
                )

    def delete(self, collection_id: str, ids: Sequence[str]) -> None:
        for part in _batches(ids):
            with _translated(self._folder, f"delete {len(part)} chunks"):
                self._collection(collection_id).delete(ids=part)

    def count(self, collection_id: str) -> int:
        with _translated(self._folder, "count"):
            return int(self._collection(collection_id).count())

    def ids(
        self,
        collection_id: str,
        *,
        among: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        where_document: Mapping[str, Any] | None = None,
    ) -> list[str]:
        collection = self._collection(collection_id)
        found: list[str] = []
        for part in [None] if among is None else _batches(among):
            with _translated(self._folder, "read ids", filtered=bool(where or where_document)):
                answer = collection.get(
                    ids=part, where=where or None, where_document=where_document or None, include=[]
                )
            found += answer["ids"]
        return found

    def embeddings(self, collection_id: str, ids: Sequence[str]) -> dict[str, list[float]]:
        collection = self._collection(collection_id)
        found: dict[str, list[float]] = {}
        for part in _batches(ids):
            with _translated(self._folder, f"read {len(part)} vectors"):
                answer = collection.get(ids=part, include=["embeddings"])
            found |= zip(answer["ids"], answer["embeddings"].tolist(), strict=True)
        return found

    def embed(self, collection_id: str, vectors: Mapping[str, bytes]) -> None:
        for part in _batches([*vectors]):
            with _translated(self._folder, f"replace {len(part)} vectors"):
                self._collection(collection_id).update(ids=part, embeddings=[_floats(vectors[each]) for each in part])

    def described(self) -> list[Described]:
        with _translated(self._folder, "list collections"):
            return _described((each, each.configuration_json) for each in self._client.list_collections())

    def texts(self, collection_id: str) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
        collection = self._collection(collection_id)
        for at in itertools.count(0, BATCH):
            with _translated(self._folder, "read documents"):
                answer = collection.get(limit=BATCH, offset=at, include=["documents", "metadatas"])
            yield from _texts(answer["ids"], answer["documents"], answer["metadatas"])
            if len(answer["ids"]) < BATCH:
                return

    def close(self) -> None:
        self._client.close()

    def _collection(self, collection_id: str) -> Any:
        for each in self._client.list_collections():
            if str(each.id) == collection_id:
                return each
        raise IndexFailed(f"The index holds no Chroma collection {collection_id}.", hint="vmrag sync --rebuild")


def _described(found: Iterable[tuple[Any, Mapping[str, Any]]]) -> list[Described]:
    rows = [
        Described(
            str(each.id),
            str(each.name),
            (settings.get("hnsw") or settings.get("spann") or {}).get("space", "l2"),  # its default
            dict(each.metadata or {}),
        )
        for each, settings in found
    ]
    return sorted(rows, key=lambda each: each.name)


def _texts(
    ids: Sequence[str], documents: Sequence[str | None], metadatas: Sequence[Mapping[str, Any] | None]
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    for name, text, metadata in zip(ids, documents, metadatas, strict=True):
        yield name, text, dict(metadata or {})


def _import_public_client() -> Any:
    # chromadb reads `.env` in the current directory and can fail on it: import it from an empty one.
    import tempfile

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)
        try:
            import chromadb
        except ImportError as error:
            raise IndexExtraMissing(
                f"The vector index needs chromadb, which cannot be imported: {error}",
                hint="pip install --upgrade 'vmrag-link[index]'",
            ) from error
        finally:
            os.chdir(here)
    return chromadb


def _floats(vector: bytes) -> list[float]:
    values = array.array("f")
    values.frombytes(vector)
    return values.tolist()


def _batches(ids: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(ids), BATCH):
        yield list(ids[at : at + BATCH])


def _parts(rows: Rows) -> Iterator[Rows]:
    for at in range(0, len(rows.ids), BATCH):
        cut = slice(at, at + BATCH)
        documents = None if rows.documents is None else rows.documents[cut]
        yield Rows(rows.ids[cut], rows.vectors[cut], rows.metadatas[cut], documents)
