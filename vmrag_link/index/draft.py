"""A draft of a view: a new view that is derived from another view, or built from nothing.

Removing a document marks its slots as dead in the view. Added documents go into a new segment. To
keep the number of segments small, the new segment absorbs small segments (`choose_absorbed`). The
files of a finished segment never change.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from vmrag_link.errors import no_space, unusable
from vmrag_link.file_access import measure_size, sync_to_disk
from vmrag_link.index import flat_files, keywords, seal, storage
from vmrag_link.index import view as views
from vmrag_link.index.reader import DocumentKey, IndexReader
from vmrag_link.index.segment import DocumentTexts, SegmentWriter, is_disk_full
from vmrag_link.index.view import FORMAT, IndexedCollection, IndexView, ViewPart
from vmrag_link.index.views import Segments, list_segments
from vmrag_link.models import Chunk, Collection, Document, DocumentHeader, Record

DAMAGE = (sqlite3.Error, ArithmeticError, LookupError, TypeError, ValueError, msgspec.DecodeError)
"""Errors that reading a damaged segment raises."""

SMALL_SEGMENT = 256
"""Number of chunks below which the next segment absorbs a segment."""

MOST_PARTS = 4
"""Maximum number of segments of a view before a segment is added. If there are more, the smallest
are merged.
"""


class ChunkedDocument(Record, frozen=True):
    """A document that is ready to be indexed."""

    document: Document
    chunks: tuple[Chunk, ...]
    vectors: tuple[bytes, ...]
    """One vector (float32) for each of `chunks`."""


class PartSize(NamedTuple):
    """The size of a part of a view: the chunks that the view includes, and all slots of the
    segment.
    """

    chunks: int
    slots: int


def choose_absorbed(parts: Sequence[PartSize], added: int) -> list[int]:
    """Return the numbers of the parts that a new segment with `added` chunks absorbs.

    * Parts with more dead slots than the whole view, with the added chunks, has chunks.
    * If chunks are added, small parts.
    * If too many parts remain, the smallest ones, and then each next part that has at most twice as
      many chunks as the new segment so far.

    So a chunk is absorbed about as often as the logarithm of the number of chunks.
    """
    order = sorted((number for number, part in enumerate(parts) if part.chunks), key=lambda n: parts[n].chunks)
    chunks = added + sum(part.chunks for part in parts)
    absorbed = [n for n in order if parts[n].slots - parts[n].chunks > chunks]
    if not added and not absorbed:
        return []
    absorbed += [n for n in order if n not in absorbed and parts[n].chunks < SMALL_SEGMENT]
    kept = [n for n in order if n not in absorbed]
    if len(kept) >= MOST_PARTS:
        total = added + sum(parts[n].chunks for n in absorbed)
        while kept and (len(kept) >= MOST_PARTS or parts[kept[0]].chunks <= 2 * total):
            total += parts[kept[0]].chunks
            absorbed.append(kept.pop(0))
    return sorted(absorbed)


class Draft:
    """A view that is being built. Open it with `with`. Readers see it only after `publish`.

    `segments`: the segments, or their folder. `base`: the view from which the draft is derived.
    `without`: names of unreadable segments of the base; their documents are missing from the draft.
    """

    def __init__(
        self,
        segments: Segments | Path,
        base: IndexView | None = None,
        *,
        without: AbstractCollection[str] = (),
    ) -> None:
        self._segments = Segments(segments) if isinstance(segments, Path) else segments
        self.root = self._segments.root
        self._base = base or IndexView()
        self._without = without
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            opened.enter_context(self._segments.pause_collection())
            self._building = opened.enter_context(self._segments.temporary_folder())
            base = _remove_segments(self._base, self._without)
            self._reader = opened.enter_context(contextlib.closing(IndexReader(base, self._segments.root)))
            self._collections = {
                name: self._recount_totals(name, collection) for name, collection in base.collections.items()
            }
            self._pieces = [dict(part.pieces) for part in base.parts]
            self._dead: dict[tuple[int, str], bytearray] = {}
            self._writer: SegmentWriter | None = None
            self._unembedded = dict(base.unembedded)
            self._given_vectors = base.given_vectors
            self._touched = dict.fromkeys(base.touched)
            self._opened = opened.pop_all()
        return self

    def _recount_totals(self, name: str, indexed: IndexedCollection) -> IndexedCollection:
        """Return a collection with its totals counted again, without the unreadable segments."""
        if not self._without:
            return indexed
        pieces = [piece.piece for piece in self._reader.list_pieces(name)]
        return msgspec.structs.replace(
            indexed,
            documents=sum(piece.documents for piece in pieces),
            chunks=sum(piece.chunks for piece in pieces),
            tokens=self._reader.count_tokens(rows for _, rows in self._reader.list_documents(name)),
        )

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise `FileFailed` if the disk is full, and `IndexFailed` if a segment of the base is
        damaged.
        """
        try:
            with self._opened:
                if self._writer:
                    self._writer.close()
        except sqlite3.Error as late:
            error = error or late
        if is_disk_full(error):
            raise no_space(self._segments.root) from error
        if isinstance(error, DAMAGE):
            for part in self._base.parts:
                if part.segment not in self._without and (problem := seal.find_mismatch(self.root / part.segment)):
                    raise unusable(self.root / part.segment, problem) from error
        if isinstance(error, sqlite3.Error):
            raise unusable(self.root, str(error)) from error

    # -- contents ----------------------------------------------------------------------------------

    def list_collections(self) -> dict[str, Collection]:
        return {name: indexed.collection for name, indexed in self._collections.items()}

    def read_headers(self) -> dict[DocumentKey, DocumentHeader]:
        """Return the headers of all documents of the base."""
        return self._reader.read_headers()

    def find_headers(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentHeader]:
        """Return the headers of those of these documents that the base has."""
        return self._reader.find_headers(keys)

    def count_documents(self) -> int:
        """Return the current number of documents."""
        added = sum(collection.documents for collection in self._writer.list_written().values()) if self._writer else 0
        return added + sum(collection.documents for collection in self._collections.values())

    def unembedded(self) -> dict[str, str]:
        """Return a copy of `IndexView.unembedded`."""
        return dict(self._unembedded)

    def note_unembedded(self, reasons: Mapping[str, str]) -> None:
        self._unembedded = dict(reasons)

    def list_touched(self) -> list[DocumentKey]:
        """Return the documents that may differ from the revision of the view."""
        return list(self._touched)

    def mark_touched(self, keys: Iterable[DocumentKey]) -> None:
        self._touched |= dict.fromkeys(keys)

    def clear_touched(self) -> None:
        self._touched.clear()

    # -- changes -----------------------------------------------------------------------------------

    def create_collection(self, collection: Collection) -> None:
        self._collections[collection.name] = IndexedCollection(collection)

    def redefine_collection(self, collection: Collection) -> None:
        """Replace the definition of a collection by one that indexes equally
        (`view.indexes_equally`).
        """
        indexed = self._collections[collection.name]
        self._collections[collection.name] = msgspec.structs.replace(indexed, collection=collection)

    def drop_collection(self, name: str) -> int:
        """Remove a collection, and return the number of its chunks."""
        for pieces in self._pieces:
            pieces.pop(name, None)
        return self._collections.pop(name).chunks

    def remove_documents(self, collection: str, doc_ids: Sequence[str]) -> int:
        """Remove documents that the base has, and return the number of their chunks."""
        removed = self._reader.find_rows((collection, doc_id) for doc_id in doc_ids).values()
        for rows in removed:
            self._mark_dead(collection, rows)
        indexed, chunks = self._collections[collection], sum(map(len, removed))
        self._collections[collection] = msgspec.structs.replace(
            indexed,
            documents=indexed.documents - len(removed),
            chunks=indexed.chunks - chunks,
            tokens=indexed.tokens - self._reader.count_tokens(removed),
        )
        return chunks

    def _mark_dead(self, collection: str, rows: range) -> None:
        number = keywords.unpack_segment(rows.start)
        piece = self._pieces[number][collection]
        dead = self._dead.setdefault((number, collection), bytearray(piece.dead or bytes(-(-piece.slots // 8))))
        for slot in range(keywords.unpack_slot(rows.start), keywords.unpack_slot(rows.start) + len(rows)):
            dead[slot >> 3] |= 1 << (slot & 7)
        self._pieces[number][collection] = msgspec.structs.replace(
            piece, documents=piece.documents - 1, chunks=piece.chunks - len(rows)
        )

    def add_documents(self, collection: str, documents: Sequence[ChunkedDocument], *, keep_floats: bool = False) -> int:
        """Add documents that the index does not have, and return the number of their chunks.

        `keep_floats`: also store the vectors as float32, because they cannot be computed again from
        the texts.
        """
        rows = [vector for document in documents for vector in document.vectors]
        entries = [
            DocumentTexts(document.document.header, [chunk.text for chunk in document.chunks]) for document in documents
        ]
        kept = dict(enumerate(rows)) if keep_floats else None
        self._write_documents(collection, entries, flat_files.quantise(b"".join(rows)), kept)
        return len(rows)

    def replace_vectors(self, collection: str, vectors: Mapping[str, bytes]) -> None:
        """Replace the vectors of documents of one chunk by other unit vectors (float32), on this
        machine only.

        From then on, no other view is derived from this one.
        """
        remaining = self._writer.replace_vectors(collection, vectors) if self._writer else vectors.keys()
        keys = [(collection, doc_id) for doc_id in remaining]
        headers, places = self._reader.find_headers(keys), self._reader.find_rows(keys)
        texts = self._reader.read_texts(rows.start for rows in places.values())
        if keys:
            # The documents only move to the new segment: they are removed here and added below.
            self.remove_documents(collection, [doc_id for _, doc_id in keys])
            entries = [DocumentTexts(headers[key], [texts[places[key].start]]) for key in keys]
            replaced = [vectors[doc_id] for _, doc_id in keys]
            self._write_documents(
                collection, entries, flat_files.quantise(b"".join(replaced)), dict(enumerate(replaced))
            )
        self._given_vectors = True

    def _write_documents(
        self, collection: str, entries: Sequence[DocumentTexts], rows: bytes, kept: Mapping[int, bytes] | None
    ) -> None:
        if not entries:
            return
        if self._writer is None:
            self._writer = SegmentWriter(self._building)
        definition = self._collections[collection].collection
        self._writer.add_documents(
            collection,
            entries,
            rows,
            dimensions=definition.embedding_dimensions,
            kept=kept,
            code=definition.is_code,
        )

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, folder: Path, *, revision: str, durable: bool = True) -> None:
        """Finish the new segment, and write the view into a folder. An existing view is replaced.

        `durable`: the segments survive a power cut. Raises `IndexFailed`.
        """
        view = msgspec.structs.replace(self._finish_segments(durable=durable), revision=revision)
        seal_view(folder, view, self._segments.root)
        if not durable and not storage.is_in_memory(folder):
            self._remove_replaced_segments(folder)

    def _remove_replaced_segments(self, folder: Path) -> None:
        """Remove the segments that only this working copy used, and that it uses no longer.

        The caller holds the exclusive lock of the working copy. A segment stays if the view of a
        revision also uses it, which is rare.
        """
        replaced = set(self._base.unsynced).difference(list_segments(folder))
        roots = [path for path in folder.parent.parent.iterdir() if path.is_dir() and path != self.root]
        for path in self._segments.list_spare(roots) if replaced else ():
            if path.name in replaced:
                self._segments.remove_segment(path)

    def _finish_segments(self, *, durable: bool) -> IndexView:
        added = self._writer.list_written() if self._writer else {}
        for name, written in added.items():
            indexed = self._collections[name]
            self._collections[name] = msgspec.structs.replace(
                indexed,
                documents=indexed.documents + written.documents,
                chunks=indexed.chunks + written.slots,
                tokens=indexed.tokens + written.tokens,
            )
        view = self._view_of_base()
        sizes = [
            PartSize(
                sum(piece.chunks for piece in part.pieces.values()),
                sum(piece.slots for piece in part.pieces.values()),
            )
            for part in view.parts
        ]
        absorbed = choose_absorbed(sizes, sum(written.slots for written in added.values()))
        if durable:  # text that was never committed must not stay on the disk, even in dead slots
            absorbed = sorted({*absorbed, *self._list_parts_with_drafts(view)})
        self._absorb_parts(view, absorbed)
        parts = [part for number, part in enumerate(view.parts) if part.documents and number not in absorbed]
        unsynced = [name for name in self._base.unsynced if any(part.segment == name for part in parts)]
        if self._writer:
            parts.append(self._finish_segment(durable=durable))
            if not durable:
                unsynced.append(parts[-1].segment)
        if durable:
            for name in unsynced:
                seal.sync_folder(self._segments.root / name)
            if unsynced:
                sync_to_disk(self._segments.root)
        self._check_totals(parts)
        return msgspec.structs.replace(view, parts=tuple(parts), unsynced=() if durable else tuple(unsynced))

    def _list_parts_with_drafts(self, view: IndexView) -> Iterator[int]:
        """Yield the numbers of the parts with uncommitted documents that were removed again."""
        for number, part in enumerate(view.parts):
            if part.segment in self._base.unsynced and part.documents:
                alive = sum(piece.chunks for piece in part.pieces.values())
                if alive < flat_files.count_slots(self._segments.root / part.segment):
                    yield number

    def _view_of_base(self) -> IndexView:
        """Return the view of the base without removed documents, and without added ones."""
        parts = []
        for number, part in enumerate(self._reader.view.parts):
            pieces = {
                name: msgspec.structs.replace(piece, dead=bytes(self._dead.get((number, name), piece.dead)))
                for name, piece in self._pieces[number].items()
                if piece.documents
            }
            parts.append(ViewPart(part.segment, pieces))
        return IndexView(
            revision="",
            collections=self._collections,
            parts=tuple(parts),
            unembedded=self._unembedded,
            given_vectors=self._given_vectors,
            touched=tuple(sorted(self._touched)),
        )

    def _absorb_parts(self, view: IndexView, numbers: Sequence[int]) -> None:
        """Add the documents of these parts to the new segment. Raises `IndexFailed`."""
        for number in numbers:
            part = view.parts[number]
            if problem := seal.find_mismatch(self._segments.root / part.segment):
                raise unusable(self._segments.root / part.segment, problem)
            alone = IndexView("", {name: self._collections[name] for name in part.pieces}, (part,))
            with contextlib.closing(IndexReader(alone, self._segments.root)) as reader:
                for name in part.pieces:
                    for batch in reader.batch_documents(name):
                        self._copy_documents(reader, name, batch)

    def _copy_documents(
        self, reader: IndexReader, collection: str, batch: Sequence[tuple[DocumentHeader, range]]
    ) -> None:
        rows = [row for _, document_rows in batch for row in document_rows]
        texts, kept = reader.read_texts(rows), reader.read_floats(rows)
        entries = [DocumentTexts(header, [texts[row] for row in document_rows]) for header, document_rows in batch]
        vectors = b"".join(reader.read_vectors(document_rows) for _, document_rows in batch)
        kept_by_number = {number: kept[row] for number, row in enumerate(rows) if row in kept}
        self._write_documents(collection, entries, vectors, kept_by_number)

    def _finish_segment(self, *, durable: bool) -> ViewPart:
        assert self._writer is not None  # noqa: S101  the caller checked it
        written = self._writer.finish()
        name = self._segments.publish(self._building, durable=durable)
        return ViewPart(name, {name: collection.piece for name, collection in written.items()})

    def _check_totals(self, parts: Sequence[ViewPart]) -> None:
        for name, indexed in self._collections.items():
            pieces = [part.pieces[name] for part in parts if name in part.pieces]
            totals = sum(piece.documents for piece in pieces), sum(piece.chunks for piece in pieces)
            if totals != (indexed.documents, indexed.chunks):
                raise unusable(
                    self._segments.root,
                    f"the segments of {name!r} hold {totals} documents and chunks, not {(indexed.documents, indexed.chunks)}",
                )


def seal_view(folder: Path, view: IndexView, segments: Path) -> None:
    """Write the view of finished segments into a folder. An existing view is replaced."""
    storage.make_folder(folder)
    storage.write_file(folder / views.VIEW_FILE, views.encode_view(view))
    if storage.is_in_memory(folder):
        return
    sizes = {part.segment: measure_size(segments / part.segment) for part in view.parts}
    seal.write_seal(folder, format=FORMAT, revision=view.revision, segments=sizes)


def _remove_segments(view: IndexView, damaged: AbstractCollection[str]) -> IndexView:
    """Return a view without its damaged segments. The totals still include them."""
    return msgspec.structs.replace(view, parts=tuple(part for part in view.parts if part.segment not in damaged))
