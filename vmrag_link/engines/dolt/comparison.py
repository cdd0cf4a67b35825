"""The differences between two revisions or working sets of a knowledge base.

If both sides have a table, Dolt compares it at a cost that grows with the number of changes.
Otherwise both sides are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from vmrag_link.engines.comparison import ComparedStates, DocumentKey, DocumentSides, HeaderSides, RowComparison
from vmrag_link.engines.dolt import reading
from vmrag_link.engines.dolt.connection import SqlConnection, quote_literals
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.tables import COMPARED_COLUMNS, DOCUMENTS, Table
from vmrag_link.models import At, ChangeCounts, Document, Row, WorkingSet

WORKING = "WORKING"
"""The working set of the branch where a statement runs. Those of other branches have no name."""


class DiffStep(NamedTuple):
    """Two states that a statement at a place can compare. Each is a revision or WORKING."""

    at: str | None
    old: str
    new: str


class DoltComparison(RowComparison[DoltSession]):
    @contextlib.contextmanager
    def open_states(self, old: At, new: At) -> Iterator[ComparedStates]:
        session = self._session
        branches = [state.branch for state in (old, new) if isinstance(state, WorkingSet)]
        # Rows come in pages, and uncommitted ones may change between two of them.
        with session.connection.snapshot(branches[0]) if branches else contextlib.nullcontext():
            both = session.read_version(old) == session.read_version(new) != 0
            yield DoltCompared(session, old, new, _plan_steps(session, old, new) if both else None)


class DoltCompared(ComparedStates):
    """Compares two states. Without `steps`, one side has no tables."""

    changed_sql = " OR ".join(
        (
            "diff_type <> 'modified'",
            *(
                f"NOT ({reading.column_sql(DOCUMENTS, column, 'to_')} <=> {reading.column_sql(DOCUMENTS, column, 'from_')})"
                for column in COMPARED_COLUMNS
                if column != "content_hash"  # it is computed from the content
            ),
        )
    )

    def __init__(self, session: DoltSession, old: At, new: At, steps: Sequence[DiffStep] | None) -> None:
        super().__init__(steps or ())
        self._session = session
        self._before = reading.DoltRows(session, old)
        self._after = reading.DoltRows(session, new)
        self._comparable = steps is not None

    def can_compare(self, table: Table) -> bool:  # noqa: ARG002  all tables, or none
        return self._comparable

    def read_differences(
        self, step: DiffStep, table: Table, columns: tuple[Sequence[str], Sequence[str]], where: str
    ) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return read_differences(self._session.connection, step, table, columns, where)

    def read_both_tables(self, table: Table) -> tuple[Iterable[Row], Iterable[Row]]:
        return self._before.read_table(table), self._after.read_table(table)

    def diff_documents(self) -> dict[DocumentKey, DocumentSides]:
        if self._comparable:
            return super().diff_documents()
        removed: dict[DocumentKey, DocumentSides] = {
            header.key: (header, None) for header in self._before.read_headers()
        }
        return removed | {document.key: (None, document) for document in self._after.read_documents()}

    def diff_headers(self, *, times: bool) -> dict[DocumentKey, HeaderSides]:
        if self._comparable:
            return super().diff_headers(times=times)
        removed: dict[DocumentKey, HeaderSides] = {header.key: (header, None) for header in self._before.read_headers()}
        return removed | {header.key: (None, header) for header in self._after.read_headers()}

    def find_old_document(self, key: DocumentKey) -> Document | None:
        return self._before.find_document(*key)

    def count_changes(self) -> ChangeCounts:
        (step,) = self._steps
        query = (
            f"SELECT diff_type, count(*) AS v FROM dolt_diff({quote_literals([step.old, step.new, DOCUMENTS.name])})"
            f" WHERE {self.changed_sql} GROUP BY diff_type"
        )
        rows = self._session.connection.query_rows(query)
        return ChangeCounts(**{str(row["diff_type"]): int(row["v"]) for row in rows})


def _plan_steps(session: DoltSession, old: At, new: At) -> list[DiffStep]:
    if isinstance(new, str):
        return [DiffStep(None, old, new) if isinstance(old, str) else DiffStep(old.branch, WORKING, new)]
    if isinstance(old, str):
        return [DiffStep(new.branch, old, WORKING)]
    if old == new:
        return []
    # Any revision would do as the middle. The nearest is the head of the old branch.
    middle = session.require_branch(old.branch).head
    return [DiffStep(old.branch, WORKING, middle), DiffStep(new.branch, middle, WORKING)]


def read_differences(
    connection: SqlConnection, step: DiffStep, table: Table, columns: tuple[Sequence[str], Sequence[str]], where: str
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Yield the columns before and after of each changed row; `()` if a side has no row."""
    before, after = columns
    sides = [*reading.select_list(table, before, "from_"), *reading.select_list(table, after, "to_")]
    query = f"SELECT {', '.join(['diff_type', *sides])} FROM dolt_diff({quote_literals([step.old, step.new, table.name])}) WHERE {where}"
    for row in reading.read_pages(connection, step.at, query):
        kind = row["diff_type"]
        yield (
            () if kind == "added" else reading.parse_values(row, table, before, "from_"),
            () if kind == "removed" else reading.parse_values(row, table, after, "to_"),
        )
