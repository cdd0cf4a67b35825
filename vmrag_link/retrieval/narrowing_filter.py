"""The rows of an index to which a query is narrowed: paths, languages, symbols and kinds.

A collection contains either code or other documents. A document of code is filtered by its pieces
if the query is narrowed to symbols. Metadata is decoded only if its text may have such a symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vmrag_link.code.languages import detect_language
from vmrag_link.conversion import formats
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import IndexedPiece, Record, parse_pieces
from vmrag_link.retrieval.narrowing import Narrowing, compile_path, compile_symbol, has_capitals, normalize_symbol
from vmrag_link.retrieval.narrowing_values import CODE, DOCUMENT

_LANGUAGE_GROUPS = {"typescript": ("typescript", "tsx")}
"""Languages that a name includes."""

_HEADER_OF_C = ".h"
"""Suffix of files that are parsed as C++, but may be C."""

_SYMBOL_PART = r'NAME(?<=[".:>#\\]NAME)[".:\-#\\]'
"""Pattern of a part of a symbol in JSON, between separators (`narrowing.normalize_symbol`). A
pattern that begins with letters is faster.
"""


class NarrowedDocument(Record, frozen=True):
    """A document whose path and language pass."""

    doc_id: str
    metadata: str
    first: int
    """The row of the first chunk."""

    chunks: int
    """The number of chunks."""


class NarrowingFilter:
    """Compares documents, and pieces and symbols of code, with a `Narrowing`."""

    def __init__(self, narrowing: Narrowing) -> None:
        self._paths = [compile_path(path) for path in narrowing.paths]
        self._languages = set[str]()
        for name in narrowing.languages:
            self._languages.update(_LANGUAGE_GROUPS.get(name, (name,)))
        self._symbols = [SymbolFilter(symbol, within=True) for symbol in narrowing.symbols]
        self._kinds = frozenset(narrowing.kinds)
        self._symbol_kinds = frozenset[str]() if CODE in self._kinds else self._kinds
        self._accepts_all_pieces = not narrowing.symbols and (not narrowing.kinds or CODE in narrowing.kinds)
        """True if all pieces of a document of code pass or none."""

    def list_rows(self, index: IndexReader, collection: str) -> list[int]:
        """Return the rows of a collection's chunks that pass, ascending."""
        is_code = index.collections[collection].collection.is_code
        if not self.accepts_kind(is_code=is_code):
            return []
        if is_code and not self._accepts_all_pieces:
            return list(self._list_piece_rows(index, collection))
        rows: list[int] = []
        for document in self.list_documents(index, collection):
            rows += range(document.first, document.first + document.chunks)
        return rows

    def list_documents(self, index: IndexReader, collection: str) -> Iterator[NarrowedDocument]:
        """Yield the documents of a collection whose path and language pass."""
        definition = index.collections[collection].collection
        is_code = definition.is_code
        has_notes = definition.has_notes
        for columns in index.read_columns(collection, header=True):
            for first, chunks, doc_id, metadata in zip(
                columns.first, columns.chunks, columns.doc_id, columns.metadata, strict=True
            ):
                paths = (doc_id, definition.note_path(doc_id)) if has_notes else (doc_id,)
                if self.accepts_file(paths, is_code=is_code):
                    yield NarrowedDocument(doc_id, metadata, first, chunks)

    def accepts_kind(self, *, is_code: bool) -> bool:
        """Return whether documents of a collection, of code or not, can pass."""
        if is_code:
            return self._kinds != {DOCUMENT}
        return not self._symbols and (not self._kinds or DOCUMENT in self._kinds)

    def accepts_file(self, paths: Sequence[str], *, is_code: bool) -> bool:
        """Return whether the path and the language of a document pass. A note has two paths."""
        if self._paths and not any(matches(path) for matches in self._paths for path in paths):
            return False
        return not self._languages or any(self._has_language(path, is_code=is_code) for path in paths)

    def _has_language(self, path: str, *, is_code: bool) -> bool:
        if not is_code:
            file_format = formats.find_by_suffix(path)
            return file_format is not None and file_format.file_type in self._languages
        language = detect_language(path)
        may_be_c = language == "cpp" and path.endswith(_HEADER_OF_C)
        return language in self._languages or (may_be_c and "c" in self._languages)

    def accepts_symbol(self, symbol: str, kind: str) -> bool:
        """Return whether a symbol passes, without its path and language."""
        if self._symbol_kinds and kind not in self._symbol_kinds:
            return False
        for symbol_filter in self._symbols:  # a loop is faster than `any`, and this runs for each symbol
            if symbol_filter.accepts_symbol(symbol):
                return True
        return not self._symbols

    def _list_piece_rows(self, index: IndexReader, collection: str) -> Iterator[int]:
        for document in self.list_documents(index, collection):
            if self._may_have_pieces(document.metadata):
                for row, piece in enumerate(parse_pieces(document), document.first):
                    if self.accepts_piece(piece):
                        yield row

    def accepts_piece(self, piece: IndexedPiece) -> bool:
        """Return whether a piece of code belongs to a symbol that passes, or declares one."""
        if self._accepts_all_pieces:
            return True
        if piece.symbol and self.accepts_symbol(piece.symbol, piece.kind):
            return True
        return any(self.accepts_symbol(symbol, kind) for symbol, kind, _, _ in piece.declared)

    def _may_have_pieces(self, metadata: str) -> bool:
        """Return whether a document may have pieces that pass, without decoding its metadata."""
        if self._symbol_kinds and not any(f'"{kind}"' in metadata for kind in self._symbol_kinds):
            return False
        return not self._symbols or any(symbol.may_be_in_metadata(metadata) for symbol in self._symbols)


class SymbolFilter:
    """A filter for a dotted symbol. `within`: symbols inside this symbol also pass."""

    def __init__(self, name: str, *, within: bool) -> None:
        self._matches = compile_symbol(name, within=within).search
        self._ignores_case = not has_capitals(name)
        self._words = sorted(re.findall(r"\w+", name), key=len, reverse=True) or [""]
        """Words that the name of each matching symbol contains, the longest first."""
        last = name.rpartition(".")[2]
        self._part = re.compile(_SYMBOL_PART.replace("NAME", last) if re.fullmatch(r"\w+", last) else "")

    def accepts_symbol(self, symbol: str) -> bool:
        text = symbol.lower() if self._ignores_case else symbol
        return self._words[0] in text and self._matches(normalize_symbol(symbol)) is not None

    def may_be_in_metadata(self, metadata: str) -> bool:
        """Return whether the metadata of a document, as JSON, may have such a symbol."""
        text = metadata.lower() if self._ignores_case else metadata
        return all(word in text for word in self._words) and self._part.search(text) is not None
