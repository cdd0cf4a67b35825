"""The differences between two revisions or working sets of a knowledge base."""

from __future__ import annotations

from vmrag_link.engines.doltlite import reading, schema
from vmrag_link.engines.doltlite.session import EngineSession
from vmrag_link.models import At, ChangeCounts, Difference, Working


class Comparison:
    """Keeps the latest difference between revisions: a sync asks for it several times."""

    def __init__(self, session: EngineSession) -> None:
        self._session = session
        self._latest: tuple[tuple[str, str], Difference] | None = None

    def diff(self, old: At, new: At) -> Difference:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, Working) or isinstance(new, Working):
            return difference(self._session, old, new)
        if self._latest is None or self._latest[0] != (old, new):
            self._latest = (old, new), difference(self._session, old, new)
        return self._latest[1]

    def count(self, old: At, new: At) -> ChangeCounts:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, Working) or isinstance(new, Working):
            return difference(self._session, old, new).counts()
        if self._latest is not None and self._latest[0] == (old, new):
            return self._latest[1].counts()
        for each in (old, new):
            self._session.reading(each).close()
        return reading.count_changes(self._session.main, old, new)

    def _committed(self, at: At) -> At:
        """A clean branch's head, in place of its working set, which has no name before the first
        write.
        """
        if isinstance(at, str):
            return at
        found = self._session.require_branch(at.branch)
        return at if found.dirty else found.head


def difference(session: EngineSession, old: At, new: At) -> Difference:
    """What turns `old` into `new`; each working set is a dirty branch's."""
    with session.reading(old) as before, session.reading(new) as after:
        schema.version(before)
        schema.version(after)
        # A connection sees one working set only: that of its own branch.
        if isinstance(new, str):
            return reading.difference(before, old if isinstance(old, str) else reading.WORKING, new)
        if isinstance(old, str):
            return reading.difference(after, old, reading.WORKING)
        if old == new:
            return reading.difference(after, reading.WORKING, reading.WORKING)
        # Any revision will do to meet at; the nearest is the old one's head.
        middle = session.require_branch(old.branch).head
        first = reading.difference(before, reading.WORKING, middle)
        second = reading.difference(after, middle, reading.WORKING)
        return reading.compose(first, second, lambda key: reading.document(before, *key))
