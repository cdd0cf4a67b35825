"""A segment: a finished piece of indexes, which many views share and nobody changes.

    segments/<random>-<format>/
        manifest.sqlite                     documents, and where their chunks lie
        vectors-<collection id>.i8          a row of whole numbers for each chunk
        floats-<collection id>.f32          vectors that cannot be made again from texts
        keywords.sqlite                     texts and words
        lengths-<collection id>.u32         what BM25 asks of every chunk
        seal.json

How they are made and removed: `draft`, `views`.
"""

from __future__ import annotations

import contextlib
import mmap
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from vmrag_link import permissions
from vmrag_link.errors import unusable
from vmrag_link.index import flat_files, keywords, seal, storage
from vmrag_link.index.flat_files import Manifest
from vmrag_link.index.view import FORMAT, CollectionPiece
from vmrag_link.models import DocumentHeader, Record, pieces_of
from vmrag_link.thread_task import ThreadTask


class CutDocument(Record, frozen=True):
    """A document and the texts of its chunks."""

    header: DocumentHeader
    texts: Sequence[str]


def code_rows(entries: Iterable[CutDocument]) -> Iterator[tuple[str, str, str]]:
    """The text of each piece of code, with what else it is found by."""
    for each in entries:
        pieces = pieces_of(each.header)
        for text, piece in zip(each.texts, pieces, strict=True):
            yield text, *keywords.words_beside(each.header.doc_id, piece, text)


class Written(NamedTuple):
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
        self._adding: ThreadTask[None] | None = None
        self._written: dict[str, Written] = {}
        self._dimensions: dict[str, int] = {}
        storage.make_folder(folder)
        with contextlib.ExitStack() as opened:
            self._manifest = opened.enter_context(contextlib.closing(Manifest(folder, create=True)))
            self._words = opened.enter_context(contextlib.closing(keywords.connect(folder)))
            # Words are written once, at the end: ten transactions take half as long again.
            self._changing = opened.enter_context(contextlib.ExitStack())
            self._changing.enter_context(keywords.transaction(self._words))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Without `finish`, what was written is no segment."""
        with self._opened:
            self._finish_adding()

    def _finish_adding(self) -> None:
        adding, self._adding = self._adding, None
        if adding:
            adding.result()

    def add(
        self,
        collection: str,
        entries: Sequence[CutDocument],
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
        self._finish_adding()
        written = self._written.get(collection)
        if written is None:
            if len(self._written) == keywords.MOST_COLLECTIONS:
                raise unusable(self.folder, f"it would hold more than {keywords.MOST_COLLECTIONS} collections")
            written = Written(len(self._written) + 1, 0, 0, 0)
            self._dimensions[collection] = dimensions
        slot = written.slots
        placed: list[tuple[DocumentHeader, range]] = []
        for each in entries:
            placed.append((each.header, range(slot, slot + len(each.texts))))
            slot += len(each.texts)
        with self._manifest.transaction():
            self._manifest.add_documents(written.id, placed)
        self._written[collection] = Written(written.id, written.documents + len(entries), slot, written.tokens)
        # A third of the work, and SQLite's alone: the next documents are read meanwhile.
        rows_of_words = code_rows(entries) if code else ((text,) for each in entries for text in each.texts)
        self._adding = ThreadTask(
            lambda: self._add_words(collection, written.id, entries, rows_of_words, range(written.slots, slot))
        )
        flat_files.append_vectors(self.folder, written.id, rows)
        if kept:
            flat_files.write_floats(
                self.folder, written.id, {written.slots + number: row for number, row in kept.items()}
            )

    def _add_words(
        self,
        collection: str,
        number: int,
        entries: Sequence[CutDocument],
        words: Iterable[tuple[str, ...]],
        slots: range,
    ) -> None:
        rows = range(keywords.row_id(number, slots.start), keywords.row_id(number, slots.stop))
        keywords.add(self._words, ((row, *each) for row, each in zip(rows, words, strict=True)))
        counts = keywords.token_counts(self._words, rows)
        tokens = iter(counts)
        flat_files.append_lengths(self.folder, number, ([next(tokens) for _ in each.texts] for each in entries))
        written = self._written[collection]
        self._written[collection] = written._replace(tokens=written.tokens + sum(counts))

    def embed(self, collection: str, given: Mapping[str, bytes]) -> set[str]:
        """Replace the vectors of those of these documents of one chunk that were added here; the
        others are returned. `given`: unit vectors (float32).
        """
        written = self._written.get(collection)
        slots = {each.doc_id: each.first for each in self._manifest.find(written.id, given)} if written else {}
        if written and slots:
            rows = {slot: given[doc_id] for doc_id, slot in slots.items()}
            flat_files.replace_vectors(
                self.folder, written.id, {slot: flat_files.quantise(row) for slot, row in rows.items()}
            )
            flat_files.write_floats(self.folder, written.id, rows)
        return given.keys() - slots.keys()

    def written(self) -> dict[str, Written]:
        """What it holds by now, by collection."""
        self._finish_adding()
        return dict(self._written)

    def finish(self) -> dict[str, Written]:
        """Compare the parts, close and seal them. Raises `IndexFailed`."""
        written = self.written()
        problem = self._disagreement(written)
        if problem:
            raise unusable(self.folder, problem)
        self._changing.close()
        storage.save_database(self.folder / flat_files.FILE, self._manifest.connection)
        storage.save_database(self.folder / keywords.FILE, self._words)
        self._opened.close()
        if not storage.is_in_memory(self.folder):
            permissions.settle(self.folder)
            seal.write(self.folder, format=FORMAT, revision="")
        return written

    def _disagreement(self, written: Mapping[str, Written]) -> str:
        """What is wrong between the parts; empty when they agree."""
        listed, words = self._manifest.chunks(), keywords.count(self._words)
        slots = sum(each.slots for each in written.values())
        if words != slots:
            return f"the word index holds {words} chunks, and {slots} were added"
        for name, each in written.items():
            rows = range(keywords.row_id(each.id, 0), keywords.row_id(each.id, each.slots))
            # Rows are unique: as many as slots are one for each.
            for what, number in (
                ("manifest", listed.get(each.id, 0)),
                ("word index", keywords.count(self._words, rows)),
            ):
                if number != each.slots:
                    return f"of {name!r} the {what} holds {number} chunks, and {each.slots} were added"
            if problem := self._wrong_size(name, each):
                return problem
        return ""

    def _wrong_size(self, name: str, each: Written) -> str:
        """What is wrong with the numbers of a collection's vectors and lengths."""
        dimensions = self._dimensions[name]
        for what, file, row in (
            ("vectors", flat_files.vectors_name(each.id), dimensions),
            ("lengths", flat_files.lengths_name(each.id), flat_files.ROW),
        ):
            size = flat_files.size(self.folder / file)
            if size != each.slots * row:
                return f"the {what} of {name!r} have {size} bytes, which are not those of {each.slots} rows"
        if (
            flat_files.size(self.folder / flat_files.floats_name(each.id))
            > each.slots * dimensions * flat_files.FLOAT32
        ):
            return f"{name!r} has more vectors as float32 than its {each.slots} rows"
        return ""


def is_full(error: BaseException | None) -> bool:
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

    def close(self) -> None:
        self._opened.close()

    def hold(self, pieces: Iterable[int]) -> None:
        """Open all files of these collections."""
        _ = self.manifest.chunks(), keywords.count(self.words)  # SQLite opens a file with the first statement
        for number in pieces:
            self.vectors(number)
            self.mapped(flat_files.lengths_name(number))
            self.mapped(flat_files.floats_name(number))

    @cached_property
    def manifest(self) -> Manifest:
        return self._opened.enter_context(contextlib.closing(Manifest(self.folder)))

    @cached_property
    def words(self) -> sqlite3.Connection:
        return self._opened.enter_context(contextlib.closing(keywords.connect(self.folder, frozen=True)))

    @cached_property
    def postings(self) -> keywords.Postings:
        return keywords.Postings(self.words, self.number)

    def vectors(self, number: int) -> mmap.mmap | bytes:
        """The vectors of a collection, one behind the other."""
        return self.mapped(flat_files.vectors_name(number))

    def lengths(self, number: int, *, slots: int) -> Sequence[int]:
        """As `flat_files.numbers`."""
        return flat_files.numbers(self.mapped(flat_files.lengths_name(number)), slots=slots)

    def mapped(self, name: str) -> mmap.mmap | bytes:
        """A file of rows; empty where none was written."""
        if name not in self._maps:
            path = self.folder / name
            self._maps[name] = flat_files.mapped(path) if flat_files.size(path) else b""
        return self._maps[name]
