"""A view in the making: derived from another one, or from nothing.

What is removed gets its slots marked dead in the view; what is added goes into a new segment. To
keep segments few, the new one takes small ones in (`absorbed`). No file of a finished segment
changes.
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
from vmrag_link.index import flat_files, keywords, seal, storage
from vmrag_link.index import view as views
from vmrag_link.index.reader import DocumentKey, IndexReader
from vmrag_link.index.segment import DocumentTexts, SegmentWriter, is_disk_full
from vmrag_link.index.view import FORMAT, IndexedCollection, IndexView, ViewPart
from vmrag_link.index.views import Segments, list_segments
from vmrag_link.models import Chunk, Collection, Document, DocumentHeader, Record
from vmrag_link.paths import measure_size, sync_to_disk

DAMAGE = (sqlite3.Error, ArithmeticError, LookupError, TypeError, ValueError, msgspec.DecodeError)
"""What reading a damaged segment raises."""

SMALL_SEGMENT = 256
"""Documents of a segment that the next one takes in."""

MOST_PARTS = 4
"""Segments of a view that another one is added to; beyond, the smallest are joined."""


class ChunkedDocument(Record, frozen=True):
    """A document ready to be indexed: `vectors` holds one float32 row for each of `chunks`."""

    document: Document
    chunks: tuple[Chunk, ...]
    vectors: tuple[bytes, ...]


class PartSize(NamedTuple):
    """The size of a part: documents and chunks that count, and slots of its segment."""

    documents: int
    chunks: int
    slots: int


def choose_absorbed(parts: Sequence[PartSize], added: int) -> list[int]:
    """Which parts a new segment with `added` documents takes in, by number.

    Those with more dead slots than the whole view has chunks; where something is added, small
    ones; and where they become too many, the smallest, and then what is no more than twice as large
    as those together. So a document is taken in as often as the logarithm of their number says.
    """
    order = sorted((number for number, part in enumerate(parts) if part.documents), key=lambda n: parts[n].documents)
    chunks = sum(part.chunks for part in parts)
    taken = [n for n in order if parts[n].slots - parts[n].chunks > chunks]
    if not added and not taken:
        return []
    taken += [n for n in order if n not in taken and parts[n].documents < SMALL_SEGMENT]
    left = [n for n in order if n not in taken]
    if len(left) >= MOST_PARTS:
        total = added + sum(parts[n].documents for n in taken)
        while left and (len(left) >= MOST_PARTS or parts[left[0]].documents <= 2 * total):
            total += parts[left[0]].documents
            taken.append(left.pop(0))
    return sorted(taken)


class Draft:
    """Open one with `with`; nothing of it is seen before `publish`.

    `segments`: where they are kept, or their folder. `base`: the view that it is derived from;
    `without`: segments of it that cannot be read, whose documents are missing then.
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
            self._held = {name: self._recounted(name, collection) for name, collection in base.collections.items()}
            self._pieces = [dict(part.pieces) for part in base.parts]
            self._dead: dict[tuple[int, str], bytearray] = {}
            self._writer: SegmentWriter | None = None
            self._unembedded = dict(base.unembedded)
            self._given = base.given_vectors
            self._touched = dict.fromkeys(base.touched)
            self._opened = opened.pop_all()
        return self

    def _recounted(self, name: str, held: IndexedCollection) -> IndexedCollection:
        """The collection's totals, without what cannot be read."""
        if not self._without:
            return held
        pieces = [piece.piece for piece in self._reader.list_pieces(name)]
        return msgspec.structs.replace(
            held,
            documents=sum(piece.documents for piece in pieces),
            chunks=sum(piece.chunks for piece in pieces),
            tokens=self._reader.count_tokens(rows for _, rows in self._reader.list_documents(name)),
        )

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """What SQLite says of a full disk becomes `FileFailed`; what damaged segments of the base
        explain, `IndexFailed`.
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

    # -- what it holds -----------------------------------------------------------------------------

    def list_collections(self) -> dict[str, Collection]:
        return {name: each.collection for name, each in self._held.items()}

    def read_headers(self) -> dict[DocumentKey, DocumentHeader]:
        """All documents of the view that it is derived from."""
        return self._reader.read_headers()

    def find_headers(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentHeader]:
        """The headers of these documents, as far as the view has them that this is derived from."""
        return self._reader.find_headers(keys)

    def count_documents(self) -> int:
        """The number of documents, by now."""
        added = sum(each.documents for each in self._writer.list_written().values()) if self._writer else 0
        return added + sum(each.documents for each in self._held.values())

    def unembedded(self) -> dict[str, str]:
        """As `IndexView.unembedded`."""
        return dict(self._unembedded)

    def note_unembedded(self, reasons: Mapping[str, str]) -> None:
        self._unembedded = dict(reasons)

    def list_touched(self) -> list[DocumentKey]:
        """Documents that may differ from the revision that the view stands at."""
        return list(self._touched)

    def mark_touched(self, keys: Iterable[DocumentKey]) -> None:
        self._touched |= dict.fromkeys(keys)

    def clear_touched(self) -> None:
        self._touched.clear()

    # -- changes -----------------------------------------------------------------------------------

    def create_collection(self, collection: Collection) -> None:
        self._held[collection.name] = IndexedCollection(collection)

    def redefine_collection(self, collection: Collection) -> None:
        """Take over a definition that indexes equally (see `indexes_equally`)."""
        held = self._held[collection.name]
        self._held[collection.name] = msgspec.structs.replace(held, collection=collection)

    def drop_collection(self, name: str) -> int:
        """Returns the number of chunks that went with it."""
        for pieces in self._pieces:
            pieces.pop(name, None)
        return self._held.pop(name).chunks

    def remove_documents(self, collection: str, doc_ids: Sequence[str]) -> int:
        """Remove documents that the base holds; returns the number of their chunks."""
        gone = self._reader.find_rows((collection, doc_id) for doc_id in doc_ids).values()
        for rows in gone:
            self._mark_dead(collection, rows)
        held, chunks = self._held[collection], sum(map(len, gone))
        self._held[collection] = msgspec.structs.replace(
            held,
            documents=held.documents - len(gone),
            chunks=held.chunks - chunks,
            tokens=held.tokens - self._reader.count_tokens(gone),
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
        """Add documents that the index does not hold; returns the number of their chunks.

        `keep_floats`: their vectors cannot be made again from their texts.
        """
        rows = [vector for document in documents for vector in document.vectors]
        entries = [
            DocumentTexts(document.document.header, [chunk.text for chunk in document.chunks]) for document in documents
        ]
        kept = dict(enumerate(rows)) if keep_floats else None
        self._write(collection, entries, flat_files.quantise(b"".join(rows)), kept)
        return len(rows)

    def replace_vectors(self, collection: str, given: Mapping[str, bytes]) -> None:
        """Replace the vectors of documents of one chunk by other unit vectors (float32), on this
        machine only.

        No other view is derived from this one any more.
        """
        there = self._writer.replace_vectors(collection, given) if self._writer else given.keys()
        keys = [(collection, doc_id) for doc_id in there]
        headers, places = self._reader.find_headers(keys), self._reader.find_rows(keys)
        texts = self._reader.read_texts(rows.start for rows in places.values())
        if keys:
            # They are only moved: removed here, and added again below.
            self.remove_documents(collection, [doc_id for _, doc_id in keys])
            entries = [DocumentTexts(headers[key], [texts[places[key].start]]) for key in keys]
            new = [given[doc_id] for _, doc_id in keys]
            self._write(collection, entries, flat_files.quantise(b"".join(new)), dict(enumerate(new)))
        self._given = True

    def _write(
        self, collection: str, entries: Sequence[DocumentTexts], rows: bytes, kept: Mapping[int, bytes] | None
    ) -> None:
        if not entries:
            return
        if self._writer is None:
            self._writer = SegmentWriter(self._building)
        definition = self._held[collection].collection
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
        """Finish the new segment, and write the view into a folder, over one that is there.

        `durable`: segments survive a power cut. Raises `IndexFailed`.
        """
        view = msgspec.structs.replace(self._finish(durable=durable), revision=revision)
        seal_view(folder, view, self._segments.root)
        if not durable and not storage.is_in_memory(folder):
            self._drop_replaced(folder)

    def _drop_replaced(self, folder: Path) -> None:
        """Remove the segments that a working copy alone had and has no more. The caller holds it
        alone; that a revision's view took one over is rare.
        """
        replaced = set(self._base.unsynced).difference(list_segments(folder))
        roots = [each for each in folder.parent.parent.iterdir() if each.is_dir() and each != self.root]
        for path in self._segments.list_spare(roots) if replaced else ():
            if path.name in replaced:
                self._segments.remove_segment(path)

    def _finish(self, *, durable: bool) -> IndexView:
        added = self._writer.list_written() if self._writer else {}
        for name, each in added.items():
            held = self._held[name]
            self._held[name] = msgspec.structs.replace(
                held,
                documents=held.documents + each.documents,
                chunks=held.chunks + each.slots,
                tokens=held.tokens + each.tokens,
            )
        view = self._counted()
        sizes = [
            PartSize(
                part.documents,
                sum(piece.chunks for piece in part.pieces.values()),
                sum(piece.slots for piece in part.pieces.values()),
            )
            for part in view.parts
        ]
        taken = choose_absorbed(sizes, sum(each.documents for each in added.values()))
        if durable:  # what was never committed does not stay, not even dead
            taken = sorted({*taken, *self._with_removed_drafts(view)})
        self._absorb(view, taken)
        parts = [part for number, part in enumerate(view.parts) if part.documents and number not in taken]
        unsynced = [name for name in self._base.unsynced if any(part.segment == name for part in parts)]
        if self._writer:
            parts.append(self._new_part(durable=durable))
            if not durable:
                unsynced.append(parts[-1].segment)
        if durable:
            for name in unsynced:
                seal.sync_folder(self._segments.root / name)
            if unsynced:
                sync_to_disk(self._segments.root)
        self._require_totals(parts)
        return msgspec.structs.replace(view, parts=tuple(parts), unsynced=() if durable else tuple(unsynced))

    def _with_removed_drafts(self, view: IndexView) -> Iterator[int]:
        """The parts that hold uncommitted documents which were removed again."""
        for number, part in enumerate(view.parts):
            alive = sum(piece.chunks for piece in part.pieces.values())
            slots = sum(piece.slots for piece in self._base.parts[number].pieces.values()) if not self._without else 0
            if part.segment in self._base.unsynced and part.documents and alive < slots:
                yield number

    def _counted(self) -> IndexView:
        """The view without what was added."""
        parts = []
        for number, part in enumerate(self._reader.view.parts):
            pieces = {
                name: msgspec.structs.replace(piece, dead=bytes(self._dead.get((number, name), piece.dead)))
                for name, piece in self._pieces[number].items()
                if piece.documents
            }
            parts.append(ViewPart(part.segment, pieces))
        return IndexView("", self._held, tuple(parts), self._unembedded, self._given, tuple(sorted(self._touched)))

    def _absorb(self, view: IndexView, taken: Sequence[int]) -> None:
        """Add the documents of these parts to the new segment. Raises `IndexFailed`."""
        for number in taken:
            part = view.parts[number]
            if problem := seal.find_mismatch(self._segments.root / part.segment):
                raise unusable(self._segments.root / part.segment, problem)
            alone = IndexView("", {name: self._held[name] for name in part.pieces}, (part,))
            with contextlib.closing(IndexReader(alone, self._segments.root)) as reader:
                for name in part.pieces:
                    for batch in reader.batch_documents(name):
                        self._copy(reader, name, batch)

    def _copy(self, reader: IndexReader, collection: str, batch: Sequence[tuple[DocumentHeader, range]]) -> None:
        rows = [row for _, each in batch for row in each]
        texts, kept = reader.read_texts(rows), reader.read_floats(rows)
        entries = [DocumentTexts(header, [texts[row] for row in each]) for header, each in batch]
        whole = b"".join(reader.read_vectors(each) for _, each in batch)
        self._write(collection, entries, whole, {at: kept[row] for at, row in enumerate(rows) if row in kept})

    def _new_part(self, *, durable: bool) -> ViewPart:
        assert self._writer is not None  # noqa: S101  the caller has looked
        written = self._writer.finish()
        name = self._segments.publish(self._building, durable=durable)
        return ViewPart(name, {name: each.piece for name, each in written.items()})

    def _require_totals(self, parts: Sequence[ViewPart]) -> None:
        for name, held in self._held.items():
            pieces = [part.pieces[name] for part in parts if name in part.pieces]
            found = sum(piece.documents for piece in pieces), sum(piece.chunks for piece in pieces)
            if found != (held.documents, held.chunks):
                raise unusable(
                    self._segments.root,
                    f"the segments of {name!r} hold {found} documents and chunks, not {(held.documents, held.chunks)}",
                )


def seal_view(folder: Path, view: IndexView, segments: Path) -> None:
    """Write a view of finished segments into a folder, over one that is there."""
    storage.make_folder(folder)
    storage.write_file(folder / views.VIEW_FILE, views.encode_view(view))
    if storage.is_in_memory(folder):
        return
    sizes = {part.segment: measure_size(segments / part.segment) for part in view.parts}
    seal.write_seal(folder, format=FORMAT, revision=view.revision, segments=sizes)


def _remove_segments(view: IndexView, damaged: AbstractCollection[str]) -> IndexView:
    """A view without some of its segments; its totals still count them."""
    return msgspec.structs.replace(view, parts=tuple(part for part in view.parts if part.segment not in damaged))
