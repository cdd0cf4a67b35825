"""Find the place of a passage: in its document, below its headings, and in a local file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
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
    """Whole lines of a document. `first` starts at 1."""

    first: int
    lines: list[str]


class PlacedPassage(Hit, frozen=True):
    """A hit and its place."""

    matches: tuple[tuple[int, int], ...] = ()
    """Characters of its text that are words of the query: start and end."""
    best: int = 0
    """Start of the first match in the line with the most matches. Without matches it is the first
    character. If the query is a name, it is its declaration.
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
    """Only if requested."""
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
    """Finds places in one document. `committed`: its file, if a commit is searched."""

    def __init__(
        self, ws: ReadableStore, collection: Collection, document: Document, committed: bytes | None = None
    ) -> None:
        self._ws, self._collection, self._document = ws, collection, document
        self._file: str | None = document.source
        if committed is not None:
            self._file_text_lines = lines_of(committed)
            return
        file = source_file(ws.places, collection, document)
        self._file = _form_portable_path(ws, file) if file else None
        self._file_text_lines = written_lines(file, document, as_written=collection.kind == SOURCE) if file else None

    def place_passage(
        self,
        passage: PlacedPassage,
        context: int | None = None,
        neighbours: int = 0,
        *,
        question: CodeQuestion | None = None,
    ) -> PlacedPassage:
        """Return the passage with its place. `question`: the query, which may be a name."""
        start = self.find_start(passage)
        if start is None:
            return passage
        if self.pieces:
            from vmrag_link.workspace.answers.packing import signature_above

            signature = signature_above(self.pieces, passage.chunk)
            passage = msgspec.structs.replace(
                _move_to_symbol(passage, self.pieces[passage.chunk], question), signature=signature
            )
        excerpt = None
        if context is not None or neighbours:
            spans = [*self.find_neighbours(passage, neighbours), (start, start + len(passage.text))]
            excerpt = _form_excerpt(self._document.content, min(spans)[0], max(span for _, span in spans), context or 0)
        text = self._document.content
        line = line_at(text, start + passage.best)
        return msgspec.structs.replace(
            passage,
            signature=passage.signature if self.pieces else self.table_header(start + passage.best),
            header_path=self.headings.find_path(start + passage.best) if self.headings else "",
            line=line,
            file=self._file,
            file_line=self._find_file_line(line),
            excerpt=excerpt,
        )

    def file_lines(self, passage: PlacedPassage) -> tuple[int, int] | None:
        """Return the first and the last line in the file, or None."""
        start = self.find_start(passage)
        if start is None or self._file_text_lines is None:
            return None
        text, passage_text = self._document.content, passage.text
        ends = (start + len(passage_text) - len(passage_text.lstrip()), start + len(passage_text.rstrip()))
        first, last = (line_of(line_at(text, end), self._file_text_lines, self._document) for end in ends)
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
        if self._file_text_lines is None:
            return line if self._file and self._is_file else None
        return line_of(line, self._file_text_lines, self._document)

    @property
    def _is_file(self) -> bool:
        """True if the text is the whole file, in any encoding."""
        from vmrag_link.sources.readable import is_notebook

        return bool(self.pieces) and not is_notebook(self._document.doc_id)

    def table_header(self, offset: int) -> str:
        """Return the header row above a place in a table; empty if there is none."""
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
        """Return how many lines of the file are above the text, or None.

        The text must be the rest of the file.
        """
        if self._is_file:
            return 0
        texts, written = lines_of(self._document.content.encode()), self._file_text_lines
        if not texts or not written or len(written) < len(texts):
            return None
        above = len(written) - len(texts)
        return above if written[above:] == texts else None

    def find_neighbours(self, passage: Hit, neighbours: int) -> list[Span]:
        """Return the chunks before and after a passage, the nearest first.

        `neighbours`: on each side.
        """
        if not neighbours:
            return []
        spans, number = self.spans, passage.chunk
        numbers = (near_number for away in range(1, neighbours + 1) for near_number in (number - away, number + away))
        return [spans[near_number] for near_number in numbers if 0 <= near_number < len(spans)]

    @cached_property
    def spans(self) -> list[Span]:
        """Places of the chunks in the text."""
        from vmrag_link.workspace.documents.document_selection import chunks_of

        return [(chunk.start, chunk.end) for chunk in chunks_of(self._ws, self._collection, self._document)]

    def find_start(self, passage: Hit) -> int | None:
        """Return where a passage starts in the text, or None."""
        text = self._document.content
        if self.pieces:
            return self.pieces[passage.chunk].start
        first = text.find(passage.text)
        if first < 0:
            return None
        if text.find(passage.text, first + 1) < 0:
            return first
        return self.spans[passage.chunk][0] if passage.chunk < len(self.spans) else None


def _move_to_symbol(passage: PlacedPassage, piece: IndexedPiece, question: CodeQuestion | None) -> PlacedPassage:
    best, text = passage.best, passage.text
    if question and question.is_name and piece.declared:
        shares = [
            question.score_declaration(
                RankedPiece(passage.doc_id, passage.chunk, msgspec.structs.replace(piece, declared=(declared,)))
            )
            for declared in piece.declared
        ]
        if best_share := max(shares):
            best = _find_first_letter(text, piece.declared[shares.index(best_share)][2] - piece.line)
    line = piece.line + text.count("\n", 0, best)
    around = [declared for declared in piece.declared if declared[2] <= line <= declared[3]]
    below = [
        declared for declared in piece.declared if declared[2] > line and piece.symbol
    ]  # the line may be in its comment
    name = (
        max(around, key=lambda declared: declared[2])
        if around
        else min(below, key=lambda declared: declared[2], default=None)
    )
    return msgspec.structs.replace(passage, best=best, symbol=name[0] if name else passage.symbol)


def _find_first_letter(text: str, row: int) -> int:
    above, line = text.split("\n")[:row], text.split("\n")[row]
    return sum(len(line_above) + 1 for line_above in above) + len(line) - len(line.lstrip())


def _form_portable_path(ws: ReadableStore, file: Path) -> str:
    """Return a file's path, which is the same on every machine for a file of the repository."""
    top = Path(os.path.realpath(ws.places.top))
    return file.relative_to(top).as_posix() if file.is_relative_to(top) else str(file)


def line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _form_excerpt(text: str, start: int, end: int, context: int) -> Excerpt:
    """Return the lines of these characters and `context` lines around them, without blank ends."""
    passage = text[start:end]
    start += len(passage) - len(passage.lstrip())
    end -= len(passage) - len(passage.rstrip())
    lines = terminal_text.split_lines(text)
    first = max(1, line_at(text, start) - context)
    return Excerpt(first, lines[first - 1 : line_at(text, max(start, end)) + context])
