"""Which chunks of an index a query is narrowed to, and which pass its filters.

A filter on metadata compares with the values that Chroma would hold. They come as a column for a
key: `document_metadata` of a hundred thousand documents takes a second, a column of them a tenth.
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
from vmrag_link.retrieval.filters import Columns, Normal, RowTest, compile_where, compile_where_document, list_keys
from vmrag_link.retrieval.narrowing import Narrowing, compile_path, compile_symbol, has_capitals, normalize_symbol
from vmrag_link.retrieval.narrowing_values import CODE, DOCUMENT


class ChunkFilter:
    """Both filters of a query in normal form.

    Metadata is evaluated once a document, and only those texts are read whose metadata pass.
    """

    def __init__(self, where: Normal | None, where_document: Normal | None) -> None:
        """Raises `FilterInvalid`."""
        self._columns = MetadataColumns(list_keys(where) if where else ())
        self._where = compile_where(where) if where else None
        self._where_document = compile_where_document(where_document) if where_document else None

    def list_rows(self, index: IndexReader, collection: str) -> list[int]:
        """The rows of the chunks of a collection that pass, ascending."""
        where = self._where
        rows = index.list_rows(collection) if where is None else sorted(self._by_metadata(where, index, collection))
        if self._where_document is None:
            return rows
        passes = self._where_document
        return [row for row in rows if passes(index.read_text(row))]

    def _by_metadata(self, passes: RowTest, index: IndexReader, collection: str) -> Iterator[int]:
        definition = index.list_collections[collection].collection
        for documents in index.read_columns(collection, header=self._columns.need_header):
            rows = expand_chunks(documents) if self._columns.need_chunk else documents
            passed = passes(self._columns.build_columns(rows, definition))
            if self._columns.need_chunk:
                yield from compress(rows.first, passed)
            else:
                for first, chunks in compress(zip(rows.first, rows.chunks, strict=True), passed):
                    yield from range(first, first + chunks)


_OF_HEADER = frozenset({"title", "source_id", "content_hash", "source_table", "collection"})
_OF_CHUNK = frozenset({"chunk_index", "total_chunks"})
_KEPT_TYPES = frozenset({str, float, bool, type(None)})


class MetadataColumns:
    """Makes the columns of some keys, as `document_metadata` and `place` have them."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)
        self.need_header = not _OF_HEADER.isdisjoint(self._keys)
        """Whether more of a document is looked at than its metadata."""

        self.need_chunk = not _OF_CHUNK.isdisjoint(self._keys)
        """Whether the chunks of a document differ in what is looked at."""

        fields = {key: f"key_{number}" for number, key in enumerate(filter(is_chroma_key, self._keys))}
        names = {field: key for key, field in fields.items()}
        self._given: dict[str, Callable[[Any], Any]]
        try:
            asked: Any = msgspec.defstruct("Asked", [(field, Any, None) for field in names], rename=names)
            self._given = {key: operator.attrgetter(field) for key, field in fields.items()}
        except ValueError:  # msgspec does not look for names that JSON escapes
            asked = dict[str, Any]
            self._given = {key: operator.methodcaller("get", key) for key in fields}
        self._decode = msgspec.json.Decoder(asked).decode

    def build_document_columns(self, document: DocumentHeader, collection: Collection) -> Columns:
        """Of one whole document of a collection."""
        values = build_document_metadata(document, collection.table)
        return {key: [values.get(key)] for key in self._keys}

    def build_columns(self, documents: IndexedColumns, collection: Collection) -> Columns:
        """Of documents of a collection, or of their chunks (`by_chunk`)."""
        rows = [self._decode(each) for each in documents.metadata]
        found: dict[str, Sequence[Any]] = dict.fromkeys(self._keys, [None] * len(rows))
        for key, given in self._given.items():
            found[key] = [each if type(each) in _KEPT_TYPES else to_chroma_value(each) for each in map(given, rows)]
        if "title" in found:
            both = zip(found["title"], documents.title, strict=True)
            found["title"] = [title or None if each is None else each for each, title in both]
        own = {
            "source_id": documents.doc_id,
            "content_hash": documents.content_hash,
            "source_table": [collection.table] * len(rows),
            "collection": [collection.name] * len(rows),
            "chunk_index": documents.number,
            "total_chunks": documents.chunks,
        }
        return found | {key: column for key, column in own.items() if key in self._keys}


def expand_chunks(documents: IndexedColumns) -> IndexedColumns:
    """Each document as often as it has chunks, with the row and number of each."""
    rows = [
        (first + number, chunks, number, *rest)
        for first, chunks, _, *rest in zip(*documents, strict=True)
        for number in range(chunks)
    ]
    return IndexedColumns(*zip(*rows, strict=True)) if rows else IndexedColumns(*[()] * len(documents))


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

    def list_rows(self, index: IndexReader, collection: str) -> list[int]:
        """The rows of a collection that pass, ascending."""
        ...


def intersect_rows(filters: Sequence[RowFilter], index: IndexReader, collection: str) -> list[int]:
    """The rows that pass each of these."""
    first, *others = (each.list_rows(index, collection) for each in filters)
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
        self._paths = [compile_path(path) for path in wanted.paths]
        self._languages = {each for name in wanted.languages for each in _FOUND_IN.get(name, (name,))}
        self._symbols = [SymbolFilter(symbol, within=True) for symbol in wanted.symbols]
        self._kinds = frozenset(wanted.kinds)
        self._symbol_kinds = frozenset[str]() if CODE in self._kinds else self._kinds
        self._whole = not wanted.symbols and (not wanted.kinds or CODE in wanted.kinds)
        """Whether all of a document of code passes, or nothing."""

    def list_rows(self, index: IndexReader, collection: str) -> list[int]:
        """The rows of the chunks of a collection that pass, ascending."""
        is_code = index.list_collections[collection].collection.is_code
        if not self.accepts_kind(is_code=is_code):
            return []
        if is_code and not self._whole:
            return list(self._of_pieces(index, collection))
        return [
            row
            for document in self.list_documents(index, collection)
            for row in range(document.first, document.first + document.chunks)
        ]

    def list_documents(self, index: IndexReader, collection: str) -> Iterator[NarrowedDocument]:
        """The documents of a collection whose path and language pass."""
        row = index.list_collections[collection].collection
        is_code, has_notes = row.is_code, row.has_notes
        for some in index.read_columns(collection, header=True):
            for first, chunks, doc_id, metadata in zip(
                some.first, some.chunks, some.doc_id, some.metadata, strict=True
            ):
                names = (doc_id, row.note_path(doc_id)) if has_notes else (doc_id,)
                if self.accepts_file(names, is_code=is_code):
                    yield NarrowedDocument(doc_id, metadata, first, chunks)

    def accepts_kind(self, *, is_code: bool) -> bool:
        """Return whether anything in code, or in other documents, can pass."""
        if is_code:
            return self._kinds != {DOCUMENT}
        return not self._symbols and (not self._kinds or DOCUMENT in self._kinds)

    def accepts_file(self, names: Sequence[str], *, is_code: bool) -> bool:
        """Return whether the path and the language of a document pass. `names`: its paths."""
        if self._paths and not any(passes(name) for passes in self._paths for name in names):
            return False
        return not self._languages or any(self._speaks(name, is_code=is_code) for name in names)

    def _speaks(self, path: str, *, is_code: bool) -> bool:
        known = None if is_code else formats.find_by_suffix(path)
        language = detect_language(path) if is_code else known.file_type if known else ""
        return language in self._languages or (
            language == "cpp" and "c" in self._languages and path.endswith(_HEADER_OF_C)
        )

    def accepts_symbol(self, symbol: str, kind: str) -> bool:
        """Whether a symbol passes, wherever it is."""
        if self._symbol_kinds and kind not in self._symbol_kinds:
            return False
        for each in self._symbols:  # no `any`: this is asked for each symbol that is indexed
            if each.accepts_symbol(symbol):
                return True
        return not self._symbols

    def _of_pieces(self, index: IndexReader, collection: str) -> Iterator[int]:
        for document in self.list_documents(index, collection):
            if self._may_pass(document.metadata):
                for row, piece in enumerate(parse_pieces(document), document.first):
                    if self.accepts_piece(piece):
                        yield row

    def accepts_piece(self, piece: IndexedPiece) -> bool:
        """Whether a piece of code is of a symbol that passes, or declares one."""
        if self._whole:
            return True
        if piece.symbol and self.accepts_symbol(piece.symbol, piece.kind):
            return True
        return any(self.accepts_symbol(symbol, kind) for symbol, kind, _, _ in piece.declared)

    def _may_pass(self, metadata: str) -> bool:
        """Whether pieces of a document may pass."""
        if self._symbol_kinds and not any(f'"{kind}"' in metadata for kind in self._symbol_kinds):
            return False
        return not self._symbols or any(symbol.may_be_in_metadata(metadata) for symbol in self._symbols)


class SymbolFilter:
    """A symbol that is asked for, dotted; `within`: or one in it."""

    def __init__(self, name: str, *, within: bool) -> None:
        self._matches = compile_symbol(name, within=within).search
        self._ignores_case = not has_capitals(name)
        self._words = sorted(re.findall(r"\w+", name), key=len, reverse=True) or [""]
        """All are in the name of each symbol that is meant."""

        self._longest = self._words[0]
        last = name.rpartition(".")[2]
        self._part = re.compile(_PART.replace("NAME", last) if re.fullmatch(r"\w+", last) else "")

    def accepts_symbol(self, symbol: str) -> bool:
        text = symbol.lower() if self._ignores_case else symbol
        return self._longest in text and self._matches(normalize_symbol(symbol)) is not None

    def may_be_in_metadata(self, metadata: str) -> bool:
        """Whether the metadata of a document may have such a symbol: they are decoded for these."""
        text = metadata.lower() if self._ignores_case else metadata
        return all(word in text for word in self._words) and self._part.search(text) is not None
