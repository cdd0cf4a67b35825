"""Find the rows of an index that pass the filters of a query, or to which the query is narrowed.

A filter on metadata compares with the values that Chroma would have. They are computed as a column
for each key: `build_document_metadata` of 100,000 documents takes a second, and a column a tenth of
that.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Protocol

import msgspec

from vmrag_link.code.languages import detect_language
from vmrag_link.conversion import formats
from vmrag_link.index.metadata import build_document_metadata, is_chroma_key, to_chroma_value
from vmrag_link.index.reader import IndexedColumns, IndexReader
from vmrag_link.models import Collection, DocumentHeader, IndexedPiece, Record, parse_pieces
from vmrag_link.retrieval.filters import (
    Columns,
    NormalFilter,
    RowTest,
    compile_where,
    compile_where_document,
    list_keys,
)
from vmrag_link.retrieval.narrowing import Narrowing, compile_path, compile_symbol, has_capitals, normalize_symbol
from vmrag_link.retrieval.narrowing_values import CODE, DOCUMENT


class ChunkFilter:
    """Both filters of a query, in normal form.

    Metadata is evaluated once for each document. Texts are read only if their metadata pass.
    """

    def __init__(self, where: NormalFilter | None, where_document: NormalFilter | None) -> None:
        """Compile the filters. Raises `FilterInvalid`."""
        self._columns = MetadataColumns(list_keys(where) if where else ())
        self._where = compile_where(where) if where else None
        self._where_document = compile_where_document(where_document) if where_document else None

    def list_rows(self, index: IndexReader, collection: str) -> list[int]:
        """Return the rows of a collection's chunks that pass, ascending."""
        where = self._where
        rows = index.list_rows(collection) if where is None else sorted(self._filter_metadata(where, index, collection))
        if self._where_document is None:
            return rows
        passes = self._where_document
        return [row for row in rows if passes(index.read_text(row))]

    def _filter_metadata(self, passes: RowTest, index: IndexReader, collection: str) -> Iterator[int]:
        definition = index.collections[collection].collection
        for documents in index.read_columns(collection, header=self._columns.need_header):
            rows = expand_chunks(documents) if self._columns.need_chunk else documents
            passing = passes(self._columns.build_columns(rows, definition))
            if self._columns.need_chunk:
                yield from compress(rows.first, passing)
            else:
                for first, chunks in compress(zip(rows.first, rows.chunks, strict=True), passing):
                    yield from range(first, first + chunks)


_OF_HEADER = frozenset({"title", "source_id", "content_hash", "source_table", "collection"})
_OF_CHUNK = frozenset({"chunk_index", "total_chunks"})
_KEPT_TYPES = frozenset({str, float, bool, type(None)})


class MetadataColumns:
    """Builds columns of metadata for some keys.

    The values are those of `metadata.build_document_metadata` and `metadata.build_chunk_metadata`.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)
        self.need_header = not _OF_HEADER.isdisjoint(self._keys)
        """True if the columns need more of a document than its metadata."""

        self.need_chunk = not _OF_CHUNK.isdisjoint(self._keys)
        """True if the columns differ between the chunks of a document."""

        fields = {key: f"key_{number}" for number, key in enumerate(filter(is_chroma_key, self._keys))}
        names = {field: key for key, field in fields.items()}
        self._given: dict[str, Callable[[Any], Any]]
        try:
            row_type: Any = msgspec.defstruct("Asked", [(field, Any, None) for field in names], rename=names)
            self._given = {key: operator.attrgetter(field) for key, field in fields.items()}
        except ValueError:  # msgspec does not find names that JSON escapes
            row_type = dict[str, Any]
            self._given = {key: operator.methodcaller("get", key) for key in fields}
        self._decode = msgspec.json.Decoder(row_type).decode

    def build_document_columns(self, document: DocumentHeader, collection: Collection) -> Columns:
        """Return the columns of one whole document."""
        values = build_document_metadata(document, collection.table)
        return {key: [values.get(key)] for key in self._keys}

    def build_columns(self, documents: IndexedColumns, collection: Collection) -> Columns:
        """Return the columns of documents, or of their chunks (`expand_chunks`)."""
        rows = [self._decode(metadata) for metadata in documents.metadata]
        columns: dict[str, Sequence[Any]] = dict.fromkeys(self._keys, [None] * len(rows))
        for key, get in self._given.items():
            values = map(get, rows)
            columns[key] = [value if type(value) in _KEPT_TYPES else to_chroma_value(value) for value in values]
        if "title" in columns:
            titles = zip(columns["title"], documents.title, strict=True)
            columns["title"] = [title or None if given is None else given for given, title in titles]
        index_columns = {
            "source_id": documents.doc_id,
            "content_hash": documents.content_hash,
            "source_table": [collection.table] * len(rows),
            "collection": [collection.name] * len(rows),
            "chunk_index": documents.number,
            "total_chunks": documents.chunks,
        }
        return columns | {key: column for key, column in index_columns.items() if key in self._keys}


def expand_chunks(documents: IndexedColumns) -> IndexedColumns:
    """Return one row for each chunk of these documents, with its row and number."""
    rows = [
        (first + number, chunks, number, *rest)
        for first, chunks, _, *rest in zip(*documents, strict=True)
        for number in range(chunks)
    ]
    return IndexedColumns(*zip(*rows, strict=True)) if rows else IndexedColumns(*[()] * len(documents))


_LANGUAGE_GROUPS = {"typescript": ("typescript", "tsx")}
"""Languages that a name includes."""

_HEADER_OF_C = ".h"
"""Suffix of files that are parsed as C++, but may be C."""

_PART = r'NAME(?<=[".:>#\\]NAME)[".:\-#\\]'
"""Pattern of a part of a symbol in JSON (`narrowing.normalize_symbol`). A pattern that begins with
letters is faster.
"""


class RowFilter(Protocol):
    """A filter of the chunks of an index."""

    def list_rows(self, index: IndexReader, collection: str) -> list[int]:
        """Return the rows of a collection that pass, ascending."""
        ...


def intersect_rows(filters: Sequence[RowFilter], index: IndexReader, collection: str) -> list[int]:
    """Return the rows that pass all of these filters."""
    first, *others = (row_filter.list_rows(index, collection) for row_filter in filters)
    if not others:
        return first
    passing = set(first).intersection(*others)
    return [row for row in first if row in passing]


class NarrowedDocument(Record, frozen=True):
    """A document that passes."""

    doc_id: str
    metadata: str
    first: int
    """The row of the first chunk."""

    chunks: int
    """The number of chunks."""


class NarrowingFilter:
    """A filter for a `Narrowing`."""

    def __init__(self, narrowing: Narrowing) -> None:
        self._paths = [compile_path(path) for path in narrowing.paths]
        self._languages = {language for name in narrowing.languages for language in _LANGUAGE_GROUPS.get(name, (name,))}
        self._symbols = [SymbolFilter(symbol, within=True) for symbol in narrowing.symbols]
        self._kinds = frozenset(narrowing.kinds)
        self._symbol_kinds = frozenset[str]() if CODE in self._kinds else self._kinds
        self._whole = not narrowing.symbols and (not narrowing.kinds or CODE in narrowing.kinds)
        """True if a document of code passes as a whole or not at all."""

    def list_rows(self, index: IndexReader, collection: str) -> list[int]:
        """Return the rows of a collection's chunks that pass, ascending."""
        is_code = index.collections[collection].collection.is_code
        if not self.accepts_kind(is_code=is_code):
            return []
        if is_code and not self._whole:
            return list(self._list_piece_rows(index, collection))
        return [
            row
            for document in self.list_documents(index, collection)
            for row in range(document.first, document.first + document.chunks)
        ]

    def list_documents(self, index: IndexReader, collection: str) -> Iterator[NarrowedDocument]:
        """Yield the documents of a collection whose path and language pass."""
        row = index.collections[collection].collection
        is_code, has_notes = row.is_code, row.has_notes
        for columns in index.read_columns(collection, header=True):
            for first, chunks, doc_id, metadata in zip(
                columns.first, columns.chunks, columns.doc_id, columns.metadata, strict=True
            ):
                names = (doc_id, row.note_path(doc_id)) if has_notes else (doc_id,)
                if self.accepts_file(names, is_code=is_code):
                    yield NarrowedDocument(doc_id, metadata, first, chunks)

    def accepts_kind(self, *, is_code: bool) -> bool:
        """Return whether any code can pass, or any other document."""
        if is_code:
            return self._kinds != {DOCUMENT}
        return not self._symbols and (not self._kinds or DOCUMENT in self._kinds)

    def accepts_file(self, names: Sequence[str], *, is_code: bool) -> bool:
        """Return whether the path and the language of a document pass. `names`: its paths."""
        if self._paths and not any(passes(name) for passes in self._paths for name in names):
            return False
        return not self._languages or any(self._has_language(name, is_code=is_code) for name in names)

    def _has_language(self, path: str, *, is_code: bool) -> bool:
        file_format = None if is_code else formats.find_by_suffix(path)
        language = detect_language(path) if is_code else file_format.file_type if file_format else ""
        return language in self._languages or (
            language == "cpp" and "c" in self._languages and path.endswith(_HEADER_OF_C)
        )

    def accepts_symbol(self, symbol: str, kind: str) -> bool:
        """Return whether a symbol passes, wherever it is."""
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
        if self._whole:
            return True
        if piece.symbol and self.accepts_symbol(piece.symbol, piece.kind):
            return True
        return any(self.accepts_symbol(symbol, kind) for symbol, kind, _, _ in piece.declared)

    def _may_have_pieces(self, metadata: str) -> bool:
        """Return whether a document may have pieces that pass. This does not decode its
        metadata.
        """
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

        self._longest = self._words[0]
        last = name.rpartition(".")[2]
        self._part = re.compile(_PART.replace("NAME", last) if re.fullmatch(r"\w+", last) else "")

    def accepts_symbol(self, symbol: str) -> bool:
        text = symbol.lower() if self._ignores_case else symbol
        return self._longest in text and self._matches(normalize_symbol(symbol)) is not None

    def may_be_in_metadata(self, metadata: str) -> bool:
        """Return whether the metadata of a document may have such a symbol. Only then are they
        decoded.
        """
        text = metadata.lower() if self._ignores_case else metadata
        return all(word in text for word in self._words) and self._part.search(text) is not None
