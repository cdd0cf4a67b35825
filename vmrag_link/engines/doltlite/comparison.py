"""The differences between two revisions or working sets of a knowledge base."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmrag_link.engines import changes
from vmrag_link.engines.comparison import RowComparison
from vmrag_link.engines.doltlite import differing, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.differing import WORKING, DiffStep
from vmrag_link.engines.doltlite.session import DoltliteSession
from vmrag_link.engines.tables import COLLECTIONS, ENTRIES, Table
from vmrag_link.models import (
    At,
    ChangeCounts,
    CollectionChange,
    Difference,
    DocumentChange,
    EntryChange,
)


class DoltliteComparison(RowComparison[DoltliteSession]):
    def difference(self, old: At, new: At) -> Difference:
        return difference(self._session, old, new)

    def changed(self, old: str, new: str) -> ChangeCounts:
        return differing.count_changes(self._session.main, old, new)


def difference(session: DoltliteSession, old: At, new: At) -> Difference:
    """What turns `old` into `new`; each working set is a dirty branch's."""
    with session.reading(old) as before, session.reading(new) as after:
        steps = _steps(session, before, after, old, new)
        versions = schema.version(before), schema.version(after)

        def rows(table: Table) -> Mapping[Any, tuple[Any, Any]]:
            if versions[0] == versions[1]:
                return differing.table(steps, table, versions[0]) if versions[0] >= table.since else {}
            return differing.whole_table(before, after, table)

        return Difference(
            changes.records_of(CollectionChange, rows(COLLECTIONS)),
            changes.records_of(DocumentChange, differing.documents(steps, before)),
            tuple(change for table in ENTRIES for change in changes.records_of(EntryChange, rows(table))),
        )


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
