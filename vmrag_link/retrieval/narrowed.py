"""Which chunks of an index a query is narrowed to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from vmrag_link.code.languages import language_of
from vmrag_link.conversion import formats
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import IndexedPiece, Record, pieces_of
from vmrag_link.retrieval.narrowing import (
    CODE,
    DOCUMENT,
    Narrowing,
    dotted,
    has_capitals,
    path_matcher,
    symbol_matcher,
)

_FOUND_IN = {"typescript": ("typescript", "tsx")}
"""What the name of a language means."""

_HEADER_OF_C = ".h"
"""The ending of files that are read as C++, which they may be."""

_PART = r'NAME(?<=[".:>#\\]NAME)[".:\-#\\]'
"""A part of a symbol where it is written as JSON (`narrowing.dotted`); what begins with letters is
found faster.
"""


class RowFilter(Protocol):
    """Of the chunks of an index."""

    def rows(self, index: IndexReader, collection: str) -> list[int]:
        """The rows of a collection that pass, ascending."""
        ...


def rows_of_all(filters: Sequence[RowFilter], index: IndexReader, collection: str) -> list[int]:
    """The rows that pass each of these."""
    first, *others = (each.rows(index, collection) for each in filters)
    if not others:
        return first
    passing = set(first).intersection(*others)
    return [row for row in first if row in passing]


class NarrowedDocument(Record, frozen=True):
    """`first` is the row of the first of its chunks."""

    doc_id: str
    metadata: str
    first: int
    chunks: int


class NarrowingFilter:
    """What passes a narrowing."""

    def __init__(self, wanted: Narrowing) -> None:
        self._paths = [path_matcher(each) for each in wanted.paths]
        self._languages = {each for name in wanted.languages for each in _FOUND_IN.get(name, (name,))}
        self._symbols = [WantedSymbol(each, within=True) for each in wanted.symbols]
        self._kinds = frozenset(wanted.kinds)
        self._symbol_kinds = frozenset[str]() if CODE in self._kinds else self._kinds
        self._whole = not wanted.symbols and (not wanted.kinds or CODE in wanted.kinds)
        """Whether all of a document of code passes, or nothing."""

    def rows(self, index: IndexReader, collection: str) -> list[int]:
        """The rows of the chunks of a collection that pass, ascending."""
        if not index.collections[collection].collection.is_code:
            if self._symbols or (self._kinds and DOCUMENT not in self._kinds):
                return []
        elif self._kinds == {DOCUMENT}:
            return []
        elif not self._whole:
            return list(self._of_pieces(index, collection))
        return [
            row for each in self.documents(index, collection) for row in range(each.first, each.first + each.chunks)
        ]

    def documents(self, index: IndexReader, collection: str) -> Iterator[NarrowedDocument]:
        """The documents of a collection whose path and language pass."""
        is_code = index.collections[collection].collection.is_code
        for some in index.columns(collection, header=True):
            for first, chunks, doc_id, metadata in zip(
                some.first, some.chunks, some.doc_id, some.metadata, strict=True
            ):
                if self._paths and not any(passes(doc_id) for passes in self._paths):
                    continue
                if self._languages and not self._speaks(doc_id, is_code=is_code):
                    continue
                yield NarrowedDocument(doc_id, metadata, first, chunks)

    def _speaks(self, path: str, *, is_code: bool) -> bool:
        known = None if is_code else formats.by_suffix(path)
        language = language_of(path) if is_code else known.file_type if known else ""
        return language in self._languages or (
            language == "cpp" and "c" in self._languages and path.endswith(_HEADER_OF_C)
        )

    def takes_symbol(self, symbol: str, kind: str) -> bool:
        """Whether a symbol passes, wherever it is."""
        if self._symbol_kinds and kind not in self._symbol_kinds:
            return False
        for each in self._symbols:  # no `any`: this is asked for each symbol that is indexed
            if each.is_meant(symbol):
                return True
        return not self._symbols

    def _of_pieces(self, index: IndexReader, collection: str) -> Iterator[int]:
        for document in self.documents(index, collection):
            if self._may_pass(document.metadata):
                for row, piece in enumerate(pieces_of(document), document.first):
                    if self._takes(piece):
                        yield row

    def _takes(self, piece: IndexedPiece) -> bool:
        """Whether a piece is of a symbol that passes, or declares one."""
        if piece.symbol and self.takes_symbol(piece.symbol, piece.kind):
            return True
        return any(self.takes_symbol(symbol, kind) for symbol, kind, _, _ in piece.declared)

    def _may_pass(self, metadata: str) -> bool:
        """Whether pieces of a document may pass."""
        if self._symbol_kinds and not any(f'"{kind}"' in metadata for kind in self._symbol_kinds):
            return False
        return not self._symbols or any(each.may_be_in(metadata) for each in self._symbols)


class WantedSymbol:
    """A symbol that is asked for, dotted; `within`: or one in it."""

    def __init__(self, name: str, *, within: bool) -> None:
        self._matches = symbol_matcher(name, within=within).search
        self._ignores_case = not has_capitals(name)
        self._words = sorted(re.findall(r"\w+", name), key=len, reverse=True) or [""]
        """All are in the name of each symbol that is meant."""

        self._longest = self._words[0]
        last = name.rpartition(".")[2]
        self._part = re.compile(_PART.replace("NAME", last) if re.fullmatch(r"\w+", last) else "")

    def is_meant(self, symbol: str) -> bool:
        text = symbol.lower() if self._ignores_case else symbol
        return self._longest in text and self._matches(dotted(symbol)) is not None

    def may_be_in(self, metadata: str) -> bool:
        """Whether the metadata of a document may have such a symbol: they are decoded for these."""
        text = metadata.lower() if self._ignores_case else metadata
        return all(each in text for each in self._words) and self._part.search(text) is not None
