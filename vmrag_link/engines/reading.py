"""Documents and collections at one place, a revision or a working set: those that are stored as
such, and the rows that are shown as documents.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vmrag_link.engines import logical, records
from vmrag_link.engines.logical import LogicalRows, merge_sorted
from vmrag_link.engines.tables import DOCUMENTS, HEADER_COLUMNS, Table, prefix_end
from vmrag_link.models import Document, DocumentHeader, DocumentTable, Row


class PlaceRows(LogicalRows):
    """`Engine` has the contracts of what reads; nothing is there where there are no tables."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The schema's version; 0 where there is no table. Raises as `BaseSession.require`."""

    @abstractmethod
    def read_table(self, table: Table, ids: Iterable[str] | None = None) -> Iterator[Row]:
        """The rows of a table with one key, sorted by it; none where the schema is older."""

    @abstractmethod
    def read_stored(
        self, columns: Sequence[str], collection: str | None, ids: Iterable[str] | None
    ) -> Iterator[Sequence[Any]]:
        """The rows of `documents`, sorted by key. Ask only where there are tables."""

    @abstractmethod
    def select_texts(self, columns: Sequence[str], conditions: Mapping[str, str]) -> Iterator[Sequence[str]]:
        """Texts of a collection's rows of `documents`, sorted by id: those for which each of the
        conditions, as `doc_id >=`, holds for its value.
        """

    @abstractmethod
    def count_stored(self, collection: str | None) -> int: ...

    @abstractmethod
    def read_past_rows(self, table: Table, columns: Sequence[str], key: Mapping[str, str]) -> Iterator[Sequence[Any]]:
        """Of each revision that this one reaches and that has the row: its hash, and these
        columns.
        """

    def read_documents(
        self, collection: str | None = None, ids: Iterable[str] | None = None, table: DocumentTable | None = None
    ) -> Iterator[Document]:
        if not self.version:
            return iter(())
        others = self.read_logical_documents(collection, ids, tables=logical.select_logical_tables(table))
        if table not in (None, DOCUMENTS.name):
            return others
        return merge_sorted(map(records.parse_document, self.read_stored(DOCUMENTS.columns, collection, ids)), others)

    def read_headers(self, collection: str | None = None, ids: Iterable[str] | None = None) -> Iterator[DocumentHeader]:
        if not self.version:
            return iter(())
        return merge_sorted(
            map(records.parse_header, self.read_stored(HEADER_COLUMNS, collection, ids)),
            self.read_logical_headers(collection, ids),
        )

    def find_document(self, collection: str, doc_id: str) -> Document | None:
        return next(self.read_documents(collection, [doc_id]), None)

    def list_sources(self, collection: str) -> list[tuple[str, str]]:
        asked = {"collection_name =": collection, "source <>": ""}
        found = self.select_texts(("collection_name", "doc_id", "source"), asked) if self.version else ()
        return [(doc_id, source) for _, doc_id, source in found]

    def list_ids(self, collection: str, prefix: str) -> list[str]:
        asked = {"collection_name =": collection, "doc_id >=": prefix, "doc_id <": prefix_end(prefix)}
        found = self.select_texts(("collection_name", "doc_id"), asked) if self.version else ()
        return [doc_id for _, doc_id in found]

    def count_documents(self, collection: str | None) -> int:
        return self.count_stored(collection) + self.count_logical_documents(collection) if self.version else 0

    def read_history(self, collection: str, doc_id: str) -> dict[str, DocumentHeader]:
        """The document in each revision that this one reaches and that has it, by key: a tenth of a
        millisecond a revision.
        """
        if not self.version:
            return {}
        key = {"collection_name": collection, "doc_id": doc_id}
        found = {
            revision: records.parse_header(row)
            for revision, *row in self.read_past_rows(DOCUMENTS, HEADER_COLUMNS, key)
        }
        implied = logical.implied_table(collection)
        if implied and self.version >= implied.since:
            columns = [name for name in implied.columns if name != "content"]
            for revision, *row in self.read_past_rows(implied, columns, {implied.columns[0]: doc_id}):
                values = dict(zip(columns, row, strict=True))
                document = records.parse_logical_document(implied, [values.get(name, "") for name in implied.columns])
                if document.collection == collection:
                    found[revision] = document.header
        return found
