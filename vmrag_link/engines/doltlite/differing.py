"""The changes between two revisions or working sets of a knowledge base, by key.

The engine compares a table where both sides have the same version of it: that costs by the number
of changes. Otherwise both sides are read. That concerns the table of collections, which is small,
and tables that one side lacks, of which all rows are changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from vmrag_link.engines import changes, records
from vmrag_link.engines.changes import DocumentSides, HeaderSides
from vmrag_link.engines.doltlite import reading
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.tables import COMPARED_COLUMNS, DOCUMENTS, HEADER_COLUMNS, Table
from vmrag_link.errors import EngineFailed
from vmrag_link.models import ChangeCounts

WORKING = "WORKING"
"""The working set of the branch on which the connection stands; no other branch's can be named."""

_CHANGED = " OR ".join(f"to_{column} IS NOT from_{column}" for column in COMPARED_COLUMNS)
_WHERE = f"WHERE diff_type <> 'modified' OR {_CHANGED}"


class DiffStep(NamedTuple):
    """Two states that a connection can compare; each is a full revision hash or WORKING."""

    connection: Connection
    old: str
    new: str


def count_changes(connection: Connection, old: str, new: str) -> ChangeCounts:
    """The numbers of changed rows of `documents` between two revisions."""
    sql = (
        "SELECT diff_type, count(*) FROM dolt_diff_documents(?, ?) "  # noqa: S608  our own names
        f"{_WHERE} GROUP BY diff_type"
    )
    return ChangeCounts(**{kind: int(number) for kind, number in connection.execute(sql, (old, new))})


def documents(steps: Sequence[DiffStep], start: Connection) -> dict[tuple[str, str], DocumentSides]:
    """The changed documents, before and after. `start` reads the state before the first step."""
    found = [_documents(step) for step in steps]
    if len(found) == 1:
        return found[0]
    # The second step may undo what the first one does, and what the first one found are headers.
    return {
        key: (before, after)
        for key, (before, after) in changes.joined(*found).items()
        if (before or after) and not (before and after and changes.equal(reading.document(start, *key), after))
    }


def headers(step: DiffStep, *, times: bool = False) -> dict[tuple[str, str], HeaderSides]:
    """As `documents`, without the texts; `times`: those that differ in their times alone, too."""
    columns = [f"from_{each}" for each in HEADER_COLUMNS], [f"to_{each}" for each in HEADER_COLUMNS]
    return {
        (before or after)[:2]: (
            records.header(before) if before else None,
            records.header(after) if after else None,
        )
        for before, after in _differing(step, DOCUMENTS.name, columns, "" if times else _WHERE)
    }


def table(steps: Sequence[DiffStep], table: Table, version: int) -> dict[Any, changes.RowSides]:
    """The changed rows of a table, before and after, where both sides have this version."""
    found = [_rows(step, table, version) for step in steps]
    return changes.unequal(found[0] if len(found) == 1 else changes.joined(*found))


def whole_table(before: Connection, after: Connection, table: Table) -> dict[Any, changes.RowSides]:
    """As `table`, where the sides have different versions."""
    old, new = ({records.primary_key(each): each for each in reading.table(side, table)} for side in (before, after))
    return changes.unequal({key: (old.get(key), new.get(key)) for key in old.keys() | new.keys()})


def _documents(step: DiffStep) -> dict[tuple[str, str], DocumentSides]:
    columns = [f"from_{each}" for each in HEADER_COLUMNS], [f"to_{each}" for each in DOCUMENTS.columns]
    return {
        (before or after)[:2]: (
            records.header(before) if before else None,
            records.document(after) if after else None,
        )
        for before, after in _differing(step, DOCUMENTS.name, columns, _WHERE)
    }


def _rows(step: DiffStep, table: Table, version: int) -> dict[Any, changes.RowSides]:
    columns = table.selected(version, "from_"), table.selected(version, "to_")
    found = {}
    for before, after in _differing(step, table.name, columns, ""):
        old = records.record(table, before) if before else None
        new = records.record(table, after) if after else None
        if row := new or old:
            found[records.primary_key(row)] = (old, new)
    return found


def _differing(
    step: DiffStep, table: str, columns: tuple[Sequence[str], Sequence[str]], where: str
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
