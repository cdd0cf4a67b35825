"""Differences between two places, built from the rows before and after.

`RowComparison` is what an engine offers, and caches the latest difference. `ComparedStates` are two
opened places. The *sides* of a row are the row before and the row after, or None.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

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
"""A row before and after; None if that side has no row."""

DocumentSides = tuple[DocumentHeader | None, Document | None]
HeaderSides = tuple[DocumentHeader | None, DocumentHeader | None]
DocumentKey = tuple[str, str]

_Before = TypeVar("_Before")
_After = TypeVar("_After")
S = TypeVar("S", bound=BaseSession[Any])


class _Cached(NamedTuple):
    old: str
    new: str
    difference: Difference


class RowComparison(ABC, Generic[S]):
    """Computes differences, and keeps the latest one: a sync uses it several times."""

    def __init__(self, session: S) -> None:
        self._session = session
        self._latest: _Cached | None = None

    @abstractmethod
    def open_states(self, old: At, new: At) -> AbstractContextManager[ComparedStates]:
        """Open the two states, as they are at the beginning.

        Each working set belongs to a dirty branch. Raises `RevisionMissing`, `BranchMissing`,
        `KnowledgeRefused` and `SchemaTooNew`.
        """

    def compute_diff(self, old: At, new: At) -> Difference:
        """Return the changes that turn `old` into `new`."""
        with self.open_states(old, new) as states:
            documents = merge_table_changes(states.diff_documents(), states.diff_logical_tables())
            return Difference(
                make_changes(CollectionChange, states.diff_table(COLLECTIONS)),
                make_changes(DocumentChange, documents),
                make_changes(ProjectChange, states.diff_table(PROJECTS)),
            )

    def diff(self, old: At, new: At) -> Difference:
        old, new = self._resolve_clean_branch(old), self._resolve_clean_branch(new)
        if isinstance(old, WorkingSet) or isinstance(new, WorkingSet):
            return self.compute_diff(old, new)
        if self._latest is None or self._latest[:2] != (old, new):
            self._latest = _Cached(old, new, self.compute_diff(old, new))
        return self._latest.difference

    def diff_headers(self, old: At, new: At, *, times: bool = False) -> HeaderDifference:
        old, new = self._resolve_clean_branch(old), self._resolve_clean_branch(new)
        if isinstance(old, WorkingSet) and isinstance(new, WorkingSet):
            difference = self.compute_diff(old, new)
            sides = {document.key: (document.before, document.after) for document in difference.documents}
            return HeaderDifference(difference.collections, make_changes(HeaderChange, drop_texts(sides)))
        # At least one side is a revision, so the texts need not be read.
        with self.open_states(old, new) as states:
            documents = merge_table_changes(
                states.diff_headers(times=times), drop_texts(states.diff_logical_tables(times=times))
            )
            return HeaderDifference(
                make_changes(CollectionChange, states.diff_table(COLLECTIONS)), make_changes(HeaderChange, documents)
            )

    def count_changes(self, old: At, new: At) -> ChangeCounts:
        old, new = self._resolve_clean_branch(old), self._resolve_clean_branch(new)
        if isinstance(old, WorkingSet) or isinstance(new, WorkingSet):
            return self.compute_diff(old, new).count_changes()
        if self._latest is not None and self._latest[:2] == (old, new):
            return self._latest.difference.count_changes()
        with self.open_states(old, new) as states:
            if states.can_compare(DOCUMENTS):
                return states.count_changes() + ChangeCounts.from_changes(
                    make_changes(DocumentChange, states.diff_logical_tables())
                )
        return self.diff(old, new).count_changes()

    def _resolve_clean_branch(self, at: At) -> At:
        """Return the head of a clean branch instead of its working set.

        Such a working set may have no name before the first write.
        """
        if isinstance(at, str):
            return at
        branch = self._session.require_branch(at.branch)
        return at if branch.dirty else branch.head


class ComparedStates(ABC):
    """Two states, and the `steps` by which an engine gets from one to the other.

    There is one step, or two that meet at a revision, or none between equal states.
    """

    changed_sql: ClassVar[str]
    """SQL condition for rows of `documents` that differ in more than their times."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps = steps

    @abstractmethod
    def can_compare(self, table: Table) -> bool:
        """Return whether the engine can compare the table.

        Then the cost grows with the number of changes. Otherwise all rows are read.
        """

    @abstractmethod
    def read_differences(
        self, step: Any, table: Table, columns: tuple[Sequence[str], Sequence[str]], where: str
    ) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yield the columns before and after of each changed row; `()` if a side has no row.

        A row may be yielded twice.
        """

    @abstractmethod
    def read_both_tables(self, table: Table) -> tuple[Iterable[Row], Iterable[Row]]:
        """Return all rows of a table with one key column, before and after."""

    @abstractmethod
    def find_old_document(self, key: DocumentKey) -> Document | None: ...

    @abstractmethod
    def count_changes(self) -> ChangeCounts:
        """Return the numbers of changed rows of `documents`, without reading them.

        Only between revisions.
        """

    def diff_table(self, table: Table) -> dict[Any, RowSides]:
        """Return the changed rows of a table, by key."""
        if self.can_compare(table):
            return select_unequal(self._combine_steps(lambda step: self._read_changed_rows(step, table)))
        before, after = ({records.primary_key(row): row for row in rows} for rows in self.read_both_tables(table))
        return select_unequal({key: (before.get(key), after.get(key)) for key in before.keys() | after.keys()})

    def diff_logical_tables(self, *, times: bool = False) -> dict[DocumentKey, DocumentSides]:
        """Return the changed issue logs and knowledge docs as changes of documents."""
        return diff_logical_rows(map(self.diff_table, LOGICAL_TABLES), times=times)

    def diff_documents(self) -> dict[DocumentKey, DocumentSides]:
        """Return the changed rows of `documents`, before and after."""
        columns = (HEADER_COLUMNS, DOCUMENTS.columns)
        changes = self._combine_steps(
            lambda step: self._read_changed_documents(step, columns, records.parse_document, self.changed_sql)
        )
        if len(self._steps) == 1:
            return changes
        # The second step may undo changes of the first one. The old sides are headers.
        return {
            key: (before, after)
            for key, (before, after) in changes.items()
            if (before or after) and not (before and after and is_equal_document(self.find_old_document(key), after))
        }

    def diff_headers(self, *, times: bool) -> dict[DocumentKey, HeaderSides]:
        """Return the changed rows of `documents` without their texts.

        With `times`, rows that differ only in their times are included.
        """
        columns, where = (HEADER_COLUMNS, HEADER_COLUMNS), "TRUE" if times else self.changed_sql
        return self._combine_steps(
            lambda step: self._read_changed_documents(step, columns, records.parse_header, where)
        )

    def _combine_steps(self, changes: Callable[[Any], dict[Any, Any]]) -> dict[Any, Any]:
        return functools.reduce(join_steps, map(changes, self._steps), {})

    def _read_changed_documents(
        self, step: Any, columns: tuple[Sequence[str], Sequence[str]], after: Callable[[Sequence[Any]], Any], where: str
    ) -> dict[DocumentKey, Any]:
        return {
            (old or new)[:2]: (records.parse_header(old) if old else None, after(new) if new else None)
            for old, new in self.read_differences(step, DOCUMENTS, columns, where)
        }

    def _read_changed_rows(self, step: Any, table: Table) -> dict[Any, RowSides]:
        changes: dict[Any, RowSides] = {}
        for old, new in self.read_differences(step, table, (table.columns, table.columns), "TRUE"):
            before = records.parse_record(table, old) if old else None
            after = records.parse_record(table, new) if new else None
            if row := after or before:
                changes[records.primary_key(row)] = (before, after)
        return changes


def make_changes(make: type[Any], sides: Mapping[Any, tuple[Record | None, Record | None]]) -> tuple[Any, ...]:
    """Return records of a kind of change (for example `CollectionChange`), sorted by key."""
    # Code points have the same order as UTF-8 bytes.
    return tuple(make(_kind_of(*sides[key]), *sides[key]) for key in sorted(sides))


def _kind_of(before: object | None, after: object | None) -> ChangeKind:
    if before is None:
        return "added"
    return "removed" if after is None else "modified"


def join_steps(
    first: Mapping[Any, tuple[_Before | None, _After | None]],
    second: Mapping[Any, tuple[_Before | None, _After | None]],
) -> dict[Any, tuple[_Before | None, _After | None]]:
    """Combine two steps: return the sides before the first and after the second, by key."""
    sides = dict(first)
    for key, (before, after) in second.items():
        sides[key] = (sides[key][0] if key in sides else before, after)
    return sides


def select_unequal(sides: Mapping[Any, RowSides]) -> dict[Any, RowSides]:
    return {key: pair for key, pair in sides.items() if pair[0] != pair[1]}


def diff_logical_rows(
    tables: Iterable[Mapping[Any, tuple[Any, Any]]], *, times: bool = False
) -> dict[DocumentKey, DocumentSides]:
    """Convert changed rows of `tables.LOGICAL_TABLES` to changes of documents.

    A row that implies another collection than before is removed there and added here. With `times`,
    rows that differ only in their times are included.
    """
    changes: dict[DocumentKey, DocumentSides] = {}
    for before, after in itertools.chain.from_iterable(table.values() for table in tables):
        if before and after and before.key == after.key:
            if times or not is_equal_document(before, after):
                changes[after.key] = before.header, after
            continue
        if before:
            changes[before.key] = before.header, None
        if after:
            changes[after.key] = None, after
    return changes


def drop_texts(sides: Mapping[DocumentKey, DocumentSides]) -> dict[DocumentKey, HeaderSides]:
    """Return the same changes without the texts."""
    return {key: (before, after.header if after else None) for key, (before, after) in sides.items()}


def merge_table_changes(
    stored: Mapping[DocumentKey, tuple[DocumentHeader | None, _After | None]],
    others: Mapping[DocumentKey, tuple[DocumentHeader | None, _After | None]],
) -> dict[DocumentKey, tuple[DocumentHeader | None, _After | None]]:
    """Merge the changes of `documents` with those of the logical tables.

    A document that only moved to another table is one change.
    """
    merged = dict(stored)
    for key, (before, after) in others.items():
        stored_sides = merged.get(key, (None, None))
        merged[key] = (before or stored_sides[0], after or stored_sides[1])
    return merged


def is_equal_document(one: Document | None, other: Document) -> bool:
    fields = ("collection", "doc_id", *COMPARED_COLUMNS)
    return one is not None and all(getattr(one, field) == getattr(other, field) for field in fields)
