"""Read a view: its documents, texts, words and vectors, across all of its segments.

A row (`keywords.pack_row`) identifies a chunk by segment, collection and slot. The chunks of a
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
"""Collection and doc_id."""

FEW_CHUNKS = 5
"""Maximum number of chunks with a word for which compounds are searched. Common words do not need
them.
"""

OWN_WEIGHT, MOST_COMPOUNDS = 3, 200
"""Weight of a word compared with its compounds, and maximum number of compounds (the shortest
first).
"""

COLUMN_ROWS = 1_000
BATCH_CHUNKS = 1_000


class IndexedChunk(Record, frozen=True):
    """A chunk, and the header of its document."""

    doc_id: str
    number: int
    """The number of the chunk in its document."""

    chunks: int
    """The number of chunks of the document."""

    title: str
    content_hash: str
    metadata: str


class IndexedColumns(NamedTuple):
    """Documents or chunks, column by column."""

    first: Sequence[int]
    """The first row."""

    chunks: Sequence[int]
    number: Sequence[int]
    """The number of the chunk; 0 for a whole document."""

    metadata: Sequence[str]
    title: Sequence[str]
    doc_id: Sequence[str]
    content_hash: Sequence[str]


class OpenPiece(Record, frozen=True):
    """The piece of a collection in a segment."""

    segment: Segment
    collection: str
    piece: CollectionPiece

    @property
    def first_row(self) -> int:
        return keywords.pack_row(self.piece.id, 0, self.segment.number)


class IndexReader:
    """A view, open for reading by one thread.

    The caller makes sure that the view does not change and that its segments are not removed.
    `damage_errors` converts the errors that the methods raise for damaged files.
    """

    def __init__(self, view: IndexView, segments: Path) -> None:
        self.view = view
        self._segments = [Segment(segments / part.segment, number) for number, part in enumerate(view.parts)]
        self._pieces: dict[str, list[OpenPiece]] = {name: [] for name in view.collections}
        self._by_row: dict[int, OpenPiece] = {}
        self._alive: dict[int, bytes] = {}
        for segment, part in zip(self._segments, view.parts, strict=True):
            for name, piece in part.pieces.items():
                opened = OpenPiece(segment, name, piece)
                self._pieces[name].append(opened)
                self._by_row[keywords.unpack_piece(opened.first_row)] = opened

    @classmethod
    def open(cls, folder: Path, *more: Path) -> Self:
        """Open a view, or several views of different collections whose segments are in the same
        folder.

        Raises `IndexFailed`.
        """
        return cls(views.join_views([views.read_view(path) for path in (folder, *more)]), segments_folder(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for segment in self._segments:
            segment.close()

    def open_files(self) -> None:
        """Open all files, so that the segments may be removed afterwards."""
        for segment, part in zip(self._segments, self.view.parts, strict=True):
            segment.open_files(piece.id for piece in part.pieces.values())

    # -- collections -------------------------------------------------------------------------------

    @property
    def collections(self) -> Mapping[str, IndexedCollection]:
        return self.view.collections

    def list_pieces(self, collection: str) -> Sequence[OpenPiece]:
        return self._pieces.get(collection, ())

    def find_collection(self, row: int) -> str:
        return self._by_row[keywords.unpack_piece(row)].collection

    # -- documents ---------------------------------------------------------------------------------

    def read_headers(self) -> dict[DocumentKey, DocumentHeader]:
        """Return the headers of all documents by (collection, doc_id)."""
        return {header.key: header for name in self.collections for header, _ in self.list_documents(name)}

    def find_headers(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, DocumentHeader]:
        """Return the headers of those of these documents that the index has."""
        return {key: _make_header(key[0], document) for key, (_, document) in self._find_documents(keys).items()}

    def find_rows(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, range]:
        """Return the rows of the given documents. Documents that the index lacks are left out."""
        return {
            key: _find_document_rows(piece, document) for key, (piece, document) in self._find_documents(keys).items()
        }

    def count_chunks_by_document(self) -> dict[DocumentKey, int]:
        """Return the number of chunks of each document."""
        return {header.key: len(rows) for name in self.collections for header, rows in self.list_documents(name)}

    def count_chunks(self, collection: str, doc_ids: Iterable[str]) -> dict[str, int]:
        """Return the number of chunks of each of these documents that the index has."""
        documents = self._find_documents((collection, doc_id) for doc_id in doc_ids)
        return {doc_id: document.chunks for (_, doc_id), (_, document) in documents.items()}

    def list_documents(self, collection: str) -> Iterator[tuple[DocumentHeader, range]]:
        """Yield every document of a collection, and the rows of its chunks."""
        for opened in self.list_pieces(collection):
            for document in opened.segment.manifest.list_documents(opened.piece.id):
                if opened.piece.is_alive(document.first):
                    yield _make_header(collection, document), _find_document_rows(opened, document)

    def find_rows_like(
        self, collection: str, patterns: Sequence[str], by: PatternKind = "LIKE"
    ) -> Iterator[tuple[str, range]]:
        """Yield the id and the rows of each document whose id is like a pattern of SQL."""
        for opened in self.list_pieces(collection):
            for doc_id, first, chunks in opened.segment.manifest.find_like(opened.piece.id, patterns, by):
                if opened.piece.is_alive(first):
                    yield doc_id, range(opened.first_row + first, opened.first_row + first + chunks)

    def batch_documents(self, collection: str) -> Iterator[list[tuple[DocumentHeader, range]]]:
        """Yield the documents of a collection in batches of about `BATCH_CHUNKS` chunks."""
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
        """Yield the documents of a collection in batches of `COLUMN_ROWS`.

        Without `header`, the columns from `title` on are empty texts.
        """
        for opened in self.list_pieces(collection):
            first_row, alive = opened.first_row, opened.piece.is_alive
            documents = opened.segment.manifest.list_documents(opened.piece.id, header=header)
            rows = (
                (first_row + first, chunks, 0, metadata, title, doc_id, content_hash)
                for doc_id, title, content_hash, metadata, first, chunks in documents
                if alive(first)
            )
            while batch := list(itertools.islice(rows, COLUMN_ROWS)):
                yield IndexedColumns(*zip(*batch, strict=True))

    def _find_documents(self, keys: Iterable[DocumentKey]) -> dict[DocumentKey, tuple[OpenPiece, PlacedDocument]]:
        ids_by_collection: dict[str, list[str]] = {}
        for name, doc_id in keys:
            ids_by_collection.setdefault(name, []).append(doc_id)
        return {
            (name, document.doc_id): (opened, document)
            for name, doc_ids in ids_by_collection.items()
            for opened in self.list_pieces(name)
            for document in opened.segment.manifest.find_states(opened.piece.id, doc_ids)
            if opened.piece.is_alive(document.first)
        }

    # -- chunks ------------------------------------------------------------------------------------

    def read_chunk(self, row: int) -> IndexedChunk:
        opened, slot = self._by_row[keywords.unpack_piece(row)], keywords.unpack_slot(row)
        document = opened.segment.manifest.find_document(opened.piece.id, slot)
        return IndexedChunk(
            doc_id=document.doc_id,
            number=slot - document.first,
            chunks=document.chunks,
            title=document.title,
            content_hash=document.content_hash,
            metadata=document.metadata,
        )

    def list_rows(self, collection: str) -> list[int]:
        """Return all rows of a collection's chunks, ascending."""
        rows: list[int] = []
        for opened in self.list_pieces(collection):
            all_rows = range(opened.first_row, opened.first_row + opened.piece.slots)
            rows += (
                [row for row in all_rows if opened.piece.is_alive(row - opened.first_row)]
                if opened.piece.dead
                else all_rows
            )
        return rows

    def read_texts(self, rows: Iterable[int]) -> dict[int, str]:
        """Return the texts of these rows."""
        return {row: self.read_text(row) for row in rows}

    def read_text(self, row: int) -> str:
        """Return the text of a chunk."""
        opened = self._by_row[keywords.unpack_piece(row)]
        return opened.segment.open_texts(opened.piece.id).text_at(keywords.unpack_slot(row))

    def read_vector(self, row: int) -> bytes:
        """Return the vector of a chunk as int8 values."""
        opened, slot = self._by_row[keywords.unpack_piece(row)], keywords.unpack_slot(row)
        size = self.collections[opened.collection].collection.embedding_dimensions
        return bytes(opened.segment.map_vectors(opened.piece.id)[slot * size : (slot + 1) * size])

    def read_vectors(self, rows: range) -> bytes:
        """Return the vectors of a document's chunks, one after the other."""
        opened, slot = self._by_row[keywords.unpack_piece(rows.start)], keywords.unpack_slot(rows.start)
        size = self.collections[opened.collection].collection.embedding_dimensions
        return bytes(opened.segment.map_vectors(opened.piece.id)[slot * size : (slot + len(rows)) * size])

    def read_floats(self, rows: Iterable[int]) -> dict[int, bytes]:
        """Return the vectors (float32) that cannot be computed again from texts, by row."""
        floats: dict[int, bytes] = {}
        for number, piece_rows in _group_rows(keywords.unpack_piece, rows).items():
            opened = self._by_row[number]
            content = opened.segment.map_file(flat_files.floats_name(opened.piece.id))
            size = self.collections[opened.collection].collection.embedding_dimensions
            by_slot = flat_files.find_floats(content, map(keywords.unpack_slot, piece_rows), dimensions=size)
            floats |= {opened.first_row + slot: row for slot, row in by_slot.items()}
        return floats

    # -- words -------------------------------------------------------------------------------------

    def read_lengths(self, collection: str) -> dict[int, Sequence[int]]:
        """Return the result of `flat_files.decode_lengths` for each piece
        (`keywords.unpack_piece`).
        """
        return {
            keywords.unpack_piece(opened.first_row): opened.segment.read_lengths(
                opened.piece.id, slots=opened.piece.slots
            )
            for opened in self.list_pieces(collection)
        }

    def count_tokens(self, rows: Iterable[range]) -> int:
        """Return the number of tokens of these documents together. Each document is given by its
        rows.
        """
        numbers: dict[int, Sequence[int]] = {}
        total = 0
        for row in rows:
            piece = keywords.unpack_piece(row.start)
            if piece not in numbers:
                opened = self._by_row[piece]
                numbers[piece] = opened.segment.read_lengths(opened.piece.id, slots=opened.piece.slots)
            total += numbers[piece][flat_files.NUMBERS * keywords.unpack_slot(row.start) + flat_files.DOCUMENT]
        return total

    def find_occurrences(
        self, terms: Sequence[str], collections: Iterable[str], *, names: bool = False
    ) -> dict[str, list[WordOccurrences]]:
        """Return the chunks of these collections that contain a word (one of
        `keywords.find_query_terms`).

        `names`: search only the names that code declares.
        """
        occurrences: dict[str, list[WordOccurrences]] = {}
        for name in collections:
            lists = occurrences[name] = []
            for opened in self.list_pieces(name):
                number, piece = keywords.unpack_piece(opened.first_row), opened.piece
                postings = opened.segment.open_postings(piece.id, slots=piece.slots)
                for field, slots, frequencies in postings.find_lists(terms, names=names):
                    if len(slots):
                        alive = self._alive_slots(number)
                        lists.append(WordOccurrences(number, slots, frequencies, alive, field == NAMES))
        return occurrences

    def add_compounds(
        self, terms: Sequence[str], name: str, occurrences: list[WordOccurrences], *, alone: bool
    ) -> Sequence[WordOccurrences]:
        """Return the chunks of a collection of documents that contain a word or, if these are few,
        a compound with the word.

        `occurrences`: the chunks with the word itself, which has the weight `OWN_WEIGHT`. `alone`:
        the query has no other word.
        """
        if self.collections[name].collection.is_code or any(
            len(occurrence.slots) > FEW_CHUNKS and not occurrence.alive for occurrence in occurrences
        ):
            return occurrences
        pairs = itertools.chain.from_iterable(occurrence.alive_pairs() for occurrence in occurrences)
        is_part = keywords.is_part([term.encode() for term in terms], alone=alone)
        if not is_part or any(True for _ in itertools.islice(pairs, FEW_CHUNKS, None)):
            return occurrences
        compounds: dict[bytes, list[WordOccurrences]] = {}
        for opened in self.list_pieces(name):
            number, piece = keywords.unpack_piece(opened.first_row), opened.piece
            for term, slots, frequencies in opened.segment.open_postings(piece.id, slots=piece.slots).find_compounds(
                terms[0]
            ):
                occurrence = WordOccurrences(number, slots, frequencies, self._alive_slots(number))
                if any(True for _ in occurrence.alive_pairs()):
                    compounds.setdefault(term, []).append(occurrence)
        shortest = sorted(compounds, key=lambda term: (len(term), term))[:MOST_COMPOUNDS]
        return [*occurrences * OWN_WEIGHT, *(occurrence for term in shortest for occurrence in compounds[term])]

    def find_rows_with_word(self, terms: Sequence[str], collections: Iterable[str], *, names: bool = False) -> set[int]:
        """Return the rows of these collections that contain a word.

        The arguments are those of `find_occurrences`.
        """
        return {
            occurrence.piece << keywords.SLOT_BITS | slot
            for occurrences in self.find_occurrences(terms, collections, names=names).values()
            for occurrence in occurrences
            for slot, _ in occurrence.alive_pairs()
        }

    def _alive_slots(self, number: int) -> bytes:
        if number not in self._alive:
            self._alive[number] = self._by_row[number].piece.list_alive_slots()
        return self._alive[number]


def _make_header(collection: str, document: PlacedDocument) -> DocumentHeader:
    return DocumentHeader(collection, document.doc_id, document.title, document.content_hash, document.metadata)


def _find_document_rows(opened: OpenPiece, document: PlacedDocument) -> range:
    first = opened.first_row + document.first
    return range(first, first + document.chunks)


def _group_rows(get_piece: Callable[[int], int], rows: Iterable[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(get_piece(row), []).append(row)
    return groups


@contextlib.contextmanager
def damage_errors(folder: Path) -> Iterator[None]:
    """Raise `IndexFailed` in place of the errors that reading a damaged segment raises."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise unusable(folder, str(error)) from error
