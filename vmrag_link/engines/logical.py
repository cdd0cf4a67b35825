"""Issue logs and knowledge docs as documents, and back.

Their tables have columns of their own, for SQL; to everything above the engines a row is a document
of the collection that it implies: `issues_<project>`, `knowledge_<tool>`. What the other tables'
documents have no field for are keys of its metadata. So what compares, merges, indexes or shows
documents knows nothing of these tables. Rows are read in the order in which documents come.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from vmrag_link.engines.tables import DOCUMENTS, ISSUE_LOGS, KNOWLEDGE_DOCS, LOGICAL_TABLES, ROWS_HINT, Table
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
"""The number of an issue log whose metadata holds none: of one that merges left without."""

_KEPT = r"(?!.*\.\.)(?!(?:.*-)?[0-9a-f]{8}\Z)[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
"""Names that a collection's name can hold as they are, and that none with a hash looks like."""

_LONGEST = 200


class _Form(Record, frozen=True):
    """`keys`: the columns that are keys of the metadata. `implied_by`: the one that names the
    collection, which is of this `kind`, with which its name begins.
    """

    table: DocumentTable
    kind: str
    keys: tuple[str, ...]
    implied_by: str


_FORMS = {
    ISSUE_LOGS.name: _Form("issue_logs", ISSUES, ("project_id", "issue_number", "log_type"), "project_id"),
    KNOWLEDGE_DOCS.name: _Form("knowledge_docs", KNOWLEDGE, ("category", "tool_name", "tool_version"), "tool_name"),
}

IMPLIED_BY = {form.kind: form.implied_by for form in _FORMS.values()}
"""By kind, the metadata key of its documents that names their collection."""

METADATA_KEYS: Mapping[str, tuple[str, ...]] = {form.table: form.keys for form in _FORMS.values()}
"""By table, the keys of metadata that are columns there."""


@functools.lru_cache(1024)
def collection_name(kind: str, name: str) -> str:
    """The collection that a project or a tool implies.

    What a collection's name cannot hold is replaced, and 32 bits of a hash of the name are added:
    who looks for two names that share a collection finds them, and their rows stay apart by id.
    """
    if re.fullmatch(_KEPT, name) and len(name) <= _LONGEST:
        return f"{kind}_{name}"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_LONGEST].strip("-_")
    import hashlib  # OpenSSL, which a way back to a view that is there does not need

    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return "_".join(filter(None, (kind, f"{plain}-{digest}" if plain else digest)))


def implied_collection(table: Table, name: str) -> str:
    """The collection of a row of this table whose `implied_by` column holds `name`."""
    return collection_name(_FORMS[table.name].kind, name)


def collections_prefix(table: Table) -> str:
    """What the name of each collection of this table's documents begins with."""
    return f"{_FORMS[table.name].kind}_"


def implying_column(table: Table) -> str:
    """The column that implies the collection of a row."""
    return _FORMS[table.name].implied_by


@functools.lru_cache(1024)
def implied_table(collection: str) -> Table | None:
    """The table of which documents may lie in a collection of this name, beside `documents`."""
    return next((each for each in LOGICAL_TABLES if collection.startswith(collections_prefix(each))), None)


def document_from_row(table: Table, row: Sequence[Any]) -> Document:
    """The document of a row, whose values stand in the order of `Table.columns` and have been
    checked for their types.

    Raises `msgspec.DecodeError` where its metadata is no JSON object.
    """
    form, values = _FORMS[table.name], dict(zip(table.columns, row, strict=True))
    stated = {key: values[key] for key in form.keys}
    given = msgspec.json.decode(values["metadata"], type=dict[str, Any])
    return Document(
        collection=collection_name(form.kind, stated[form.implied_by]),
        doc_id=row[0],
        title=values["title"],
        content=values["content"],
        content_hash=values["content_hash"],
        metadata=encode_canonical_json(given | stated),
        created_at=values["created_at"],
        updated_at=values["updated_at"],
        table=form.table,
    )


def row_from_document(document: Document) -> tuple[str | int, ...]:
    """What the document's table stores of it, in the order of `Table.columns`.

    Any metadata will do: a text stands for a value that is none, NO_NUMBER for no number.
    """
    table = find_document_table(document)
    metadata = parse_metadata(document)
    stated = {key: _column(table, key, metadata.pop(key, "")) for key in _FORMS[table.name].keys}
    values = stated | {"metadata": encode_canonical_json(metadata)}
    return (
        document.doc_id,
        *(values[name] if name in values else getattr(document, name) for name in table.columns[1:]),
    )


def select_logical_tables(table: DocumentTable | None) -> tuple[Table, ...]:
    """Those of `LOGICAL` that a name means; all of them for None."""
    return tuple(each for each in LOGICAL_TABLES if table in (None, each.name))


def find_document_table(document: Document) -> Table:
    return next((each for each in LOGICAL_TABLES if each.name == document.table), DOCUMENTS)


def group_by_table(documents: Iterable[Document]) -> Iterator[tuple[Table, Iterable[Document]]]:
    """Documents for each table in turn; listed ones in the order of its key.

    In that order they are stored three times faster, in half the file. A stream is one of rows of
    `documents`: see `Write.schema_version`.
    """
    if not isinstance(documents, list | tuple):
        yield DOCUMENTS, documents
        return
    for table in (DOCUMENTS, *LOGICAL_TABLES):
        some = [each for each in documents if find_document_table(each) is table]
        if some:
            yield table, sorted(some, key=lambda each: each.key if table is DOCUMENTS else each.doc_id)


def find_twins(documents: Iterable[Document]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The keys of what these take the place of in the other table: in `documents`, in `LOGICAL`.

    A document has one place: no two rows may be called by the same name. A stream has no rows of
    that kind, as in `by_table`.
    """
    found = documents if isinstance(documents, list | tuple) else ()
    named = [each for each in found if implied_table(each.collection)]
    return (
        [each.key for each in named if each.table != DOCUMENTS.name],
        [each.key for each in named if each.table == DOCUMENTS.name],
    )


def normalize_document(given: Document) -> Document:
    """The document as it comes back from its table: in the collection that its metadata implies."""
    return (
        given
        if given.table == DOCUMENTS.name
        else document_from_row(find_document_table(given), row_from_document(given))
    )


def _column(table: Table, name: str, value: Any) -> str | int:
    if name in table.number_columns:
        return value if type(value) is int and 0 <= value < 2**63 else NO_NUMBER
    return value if isinstance(value, str) else encode_canonical_json(value)


class LogicalRows(ABC):
    """The rows at a place of the knowledge base, as an engine reads them."""

    @abstractmethod
    def read_keys(self, table: Table, ids: Iterable[str] | None) -> Iterable[tuple[str, str]]:
        """The id of each row, and what implies its collection; none where there is no such table.

        `ids`: only these, if they are there.
        """

    @abstractmethod
    def read_rows(self, table: Table, ids: list[str], *, texts: bool) -> Iterable[Document]:
        """The rows with these ids, in any order; without `texts` their contents are empty."""

    @abstractmethod
    def count_rows(self, table: Table) -> int:
        """The number of rows; 0 where there is no such table."""

    def count_logical_documents(self, collection: str | None) -> int:
        if collection is None:
            return sum(map(self.count_rows, LOGICAL_TABLES))
        return sum(1 for _ in self._places(collection, None))

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
        """Sorted by (collection, doc_id); memory grows with the number of ids, not of texts."""
        places = self._places(collection, ids, tables)
        # The tables' collections never mix, because a name begins with its kind.
        for table, some in itertools.groupby(places, key=lambda place: implied_table(place[0])):
            assert table is not None  # noqa: S101  a row implies a collection of its table
            while batch := [doc_id for _, doc_id in itertools.islice(some, BATCH)]:
                found = {each.doc_id: each for each in self.read_rows(table, batch, texts=texts)}
                yield from (found[doc_id] for doc_id in batch if doc_id in found)

    def read_logical_headers(
        self, collection: str | None, ids: Iterable[str] | None = None
    ) -> Iterator[DocumentHeader]:
        return (each.header for each in self.read_logical_documents(collection, ids, texts=False))

    def group_removed_ids(
        self, documents: Iterable[tuple[str, str]], collections: Iterable[str]
    ) -> dict[Table, list[str]]:
        """The ids of the rows, by table, that are these documents or lie in these collections."""
        found: dict[Table, list[str]] = {}
        places = {place for name in collections for place in self._places(name, None)}
        by_collection: dict[str, list[str]] = {}
        for name, doc_id in documents:
            by_collection.setdefault(name, []).append(doc_id)
        for name, ids in by_collection.items():
            places.update(self._places(name, ids))
        for name, doc_id in places:
            table = implied_table(name)
            assert table is not None  # noqa: S101  a row implies a collection of its table
            found.setdefault(table, []).append(doc_id)
        return found

    def _places(
        self, collection: str | None, ids: Iterable[str] | None, tables: Iterable[Table] = LOGICAL_TABLES
    ) -> list[tuple[str, str]]:
        if collection is not None:
            tables = [each for each in tables if each is implied_table(collection)]
        asked = None if ids is None else list(ids)
        found = (
            (implied_collection(table, name), doc_id)
            for table in tables
            for doc_id, name in self.read_keys(table, asked)
        )
        return sorted(place for place in found if collection in (None, place[0]))


def merge_sorted(stored: Iterator[D], others: Iterator[D]) -> Iterator[D]:
    """Two streams of documents, both in order, as one."""
    first = next(others, None)
    return stored if first is None else _merged(stored, itertools.chain([first], others))


def _merged(stored: Iterator[D], others: Iterator[D]) -> Iterator[D]:
    before = None
    for each in heapq.merge(stored, others, key=attrgetter("key")):
        if each.key == before:  # a fetch refuses them
            raise RowsInvalid(f"The knowledge base holds two documents {'/'.join(each.key)!r}.", hint=ROWS_HINT)
        before = each.key
        yield each
