"""Reading the rows of `logical` tables as documents, in the order in which documents come."""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TypeVar

from vmrag_link.engines import logical
from vmrag_link.engines.records import ROWS_HINT
from vmrag_link.engines.tables import LOGICAL, Table
from vmrag_link.errors import RowsInvalid
from vmrag_link.models import Document, DocumentHeader

D = TypeVar("D", Document, DocumentHeader)

BATCH = 500


class LogicalRows(ABC):
    """The rows at a place of the knowledge base, as an engine reads them."""

    @abstractmethod
    def implied(self, table: Table, ids: Iterable[str] | None) -> Iterable[tuple[str, str]]:
        """The id of each row, and what implies its collection; none where there is no such table.

        `ids`: only these, if they are there.
        """

    @abstractmethod
    def rows(self, table: Table, ids: list[str], *, texts: bool) -> Iterable[Document]:
        """The rows with these ids, in any order; without `texts` their contents are empty."""

    @abstractmethod
    def total(self, table: Table) -> int:
        """The number of rows; 0 where there is no such table."""

    def count(self, collection: str | None) -> int:
        if collection is None:
            return sum(map(self.total, LOGICAL))
        return sum(1 for _ in self._places(collection, None))

    def document(self, collection: str, doc_id: str) -> Document | None:
        return next(self.documents(collection, [doc_id]), None)

    def documents(
        self,
        collection: str | None,
        ids: Iterable[str] | None = None,
        *,
        texts: bool = True,
        tables: Iterable[Table] = LOGICAL,
    ) -> Iterator[Document]:
        """Sorted by (collection, doc_id); memory grows with the number of ids, not of texts."""
        places = self._places(collection, ids, tables)
        # The tables' collections never mix, because a name begins with its kind.
        for table, some in itertools.groupby(places, key=lambda place: logical.table_implied(place[0])):
            assert table is not None  # noqa: S101  a row implies a collection of its table
            while batch := [doc_id for _, doc_id in itertools.islice(some, BATCH)]:
                found = {each.doc_id: each for each in self.rows(table, batch, texts=texts)}
                yield from (found[doc_id] for doc_id in batch if doc_id in found)

    def headers(self, collection: str | None, ids: Iterable[str] | None = None) -> Iterator[DocumentHeader]:
        return (each.header for each in self.documents(collection, ids, texts=False))

    def removed(self, documents: Iterable[tuple[str, str]], collections: Iterable[str]) -> dict[Table, list[str]]:
        """The ids of the rows, by table, that are these documents or lie in these collections."""
        found: dict[Table, list[str]] = {}
        places = {place for name in collections for place in self._places(name, None)}
        by_collection: dict[str, list[str]] = {}
        for name, doc_id in documents:
            by_collection.setdefault(name, []).append(doc_id)
        for name, ids in by_collection.items():
            places.update(self._places(name, ids))
        for name, doc_id in places:
            table = logical.table_implied(name)
            assert table is not None  # noqa: S101  a row implies a collection of its table
            found.setdefault(table, []).append(doc_id)
        return found

    def _places(
        self, collection: str | None, ids: Iterable[str] | None, tables: Iterable[Table] = LOGICAL
    ) -> list[tuple[str, str]]:
        if collection is not None:
            tables = [each for each in tables if each is logical.table_implied(collection)]
        asked = None if ids is None else list(ids)
        found = (
            (logical.collection_of(table, name), doc_id)
            for table in tables
            for doc_id, name in self.implied(table, asked)
        )
        return sorted(place for place in found if collection in (None, place[0]))


def merged(stored: Iterator[D], others: Iterator[D]) -> Iterator[D]:
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
