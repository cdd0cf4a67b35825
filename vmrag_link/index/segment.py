"""A segment: a finished part of indexes, which many views share. Its files never change.

    segments/<random>-<format>/
        manifest.sqlite                     documents, and the slots of their chunks
        vectors-<collection id>.i8          a row of int8 values for each chunk
        floats-<collection id>.f32          vectors that cannot be computed again from texts
        texts-<collection id>.utf8          the texts of the chunks; their ends are in `.u64`
        words-<collection id>.idx           which chunks contain a word (`postings`)
        lengths-<collection id>.u32         the numbers that BM25 needs for every chunk
        seal.json

`draft` creates segments, and `views` removes them.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from vmrag_link import permissions
from vmrag_link.errors import unusable
from vmrag_link.index import flat_files, keywords, postings, seal, storage
from vmrag_link.index.flat_files import Manifest, Texts
from vmrag_link.index.postings import BlockWriter, Postings
from vmrag_link.index.view import FORMAT, CollectionPiece
from vmrag_link.models import DocumentHeader, Record, parse_pieces, read_stated_title


class DocumentTexts(Record, frozen=True):
    """A document and the texts of its chunks."""

    header: DocumentHeader
    texts: Sequence[str]


def list_fields(entries: Iterable[DocumentTexts], *, code: bool) -> Iterator[tuple[str, ...]]:
    """Yield the texts of the fields of each chunk (`postings.CODE_FIELDS`, `DOCUMENT_FIELDS`).

    The text of a document lacks the title in its front matter, so each chunk gets the words of this
    title.
    """
    for entry in entries:
        pieces = parse_pieces(entry.header) if code else ()
        title = "" if code else read_stated_title(entry.header)
        for number, text in enumerate(entry.texts):
            if code:
                yield (text, *keywords.list_extra_words(entry.header.doc_id, pieces[number], text))
            else:
                yield (f"{text}\n{title}" if title else text,)


class WrittenCollection(NamedTuple):
    """The part of a collection in a segment."""

    id: int
    """The number of the collection in the segment."""

    documents: int
    slots: int
    tokens: int

    @property
    def piece(self) -> CollectionPiece:
        """All slots, as a piece of a view."""
        return CollectionPiece(self.id, self.slots, self.documents, self.slots)


class SegmentWriter:
    """A segment that is being written into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._collections: dict[str, WrittenCollection] = {}
        self._dimensions: dict[str, int] = {}
        self._words: dict[int, BlockWriter] = {}
        storage.make_folder(folder)
        self._manifest = Manifest(folder, create=True)

    def close(self) -> None:
        """Close the files. Without `finish`, they are not a segment."""
        self._manifest.close()

    def add_documents(
        self,
        collection: str,
        entries: Sequence[DocumentTexts],
        rows: bytes,
        *,
        dimensions: int,
        kept: Mapping[int, bytes] | None = None,
        code: bool = False,
    ) -> None:
        """Add documents.

        `rows`: the vectors of their texts as int8 values, in the same order. `kept`: vectors
        (float32) that cannot be computed again, by the number of the text. `code`: index the names
        that the documents declare.
        """
        written = self._collections.get(collection)
        if written is None:
            if len(self._collections) == keywords.MOST_COLLECTIONS:
                raise unusable(self.folder, f"it would hold more than {keywords.MOST_COLLECTIONS} collections")
            written = WrittenCollection(len(self._collections) + 1, 0, 0, 0)
            self._dimensions[collection] = dimensions
        slot = written.slots
        placed: list[tuple[DocumentHeader, range]] = []
        for entry in entries:
            placed.append((entry.header, range(slot, slot + len(entry.texts))))
            slot += len(entry.texts)
        with self._manifest.transaction():
            self._manifest.add_documents(written.id, placed)
        flat_files.append_vectors(self.folder, written.id, rows)
        if kept:
            flat_files.write_floats(
                self.folder, written.id, {written.slots + number: row for number, row in kept.items()}
            )
        flat_files.append_texts(self.folder, written.id, [text for entry in entries for text in entry.texts])
        tokens = self._add_words(written.id, entries, code=code)
        self._collections[collection] = WrittenCollection(
            written.id, written.documents + len(entries), slot, written.tokens + tokens
        )

    def _add_words(self, number: int, entries: Sequence[DocumentTexts], *, code: bool) -> int:
        """Add the words of documents, and return the number of tokens."""
        if number not in self._words:
            self._words[number] = BlockWriter(postings.CODE_FIELDS if code else postings.DOCUMENT_FIELDS)
        counts = self._words[number].add_chunks(list_fields(entries, code=code))
        lengths = flat_files.encode_lengths(_split_numbers(counts, [len(entry.texts) for entry in entries]))
        flat_files.append_bytes(self.folder / flat_files.lengths_name(number), lengths)
        if self._words[number].is_full:
            self._write_block(number)
        return sum(counts)

    def _write_block(self, number: int) -> None:
        flat_files.append_bytes(self.folder / postings.file_name(number), self._words[number].end_block())

    def replace_vectors(self, collection: str, vectors: Mapping[str, bytes]) -> set[str]:
        """Replace vectors of documents with one chunk that were added here. Return the ids of the
        other documents.

        `vectors`: unit vectors (float32) by document id.
        """
        written = self._collections.get(collection)
        slots = (
            {document.doc_id: document.first for document in self._manifest.find_states(written.id, vectors)}
            if written
            else {}
        )
        if written and slots:
            rows = {slot: vectors[doc_id] for doc_id, slot in slots.items()}
            flat_files.replace_vectors(
                self.folder, written.id, {slot: flat_files.quantise(row) for slot, row in rows.items()}
            )
            flat_files.write_floats(self.folder, written.id, rows)
        return vectors.keys() - slots.keys()

    def list_written(self) -> dict[str, WrittenCollection]:
        """Return what the segment has so far, by collection."""
        return dict(self._collections)

    def finish(self) -> dict[str, WrittenCollection]:
        """Compare the files, close and seal them. Raises `IndexFailed` if they disagree."""
        written = self.list_written()
        for number, words in self._words.items():
            if not words.is_empty:
                self._write_block(number)
        problem = self._find_disagreement(written)
        if problem:
            raise unusable(self.folder, problem)
        storage.save_database(self.folder / flat_files.MANIFEST_FILE, self._manifest.connection)
        self._manifest.close()
        if not storage.is_in_memory(self.folder):
            permissions.apply_folder_mode(self.folder)
            seal.write_seal(self.folder, format=FORMAT, revision="")
        return written

    def _find_disagreement(self, written: Mapping[str, WrittenCollection]) -> str:
        """Return how the files disagree; empty if they agree."""
        listed = self._manifest.count_chunks()
        for name, collection in written.items():
            # Rows are unique, so equal numbers mean one row for each slot.
            if (number := listed.get(collection.id, 0)) != collection.slots:
                return f"the manifest has {number} chunks of {name!r}, but {collection.slots} were added"
            if problem := self._find_wrong_size(name, collection):
                return problem
            try:
                Postings(flat_files.map_file(self.folder / postings.file_name(collection.id)), slots=collection.slots)
            except ValueError as error:
                return f"the words of {name!r} are damaged: {error}"
        return ""

    def _find_wrong_size(self, name: str, collection: WrittenCollection) -> str:
        """Return which file of a collection has a wrong size; empty if none has."""
        dimensions = self._dimensions[name]
        for kind, file, row in (
            ("vectors", flat_files.vectors_name(collection.id), dimensions),
            ("lengths", flat_files.lengths_name(collection.id), flat_files.ROW_BYTES),
            ("ends of texts", flat_files.texts_names(collection.id)[1], flat_files.END_BYTES),
        ):
            size = flat_files.read_size(self.folder / file)
            if size != collection.slots * row:
                return f"the {kind} of {name!r} have {size} bytes, which do not match {collection.slots} rows"
        if (
            flat_files.read_size(self.folder / flat_files.floats_name(collection.id))
            > collection.slots * dimensions * flat_files.FLOAT32
        ):
            return f"{name!r} has more vectors as float32 than its {collection.slots} rows"
        return ""


def _split_numbers(numbers: Iterable[int], sizes: Iterable[int]) -> Iterator[list[int]]:
    """Return an iterator over lists of these sizes."""
    remaining = iter(numbers)
    return (list(itertools.islice(remaining, size)) for size in sizes)


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error of SQLite means that the disk is full.

    Errors of Python's own module have no code.
    """
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


class Segment:
    """A finished segment, open for reading.

    `number`: its position in the view. A file is opened when it is first needed, or by
    `open_files`. After `open_files`, the segment may be removed.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self._opened = contextlib.ExitStack()
        self._maps: dict[str, mmap.mmap | bytes] = {}
        self._postings: dict[int, Postings] = {}
        self._texts: dict[int, Texts] = {}

    def close(self) -> None:
        self._opened.close()

    def open_files(self, pieces: Iterable[int]) -> None:
        """Open all files of these collections."""
        self.manifest.count_chunks()  # SQLite opens a file with the first statement
        for number in pieces:
            self.map_vectors(number)
            self.open_texts(number)
            self.map_file(postings.file_name(number))
            self.map_file(flat_files.lengths_name(number))
            self.map_file(flat_files.floats_name(number))

    @cached_property
    def manifest(self) -> Manifest:
        return self._opened.enter_context(contextlib.closing(Manifest(self.folder)))

    def open_postings(self, number: int, *, slots: int) -> Postings:
        """Return the words of a collection. Raises `ValueError` for a damaged file."""
        if number not in self._postings:
            self._postings[number] = Postings(self.map_file(postings.file_name(number)), slots=slots)
        return self._postings[number]

    def open_texts(self, number: int) -> Texts:
        """Return the texts of a collection."""
        if number not in self._texts:
            content, ends = map(self.map_file, flat_files.texts_names(number))
            self._texts[number] = Texts(content, flat_files.read_numbers(ends, "Q"))
        return self._texts[number]

    def map_vectors(self, number: int) -> mmap.mmap | bytes:
        """Return the vectors of a collection, one after the other."""
        return self.map_file(flat_files.vectors_name(number))

    def read_lengths(self, number: int, *, slots: int) -> Sequence[int]:
        """Return all numbers of a collection's lengths (`flat_files.decode_lengths`)."""
        return flat_files.decode_lengths(self.map_file(flat_files.lengths_name(number)), slots=slots)

    def map_file(self, name: str) -> mmap.mmap | bytes:
        """Return the bytes of a file; empty if it does not exist."""
        if name not in self._maps:
            path = self.folder / name
            self._maps[name] = flat_files.map_file(path) if flat_files.read_size(path) else b""
        return self._maps[name]


def find_word_problem(folder: Path) -> str:
    """Return why the words of a segment do not match its texts; empty if they match.

    This computes all words again, in memory.
    """
    with contextlib.closing(Segment(folder, 0)) as segment:
        try:
            for number, slots in segment.manifest.count_chunks().items():
                if not _has_words_of_texts(segment, number, slots):
                    return f"the words in {postings.file_name(number)} do not match the texts"
        except (sqlite3.Error, OSError, LookupError, TypeError, ValueError) as error:
            return f"the words cannot be compared with the texts ({error})"
    return ""


def _has_words_of_texts(segment: Segment, number: int, slots: int) -> bool:
    documents = [*segment.manifest.list_documents(number)]
    texts, sizes, counts = segment.open_texts(number), [document.chunks for document in documents], []
    entries = (
        DocumentTexts(
            DocumentHeader("", document.doc_id, document.title, document.content_hash, document.metadata),
            [texts.text_at(slot) for slot in range(document.first, document.first + document.chunks)],
        )
        for document in documents
    )
    chunks: Iterator[tuple[str, ...]] | None = None
    for fields, rows, content in segment.open_postings(number, slots=slots).list_blocks():
        chunks = chunks or list_fields(entries, code=postings.NAMES in fields)
        writer = BlockWriter(fields, rows.start)
        counts += writer.add_chunks(itertools.islice(chunks, len(rows)))
        if writer.end_block() != content:
            return False
    lengths = segment.map_file(flat_files.lengths_name(number))
    return flat_files.encode_lengths(_split_numbers(counts, sizes)) == lengths[:]
