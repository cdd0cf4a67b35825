"""One index directory: manifest, vectors and words, which are changed together and verified
together.

manifest.sqlite · vectors-<collection id>.i8 · floats-<collection id>.f32 (where vectors cannot be
made again) · keywords.sqlite · lengths-<collection id>.u32 · seal.json (what they hold)

Nobody changes a directory that somebody else reads: see `snapshots` and `working`.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from vmrag_link import permissions
from vmrag_link.errors import VmragError, no_space
from vmrag_link.index import flat, floats, keywords, lengths, seal, vectors
from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.index.verify import FORMAT, unusable
from vmrag_link.models import Chunk, Collection, Document, DocumentHeader, Record
from vmrag_link.thread_task import ThreadTask


class ChunkedDocument(Record, frozen=True):
    """A document ready to be indexed: `vectors` holds one float32 row for each of `chunks`."""

    document: Document
    chunks: tuple[Chunk, ...]
    vectors: tuple[bytes, ...]


class IndexStore:
    """An index directory, open for change.

    Close it before it is copied, renamed or read by others.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        self._adding: ThreadTask[None] | None = None
        if create:
            permissions.make_folder(folder)
        with contextlib.ExitStack() as opened:
            try:
                self.manifest = opened.enter_context(contextlib.closing(Manifest(folder, create=create)))
                self._connection = opened.enter_context(contextlib.closing(keywords.connect(folder)))
                # Words are written once, at the end: ten transactions take half as long again.
                self._changing = opened.enter_context(contextlib.ExitStack())
                self._changing.enter_context(keywords.transaction(self._connection))
            except sqlite3.Error as error:
                raise self._failure(error) from error
            opened.pop_all()

    def close(self) -> None:
        try:
            self._finish_adding()
            self._changing.close()
        finally:
            self.manifest.close()
            self._connection.close()
            permissions.settle(self.folder)

    @property
    def _words(self) -> sqlite3.Connection:
        """The words of all documents that were added."""
        self._finish_adding()
        return self._connection

    def _finish_adding(self) -> None:
        adding, self._adding = self._adding, None
        if adding:
            adding.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """What SQLite says of a damaged or full file becomes `IndexFailed` or `FileFailed`."""
        try:
            self.close()
        except sqlite3.Error as late:
            error = error or late
        if isinstance(error, sqlite3.Error):
            raise self._failure(error) from error

    def _failure(self, error: sqlite3.Error) -> VmragError:
        full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        return no_space(self.folder) if full else unusable(self.folder, str(error))

    # -- changes -----------------------------------------------------------------------------------

    def create_collection(self, collection: Collection) -> None:
        with self.manifest:
            self.manifest.add_collection(collection)

    def redefine_collection(self, collection: Collection) -> None:
        """Take over a definition that indexes equally (see `indexes_equally`)."""
        with self.manifest:
            self.manifest.redefine_collection(collection)

    def drop_collection(self, name: str) -> int:
        """Returns the number of chunks that went with it."""
        held = self._held(name)
        keywords.remove(self._words, [_rows(held, range(held.slots))])
        with self.manifest:
            self.manifest.drop_collection(held)
        for kind in (vectors, floats, lengths):
            (self.folder / kind.file_name(held.id)).unlink(missing_ok=True)
        return held.slots - held.dead

    def remove(self, collection: str, doc_ids: Sequence[str]) -> int:
        """Remove documents that the index holds; returns the number of their chunks."""
        held = self._held(collection)
        with self.manifest:
            gone = [self.manifest.remove_document(held, doc_id) for doc_id in doc_ids]
        keywords.remove(self._words, [_rows(held, slots) for slots in gone])
        return sum(map(len, gone))

    def add(self, collection: str, documents: Sequence[ChunkedDocument], *, keep_floats: bool = False) -> int:
        """Add documents that the index does not hold; returns the number of their chunks.

        `keep_floats`: their vectors cannot be made again from their texts.
        """
        held = self._held(collection)
        slot = held.slots
        placed: list[tuple[DocumentHeader, range]] = []
        for each in documents:
            slots = range(slot, slot + len(each.chunks))
            placed.append((each.document.header, slots))
            slot = slots.stop
        with self.manifest:
            self.manifest.add_documents(held, placed)
            self.manifest.grow(held, slot)
        rows = [vector for each in documents for vector in each.vectors]
        if rows:
            # A third of the work, and SQLite's alone: the next documents are read meanwhile.
            self._finish_adding()
            self._adding = ThreadTask(lambda: self._add_words(held, documents, range(held.slots, slot)))
            whole, dimensions = vectors.quantise(b"".join(rows)), held.collection.embedding_dimensions
            vectors.append(self.folder, held.id, whole, slots=held.slots, dimensions=dimensions)
            if keep_floats:
                floats.write(self.folder, held.id, dict(enumerate(rows, start=held.slots)))
        return len(rows)

    def _add_words(self, held: IndexedCollection, documents: Sequence[ChunkedDocument], slots: range) -> None:
        texts = (chunk.text for each in documents for chunk in each.chunks)
        keywords.add(self._connection, zip(_rows(held, slots), texts, strict=True))
        tokens = iter(keywords.token_counts(self._connection, _rows(held, slots)))
        by_document = ([next(tokens) for _ in each.chunks] for each in documents)
        lengths.append(self.folder, held.id, by_document, slots=slots.start)

    def embed(self, collection: str, given: Mapping[str, bytes]) -> None:
        """Replace the vectors of documents of one chunk by other unit vectors (float32), on this
        machine only.

        No other index is made from this one any more (`has_given_vectors`).
        """
        held = self._held(collection)
        slots = self.manifest.slots_of([(collection, doc_id) for doc_id in given])
        rows = {slots[collection, doc_id].start: vector for doc_id, vector in given.items()}
        vectors.replace(self.folder, held.id, {slot: vectors.quantise(vector) for slot, vector in rows.items()})
        floats.write(self.folder, held.id, rows)
        with self.manifest:
            self.manifest.set(given_vectors="true")

    def _held(self, name: str) -> IndexedCollection:
        return self.manifest.collections()[name]

    # -- sealing and verifying ---------------------------------------------------------------------

    def seal(self, *, revision: str, added: Iterable[tuple[str, str]] = ()) -> None:
        """Verify the whole index, close it, and write what readers check.

        `revision` is the one of the index, apart from its touched documents. The chunks of the
        documents `added` are looked up one by one; removed ones show in the counts.
        """
        problem = self._disagreement(added)
        if problem:
            raise unusable(self.folder, problem)
        self.close()
        seal.write(self.folder, format=FORMAT, revision=revision)

    def unseal(self) -> None:
        """From now on no reader trusts the directory until it is sealed again."""
        seal.remove(self.folder)

    def _disagreement(self, added: Iterable[tuple[str, str]]) -> str:
        """What is wrong between the parts; empty when they agree."""
        held, listed = self.manifest.collections(), self.manifest.live_chunks()
        words, chunks = keywords.count(self._words), sum(listed.values())
        if words != chunks:
            return f"the word index holds {words} chunks, the manifest {chunks}"
        for name, each in held.items():
            live = each.slots - each.dead
            if listed[name] != live:
                return f"the documents of {name!r} have {listed[name]} chunks, its slots are {live}"
            if problem := self._wrong_size(each):
                return problem
        # Rows are unique: as many as slots, of which none is dead, are one for each.
        whole = {
            name
            for name, each in held.items()
            if not each.dead and keywords.count(self._words, _rows(each, range(each.slots))) == each.slots
        }
        return self._lost(held, (key for key in added if key[0] not in whole))

    def _wrong_size(self, held: IndexedCollection) -> str:
        """What is wrong with the numbers of a collection's vectors and lengths."""
        name, dimensions = held.collection.name, held.collection.embedding_dimensions
        for what, file, row in (
            ("vectors", vectors.file_name(held.id), dimensions),
            ("lengths", lengths.file_name(held.id), lengths.ROW),
        ):
            size = flat.size(self.folder / file)
            if size != held.slots * row:
                return f"the {what} of {name!r} have {size} bytes, which are not those of {held.slots} rows"
        if flat.size(self.folder / floats.file_name(held.id)) > held.slots * dimensions * floats.FLOAT32:
            return f"{name!r} has more vectors as float32 than its {held.slots} rows"
        return ""

    def _lost(self, held: Mapping[str, IndexedCollection], added: Iterable[tuple[str, str]]) -> str:
        places = {key: _rows(held[key[0]], slots) for key, slots in self.manifest.slots_of(added).items()}
        if keywords.count_within(self._words, places.values()) == sum(map(len, places.values())):
            return ""
        collection, doc_id = next(key for key, rows in places.items() if keywords.count(self._words, rows) != len(rows))
        return f"the word index lacks chunks of {collection!r}/{doc_id!r}"


def indexes_equally(one: Collection, other: Collection) -> bool:
    """Whether the same documents give the same index under both definitions."""

    def decisive(each: Collection) -> tuple[Any, ...]:
        model = (each.embedding_function, each.embedding_model, each.embedding_dimensions)
        return (*model, each.distance, each.chunking)

    return decisive(one) == decisive(other)


def _rows(held: IndexedCollection, slots: range) -> range:
    """The rows of the word index that belong to these slots."""
    return range(keywords.row_id(held.id, slots.start), keywords.row_id(held.id, slots.stop))
