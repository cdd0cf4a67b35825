"""Reading a view: its documents, texts, words and vectors, whatever segments they lie in.

A chunk is named by its row (`keywords.row_id`): segment, collection and slot. The chunks of a
document have consecutive rows.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from vmrag_link.errors import unusable
from vmrag_link.index import flat_files, keywords
from vmrag_link.index import view as views
from vmrag_link.index.flat_files import PatternKind, PlacedDocument
from vmrag_link.index.postings import NAMES, WordOccurrences
from vmrag_link.index.segment import Segment
from vmrag_link.index.view import CollectionPiece, IndexedCollection, IndexView, segments_folder
from vmrag_link.models import DocumentHeader, Record

DocumentKey = tuple[str, str]

FEW_CHUNKS = 5
"""Maximum number of chunks with a word for which compounds are searched. Common words need none."""

OWN_WEIGHT, MOST_COMPOUNDS = 3, 200
"""Weight of a word compared with its compounds, and maximum number of compounds (the shortest
first).
"""

COLUMN_ROWS = 1_000
BATCH_CHUNKS = 1_000


class IndexedChunk(Record, frozen=True):
    """`number` of the `chunks` of a document; the rest is the document's."""

    doc_id: str
    number: int
    chunks: int
    title: str
    content_hash: str
    metadata: str


class IndexedColumns(NamedTuple):
    """Documents, column by column: first row, number of chunks, a chunk's own number (0 for the
    whole document), and the rest of a header.
    """

    first: Sequence[int]
    chunks: Sequence[int]
    number: Sequence[int]
    metadata: Sequence[str]
    title: Sequence[str]
    doc_id: Sequence[str]
    content_hash: Sequence[str]


class OpenPiece(Record, frozen=True):
    """The piece of a collection that a segment has."""

    segment: Segment
    collection: str
    piece: CollectionPiece

    @property
    def first_row(self) -> int:
        return keywords.pack_row(self.piece.id, 0, self.segment.number)


class IndexReader:
    """A view, open for reading by one thread. Nobody changes it, and its segments stay, meanwhile.

    Methods raise what `damage_errors` translates.
    """

    def __init__(self, view: IndexView, segments: Path) -> None:
        self.view = view
        self._segments = [Segment(segments / part.segment, number) for number, part in enumerate(view.parts)]
        self._pieces: dict[str, list[OpenPiece]] = {name: [] for name in view.collections}
        self._by_row: dict[int, OpenPiece] = {}
        self._alive: dict[int, bytes] = {}
        for segment, part in zip(self._segments, view.parts, strict=True):
            for name, piece in part.pieces.items():
                held = OpenPiece(segment, name, piece)
                self._pieces[name].append(held)
                self._by_row[keywords.unpack_piece(held.first_row)] = held

    @classmethod
    def open(cls, folder: Path, *more: Path) -> Self:
        """Open a view, or several of other collections whose segments lie in the same folder.

        Raises `IndexFailed`.
        """
        return cls(views.join_views([views.read_view(each) for each in (folder, *more)]), segments_folder(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def open_files(self) -> None:
        """Open all files: from now on the segments may be removed."""
        for segment, part in zip(self._segments, self.view.parts, strict=True):
            segment.open_files(piece.id for piece in part.pieces.values())

    # -- collections -------------------------------------------------------------------------------

    @property
    def list_collections(self) -> Mapping[str, IndexedCollection]:
        return self.view.collections

    def list_pieces(self, collection: str) -> Sequence[OpenPiece]:
        return self._pieces.get(collection, ())

    def find_collection(self, row: int) -> str:
        return self._by_row[keywords.unpack_piece(row)].collection

    # -- documents ---------------------------------------------------------------------------------

    def read_headers(self) -> dict[DocumentKey, DocumentHeader]:
        """All documents by (collection, doc_id)."""
        return {header.key: header for name in self.list_collections for header, _ in self.list_documents(name)}

    def find_headers(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentHeader]:
        """The headers of the given documents that the index holds."""
        return {key: _header(key[0], each) for key, (_, each) in self._find(keys).items()}

    def find_rows(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, range]:
        """The rows of those of these documents that the index holds."""
        return {key: _rows(piece, each) for key, (piece, each) in self._find(keys).items()}

    def count_chunks_by_document(self) -> dict[DocumentKey, int]:
        """Numbers of chunks by document."""
        return {header.key: len(rows) for name in self.list_collections for header, rows in self.list_documents(name)}

    def count_chunks(self, collection: str, doc_ids: Iterable[str]) -> dict[str, int]:
        """Numbers of chunks of those of these documents that the index holds."""
        found = self._find((collection, doc_id) for doc_id in doc_ids)
        return {doc_id: each.chunks for (_, doc_id), (_, each) in found.items()}

    def list_documents(self, collection: str) -> Iterator[tuple[DocumentHeader, range]]:
        """Every document of a collection, and the rows of its chunks."""
        for held in self.list_pieces(collection):
            for document in held.segment.manifest.list_documents(held.piece.id):
                if held.piece.is_alive(document.first):
                    yield _header(collection, document), _rows(held, document)

    def find_rows_like(
        self, collection: str, patterns: Sequence[str], by: PatternKind = "LIKE"
    ) -> Iterator[tuple[str, range]]:
        """Yield the id and the rows of each document whose id is like a pattern of SQL."""
        for held in self.list_pieces(collection):
            for doc_id, first, chunks in held.segment.manifest.find_like(held.piece.id, patterns, by):
                if held.piece.is_alive(first):
                    yield doc_id, range(held.first_row + first, held.first_row + first + chunks)

    def batch_documents(self, collection: str) -> Iterator[list[tuple[DocumentHeader, range]]]:
        """As `placed`, documents with about `BATCH_CHUNKS` chunks at a time."""
        batch: list[tuple[DocumentHeader, range]] = []
        size = 0
        for header, rows in self.list_documents(collection):
            batch.append((header, rows))
            size += len(rows)
            if size >= BATCH_CHUNKS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def read_columns(self, collection: str, *, header: bool) -> Iterator[IndexedColumns]:
        """Every document of a collection, a thousand at a time. Without `header`, the columns from
        `title` on are empty texts.
        """
        for held in self.list_pieces(collection):
            first_row, alive = held.first_row, held.piece.is_alive
            placed = held.segment.manifest.list_documents(held.piece.id, header=header)
            rows = (
                (first_row + first, chunks, 0, metadata, title, doc_id, content_hash)
                for doc_id, title, content_hash, metadata, first, chunks in placed
                if alive(first)
            )
            while some := list(itertools.islice(rows, COLUMN_ROWS)):
                yield IndexedColumns(*zip(*some, strict=True))

    def _find(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, tuple[OpenPiece, PlacedDocument]]:
        asked: dict[str, list[str]] = {}
        for name, doc_id in keys:
            asked.setdefault(name, []).append(doc_id)
        return {
            (name, each.doc_id): (held, each)
            for name, doc_ids in asked.items()
            for held in self.list_pieces(name)
            for each in held.segment.manifest.find_states(held.piece.id, doc_ids)
            if held.piece.is_alive(each.first)
        }

    # -- chunks ------------------------------------------------------------------------------------

    def read_chunk(self, row: int) -> IndexedChunk:
        held, slot = self._by_row[keywords.unpack_piece(row)], keywords.unpack_slot(row)
        found = held.segment.manifest.find_document(held.piece.id, slot)
        return IndexedChunk(
            found.doc_id, slot - found.first, found.chunks, found.title, found.content_hash, found.metadata
        )

    def list_rows(self, collection: str) -> list[int]:
        """All rows of a collection's chunks, ascending."""
        found: list[int] = []
        for held in self.list_pieces(collection):
            rows = range(held.first_row, held.first_row + held.piece.slots)
            found += [row for row in rows if held.piece.is_alive(row - held.first_row)] if held.piece.dead else rows
        return found

    def read_texts(self, rows: Iterable[int]) -> dict[int, str]:
        """Return the texts of these rows."""
        return {row: self.read_text(row) for row in rows}

    def read_text(self, row: int) -> str:
        """Return the text of a chunk."""
        held = self._by_row[keywords.unpack_piece(row)]
        return held.segment.open_texts(held.piece.id).text_at(keywords.unpack_slot(row))

    def read_vector(self, row: int) -> bytes:
        """The vector of a chunk, in whole numbers."""
        held, slot = self._by_row[keywords.unpack_piece(row)], keywords.unpack_slot(row)
        size = self.list_collections[held.collection].collection.embedding_dimensions
        return bytes(held.segment.map_vectors(held.piece.id)[slot * size : (slot + 1) * size])

    def read_vectors(self, rows: range) -> bytes:
        """The vectors of a document's chunks, one behind the other."""
        held, slot = self._by_row[keywords.unpack_piece(rows.start)], keywords.unpack_slot(rows.start)
        size = self.list_collections[held.collection].collection.embedding_dimensions
        return bytes(held.segment.map_vectors(held.piece.id)[slot * size : (slot + len(rows)) * size])

    def read_floats(self, rows: Iterable[int]) -> dict[int, bytes]:
        """The vectors that cannot be made again from texts (float32)."""
        found: dict[int, bytes] = {}
        for number, some in _by(keywords.unpack_piece, rows).items():
            held = self._by_row[number]
            content = held.segment.map_file(flat_files.floats_name(held.piece.id))
            size = self.list_collections[held.collection].collection.embedding_dimensions
            kept = flat_files.find_floats(content, map(keywords.unpack_slot, some), dimensions=size)
            found |= {held.first_row + slot: row for slot, row in kept.items()}
        return found

    # -- words -------------------------------------------------------------------------------------

    def read_lengths(self, collection: str) -> dict[int, Sequence[int]]:
        """What `flat_files.numbers` gives, by piece (`keywords.piece_of`)."""
        return {
            keywords.unpack_piece(held.first_row): held.segment.read_lengths(held.piece.id, slots=held.piece.slots)
            for held in self.list_pieces(collection)
        }

    def count_tokens(self, rows: Iterable[range]) -> int:
        """The tokens of these documents together. Each is given by its rows."""
        numbers: dict[int, Sequence[int]] = {}
        total = 0
        for row in rows:
            piece = keywords.unpack_piece(row.start)
            if piece not in numbers:
                held = self._by_row[piece]
                numbers[piece] = held.segment.read_lengths(held.piece.id, slots=held.piece.slots)
            total += numbers[piece][flat_files.NUMBERS * keywords.unpack_slot(row.start) + flat_files.DOCUMENT]
        return total

    def find_occurrences(
        self, terms: Sequence[str], collections: Iterable[str], *, names: bool = False
    ) -> dict[str, list[WordOccurrences]]:
        """Return which chunks of these collections hold a word (one of `keywords.terms`).

        `names`: only among the names of code.
        """
        holdings: dict[str, list[WordOccurrences]] = {}
        for name in collections:
            lists = holdings[name] = []
            for held in self.list_pieces(name):
                number, piece = keywords.unpack_piece(held.first_row), held.piece
                postings = held.segment.open_postings(piece.id, slots=piece.slots)
                for field, slots, frequencies in postings.find_lists(terms, names=names):
                    if len(slots):
                        alive = self._alive_slots(number)
                        lists.append(WordOccurrences(number, slots, frequencies, alive, field == NAMES))
        return holdings

    def add_compounds(
        self, terms: Sequence[str], name: str, holdings: list[WordOccurrences], *, alone: bool
    ) -> Sequence[WordOccurrences]:
        """Return the chunks of a collection of documents that contain a word or, if these are few,
        a compound with it.

        `holdings`: the chunks with the word itself, which has the weight `OWN_WEIGHT`. `alone`: the
        query has no other word.
        """
        if self.list_collections[name].collection.is_code or any(
            len(holding.slots) > FEW_CHUNKS and not holding.alive for holding in holdings
        ):
            return holdings
        pairs = itertools.chain.from_iterable(holding.alive_pairs() for holding in holdings)
        is_part = keywords.is_part([term.encode() for term in terms], alone=alone)
        if not is_part or any(True for _ in itertools.islice(pairs, FEW_CHUNKS, None)):
            return holdings
        compounds: dict[bytes, list[WordOccurrences]] = {}
        for held in self.list_pieces(name):
            number, piece = keywords.unpack_piece(held.first_row), held.piece
            for term, slots, frequencies in held.segment.open_postings(piece.id, slots=piece.slots).find_compounds(
                terms[0]
            ):
                holding = WordOccurrences(number, slots, frequencies, self._alive_slots(number))
                if any(True for _ in holding.alive_pairs()):
                    compounds.setdefault(term, []).append(holding)
        shortest = sorted(compounds, key=lambda term: (len(term), term))[:MOST_COMPOUNDS]
        return [*holdings * OWN_WEIGHT, *(holding for term in shortest for holding in compounds[term])]

    def find_rows_with_word(self, terms: Sequence[str], collections: Iterable[str], *, names: bool = False) -> set[int]:
        """Return the rows of these collections that hold a word. The arguments are as above."""
        return {
            holding.piece << keywords.SLOT_BITS | slot
            for holdings in self.find_occurrences(terms, collections, names=names).values()
            for holding in holdings
            for slot, _ in holding.alive_pairs()
        }

    def _alive_slots(self, number: int) -> bytes:
        if number not in self._alive:
            self._alive[number] = self._by_row[number].piece.list_alive_slots()
        return self._alive[number]


def _header(collection: str, each: PlacedDocument) -> DocumentHeader:
    return DocumentHeader(collection, each.doc_id, each.title, each.content_hash, each.metadata)


def _rows(held: OpenPiece, each: PlacedDocument) -> range:
    first = held.first_row + each.first
    return range(first, first + each.chunks)


def _by(what: Callable[[int], int], rows: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(what(row), []).append(row)
    return found


@contextlib.contextmanager
def damage_errors(folder: Path) -> Iterator[None]:
    """Raise `IndexFailed` for what reading a damaged segment raises."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise unusable(folder, str(error)) from error
