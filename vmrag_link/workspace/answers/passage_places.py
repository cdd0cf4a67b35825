"""Find the place of a passage: its lines in the document and in a local file, and its headings.

An index has the text of a chunk, but not where it is. `PassagePlaces` searches the text of the
document for it, and compares the document with its file (`source_files`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link import terminal_text
from vmrag_link.documents.chunking import HeaderPaths, read_header_paths
from vmrag_link.documents.table_headers import TableHeaders, read_table_headers
from vmrag_link.models import SOURCE, Collection, Document, IndexedPiece, Record, parse_pieces
from vmrag_link.retrieval.code_ranking import CodeQuestion, RankedPiece
from vmrag_link.retrieval.query import Hit
from vmrag_link.workspace.answers.source_files import line_of, lines_of, source_file, written_lines

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore
    from vmrag_link.workspace.answers.packing import Span


class Excerpt(Record, frozen=True):
    """Whole lines of a document."""

    first: int
    """Number of the first line, from 1."""
    lines: list[str]


class PlacedPassage(Hit, frozen=True):
    """A hit and its place."""

    matches: tuple[tuple[int, int], ...] = ()
    """Characters of its text that are words of the query: start and end."""
    best: int = 0
    """The character to show first. This is the first match in the line with the most matches, or
    the declaration of a name that is the query. Without matches it is the first character.
    """
    header_path: str = ""
    """Headings above `best`, separated by ` > `."""
    line: int | None = None
    """Line of `best` in the document's text, from 1."""
    file: str | None = None
    """Path of the document's file, from the top of the work tree or absolute."""
    file_line: int | None = None
    """Line of `best` in that file, or in the commit that is searched."""
    excerpt: Excerpt | None = None
    """The passage with the requested lines or chunks around it. None if none were requested."""
    symbol: str = ""
    """The symbol of code at `best`, with its parents."""
    signature: str = ""
    """Signature of a long symbol that starts in an earlier chunk, or header row of the table at
    `best`.
    """
    uncommitted: str = ""
    """How the file of a source differs from the commit."""
    outdated: str = ""
    """Changed places that a note cites; empty for other documents."""
    name: str = ""
    """The name for messages (`shown_names`)."""


class PassagePlaces:
    """Find the places of passages in one document.

    `committed`: the contents of its file, if a commit is searched instead of the work tree.
    """

    def __init__(
        self, ws: ReadableStore, collection: Collection, document: Document, committed: bytes | None = None
    ) -> None:
        self._ws = ws
        self._collection = collection
        self._document = document
        self._file: str | None = None
        self._file_text_lines: list[str] | None = None
        """The lines of the file. None if it was converted or cannot be read."""
        if committed is not None:
            self._file = document.source
            self._file_text_lines = lines_of(committed)
        elif file := source_file(ws.places, collection, document):
            self._file = _form_portable_path(ws, file)
            self._file_text_lines = written_lines(file, document, as_written=collection.kind == SOURCE)

    def place_passage(
        self,
        passage: PlacedPassage,
        context: int | None = None,
        neighbours: int = 0,
        *,
        question: CodeQuestion | None = None,
    ) -> PlacedPassage:
        """Return the passage with its place, or unchanged if the document does not contain it.

        `context`: number of lines around it for the excerpt, None for no excerpt. `neighbours`:
        number of chunks around it for the excerpt. `question`: the query, which may be a name.
        """
        start = self.find_start(passage)
        if start is None:
            return passage
        if self.pieces:
            passage = _move_to_symbol(passage, self.pieces[passage.chunk], question)
        text = self._document.content
        excerpt = None
        if context is not None or neighbours:
            spans = [*self.find_neighbours(passage, neighbours), (start, start + len(passage.text))]
            excerpt = _form_excerpt(text, min(spans)[0], max(end for _, end in spans), context or 0)
        best = start + passage.best
        line = line_at(text, best)
        if self.pieces:
            from vmrag_link.workspace.answers.packing import signature_above

            signature = signature_above(self.pieces, passage.chunk)
        else:
            signature = self.table_header(best)
        return msgspec.structs.replace(
            passage,
            signature=signature,
            header_path=self.headings.find_path(best) if self.headings else "",
            line=line,
            file=self._file,
            file_line=self._find_file_line(line),
            excerpt=excerpt,
        )

    def file_lines(self, passage: PlacedPassage) -> tuple[int, int] | None:
        """Return the first and the last line of a passage in the file, or None."""
        start = self.find_start(passage)
        if start is None or self._file_text_lines is None:
            return None
        first_letter = start + len(passage.text) - len(passage.text.lstrip())
        end = start + len(passage.text.rstrip())
        first, last = (
            line_of(line_at(self._document.content, offset), self._file_text_lines, self._document)
            for offset in (first_letter, end)
        )
        return (first, last) if first and last and first <= last else None

    @property
    def text(self) -> str:
        return self._document.content

    @property
    def path(self) -> str | None:
        """Path of its file from the top of the repository, or None."""
        return self._file if self._file and not Path(self._file).is_absolute() else None

    @cached_property
    def pieces(self) -> Sequence[IndexedPiece]:
        """Pieces of code; empty for other documents."""
        return parse_pieces(self._document) if self._collection.is_code else ()

    def _find_file_line(self, line: int) -> int | None:
        """Return the line of the file for a line of the text, or None. Both start at 1."""
        if self._file_text_lines is None:
            return line if self._file and self._is_file else None
        return line_of(line, self._file_text_lines, self._document)

    @property
    def _is_file(self) -> bool:
        """True if the text is the whole file, in any encoding."""
        from vmrag_link.sources.readable import is_notebook

        return bool(self.pieces) and not is_notebook(self._document.doc_id)

    def table_header(self, offset: int) -> str:
        """Return the header row of the table at a position of the text; empty without a table."""
        return self.table_headers.find_header(offset) if self.table_headers else ""

    @cached_property
    def table_headers(self) -> TableHeaders | None:
        """Header rows of the text; None for code."""
        return None if self.pieces else read_table_headers(self._document)

    @cached_property
    def headings(self) -> HeaderPaths | None:
        """Headings of the text; None for code."""
        return None if self.pieces else read_header_paths(self._document)

    def lines_above(self) -> int | None:
        """Return how many lines of the file are above the text, for example front matter.

        None if the text is not the rest of the file.
        """
        if self._is_file:
            return 0
        text_lines = lines_of(self._document.content.encode())
        file_lines = self._file_text_lines
        if not text_lines or not file_lines or len(file_lines) < len(text_lines):
            return None
        above = len(file_lines) - len(text_lines)
        return above if file_lines[above:] == text_lines else None

    def find_neighbours(self, passage: Hit, neighbours: int) -> list[Span]:
        """Return the positions of the chunks before and after a passage, the nearest first.

        `neighbours`: number of chunks on each side.
        """
        nearest: list[Span] = []
        for distance in range(1, neighbours + 1):
            numbers = (passage.chunk - distance, passage.chunk + distance)
            nearest += [self.spans[number] for number in numbers if 0 <= number < len(self.spans)]
        return nearest

    @cached_property
    def spans(self) -> list[Span]:
        """Positions of all chunks in the text."""
        from vmrag_link.workspace.documents.document_selection import chunks_of

        return [(chunk.start, chunk.end) for chunk in chunks_of(self._ws, self._collection, self._document)]

    def find_start(self, passage: Hit) -> int | None:
        """Return where a passage starts in the text. None if the text does not contain it."""
        text = self._document.content
        if self.pieces:
            return self.pieces[passage.chunk].start
        first = text.find(passage.text)
        if first < 0:
            return None
        if text.find(passage.text, first + 1) < 0:  # usually only once, so the chunks are not cut again
            return first
        return self.spans[passage.chunk][0] if passage.chunk < len(self.spans) else None


def _move_to_symbol(passage: PlacedPassage, piece: IndexedPiece, question: CodeQuestion | None) -> PlacedPassage:
    """Return a passage of code with the declaration that the question names, and its symbol."""
    best = passage.best
    if question and question.is_name and piece.declared:
        scores = [
            question.score_declaration(
                RankedPiece(passage.doc_id, passage.chunk, msgspec.structs.replace(piece, declared=(declared,)))
            )
            for declared in piece.declared
        ]
        if max(scores):
            _name, _kind, first, _last = piece.declared[scores.index(max(scores))]
            best = _find_first_letter(passage.text, first - piece.line)
    line = piece.line + passage.text.count("\n", 0, best)
    around = [declared for declared in piece.declared if declared[2] <= line <= declared[3]]
    below = [declared for declared in piece.declared if declared[2] > line]
    symbol = passage.symbol
    if around:
        symbol = max(around, key=itemgetter(2))[0]
    elif below and piece.symbol:  # the line may be in the comment above a declaration
        symbol = min(below, key=itemgetter(2))[0]
    return msgspec.structs.replace(passage, best=best, symbol=symbol)


def _find_first_letter(text: str, row: int) -> int:
    """Return the position of the first letter of a row, from 0."""
    lines = text.split("\n")
    row_start = sum(len(line) + 1 for line in lines[:row])
    return row_start + len(lines[row]) - len(lines[row].lstrip())


def _form_portable_path(ws: ReadableStore, file: Path) -> str:
    """Return a file's path, which is the same on every machine for a file of the repository."""
    top = Path(os.path.realpath(ws.places.top))
    return file.relative_to(top).as_posix() if file.is_relative_to(top) else str(file)


def line_at(text: str, offset: int) -> int:
    """Return the number of the line at a position of the text, from 1."""
    return text.count("\n", 0, offset) + 1


def _form_excerpt(text: str, start: int, end: int, context: int) -> Excerpt:
    """Return the lines of these characters and `context` lines around them, without blank ends."""
    passage = text[start:end]
    start += len(passage) - len(passage.lstrip())
    end -= len(passage) - len(passage.rstrip())
    lines = terminal_text.split_lines(text)
    first = max(1, line_at(text, start) - context)
    return Excerpt(first, lines[first - 1 : line_at(text, max(start, end)) + context])
