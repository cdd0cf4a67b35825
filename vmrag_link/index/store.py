"""One index directory: Chroma, vectors, words and manifest, which are changed together and verified together.

    chroma/ · manifest.sqlite · vectors-<collection id>.i8 · keywords.sqlite

Nobody changes a directory that somebody else reads: see `snapshots` and `working`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeGuard

import msgspec

from vmrag_link.errors import IndexFailed, no_space
from vmrag_link.index import keywords, vectors
from vmrag_link.index.chroma import DATABASE_FILE, ChromaStore, MetadataValue, Rows, open_store
from vmrag_link.index.manifest import FILE, Held, Manifest
from vmrag_link.models import Chunk, Collection, Document, DocumentHeader, Record, canonical_json

FORMAT = "1"
"""Rises with every change of what lies in an index directory or of how texts are cut."""

HNSW_WRITTEN_OUT = "index_metadata.pickle"
"""The file beside an HNSW index that holds something."""

RESERVED_METADATA = frozenset(
    {"source_id", "chunk_index", "total_chunks", "content_hash", "source_table", "collection"}
)


HNSW_PREFIX = "hnsw:"


class HnswSetting(NamedTuple):
    """A setting of an HNSW index: its name in Chroma's configuration, what it is if nobody says, and its possible values."""

    chroma: str
    usual: int
    low: int
    high: int

    def possible(self, value: object) -> TypeGuard[int]:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high


HNSW = {
    "hnsw:M": HnswSetting("max_neighbors", 16, 2, 512),
    "hnsw:construction_ef": HnswSetting("ef_construction", 100, 1, 10_000),
    "hnsw:search_ef": HnswSetting("ef_search", 100, 1, 10_000),
}
"""By the keys of a collection's metadata, where clients put them. The limits keep what somebody else wrote from filling the memory."""


class ChunkedDocument(Record, frozen=True):
    """A document ready to be indexed: `vectors` holds one float32 row for each of `chunks`."""

    document: Document
    chunks: tuple[Chunk, ...]
    vectors: tuple[bytes, ...]


class IndexStore:
    """An index directory, open for change. Close it before it is copied, renamed or read by others."""

    def __init__(self, folder: Path, *, store_documents: bool, create: bool = False) -> None:
        self.folder = folder
        self._store_documents = store_documents
        if create:
            (folder / "chroma").mkdir(parents=True)
        with contextlib.ExitStack() as opened:
            try:
                self.manifest = opened.enter_context(contextlib.closing(Manifest(folder, create=create)))
                self._words = opened.enter_context(contextlib.closing(keywords.connect(folder)))
            except sqlite3.Error as error:
                raise unusable(folder, str(error)) from error
            opened.pop_all()
        self._chroma: ChromaStore | None = None

    @property
    def chroma(self) -> ChromaStore:
        if self._chroma is None:
            self._chroma = open_store(self.folder / "chroma")
        return self._chroma

    def close(self) -> None:
        self.manifest.close()
        self._words.close()
        if self._chroma is not None:
            self._chroma.close()
            self._chroma = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """What SQLite says of a damaged or full file becomes `IndexFailed` or `FileFailed`."""
        self.close()
        if isinstance(error, sqlite3.Error):
            full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
            raise (no_space(self.folder) if full else unusable(self.folder, str(error))) from error

    # -- changes ------------------------------------------------------------------------------------------------------

    def create_collection(self, collection: Collection) -> None:
        chroma_id = self.chroma.create(
            collection.name,
            space=collection.distance,
            metadata=_description(collection),
            hnsw=hnsw_settings(collection),
        )
        with self.manifest:
            self.manifest.add_collection(collection, chroma_id)

    def redefine_collection(self, collection: Collection) -> None:
        """Take over a definition that indexes equally (see `indexes_equally`)."""
        self.chroma.describe(self._held(collection.name).chroma_id, _description(collection))
        with self.manifest:
            self.manifest.redefine_collection(collection)

    def drop_collection(self, name: str) -> int:
        """Returns the number of chunks that went with it."""
        held = self._held(name)
        self.chroma.drop(name)
        keywords.remove(self._words, [_rows(held, range(held.slots))])
        with self.manifest:
            self.manifest.drop_collection(held)
        (self.folder / vectors.file_name(held.id)).unlink(missing_ok=True)
        return held.slots - held.dead

    def remove(self, collection: str, doc_ids: Sequence[str]) -> int:
        """Remove documents that the index holds; returns the number of chunks that went with them."""
        held = self._held(collection)
        with self.manifest:
            gone = {doc_id: self.manifest.remove_document(held, doc_id) for doc_id in doc_ids}
        names = [chunk_id(doc_id, number) for doc_id, slots in gone.items() for number in range(len(slots))]
        self.chroma.delete(held.chroma_id, names)
        keywords.remove(self._words, [_rows(held, slots) for slots in gone.values()])
        return len(names)

    def add(self, collection: str, documents: Sequence[ChunkedDocument]) -> int:
        """Add documents that the index does not hold; returns the number of their chunks."""
        held = self._held(collection)
        slot = held.slots
        rows = Rows([], [], [], [] if self._store_documents else None)
        words: list[tuple[int, str]] = []
        with self.manifest:
            for each in documents:
                slots = range(slot, slot + len(each.chunks))
                self.manifest.add_document(held, each.document.header, slots)
                _collect(rows, each)
                words += zip(_rows(held, slots), [chunk.text for chunk in each.chunks], strict=True)
                slot = slots.stop
            self.manifest.grow(held, slot)
        whole = [vectors.quantise(vector) for vector in rows.vectors]
        if whole:
            dimensions = held.collection.embedding_dimensions
            vectors.append(self.folder, held.id, whole, slots=held.slots, dimensions=dimensions)
        keywords.add(self._words, words)
        self.chroma.add(held.chroma_id, rows)
        return len(rows.ids)

    def embed(self, collection: str, given: Mapping[str, bytes]) -> None:
        """Give documents of one chunk other vectors than their texts have (unit length, float32): those of one machine.

        So the index is no base for others from now on (`has_given_vectors`).
        """
        held = self._held(collection)
        slots = self.manifest.slots_of([(collection, doc_id) for doc_id in given])
        rows = {slots[collection, doc_id].start: vectors.quantise(vector) for doc_id, vector in given.items()}
        vectors.replace(self.folder, held.id, rows)
        self.chroma.embed(held.chroma_id, {chunk_id(doc_id, 0): vector for doc_id, vector in given.items()})
        with self.manifest:
            self.manifest.set(given_vectors="true")

    def _held(self, name: str) -> Held:
        return self.manifest.collections()[name]

    # -- sealing and verifying ----------------------------------------------------------------------------------------

    def seal(self, *, revision: str, settings: str, added: Iterable[tuple[str, str]] = ()) -> None:
        """Verify the whole index, then write down what a reader checks before it trusts the directory. Closes the store.

        `revision` is the one that the index stands at, apart from its touched documents. `added` are the documents whose
        chunks are looked for one by one; what was removed shows in the counts.
        """
        problem = self._disagreement(added)
        if problem:
            raise unusable(self.folder, problem)
        for held in self.manifest.collections().values():
            description = {**_description(held.collection), "revision": revision}
            self.chroma.describe(held.chroma_id, description)
        self.close()
        _sweep_segments(self.folder / "chroma")
        manifest = Manifest(self.folder)
        with manifest:
            manifest.set(format=FORMAT, revision=revision, settings=settings, files=canonical_json(_sizes(self.folder)))
            manifest.set(store_documents=canonical_json(self._store_documents))
        manifest.close()

    def unseal(self) -> None:
        """From now on no reader trusts the directory until it is sealed again."""
        with self.manifest:
            self.manifest.unset("files")

    def _disagreement(self, added: Iterable[tuple[str, str]]) -> str:
        """What is wrong between the parts; empty when they agree."""
        held, listed = self.manifest.collections(), self.manifest.live_chunks()
        words, chunks = keywords.count(self._words), sum(listed.values())
        if words != chunks:
            return f"the word index holds {words} chunks, the manifest {chunks}"
        in_chroma = self.chroma.collections()
        if in_chroma != {name: each.chroma_id for name, each in held.items()}:
            return f"Chroma holds the collections {sorted(in_chroma)}, the manifest {sorted(held)}"
        for name, each in held.items():
            live = each.slots - each.dead
            if listed[name] != live:
                return f"the documents of {name!r} have {listed[name]} chunks, its slots are {live}"
            count = self.chroma.count(each.chroma_id)
            if count != live:
                return f"Chroma holds {count} chunks of {name!r}, the manifest {live}"
            size = vectors.size(self.folder, each.id)
            if size != each.slots * each.collection.embedding_dimensions:
                return f"the vectors of {name!r} have {size} bytes, which are not those of {each.slots} rows"
        return self._lost(held, added)

    def _lost(self, held: Mapping[str, Held], added: Iterable[tuple[str, str]]) -> str:
        names: dict[str, list[str]] = {}
        for (collection, doc_id), slots in self.manifest.slots_of(added).items():
            if keywords.count(self._words, _rows(held[collection], slots)) != len(slots):
                return f"the word index lacks chunks of {collection!r}/{doc_id!r}"
            names.setdefault(collection, []).extend(chunk_id(doc_id, number) for number in range(len(slots)))
        for collection, ids in names.items():
            lost = set(ids).difference(self.chroma.ids(held[collection].chroma_id, among=ids))
            if lost:
                return f"Chroma lacks {len(lost)} chunks of {collection!r}, {min(lost)!r} among them"
        return ""


def chunk_id(doc_id: str, number: int) -> str:
    """The name of a chunk in Chroma."""
    return f"{doc_id}_chunk_{number}"


def unusable(folder: Path, problem: str) -> IndexFailed:
    return IndexFailed(
        f"The index {folder.name} does not verify: {problem}.",
        hint="It is derived; 'vmrag sync --rebuild' builds it again.",
        folder=str(folder),
    )


def problem_of(folder: Path, *, revision: str, settings: str) -> str:
    """Why a sealed index must not be served; empty when it verifies. Reads the manifest and file sizes only (about a millisecond)."""
    if not folder.is_dir():
        return "it is not there"
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            found = {key: manifest.get(key) for key in ("format", "revision", "settings")}
            sealed = manifest.get("files")
        if found != {"format": FORMAT, "revision": revision, "settings": settings}:
            return f"its manifest describes {found}"
        if sealed is None:
            return "it was never finished"
        return _damage(msgspec.json.decode(sealed, type=dict[str, int]), _sizes(folder))
    except (sqlite3.Error, msgspec.DecodeError) as error:
        return f"its manifest cannot be read ({error})"
    except FileNotFoundError:
        return "it is being removed"


def _damage(expected: Mapping[str, int], actual: Mapping[str, int]) -> str:
    for name, size in expected.items():
        grown = name == f"chroma/{DATABASE_FILE}" and actual.get(name, -1) > size  # Chroma writes a row when it reads
        if actual.get(name) != size and not grown:
            return f"{name} has {actual.get(name, 'no')} bytes instead of {size}"
    return ""


def chunk_counts(folder: Path) -> dict[tuple[str, str], int]:
    """The number of chunks of each document that the index holds. Raises `IndexFailed` for a damaged manifest."""
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            return manifest.chunk_counts()
    except sqlite3.Error as error:
        raise unusable(folder, str(error)) from error


class Contents(NamedTuple):
    """What an index holds: collections by name; documents, and their numbers of chunks, by (collection, doc_id).

    `unembedded`: as `Manifest.unembedded`.
    """

    collections: dict[str, Held]
    headers: dict[tuple[str, str], DocumentHeader]
    chunks: dict[tuple[str, str], int]
    unembedded: dict[str, str]


def contents(folder: Path) -> Contents:
    """Raises `IndexFailed` for a damaged manifest."""
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            return Contents(manifest.collections(), manifest.headers(), manifest.chunk_counts(), manifest.unembedded())
    except sqlite3.Error as error:
        raise unusable(folder, str(error)) from error


def held_collections(folder: Path) -> dict[str, Held]:
    """The collections that the index holds, by name. Raises `IndexFailed` for a damaged manifest."""
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            return manifest.collections()
    except sqlite3.Error as error:
        raise unusable(folder, str(error)) from error


def unembedded(folder: Path) -> dict[str, str]:
    """As `Manifest.unembedded`. Raises `IndexFailed` for a damaged manifest."""
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            return manifest.unembedded()
    except sqlite3.Error as error:
        raise unusable(folder, str(error)) from error


def hnsw_of(folder: Path, name: str) -> dict[str, int]:
    """What Chroma's HNSW index of a collection was made with, by the keys of metadata. Raises `IndexFailed`."""
    with contextlib.closing(open_store(folder / "chroma")) as store:
        found = store.hnsw(name)
    return {key: int(found[each.chroma]) for key, each in HNSW.items()}


def has_given_vectors(folder: Path) -> bool:
    """Whether an index, if it is there, holds vectors that nobody can make again from its texts."""
    if not folder.is_dir():
        return False
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            return manifest.get("given_vectors") is not None
    except sqlite3.Error:
        return False  # damaged: it will be made again, from texts


def chunks_held(folder: Path, documents: Iterable[tuple[str, str]]) -> int:
    """How many chunks the index holds of these documents together. Raises `IndexFailed` for a damaged manifest."""
    asked: dict[str, list[str]] = {}
    for collection, doc_id in documents:
        asked.setdefault(collection, []).append(doc_id)
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            return sum(sum(manifest.chunks_of(name, ids).values()) for name, ids in asked.items())
    except sqlite3.Error as error:
        raise unusable(folder, str(error)) from error


def indexes_equally(one: Collection, other: Collection) -> bool:
    """Whether the same documents give the same index under both definitions."""

    def decisive(each: Collection) -> tuple[Any, ...]:
        model = (each.embedding_function, each.embedding_model, each.embedding_dimensions)
        return (*model, each.distance, each.chunking)

    return decisive(one) == decisive(other)


def chroma_metadata(document: Document, chunk: Chunk, total: int) -> dict[str, MetadataValue]:
    """What Chroma holds of a chunk besides text and vector. No branch, commit or time: equal contents give equal indexes."""
    return document_metadata(document.header) | place(document.header, chunk.number, total)


def document_metadata(document: DocumentHeader) -> dict[str, MetadataValue]:
    """What filters see of a document, the same for each of its chunks.

    None and keys that Chroma keeps to itself are left out; answers take a document's metadata from the manifest.
    """
    given = msgspec.json.decode(document.metadata)
    kept = {key: _chroma_value(value) for key, value in given.items() if value is not None and _chroma_key(key)}
    if document.title:
        kept.setdefault("title", document.title)
    return kept | _origin(document)


def place(document: DocumentHeader, number: int, total: int) -> dict[str, MetadataValue]:
    """Which chunk it is of which document, under names that are the index's own (`RESERVED_METADATA`)."""
    return _origin(document) | {"chunk_index": number, "total_chunks": total}


def _origin(document: DocumentHeader) -> dict[str, MetadataValue]:
    return {
        "source_id": document.doc_id,
        "content_hash": document.content_hash,
        "source_table": "documents",
        "collection": document.collection,
    }


def _chroma_key(key: str) -> bool:
    return key != "" and not key.startswith(("$", "#", "chroma:"))


def _chroma_value(value: Any) -> MetadataValue:
    """Chroma takes scalars and non-empty lists of one kind of them; everything else reaches it as JSON text."""
    if _scalar(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, list) and all(map(_scalar, value)) and len({type(each) for each in value}) == 1:
        return value
    return canonical_json(value)


def _scalar(value: Any) -> bool:
    return isinstance(value, bool | str | float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _collect(rows: Rows, each: ChunkedDocument) -> None:
    for chunk, vector in zip(each.chunks, each.vectors, strict=True):
        rows.ids.append(chunk_id(each.document.doc_id, chunk.number))
        rows.vectors.append(vector)
        rows.metadatas.append(chroma_metadata(each.document, chunk, len(each.chunks)))
        if rows.documents is not None:
            rows.documents.append(chunk.text)


def _rows(held: Held, slots: range) -> range:
    """The rows of the word index that belong to these slots."""
    return range(keywords.row_id(held.id, slots.start), keywords.row_id(held.id, slots.stop))


def hnsw_settings(collection: Collection) -> dict[str, int]:
    """What its metadata asks of Chroma's HNSW index, by Chroma's names; what is no possible value is left to Chroma.

    Only outside clients search there: our own answers are exact.
    """
    given = msgspec.json.decode(collection.metadata, type=dict[str, Any])
    found = ((each, given.get(key)) for key, each in HNSW.items())
    return {each.chroma: value for each, value in found if each.possible(value)}


def _description(collection: Collection) -> dict[str, MetadataValue]:
    """The Chroma collection's own metadata, for outside clients."""
    given = msgspec.json.decode(collection.metadata, type=dict[str, Any])
    kept = {key: value for key, value in given.items() if _scalar(value) and _chroma_key(key)}
    return {key: value for key, value in kept.items() if not key.startswith(HNSW_PREFIX)} | {
        "embedding_function": collection.embedding_function,
        "embedding_model": collection.embedding_model,
    }


def _sizes(folder: Path) -> dict[str, int]:
    """Names and sizes in bytes of the files that a reader needs, the manifest itself (which holds them) left out.

    Chroma writes an HNSW index out after 1,000 changes. Until then its vectors lie in the database's log, and whoever opens
    the collection, reader or not, writes the files anew: they hold nothing and may be empty at any moment.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    written_out = {path.parent for path in files if path.name == HNSW_WRITTEN_OUT}
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in files
        if path.name != FILE
        and not path.name.endswith("-journal")
        and (path.parent in written_out or path.parent.parent != folder / "chroma")
    }


def _sweep_segments(chroma: Path) -> None:
    """Chroma never removes the HNSW directories of collections that it dropped."""
    with contextlib.closing(sqlite3.connect(chroma / DATABASE_FILE)) as database:
        alive = {str(row[0]) for row in database.execute("SELECT id FROM segments")}
    for path in chroma.iterdir():
        if path.is_dir() and path.name not in alive:
            import shutil

            shutil.rmtree(path)
