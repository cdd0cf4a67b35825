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
from vmrag_link.engines.tables import (
    COLLECTIONS,
    COMPARED_COLUMNS,
    DOCUMENTS,
    HEADER_COLUMNS,
    LOGICAL_TABLES,
    PROJECTS,
    Table,
)
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
    WorkingSet,
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
    def open_states(self, old: At, new: At) -> AbstractContextManager[ComparedStates]:
        """The two states, as they are at the beginning; each working set is a dirty branch's.

        Raises as `BaseSession.require`.
        """

    def compute_diff(self, old: At, new: At) -> Difference:
        """What turns `old` into `new`."""
        with self.open_states(old, new) as sides:
            documents = merge_table_changes(sides.diff_documents(), sides.diff_logical_tables())
            return Difference(
                make_changes(CollectionChange, sides.diff_table(COLLECTIONS)),
                make_changes(DocumentChange, documents),
                make_changes(ProjectChange, sides.diff_table(PROJECTS)),
            )

    def diff(self, old: At, new: At) -> Difference:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, WorkingSet) or isinstance(new, WorkingSet):
            return self.compute_diff(old, new)
        if self._latest is None or self._latest[0] != (old, new):
            self._latest = (old, new), self.compute_diff(old, new)
        return self._latest[1]

    def diff_headers(self, old: At, new: At, *, times: bool = False) -> HeaderDifference:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, WorkingSet) and isinstance(new, WorkingSet):
            found = self.compute_diff(old, new)
            sides = {document.key: (document.before, document.after) for document in found.documents}
            return HeaderDifference(found.collections, make_changes(HeaderChange, drop_texts(sides)))
        with self.open_states(old, new) as compared:  # without reading the texts; one side at least is a revision
            documents = merge_table_changes(
                compared.diff_headers(times=times), drop_texts(compared.diff_logical_tables(times=times))
            )
            return HeaderDifference(
                make_changes(CollectionChange, compared.diff_table(COLLECTIONS)), make_changes(HeaderChange, documents)
            )

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, WorkingSet) or isinstance(new, WorkingSet):
            return self.compute_diff(old, new).count_changes()
        if self._latest is not None and self._latest[0] == (old, new):
            return self._latest[1].count_changes()
        with self.open_states(old, new) as sides:
            if sides.can_compare(DOCUMENTS):
                return sides.count_changes() + ChangeCounts.from_changes(
                    make_changes(DocumentChange, sides.diff_logical_tables())
                )
        return self.diff(old, new).count_changes()

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

    changed_sql: ClassVar[str]
    """SQL for what differs in `documents` by more than its times."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps = steps

    @abstractmethod
    def can_compare(self, table: Table) -> bool:
        """Whether the engine can compare the table, which costs by the number of changes."""

    @abstractmethod
    def read_differences(
        self, step: Any, table: Table, columns: tuple[Sequence[str], Sequence[str]], where: str
    ) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """The columns before and the columns after; `()` where a side has no row. A row may come
        twice.
        """

    @abstractmethod
    def read_both_tables(self, table: Table) -> tuple[Iterable[Row], Iterable[Row]]:
        """All rows of a table with one key, before and after."""

    @abstractmethod
    def find_old_document(self, key: DocumentKey) -> Document | None: ...

    @abstractmethod
    def count_changes(self) -> ChangeCounts:
        """The numbers of changed rows of `documents`, without reading them; between revisions."""

    def diff_table(self, table: Table) -> dict[Any, RowSides]:
        """The changed rows of a table, by key."""
        if self.can_compare(table):
            return select_unequal(self._all_steps(lambda step: self._changed_rows(step, table)))
        before, after = ({records.primary_key(each): each for each in side} for side in self.read_both_tables(table))
        return select_unequal({key: (before.get(key), after.get(key)) for key in before.keys() | after.keys()})

    def diff_logical_tables(self, *, times: bool = False) -> dict[DocumentKey, DocumentSides]:
        return diff_logical_rows(map(self.diff_table, LOGICAL_TABLES), times=times)

    def diff_documents(self) -> dict[DocumentKey, DocumentSides]:
        """The changed rows of `documents`, before and after."""
        columns = (HEADER_COLUMNS, DOCUMENTS.columns)
        found = self._all_steps(
            lambda step: self._changed_documents(step, columns, records.parse_document, self.changed_sql)
        )
        if len(self._steps) == 1:
            return found
        # The second step may undo what the first one does; what the first one found are headers.
        return {
            key: (before, after)
            for key, (before, after) in found.items()
            if (before or after) and not (before and after and is_equal_document(self.find_old_document(key), after))
        }

    def diff_headers(self, *, times: bool) -> dict[DocumentKey, HeaderSides]:
        """As `documents`, without the texts. `times`: also what differs in times alone."""
        columns, where = (HEADER_COLUMNS, HEADER_COLUMNS), "TRUE" if times else self.changed_sql
        return self._all_steps(lambda step: self._changed_documents(step, columns, records.parse_header, where))

    def _all_steps(self, changes: Callable[[Any], dict[Any, Any]]) -> dict[Any, Any]:
        return functools.reduce(join_steps, map(changes, self._steps), {})

    def _changed_documents(
        self, step: Any, columns: tuple[Sequence[str], Sequence[str]], after: Callable[[Sequence[Any]], Any], where: str
    ) -> dict[DocumentKey, Any]:
        return {
            (old or new)[:2]: (records.parse_header(old) if old else None, after(new) if new else None)
            for old, new in self.read_differences(step, DOCUMENTS, columns, where)
        }

    def _changed_rows(self, step: Any, table: Table) -> dict[Any, RowSides]:
        found: dict[Any, RowSides] = {}
        for old, new in self.read_differences(step, table, (table.columns, table.columns), "TRUE"):
            before = records.parse_record(table, old) if old else None
            after = records.parse_record(table, new) if new else None
            if row := after or before:
                found[records.primary_key(row)] = (before, after)
        return found


def make_changes(make: type[Any], sides: Mapping[Any, tuple[Record | None, Record | None]]) -> tuple[Any, ...]:
    """Records of a kind of change (`CollectionChange`, …), sorted by key."""
    # Code points order as UTF-8 bytes do.
    return tuple(make(_kind_of(*sides[key]), *sides[key]) for key in sorted(sides))


def _kind_of(before: object | None, after: object | None) -> ChangeKind:
    if before is None:
        return "added"
    return "removed" if after is None else "modified"


def join_steps(
    first: Mapping[Any, tuple[_Before | None, _After | None]],
    second: Mapping[Any, tuple[_Before | None, _After | None]],
) -> dict[Any, tuple[_Before | None, _After | None]]:
    """For each key in either: what stood before the first, and what stands after the second."""
    sides = dict(first)
    for key, (before, after) in second.items():
        sides[key] = (sides[key][0] if key in sides else before, after)
    return sides


def select_unequal(sides: Mapping[Any, RowSides]) -> dict[Any, RowSides]:
    return {key: pair for key, pair in sides.items() if pair[0] != pair[1]}


def diff_logical_rows(
    tables: Iterable[Mapping[Any, tuple[Any, Any]]], *, times: bool = False
) -> dict[DocumentKey, DocumentSides]:
    """The changed rows of `tables.LOGICAL`, which are documents, as changes of documents.

    One that implies another collection than before is removed there and added here. `times`: what
    differs in its times alone counts as changed.
    """
    found: dict[DocumentKey, DocumentSides] = {}
    for before, after in itertools.chain.from_iterable(table.values() for table in tables):
        if before and after and before.key == after.key:
            if times or not is_equal_document(before, after):
                found[after.key] = before.header, after
            continue
        if before:
            found[before.key] = before.header, None
        if after:
            found[after.key] = None, after
    return found


def drop_texts(sides: Mapping[DocumentKey, DocumentSides]) -> dict[DocumentKey, HeaderSides]:
    """The same changes without the texts."""
    return {key: (before, after.header if after else None) for key, (before, after) in sides.items()}


def merge_table_changes(
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


def is_equal_document(one: Document | None, other: Document) -> bool:
    fields = ("collection", "doc_id", *COMPARED_COLUMNS)
    return one is not None and all(getattr(one, field) == getattr(other, field) for field in fields)
