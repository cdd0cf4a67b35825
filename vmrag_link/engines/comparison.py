"""Differences, of which the latest is kept, and the rows before and after that they are made of."""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, TypeVar

from vmrag_link.engines import records
from vmrag_link.engines.base_session import BaseSession
from vmrag_link.engines.tables import COLLECTIONS, COMPARED_COLUMNS, DOCUMENTS, HEADER_COLUMNS, LOGICAL, PROJECTS, Table
from vmrag_link.models import (
    At,
    ChangeCounts,
    ChangeKind,
    CollectionChange,
    Difference,
    Document,
    DocumentChange,
    DocumentHeader,
    HeaderChange,
    HeaderDifference,
    ProjectChange,
    Record,
    Row,
    Working,
)

RowSides = tuple[Row | None, Row | None]
"""A row before and after; None where there is none."""

DocumentSides = tuple[DocumentHeader | None, Document | None]
HeaderSides = tuple[DocumentHeader | None, DocumentHeader | None]
DocumentKey = tuple[str, str]

_Before = TypeVar("_Before")
_After = TypeVar("_After")
S = TypeVar("S", bound=BaseSession[Any])


class RowComparison(ABC, Generic[S]):
    """Keeps the latest difference between revisions: a sync asks for it several times."""

    def __init__(self, session: S) -> None:
        self._session = session
        self._latest: tuple[tuple[str, str], Difference] | None = None

    @abstractmethod
    def compared(self, old: At, new: At) -> AbstractContextManager[ComparedStates]:
        """The two states, as they are at the beginning; each working set is a dirty branch's.

        Raises as `BaseSession.require`.
        """

    def difference(self, old: At, new: At) -> Difference:
        """What turns `old` into `new`."""
        with self.compared(old, new) as sides:
            documents = of_all_tables(sides.documents(), sides.logical())
            return Difference(
                records_of(CollectionChange, sides.rows(COLLECTIONS)),
                records_of(DocumentChange, documents),
                records_of(ProjectChange, sides.rows(PROJECTS)),
            )

    def diff(self, old: At, new: At) -> Difference:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, Working) or isinstance(new, Working):
            return self.difference(old, new)
        if self._latest is None or self._latest[0] != (old, new):
            self._latest = (old, new), self.difference(old, new)
        return self._latest[1]

    def headers(self, old: At, new: At, *, times: bool = False) -> HeaderDifference:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, Working) and isinstance(new, Working):
            found = self.difference(old, new)
            sides = {document.key: (document.before, document.after) for document in found.documents}
            return HeaderDifference(found.collections, records_of(HeaderChange, headers(sides)))
        with self.compared(old, new) as compared:  # without reading the texts; one side at least is a revision
            documents = of_all_tables(compared.headers(times=times), headers(compared.logical(times=times)))
            return HeaderDifference(
                records_of(CollectionChange, compared.rows(COLLECTIONS)), records_of(HeaderChange, documents)
            )

    def count(self, old: At, new: At) -> ChangeCounts:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, Working) or isinstance(new, Working):
            return self.difference(old, new).counts()
        if self._latest is not None and self._latest[0] == (old, new):
            return self._latest[1].counts()
        with self.compared(old, new) as sides:
            if sides.comparable(DOCUMENTS):
                return sides.count() + ChangeCounts.of(records_of(DocumentChange, sides.logical()))
        return self.diff(old, new).counts()

    def _committed(self, at: At) -> At:
        """A clean branch's head, in place of its working set, which may have no name before the
        first write.
        """
        if isinstance(at, str):
            return at
        found = self._session.require_branch(at.branch)
        return at if found.dirty else found.head


class ComparedStates(ABC):
    """Two states, and the `steps` by which an engine gets from the one to the other: one, or two
    that meet at a revision, or none between equal states.
    """

    changed: ClassVar[str]
    """SQL for what differs in `documents` by more than its times."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps = steps

    @abstractmethod
    def comparable(self, table: Table) -> bool:
        """Whether the engine can compare the table, which costs by the number of changes."""

    @abstractmethod
    def differing(
        self, step: Any, table: Table, columns: tuple[Sequence[str], Sequence[str]], where: str
    ) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """The columns before and the columns after; `()` where a side has no row. A row may come
        twice.
        """

    @abstractmethod
    def whole(self, table: Table) -> tuple[Iterable[Row], Iterable[Row]]:
        """All rows of a table with one key, before and after."""

    @abstractmethod
    def before(self, key: DocumentKey) -> Document | None: ...

    @abstractmethod
    def count(self) -> ChangeCounts:
        """The numbers of changed rows of `documents`, without reading them; between revisions."""

    def rows(self, table: Table) -> dict[Any, RowSides]:
        """The changed rows of a table, by key."""
        if self.comparable(table):
            return unequal(self._all_steps(lambda step: self._changed_rows(step, table)))
        before, after = ({records.primary_key(each): each for each in side} for side in self.whole(table))
        return unequal({key: (before.get(key), after.get(key)) for key in before.keys() | after.keys()})

    def logical(self, *, times: bool = False) -> dict[DocumentKey, DocumentSides]:
        return logical(map(self.rows, LOGICAL), times=times)

    def documents(self) -> dict[DocumentKey, DocumentSides]:
        """The changed rows of `documents`, before and after."""
        columns = (HEADER_COLUMNS, DOCUMENTS.columns)
        found = self._all_steps(lambda step: self._changed_documents(step, columns, records.document, self.changed))
        if len(self._steps) == 1:
            return found
        # The second step may undo what the first one does; what the first one found are headers.
        return {
            key: (before, after)
            for key, (before, after) in found.items()
            if (before or after) and not (before and after and equal(self.before(key), after))
        }

    def headers(self, *, times: bool) -> dict[DocumentKey, HeaderSides]:
        """As `documents`, without the texts. `times`: also what differs in times alone."""
        columns, where = (HEADER_COLUMNS, HEADER_COLUMNS), "TRUE" if times else self.changed
        return self._all_steps(lambda step: self._changed_documents(step, columns, records.header, where))

    def _all_steps(self, changes: Callable[[Any], dict[Any, Any]]) -> dict[Any, Any]:
        return functools.reduce(joined, map(changes, self._steps), {})

    def _changed_documents(
        self, step: Any, columns: tuple[Sequence[str], Sequence[str]], after: Callable[[Sequence[Any]], Any], where: str
    ) -> dict[DocumentKey, Any]:
        return {
            (old or new)[:2]: (records.header(old) if old else None, after(new) if new else None)
            for old, new in self.differing(step, DOCUMENTS, columns, where)
        }

    def _changed_rows(self, step: Any, table: Table) -> dict[Any, RowSides]:
        found: dict[Any, RowSides] = {}
        for old, new in self.differing(step, table, (table.columns, table.columns), "TRUE"):
            before = records.record(table, old) if old else None
            after = records.record(table, new) if new else None
            if row := after or before:
                found[records.primary_key(row)] = (before, after)
        return found


def records_of(make: type[Any], sides: Mapping[Any, tuple[Record | None, Record | None]]) -> tuple[Any, ...]:
    """Records of a kind of change (`CollectionChange`, …), sorted by key."""
    # Code points order as UTF-8 bytes do.
    return tuple(make(_kind_of(*sides[key]), *sides[key]) for key in sorted(sides))


def _kind_of(before: object | None, after: object | None) -> ChangeKind:
    if before is None:
        return "added"
    return "removed" if after is None else "modified"


def joined(
    first: Mapping[Any, tuple[_Before | None, _After | None]],
    second: Mapping[Any, tuple[_Before | None, _After | None]],
) -> dict[Any, tuple[_Before | None, _After | None]]:
    """For each key in either: what stood before the first, and what stands after the second."""
    sides = dict(first)
    for key, (before, after) in second.items():
        sides[key] = (sides[key][0] if key in sides else before, after)
    return sides


def unequal(sides: Mapping[Any, RowSides]) -> dict[Any, RowSides]:
    return {key: pair for key, pair in sides.items() if pair[0] != pair[1]}


def logical(
    tables: Iterable[Mapping[Any, tuple[Any, Any]]], *, times: bool = False
) -> dict[DocumentKey, DocumentSides]:
    """The changed rows of `tables.LOGICAL`, which are documents, as changes of documents.

    One that implies another collection than before is removed there and added here. `times`: what
    differs in its times alone counts as changed.
    """
    found: dict[DocumentKey, DocumentSides] = {}
    for before, after in itertools.chain.from_iterable(table.values() for table in tables):
        if before and after and before.key == after.key:
            if times or not equal(before, after):
                found[after.key] = before.header, after
            continue
        if before:
            found[before.key] = before.header, None
        if after:
            found[after.key] = None, after
    return found


def headers(sides: Mapping[DocumentKey, DocumentSides]) -> dict[DocumentKey, HeaderSides]:
    """The same changes without the texts."""
    return {key: (before, after.header if after else None) for key, (before, after) in sides.items()}


def of_all_tables(
    stored: Mapping[DocumentKey, tuple[DocumentHeader | None, _After | None]],
    others: Mapping[DocumentKey, tuple[DocumentHeader | None, _After | None]],
) -> dict[DocumentKey, tuple[DocumentHeader | None, _After | None]]:
    """The changes of `documents` and those of `logical`: a document that only changed its table is
    one change.
    """
    found = dict(stored)
    for key, (before, after) in others.items():
        there = found.get(key, (None, None))
        found[key] = (before or there[0], after or there[1])
    return found


def equal(one: Document | None, other: Document) -> bool:
    fields = ("collection", "doc_id", *COMPARED_COLUMNS)
    return one is not None and all(getattr(one, field) == getattr(other, field) for field in fields)
