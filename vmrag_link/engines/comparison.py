"""Differences, of which the latest is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from vmrag_link.engines import changes
from vmrag_link.engines.base_session import BaseSession
from vmrag_link.models import At, ChangeCounts, Difference, HeaderChange, HeaderDifference, Working

S = TypeVar("S", bound=BaseSession)


class RowComparison(ABC, Generic[S]):
    """Keeps the latest difference between revisions: a sync asks for it several times."""

    def __init__(self, session: S) -> None:
        self._session = session
        self._latest: tuple[tuple[str, str], Difference] | None = None

    @abstractmethod
    def difference(self, old: At, new: At) -> Difference:
        """What turns `old` into `new`; each working set is a dirty branch's."""

    @abstractmethod
    def header_difference(self, old: At, new: At, *, times: bool) -> HeaderDifference:
        """As `difference`, without reading the texts; one side at least is a revision.

        `times`: see `Engine.diff_headers`.
        """

    @abstractmethod
    def changed(self, old: str, new: str) -> ChangeCounts:
        """The numbers of changed documents between two revisions, without reading them.

        Raises as `BaseSession.require`.
        """

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
            sides = {each.key: (each.before, each.after) for each in found.documents}
            return HeaderDifference(found.collections, changes.records_of(HeaderChange, changes.headers(sides)))
        return self.header_difference(old, new, times=times)

    def count(self, old: At, new: At) -> ChangeCounts:
        old, new = self._committed(old), self._committed(new)
        if isinstance(old, Working) or isinstance(new, Working):
            return self.difference(old, new).counts()
        if self._latest is not None and self._latest[0] == (old, new):
            return self._latest[1].counts()
        return self.changed(old, new)

    def _committed(self, at: At) -> At:
        """A clean branch's head, in place of its working set, which may have no name before the
        first write.
        """
        if isinstance(at, str):
            return at
        found = self._session.require_branch(at.branch)
        return at if found.dirty else found.head
