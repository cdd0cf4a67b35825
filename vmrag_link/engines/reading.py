"""Documents and collections at one place, a revision or a working set.

Documents are rows of the table `documents`, and rows of logical tables that are shown as documents.
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
    """Reads the rows at a place.

    `Engine` documents its methods. Without tables, all results are empty.
    """

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of the schema, or 0 without tables.

        Raises `RevisionMissing`, `BranchMissing`, `KnowledgeRefused` and `SchemaTooNew`.
        """

    @abstractmethod
    def read_table(self, table: Table, ids: Iterable[str] | None = None) -> Iterator[Row]:
        """Yield the rows of a table with one key column in its order; none for an older schema."""

    @abstractmethod
    def read_stored(
        self, columns: Sequence[str], collection: str | None, ids: Iterable[str] | None
    ) -> Iterator[Sequence[Any]]:
        """Yield the rows of `documents`, sorted by key. Call this only if there are tables."""

    @abstractmethod
    def select_texts(self, columns: Sequence[str], conditions: Mapping[str, str]) -> Iterator[Sequence[str]]:
        """Yield text columns of a collection's rows of `documents`, sorted by id.

        `conditions` maps each condition, such as `doc_id >=`, to the value for which it must hold.
        """

    @abstractmethod
    def count_stored(self, collection: str | None) -> int: ...

    @abstractmethod
    def read_past_rows(self, table: Table, columns: Sequence[str], key: Mapping[str, str]) -> Iterator[Sequence[Any]]:
        """Yield the hash and these columns for each revision of the history with the row."""

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
        conditions = {"collection_name =": collection, "source <>": ""}
        rows = self.select_texts(("collection_name", "doc_id", "source"), conditions) if self.version else ()
        return [(doc_id, source) for _, doc_id, source in rows]

    def list_ids(self, collection: str, prefix: str) -> list[str]:
        conditions = {"collection_name =": collection, "doc_id >=": prefix, "doc_id <": prefix_end(prefix)}
        rows = self.select_texts(("collection_name", "doc_id"), conditions) if self.version else ()
        return [doc_id for _, doc_id in rows]

    def count_documents(self, collection: str | None) -> int:
        return self.count_stored(collection) + self.count_logical_documents(collection) if self.version else 0

    def read_history(self, collection: str, doc_id: str) -> dict[str, DocumentHeader]:
        """Return the document's header in each revision of this one's history, by revision.

        Takes a tenth of a millisecond per revision.
        """
        if not self.version:
            return {}
        key = {"collection_name": collection, "doc_id": doc_id}
        headers = {
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
                    headers[revision] = document.header
        return headers
