"""Where a passage stands: in its document, under its headings, and in a file that is here."""

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
    """Whole lines of a document; `first` counts from 1."""

    first: int
    lines: list[str]


class PlacedPassage(Hit, frozen=True):
    """A hit and where it stands.

    `matches`: the characters of its text that are words of the query, from and to; `best`: the
    first of them in the line that has most, the first character where there are none; where a name
    is the query, its declaration.
    `header_path`: the headings above that place, with ` > ` between them; `line`: its line in the
    document's text, from 1. `file`: the path of the document's file below the top of the work tree,
    or an absolute one; `file_line`: the same line there, or in the commit whose files are asked.
    `excerpt`: only where it is asked for.
    `symbol`: what of code is at `best`, with its parents; `signature`: that of a long symbol whose
    beginning is in an earlier chunk, or the header row of the table whose row is at `best`.
    `uncommitted`: how the file of a source differs from the commit. `name`: as in `shown_names`.
    """

    matches: tuple[tuple[int, int], ...] = ()
    best: int = 0
    header_path: str = ""
    line: int | None = None
    file: str | None = None
    file_line: int | None = None
    excerpt: Excerpt | None = None
    symbol: str = ""
    signature: str = ""
    uncommitted: str = ""
    outdated: str = ""
    """Changed places that a note cites; empty for other documents."""
    name: str = ""


class PassagePlaces:
    """The places in one document. `committed`: its file, where a commit is asked."""

    def __init__(
        self, ws: ReadableStore, collection: Collection, document: Document, committed: bytes | None = None
    ) -> None:
        self._ws, self._collection, self._document = ws, collection, document
        self._file: str | None = document.source
        if committed is not None:
            self._written = lines_of(committed)
            return
        file = source_file(ws.places, collection, document)
        self._file = _portable_name(ws, file) if file else None
        self._written = written_lines(file, document, as_written=collection.kind == SOURCE) if file else None

    def place_passage(
        self,
        passage: PlacedPassage,
        context: int | None = None,
        neighbours: int = 0,
        *,
        question: CodeQuestion | None = None,
    ) -> PlacedPassage:
        """`question`: asks for a name, perhaps."""
        start = self.find_start(passage)
        if start is None:
            return passage
        if self.pieces:
            from vmrag_link.workspace.answers.packing import signature_above

            signature = signature_above(self.pieces, passage.chunk)
            passage = msgspec.structs.replace(
                _at_symbol(passage, self.pieces[passage.chunk], question), signature=signature
            )
        excerpt = None
        if context is not None or neighbours:
            spans = [*self.find_neighbours(passage, neighbours), (start, start + len(passage.text))]
            excerpt = _excerpt(self._document.content, min(spans)[0], max(span for _, span in spans), context or 0)
        text = self._document.content
        line = line_at(text, start + passage.best)
        return msgspec.structs.replace(
            passage,
            signature=passage.signature if self.pieces else self.table_header(start + passage.best),
            header_path=self.headings.find_path(start + passage.best) if self.headings else "",
            line=line,
            file=self._file,
            file_line=self._file_line(line),
            excerpt=excerpt,
        )

    def file_lines(self, passage: PlacedPassage) -> tuple[int, int] | None:
        """The first and the last line in the file; None where it does not hold them."""
        start = self.find_start(passage)
        if start is None or self._written is None:
            return None
        text, passed = self._document.content, passage.text
        ends = (start + len(passed) - len(passed.lstrip()), start + len(passed.rstrip()))
        first, last = (line_of(line_at(text, end), self._written, self._document) for end in ends)
        return (first, last) if first and last and first <= last else None

    @property
    def text(self) -> str:
        return self._document.content

    @property
    def path(self) -> str | None:
        """Of its file below the top of the repository."""
        return self._file if self._file and not Path(self._file).is_absolute() else None

    @cached_property
    def pieces(self) -> Sequence[IndexedPiece]:
        """None if it is no code."""
        return parse_pieces(self._document) if self._collection.is_code else ()

    def _file_line(self, line: int) -> int | None:
        if self._written is None:
            return line if self._file and self._is_file else None
        return line_of(line, self._written, self._document)

    @property
    def _is_file(self) -> bool:
        """Whether the text is the whole file, whatever encoding that has."""
        from vmrag_link.sources.readable import is_notebook

        return bool(self.pieces) and not is_notebook(self._document.doc_id)

    def table_header(self, offset: int) -> str:
        """Return the header row above a place in a table; empty if there is none."""
        return self.table_headers.find_header(offset) if self.table_headers else ""

    @cached_property
    def table_headers(self) -> TableHeaders | None:
        """Return the header rows of the text; None for code."""
        return None if self.pieces else read_table_headers(self._document)

    @cached_property
    def headings(self) -> HeaderPaths | None:
        """Return the headings of the text; None for code."""
        return None if self.pieces else read_header_paths(self._document)

    def lines_above(self) -> int | None:
        """So many lines of the file stand above the text, which is the rest of it; None if not."""
        if self._is_file:
            return 0
        texts, written = lines_of(self._document.content.encode()), self._written
        if not texts or not written or len(written) < len(texts):
            return None
        above = len(written) - len(texts)
        return above if written[above:] == texts else None

    def find_neighbours(self, passage: Hit, neighbours: int) -> list[Span]:
        """So many chunks before and after it, the nearest first."""
        if not neighbours:
            return []
        found, number = self.spans, passage.chunk
        near = (each for away in range(1, neighbours + 1) for each in (number - away, number + away))
        return [found[each] for each in near if 0 <= each < len(found)]

    @cached_property
    def spans(self) -> list[Span]:
        """The chunks of the text."""
        from vmrag_link.workspace.documents.document_selection import chunks_of

        return [(each.start, each.end) for each in chunks_of(self._ws, self._collection, self._document)]

    def find_start(self, passage: Hit) -> int | None:
        """Where a passage begins in the text; None if it does not stand there."""
        text = self._document.content
        if self.pieces:
            return self.pieces[passage.chunk].start
        first = text.find(passage.text)
        if first < 0:
            return None
        if text.find(passage.text, first + 1) < 0:
            return first
        return self.spans[passage.chunk][0] if passage.chunk < len(self.spans) else None


def _at_symbol(passage: PlacedPassage, piece: IndexedPiece, question: CodeQuestion | None) -> PlacedPassage:
    best, text = passage.best, passage.text
    if question and question.is_name and piece.declared:
        shares = [
            question.score_declaration(
                RankedPiece(passage.doc_id, passage.chunk, msgspec.structs.replace(piece, declared=(each,)))
            )
            for each in piece.declared
        ]
        if most := max(shares):
            best = _first_letter(text, piece.declared[shares.index(most)][2] - piece.line)
    line = piece.line + text.count("\n", 0, best)
    around = [each for each in piece.declared if each[2] <= line <= each[3]]
    below = [each for each in piece.declared if each[2] > line and piece.symbol]  # of which it may be the comment
    name = max(around, key=lambda each: each[2]) if around else min(below, key=lambda each: each[2], default=None)
    return msgspec.structs.replace(passage, best=best, symbol=name[0] if name else passage.symbol)


def _first_letter(text: str, row: int) -> int:
    above, line = text.split("\n")[:row], text.split("\n")[row]
    return sum(len(each) + 1 for each in above) + len(line) - len(line.lstrip())


def _portable_name(ws: ReadableStore, file: Path) -> str:
    """Equal on every machine, for a file of the repository."""
    top = Path(os.path.realpath(ws.places.top))
    return file.relative_to(top).as_posix() if file.is_relative_to(top) else str(file)


def line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _excerpt(text: str, start: int, end: int, context: int) -> Excerpt:
    """The lines of these characters, and so many around them, without empty ones at the ends."""
    passage = text[start:end]
    start += len(passage) - len(passage.lstrip())
    end -= len(passage) - len(passage.rstrip())
    lines = terminal_text.split_lines(text)
    first = max(1, line_at(text, start) - context)
    return Excerpt(first, lines[first - 1 : line_at(text, max(start, end)) + context])
