"""Conversion between rows of logical tables (issue logs, knowledge docs) and documents.

These tables have their own columns, for SQL. Above the engines, each row is a document of the
collection that it implies: `issues_<project>` or `knowledge_<tool>`. Columns that have no field in
a document become keys of its metadata. So code that compares, merges, indexes or shows documents
does not need to know these tables. Rows are read in the order of documents.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from vmrag_link.engines.tables import (
    DOCUMENTS,
    ISSUE_LOGS,
    KNOWLEDGE_DOCS,
    LOGICAL_TABLES,
    ROWS_HINT,
    Table,
    find_table,
)
from vmrag_link.errors import RowsInvalid
from vmrag_link.models import (
    ISSUES,
    KNOWLEDGE,
    Document,
    DocumentHeader,
    DocumentTable,
    Record,
    encode_canonical_json,
    parse_metadata,
)

D = TypeVar("D", Document, DocumentHeader)

BATCH = 500

NO_NUMBER = -1
"""The number of an issue log whose metadata has none, for example after a merge dropped it."""

_PLAIN_NAME = r"(?!.*\.\.)(?!(?:.*-)?[0-9a-f]{8}\Z)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
"""Names that a collection's name can contain unchanged.

They do not look like a name with a hash.
"""

_MAX_NAME_LENGTH = 200


class _Form(Record, frozen=True):
    """How rows of a logical table become documents."""

    table: DocumentTable
    kind: str
    """The kind of their collections, and the prefix of the collections' names."""
    keys: tuple[str, ...]
    """The columns that become keys of the metadata."""
    implied_by: str
    """The column that implies the collection."""


_FORMS = {
    ISSUE_LOGS.name: _Form("issue_logs", ISSUES, ("project_id", "issue_number", "log_type"), "project_id"),
    KNOWLEDGE_DOCS.name: _Form("knowledge_docs", KNOWLEDGE, ("category", "tool_name", "tool_version"), "tool_name"),
}

IMPLIED_BY = {form.kind: form.implied_by for form in _FORMS.values()}
"""The metadata key that names the collection of a document, by kind."""

METADATA_KEYS: Mapping[str, tuple[str, ...]] = {form.table: form.keys for form in _FORMS.values()}
"""The metadata keys that are columns of a table, by table."""


@functools.lru_cache(1024)
def collection_name(kind: str, name: str) -> str:
    """Return the collection that a project or a tool implies.

    Characters that a collection's name cannot have are replaced, and 32 bits of a hash of the name
    are added. Two names can be constructed that share a collection, but their rows stay separate by
    id.
    """
    if re.fullmatch(_PLAIN_NAME, name) and len(name) <= _MAX_NAME_LENGTH:
        return f"{kind}_{name}"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_MAX_NAME_LENGTH].strip("-_")
    import hashlib  # loads OpenSSL, which returning to an existing view does not need

    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return "_".join(filter(None, (kind, f"{plain}-{digest}" if plain else digest)))


def implied_collection(table: Table, name: str) -> str:
    """Return the collection of a row of this table whose `implied_by` column holds `name`."""
    return collection_name(_FORMS[table.name].kind, name)


def collections_prefix(table: Table) -> str:
    """Return the prefix of the names of all collections with documents of this table."""
    return f"{_FORMS[table.name].kind}_"


def implying_column(table: Table) -> str:
    """Return the column that implies the collection of a row."""
    return _FORMS[table.name].implied_by


@functools.lru_cache(1024)
def implied_table(collection: str) -> Table | None:
    """Return the logical table whose documents may be in a collection of this name, or None."""
    return next((table for table in LOGICAL_TABLES if collection.startswith(collections_prefix(table))), None)


def document_from_row(table: Table, row: Sequence[Any]) -> Document:
    """Return the document of a row.

    Its values are in the order of `Table.columns` and have valid types. Raises
    `msgspec.DecodeError` if its metadata is not a JSON object.
    """
    form = _FORMS[table.name]
    values = dict(zip(table.columns, row, strict=True))
    key_values = {key: values[key] for key in form.keys}
    metadata = msgspec.json.decode(values["metadata"], type=dict[str, Any])
    return Document(
        collection=collection_name(form.kind, key_values[form.implied_by]),
        doc_id=row[0],
        title=values["title"],
        content=values["content"],
        content_hash=values["content_hash"],
        metadata=encode_canonical_json(metadata | key_values),
        created_at=values["created_at"],
        updated_at=values["updated_at"],
        table=form.table,
    )


def row_from_document(document: Document) -> tuple[str | int, ...]:
    """Return the row that stores a document, in the order of `Table.columns`.

    Accepts any metadata: other values are stored as JSON text, and a missing or invalid number as
    NO_NUMBER.
    """
    table = find_table(document)
    metadata = parse_metadata(document)
    key_values = {key: _column_value(table, key, metadata.pop(key, "")) for key in _FORMS[table.name].keys}
    values = key_values | {"metadata": encode_canonical_json(metadata)}
    return (
        document.doc_id,
        *(values[name] if name in values else getattr(document, name) for name in table.columns[1:]),
    )


def select_logical_tables(table: DocumentTable | None) -> tuple[Table, ...]:
    """Return the logical table with this name, or all of them for None."""
    return tuple(logical_table for logical_table in LOGICAL_TABLES if table in (None, logical_table.name))


def group_by_table(documents: Iterable[Document]) -> Iterator[tuple[Table, Iterable[Document]]]:
    """Yield the documents of each table; listed ones in the order of its key.

    In that order, storing is three times faster and the file half as large. A stream holds only
    rows of `documents` (see `Write.schema_version`).
    """
    if not isinstance(documents, list | tuple):
        yield DOCUMENTS, documents
        return
    for table in (DOCUMENTS, *LOGICAL_TABLES):
        rows = [document for document in documents if find_table(document) is table]
        if rows:
            yield table, sorted(rows, key=lambda row: row.key if table is DOCUMENTS else row.doc_id)


class Twins(NamedTuple):
    """Rows with the key of a document that is about to be stored in another table."""

    in_documents: list[tuple[str, str]]
    in_logical_tables: list[tuple[str, str]]


def find_twins(documents: Iterable[Document]) -> Twins:
    """Return the keys of rows that these documents replace in the other table.

    No two rows may have the same document name. A stream holds no documents of logical tables (see
    `group_by_table`).
    """
    listed = documents if isinstance(documents, list | tuple) else ()
    in_logical_collections = [document for document in listed if implied_table(document.collection)]
    return Twins(
        in_documents=[document.key for document in in_logical_collections if document.table != DOCUMENTS.name],
        in_logical_tables=[document.key for document in in_logical_collections if document.table == DOCUMENTS.name],
    )


def normalize_document(document: Document) -> Document:
    """Return the document as its table returns it: in the collection that its metadata implies."""
    if document.table == DOCUMENTS.name:
        return document
    return document_from_row(find_table(document), row_from_document(document))


def _column_value(table: Table, name: str, value: Any) -> str | int:
    if name in table.number_columns:
        return value if type(value) is int and 0 <= value < 2**63 else NO_NUMBER
    return value if isinstance(value, str) else encode_canonical_json(value)


class LogicalRows(ABC):
    """The rows of logical tables at a place of the knowledge base, as an engine reads them."""

    @abstractmethod
    def read_keys(self, table: Table, ids: Iterable[str] | None) -> Iterable[tuple[str, str]]:
        """Yield the id of each row and the value that implies its collection.

        Yields nothing if the table does not exist. With `ids`, yields only existing rows with these
        ids.
        """

    @abstractmethod
    def read_rows(self, table: Table, ids: list[str], *, texts: bool) -> Iterable[Document]:
        """Yield the rows with these ids, in any order. Without `texts` their contents are empty."""

    @abstractmethod
    def count_rows(self, table: Table) -> int:
        """Return the number of rows; 0 if the table does not exist."""

    def count_logical_documents(self, collection: str | None) -> int:
        if collection is None:
            return sum(map(self.count_rows, LOGICAL_TABLES))
        return sum(1 for _ in self._list_keys(collection, None))

    def find_logical_document(self, collection: str, doc_id: str) -> Document | None:
        return next(self.read_logical_documents(collection, [doc_id]), None)

    def read_logical_documents(
        self,
        collection: str | None,
        ids: Iterable[str] | None = None,
        *,
        texts: bool = True,
        tables: Iterable[Table] = LOGICAL_TABLES,
    ) -> Iterator[Document]:
        """Yield documents sorted by (collection, doc_id).

        Memory grows with the number of ids, not of texts.
        """
        keys = self._list_keys(collection, ids, tables)
        # The tables' collections never mix, because a name begins with its kind.
        for table, table_keys in itertools.groupby(keys, key=lambda key: implied_table(key[0])):
            assert table is not None  # noqa: S101  a row implies a collection of its table
            while batch := [doc_id for _, doc_id in itertools.islice(table_keys, BATCH)]:
                by_id = {document.doc_id: document for document in self.read_rows(table, batch, texts=texts)}
                yield from (by_id[doc_id] for doc_id in batch if doc_id in by_id)

    def read_logical_headers(
        self, collection: str | None, ids: Iterable[str] | None = None
    ) -> Iterator[DocumentHeader]:
        return (document.header for document in self.read_logical_documents(collection, ids, texts=False))

    def group_removed_ids(
        self, documents: Iterable[tuple[str, str]], collections: Iterable[str]
    ) -> dict[Table, list[str]]:
        """Return the ids of the rows of these documents and collections, by table."""
        keys = {key for name in collections for key in self._list_keys(name, None)}
        by_collection: dict[str, list[str]] = {}
        for name, doc_id in documents:
            by_collection.setdefault(name, []).append(doc_id)
        for name, ids in by_collection.items():
            keys.update(self._list_keys(name, ids))
        removed: dict[Table, list[str]] = {}
        for name, doc_id in keys:
            table = implied_table(name)
            assert table is not None  # noqa: S101  a row implies a collection of its table
            removed.setdefault(table, []).append(doc_id)
        return removed

    def _list_keys(
        self, collection: str | None, ids: Iterable[str] | None, tables: Iterable[Table] = LOGICAL_TABLES
    ) -> list[tuple[str, str]]:
        """Return the keys (collection and id) of the documents, sorted."""
        if collection is not None:
            tables = [table for table in tables if table is implied_table(collection)]
        row_ids = None if ids is None else list(ids)
        keys = (
            (implied_collection(table, name), doc_id)
            for table in tables
            for doc_id, name in self.read_keys(table, row_ids)
        )
        return sorted(key for key in keys if collection in (None, key[0]))


def merge_sorted(stored: Iterator[D], others: Iterator[D]) -> Iterator[D]:
    """Merge two sorted streams of documents."""
    first = next(others, None)
    return stored if first is None else _merge_streams(stored, itertools.chain([first], others))


def _merge_streams(stored: Iterator[D], others: Iterator[D]) -> Iterator[D]:
    before = None
    for document in heapq.merge(stored, others, key=attrgetter("key")):
        if document.key == before:  # a fetch refuses such rows
            raise RowsInvalid(
                f"the knowledge base holds two documents named {'/'.join(document.key)!r}.", hint=ROWS_HINT
            )
        before = document.key
        yield document
