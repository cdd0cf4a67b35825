"""The differences between two revisions or working sets of a knowledge base.

Dolt compares a table where both sides have it: that costs by the number of changes. Otherwise both
sides are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vmrag_link.engines import comparison, records
from vmrag_link.engines.comparison import DocumentSides, HeaderSides, RowComparison, RowSides
from vmrag_link.engines.dolt import reading
from vmrag_link.engines.dolt.connection import SqlConnection, literals
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.tables import COLLECTIONS, COMPARED_COLUMNS, DOCUMENTS, HEADER_COLUMNS, LOGICAL, PROJECTS, Table
from vmrag_link.models import (
    At,
    ChangeCounts,
    CollectionChange,
    Difference,
    DocumentChange,
    HeaderChange,
    HeaderDifference,
    ProjectChange,
    Working,
)

WORKING = "WORKING"
"""The working set of the branch at which a statement runs; no other branch's can be named."""

_CHANGED = " OR ".join(
    f"NOT ({reading.column_sql(DOCUMENTS, column, 'to_')} <=> {reading.column_sql(DOCUMENTS, column, 'from_')})"
    for column in COMPARED_COLUMNS
    if column != "content_hash"  # it follows from the content
)
_WHERE = f"diff_type <> 'modified' OR {_CHANGED}"


class Comparable(NamedTuple):
    """Two states that a statement at a place can compare; each is a revision or WORKING."""

    at: str | None
    old: str
    new: str


class DoltComparison(RowComparison[DoltSession]):
    def difference(self, old: At, new: At) -> Difference:
        return difference(self._session, old, new)

    def header_difference(self, old: At, new: At, *, times: bool) -> HeaderDifference:
        with _compared(self._session, old, new) as sides:
            stored = _headers(sides, times=times)
            documents = comparison.of_all_tables(stored, comparison.headers(sides.logical(times=times)))
            return HeaderDifference(
                comparison.records_of(CollectionChange, sides.rows(COLLECTIONS)),
                comparison.records_of(HeaderChange, documents),
            )

    def changed(self, old: str, new: str) -> ChangeCounts:
        for each in (old, new):
            self._session.require(each)
        if not (self._session.version(old) and self._session.version(new)):
            return self.diff(old, new).counts()
        query = (
            f"SELECT diff_type, count(*) AS v FROM dolt_diff({literals([old, new, DOCUMENTS.name])})"
            f" WHERE {_WHERE} GROUP BY diff_type"
        )
        rows = self._session.connection.rows(query)
        stored = ChangeCounts(**{str(row["diff_type"]): int(row["v"]) for row in rows})
        steps = _steps(self._session, old, new)
        others = comparison.logical(_rows(self._session, steps, table) for table in LOGICAL)
        return stored + ChangeCounts.of(comparison.records_of(DocumentChange, others))


def difference(session: DoltSession, old: At, new: At) -> Difference:
    """What turns `old` into `new`, both as they are at the beginning."""
    with _compared(session, old, new) as sides:
        stored = _documents(session, sides.steps, old) if sides.comparable else _whole_documents(session, old, new)
        return Difference(
            comparison.records_of(CollectionChange, sides.rows(COLLECTIONS)),
            comparison.records_of(DocumentChange, comparison.of_all_tables(stored, sides.logical())),
            comparison.records_of(ProjectChange, sides.rows(PROJECTS)),
        )


class _Compared(NamedTuple):
    """Two states; `comparable`: Dolt can compare them, by these steps."""

    session: DoltSession
    old: At
    new: At
    comparable: bool
    steps: list[Comparable]

    def rows(self, table: Table) -> Mapping[Any, RowSides]:
        """The changed rows of a table, by key."""
        if self.comparable:
            return _rows(self.session, self.steps, table)
        return _whole(self.session, self.old, self.new, table)

    def logical(self, *, times: bool = False) -> dict[comparison.DocumentKey, DocumentSides]:
        return comparison.logical(map(self.rows, LOGICAL), times=times)


@contextlib.contextmanager
def _compared(session: DoltSession, old: At, new: At) -> Iterator[_Compared]:
    branches = [each.branch for each in (old, new) if isinstance(each, Working)]
    # Rows come in pages, and uncommitted ones may change between two of them.
    with session.connection.snapshot(branches[0]) if branches else contextlib.nullcontext():
        both = session.version(old) == session.version(new) != 0
        yield _Compared(session, old, new, both, _steps(session, old, new) if both else [])


def _steps(session: DoltSession, old: At, new: At) -> list[Comparable]:
    if isinstance(new, str):
        return [Comparable(None, old, new) if isinstance(old, str) else Comparable(old.branch, WORKING, new)]
    if isinstance(old, str):
        return [Comparable(new.branch, old, WORKING)]
    if old == new:
        return []
    # Any revision will do to meet at; the nearest is the old one's head.
    middle = session.require_branch(old.branch).head
    return [Comparable(old.branch, WORKING, middle), Comparable(new.branch, middle, WORKING)]


def _documents(session: DoltSession, steps: Sequence[Comparable], old: At) -> dict[tuple[str, str], DocumentSides]:
    """The changed documents, before and after."""
    found = [_changed_documents(session.connection, step) for step in steps]
    if len(found) < 2:  # noqa: PLR2004  one step, or none
        return found[0] if found else {}
    # The second step may undo what the first one does, and what the first one found are headers.
    return {
        key: (before, after)
        for key, (before, after) in comparison.joined(*found).items()
        if (before or after)
        and not (before and after and comparison.equal(reading.document(session, old, *key), after))
    }


def _changed_documents(connection: SqlConnection, step: Comparable) -> dict[tuple[str, str], DocumentSides]:
    found: dict[tuple[str, str], DocumentSides] = {}
    for old, new in differing(connection, step, DOCUMENTS, (HEADER_COLUMNS, DOCUMENTS.columns), _WHERE):
        before, after = records.header(old) if old else None, records.document(new) if new else None
        found[(old or new)[0], (old or new)[1]] = before, after
    return found


def _headers(sides: _Compared, *, times: bool) -> dict[tuple[str, str], HeaderSides]:
    """The changed documents without their texts; one side at least is a revision."""
    found: dict[tuple[str, str], HeaderSides] = {}
    if not sides.comparable:
        found |= {each.key: (each, None) for each in reading.headers(sides.session, sides.old, None)}
        return found | {each.key: (None, each) for each in reading.headers(sides.session, sides.new, None)}
    (step,) = sides.steps
    columns, where = (HEADER_COLUMNS, HEADER_COLUMNS), "TRUE" if times else _WHERE
    for old, new in differing(sides.session.connection, step, DOCUMENTS, columns, where):
        before, after = records.header(old) if old else None, records.header(new) if new else None
        found[(old or new)[0], (old or new)[1]] = before, after
    return found


def _rows(session: DoltSession, steps: Sequence[Comparable], table: Table) -> Mapping[Any, RowSides]:
    found = [_changed_rows(session.connection, step, table) for step in steps]
    if not found:
        return {}
    return comparison.unequal(found[0] if len(found) == 1 else comparison.joined(*found))


def _changed_rows(connection: SqlConnection, step: Comparable, table: Table) -> dict[Any, RowSides]:
    found: dict[Any, RowSides] = {}
    for old, new in differing(connection, step, table, (table.columns, table.columns), "TRUE"):
        before = records.record(table, old) if old else None
        after = records.record(table, new) if new else None
        if row := after or before:
            found[records.primary_key(row)] = (before, after)
    return found


def _whole(session: DoltSession, old: At, new: At, table: Table) -> Mapping[Any, RowSides]:
    before, after = (
        {records.primary_key(each): each for each in reading.table(session, at, table)} for at in (old, new)
    )
    return comparison.unequal({key: (before.get(key), after.get(key)) for key in before.keys() | after.keys()})


def _whole_documents(session: DoltSession, old: At, new: At) -> dict[tuple[str, str], DocumentSides]:
    """Where one side has no tables, all documents of the other one."""
    found: dict[tuple[str, str], DocumentSides] = {
        each.key: (each, None) for each in reading.headers(session, old, None)
    }
    return found | {each.key: (None, each) for each in reading.documents(session, new, None)}


def differing(
    connection: SqlConnection, step: Comparable, table: Table, columns: tuple[Sequence[str], Sequence[str]], where: str
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """The columns before and the columns after; `()` where a side has no row."""
    before, after = columns
    sides = [*reading.select_list(table, before, "from_"), *reading.select_list(table, after, "to_")]
    query = f"SELECT {', '.join(['diff_type', *sides])} FROM dolt_diff({literals([step.old, step.new, table.name])}) WHERE {where}"
    for row in reading.pages(connection, step.at, query):
        kind = row["diff_type"]
        yield (
            () if kind == "added" else reading.values(row, table, before, "from_"),
            () if kind == "removed" else reading.values(row, table, after, "to_"),
        )
