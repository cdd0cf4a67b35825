"""The differences between two revisions or working sets of a knowledge base.

The engine compares a table where both sides have the same version of it: that costs by the number
of changes. Otherwise both sides are read. That concerns the table of collections, which is small,
and tables that one side lacks, of which all rows are changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link.engines import comparison, records
from vmrag_link.engines.comparison import DocumentSides, HeaderSides, RowComparison
from vmrag_link.engines.doltlite import reading, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.session import DoltliteSession
from vmrag_link.engines.tables import COLLECTIONS, COMPARED_COLUMNS, DOCUMENTS, HEADER_COLUMNS, LOGICAL, PROJECTS, Table
from vmrag_link.errors import EngineFailed
from vmrag_link.models import (
    At,
    ChangeCounts,
    CollectionChange,
    Difference,
    DocumentChange,
    HeaderChange,
    HeaderDifference,
    ProjectChange,
    Record,
)

WORKING = "WORKING"
"""The working set of the branch on which the connection stands; no other branch's can be named."""

_CHANGED = " OR ".join(f"to_{column} IS NOT from_{column}" for column in COMPARED_COLUMNS)
_WHERE = f"WHERE diff_type <> 'modified' OR {_CHANGED}"


class _DiffStep(Record, frozen=True):
    """Two states that a connection can compare; each is a full revision hash or WORKING."""

    connection: Connection
    old: str
    new: str


class DoltliteComparison(RowComparison[DoltliteSession]):
    """Compares by the engine's own tables of differences."""

    def difference(self, old: At, new: At) -> Difference:
        with _compared(self._session, old, new) as sides:
            documents = _changed_documents(sides.steps, sides.before)
            return Difference(
                comparison.records_of(CollectionChange, sides.rows(COLLECTIONS)),
                comparison.records_of(DocumentChange, comparison.of_all_tables(documents, sides.logical())),
                comparison.records_of(ProjectChange, sides.rows(PROJECTS)),
            )

    def header_difference(self, old: At, new: At, *, times: bool) -> HeaderDifference:
        with _compared(self._session, old, new) as sides:
            stored = _changed_headers(*sides.steps, times=times)
            documents = comparison.of_all_tables(stored, comparison.headers(sides.logical(times=times)))
            return HeaderDifference(
                comparison.records_of(CollectionChange, sides.rows(COLLECTIONS)),
                comparison.records_of(HeaderChange, documents),
            )

    def changed(self, old: str, new: str) -> ChangeCounts:
        with _compared(self._session, old, new) as sides:
            others = comparison.records_of(DocumentChange, sides.logical())
            return _count_changes(self._session.main, old, new) + ChangeCounts.of(others)


class _Compared(Record, frozen=True):
    """Two states, `versions` of their schema, and the steps from the one to the other."""

    before: Connection
    after: Connection
    steps: list[_DiffStep]
    versions: tuple[int, int]

    def rows(self, table: Table) -> Mapping[Any, tuple[Any, Any]]:
        """The changed rows of a table, by key."""
        if self.versions[0] == self.versions[1]:
            return _changed_rows(self.steps, table, self.versions[0]) if self.versions[0] >= table.since else {}
        return _all_changed_rows(self.before, self.after, table)

    def logical(self, *, times: bool = False) -> dict[comparison.DocumentKey, comparison.DocumentSides]:
        return comparison.logical(map(self.rows, LOGICAL), times=times)


@contextlib.contextmanager
def _compared(session: DoltliteSession, old: At, new: At) -> Iterator[_Compared]:
    if isinstance(old, str) and isinstance(new, str) and session.as_at_the_root(old, new):
        version = schema.version(session.main)
        yield _Compared(session.main, session.main, [_DiffStep(session.main, old, new)], (version, version))
        return
    with session.reading(old) as before, session.reading(new) as after:
        steps = _steps(session, before, after, old, new)
        yield _Compared(before, after, steps, (schema.version(before), schema.version(after)))


def _steps(session: DoltliteSession, before: Connection, after: Connection, old: At, new: At) -> list[_DiffStep]:
    """A connection sees one working set only: that of its own branch."""
    if isinstance(new, str):
        return [_DiffStep(before, old if isinstance(old, str) else WORKING, new)]
    if isinstance(old, str):
        return [_DiffStep(after, old, WORKING)]
    if old == new:
        return [_DiffStep(after, WORKING, WORKING)]
    # Any revision will do to meet at; the nearest is the old one's head.
    middle = session.require_branch(old.branch).head
    return [_DiffStep(before, WORKING, middle), _DiffStep(after, middle, WORKING)]


def _count_changes(connection: Connection, old: str, new: str) -> ChangeCounts:
    """The numbers of changed rows of `documents` between two revisions."""
    sql = (
        "SELECT diff_type, count(*) FROM dolt_diff_documents(?, ?) "  # noqa: S608  our own names
        f"{_WHERE} GROUP BY diff_type"
    )
    return ChangeCounts(**{kind: int(number) for kind, number in connection.execute(sql, (old, new))})


def _changed_documents(steps: Sequence[_DiffStep], start: Connection) -> dict[tuple[str, str], DocumentSides]:
    """The changed documents, before and after. `start` reads the state before the first step."""
    found = [_step_documents(step) for step in steps]
    if len(found) == 1:
        return found[0]
    # The second step may undo what the first one does, and what the first one found are headers.
    return {
        key: (before, after)
        for key, (before, after) in comparison.joined(*found).items()
        if (before or after) and not (before and after and comparison.equal(reading.document(start, *key), after))
    }


def _changed_headers(step: _DiffStep, *, times: bool = False) -> dict[tuple[str, str], HeaderSides]:
    """As `_changed_documents`, without the texts. `times`: also what differs in times alone."""
    columns = [f"from_{each}" for each in HEADER_COLUMNS], [f"to_{each}" for each in HEADER_COLUMNS]
    return {
        (before or after)[:2]: (
            records.header(before) if before else None,
            records.header(after) if after else None,
        )
        for before, after in _differing(step, DOCUMENTS.name, columns, "" if times else _WHERE)
    }


def _changed_rows(steps: Sequence[_DiffStep], table: Table, version: int) -> dict[Any, comparison.RowSides]:
    """The changed rows of a table, before and after, where both sides have this version."""
    found = [_step_rows(step, table, version) for step in steps]
    return comparison.unequal(found[0] if len(found) == 1 else comparison.joined(*found))


def _all_changed_rows(before: Connection, after: Connection, table: Table) -> dict[Any, comparison.RowSides]:
    """As `_changed_rows`, where the sides have different versions."""
    old, new = ({records.primary_key(each): each for each in reading.table(side, table)} for side in (before, after))
    return comparison.unequal({key: (old.get(key), new.get(key)) for key in old.keys() | new.keys()})


def _step_documents(step: _DiffStep) -> dict[tuple[str, str], DocumentSides]:
    columns = [f"from_{each}" for each in HEADER_COLUMNS], [f"to_{each}" for each in DOCUMENTS.columns]
    return {
        (before or after)[:2]: (
            records.header(before) if before else None,
            records.document(after) if after else None,
        )
        for before, after in _differing(step, DOCUMENTS.name, columns, _WHERE)
    }


def _step_rows(step: _DiffStep, table: Table, version: int) -> dict[Any, comparison.RowSides]:
    columns = table.selected(version, "from_"), table.selected(version, "to_")
    found = {}
    for before, after in _differing(step, table.name, columns, ""):
        old = records.record(table, before) if before else None
        new = records.record(table, after) if after else None
        if row := new or old:
            found[records.primary_key(row)] = (old, new)
    return found


def _differing(
    step: _DiffStep, table: str, columns: tuple[Sequence[str], Sequence[str]], where: str
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """The columns before and the columns after; `()` where a side has no row. A row may come
    twice.
    """
    before, after = columns
    selected = ("diff_type", *before, *after)
    rest = f"FROM dolt_diff_{table}(?, ?) {where}"
    for kind, *row in _fetched(step.connection, selected, rest, (step.old, step.new)):
        old, new = tuple(row[: len(before)]), tuple(row[len(before) :])
        yield () if kind == "added" else old, () if kind == "removed" else new


def _fetched(connection: Connection, columns: Sequence[str], rest: str, args: tuple[str, ...]) -> Iterator[list[Any]]:
    """Rows, fetched as JSON: one value a row takes a fifth of the time of one a column.

    Where one is no JSON (bytes, broken UTF-8), all are fetched as they are: some come twice.
    """
    decode = msgspec.json.Decoder(list[Any]).decode
    try:
        for (row,) in connection.stream(f"SELECT json_array({', '.join(columns)}) {rest}", args):
            yield decode(row)
    except (EngineFailed, UnicodeDecodeError, msgspec.DecodeError):
        for other in connection.stream(f"SELECT {', '.join(columns)} {rest}", args):
            yield list(other)
