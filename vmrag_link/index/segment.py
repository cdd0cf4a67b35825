"""A segment: a finished piece of indexes, which many views share and nobody changes.

    segments/<random>-<format>/
        manifest.sqlite                     documents, and where their chunks lie
        vectors-<collection id>.i8          a row of whole numbers for each chunk
        floats-<collection id>.f32          vectors that cannot be made again from texts
        texts-<collection id>.utf8          the texts of the chunks, and in `.u64` where they end
        words-<collection id>.idx           which chunks hold a word (`postings`)
        lengths-<collection id>.u32         what BM25 asks of every chunk
        seal.json

How they are made and removed: `draft`, `views`.
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
    """Return the texts of the fields of each chunk (`postings.CODE_FIELDS`, `DOCUMENT_FIELDS`).

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
    """What a segment holds of a collection; `id` is the collection's number in it."""

    id: int
    documents: int
    slots: int
    tokens: int

    @property
    def piece(self) -> CollectionPiece:
        """All of it, as a view counts it."""
        return CollectionPiece(self.id, self.slots, self.documents, self.slots)


class SegmentWriter:
    """A segment in the making, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, WrittenCollection] = {}
        self._dimensions: dict[str, int] = {}
        self._words: dict[int, BlockWriter] = {}
        storage.make_folder(folder)
        self._manifest = Manifest(folder, create=True)

    def close(self) -> None:
        """Without `finish`, what was written is no segment."""
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
        """Add documents. `rows`: a vector of whole numbers for each of their texts, in this order.

        `kept`: vectors (float32) that cannot be made again, by the number of the text. `code`: they
        are found by their names, too.
        """
        written = self._written.get(collection)
        if written is None:
            if len(self._written) == keywords.MOST_COLLECTIONS:
                raise unusable(self.folder, f"it would hold more than {keywords.MOST_COLLECTIONS} collections")
            written = WrittenCollection(len(self._written) + 1, 0, 0, 0)
            self._dimensions[collection] = dimensions
        slot = written.slots
        placed: list[tuple[DocumentHeader, range]] = []
        for each in entries:
            placed.append((each.header, range(slot, slot + len(each.texts))))
            slot += len(each.texts)
        with self._manifest.transaction():
            self._manifest.add_documents(written.id, placed)
        flat_files.append_vectors(self.folder, written.id, rows)
        if kept:
            flat_files.write_floats(
                self.folder, written.id, {written.slots + number: row for number, row in kept.items()}
            )
        flat_files.append_texts(self.folder, written.id, [text for entry in entries for text in entry.texts])
        tokens = self._add_words(written.id, entries, code=code)
        self._written[collection] = WrittenCollection(
            written.id, written.documents + len(entries), slot, written.tokens + tokens
        )

    def _add_words(self, number: int, entries: Sequence[DocumentTexts], *, code: bool) -> int:
        """Return the number of tokens."""
        if number not in self._words:
            self._words[number] = BlockWriter(postings.CODE_FIELDS if code else postings.DOCUMENT_FIELDS)
        counts = self._words[number].add_chunks(list_fields(entries, code=code))
        lengths = flat_files.encode_lengths(_split(counts, [len(entry.texts) for entry in entries]))
        flat_files.append_bytes(self.folder / flat_files.lengths_name(number), lengths)
        if self._words[number].is_full:
            self._write_block(number)
        return sum(counts)

    def _write_block(self, number: int) -> None:
        flat_files.append_bytes(self.folder / postings.file_name(number), self._words[number].end_block())

    def replace_vectors(self, collection: str, given: Mapping[str, bytes]) -> set[str]:
        """Replace the vectors of those of these documents of one chunk that were added here; the
        others are returned. `given`: unit vectors (float32).
        """
        written = self._written.get(collection)
        slots = {each.doc_id: each.first for each in self._manifest.find_states(written.id, given)} if written else {}
        if written and slots:
            rows = {slot: given[doc_id] for doc_id, slot in slots.items()}
            flat_files.replace_vectors(
                self.folder, written.id, {slot: flat_files.quantise(row) for slot, row in rows.items()}
            )
            flat_files.write_floats(self.folder, written.id, rows)
        return given.keys() - slots.keys()

    def list_written(self) -> dict[str, WrittenCollection]:
        """What it holds by now, by collection."""
        return dict(self._written)

    def finish(self) -> dict[str, WrittenCollection]:
        """Compare the parts, close and seal them. Raises `IndexFailed`."""
        written = self.list_written()
        for number, words in self._words.items():
            if not words.is_empty:
                self._write_block(number)
        problem = self._disagreement(written)
        if problem:
            raise unusable(self.folder, problem)
        storage.save_database(self.folder / flat_files.MANIFEST_FILE, self._manifest.connection)
        self._manifest.close()
        if not storage.is_in_memory(self.folder):
            permissions.apply_folder_mode(self.folder)
            seal.write_seal(self.folder, format=FORMAT, revision="")
        return written

    def _disagreement(self, written: Mapping[str, WrittenCollection]) -> str:
        """What is wrong between the parts; empty when they agree."""
        listed = self._manifest.count_chunks()
        for name, each in written.items():
            # Rows are unique: as many as slots are one for each.
            if (number := listed.get(each.id, 0)) != each.slots:
                return f"of {name!r} the manifest holds {number} chunks, and {each.slots} were added"
            if problem := self._wrong_size(name, each):
                return problem
            try:
                Postings(flat_files.map_file(self.folder / postings.file_name(each.id)), slots=each.slots)
            except ValueError as error:
                return f"of {name!r} {error}"
        return ""

    def _wrong_size(self, name: str, each: WrittenCollection) -> str:
        """What is wrong with the numbers of a collection's vectors, lengths and texts."""
        dimensions = self._dimensions[name]
        for what, file, row in (
            ("vectors", flat_files.vectors_name(each.id), dimensions),
            ("lengths", flat_files.lengths_name(each.id), flat_files.ROW_BYTES),
            ("ends of texts", flat_files.texts_names(each.id)[1], flat_files.END_BYTES),
        ):
            size = flat_files.read_size(self.folder / file)
            if size != each.slots * row:
                return f"the {what} of {name!r} have {size} bytes, which are not those of {each.slots} rows"
        if (
            flat_files.read_size(self.folder / flat_files.floats_name(each.id))
            > each.slots * dimensions * flat_files.FLOAT32
        ):
            return f"{name!r} has more vectors as float32 than its {each.slots} rows"
        return ""


def _split(numbers: Iterable[int], sizes: Iterable[int]) -> Iterator[list[int]]:
    """Return lists of these sizes."""
    remaining = iter(numbers)
    return (list(itertools.islice(remaining, size)) for size in sizes)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether SQLite says that the disk is full. Errors of Python's own module have no code."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


class Segment:
    """A finished segment, open for reading; `number` is its place in the view.

    Each file is opened when it is first needed, or all of them by `hold`: from then on the segment
    may be removed.
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
        """The vectors of a collection, one behind the other."""
        return self.map_file(flat_files.vectors_name(number))

    def read_lengths(self, number: int, *, slots: int) -> Sequence[int]:
        """As `flat_files.numbers`."""
        return flat_files.decode_lengths(self.map_file(flat_files.lengths_name(number)), slots=slots)

    def map_file(self, name: str) -> mmap.mmap | bytes:
        """A file of rows; empty where none was written."""
        if name not in self._maps:
            path = self.folder / name
            self._maps[name] = flat_files.map_file(path) if flat_files.read_size(path) else b""
        return self._maps[name]


def find_word_problem(folder: Path) -> str:
    """Return why the words of a segment are not those of its texts; empty if they are.

    Makes all words again, in memory.
    """
    with contextlib.closing(Segment(folder, 0)) as segment:
        try:
            for number, slots in segment.manifest.count_chunks().items():
                if not _has_words_of_texts(segment, number, slots):
                    return f"the words in {postings.file_name(number)} are not those of the texts"
        except (sqlite3.Error, OSError, LookupError, TypeError, ValueError) as error:
            return f"the words cannot be compared with the texts ({error})"
    return ""


def _has_words_of_texts(segment: Segment, number: int, slots: int) -> bool:
    placed = [*segment.manifest.list_documents(number)]
    texts, sizes, counts = segment.open_texts(number), [document.chunks for document in placed], []
    entries = (
        DocumentTexts(
            DocumentHeader("", document.doc_id, document.title, document.content_hash, document.metadata),
            [texts.text_at(slot) for slot in range(document.first, document.first + document.chunks)],
        )
        for document in placed
    )
    chunks: Iterator[tuple[str, ...]] | None = None
    for fields, rows, content in segment.open_postings(number, slots=slots).list_blocks():
        chunks = chunks or list_fields(entries, code=postings.NAMES in fields)
        writer = BlockWriter(fields, rows.start)
        counts += writer.add_chunks(itertools.islice(chunks, len(rows)))
        if writer.end_block() != content:
            return False
    lengths = segment.map_file(flat_files.lengths_name(number))
    return flat_files.encode_lengths(_split(counts, sizes)) == lengths[:]
