"""The differences between two revisions or working sets of a knowledge base."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vmrag_link.engines import changes
from vmrag_link.engines.comparison import RowComparison
from vmrag_link.engines.doltlite import differing, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.differing import WORKING, DiffStep
from vmrag_link.engines.doltlite.session import DoltliteSession
from vmrag_link.engines.tables import COLLECTIONS, LOGICAL, PROJECTS, Table
from vmrag_link.models import (
    At,
    ChangeCounts,
    CollectionChange,
    Difference,
    DocumentChange,
    HeaderChange,
    HeaderDifference,
    ProjectChange,
)


class DoltliteComparison(RowComparison[DoltliteSession]):
    def difference(self, old: At, new: At) -> Difference:
        return difference(self._session, old, new)

    def header_difference(self, old: At, new: At, *, times: bool) -> HeaderDifference:
        with _compared(self._session, old, new) as sides:
            stored = differing.headers(*sides.steps, times=times)
            documents = changes.of_all_tables(stored, changes.headers(sides.logical(times=times)))
            return HeaderDifference(
                changes.records_of(CollectionChange, sides.rows(COLLECTIONS)),
                changes.records_of(HeaderChange, documents),
            )

    def changed(self, old: str, new: str) -> ChangeCounts:
        with _compared(self._session, old, new) as sides:
            others = changes.records_of(DocumentChange, sides.logical())
            return differing.count_changes(self._session.main, old, new) + ChangeCounts.of(others)


def difference(session: DoltliteSession, old: At, new: At) -> Difference:
    """What turns `old` into `new`; each working set is a dirty branch's."""
    with _compared(session, old, new) as sides:
        documents = differing.documents(sides.steps, sides.before)
        return Difference(
            changes.records_of(CollectionChange, sides.rows(COLLECTIONS)),
            changes.records_of(DocumentChange, changes.of_all_tables(documents, sides.logical())),
            changes.records_of(ProjectChange, sides.rows(PROJECTS)),
        )


class _Compared(NamedTuple):
    """Two states, `versions` of their schema, and the steps from the one to the other."""

    before: Connection
    after: Connection
    steps: list[DiffStep]
    versions: tuple[int, int]

    def rows(self, table: Table) -> Mapping[Any, tuple[Any, Any]]:
        """The changed rows of a table, by key."""
        if self.versions[0] == self.versions[1]:
            return differing.table(self.steps, table, self.versions[0]) if self.versions[0] >= table.since else {}
        return differing.whole_table(self.before, self.after, table)

    def logical(self, *, times: bool = False) -> dict[changes.DocumentKey, changes.DocumentSides]:
        return changes.logical(map(self.rows, LOGICAL), times=times)


@contextlib.contextmanager
def _compared(session: DoltliteSession, old: At, new: At) -> Iterator[_Compared]:
    if isinstance(old, str) and isinstance(new, str) and session.as_at_the_root(old, new):
        version = schema.version(session.main)
        yield _Compared(session.main, session.main, [DiffStep(session.main, old, new)], (version, version))
        return
    with session.reading(old) as before, session.reading(new) as after:
        steps = _steps(session, before, after, old, new)
        yield _Compared(before, after, steps, (schema.version(before), schema.version(after)))


def _steps(session: DoltliteSession, before: Connection, after: Connection, old: At, new: At) -> list[DiffStep]:
    """A connection sees one working set only: that of its own branch."""
    if isinstance(new, str):
        return [DiffStep(before, old if isinstance(old, str) else WORKING, new)]
    if isinstance(old, str):
        return [DiffStep(after, old, WORKING)]
    if old == new:
        return [DiffStep(after, WORKING, WORKING)]
    # Any revision will do to meet at; the nearest is the old one's head.
    middle = session.require_branch(old.branch).head
    return [DiffStep(before, WORKING, middle), DiffStep(after, middle, WORKING)]
