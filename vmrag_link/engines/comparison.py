"""Differences, of which the latest is kept, the rows before and after that they are made of, and a
fingerprint of what a revision holds, the same on every engine.

The fingerprint is of a set: rows come and go in any order, so that of a revision follows from its
parent's and from what differs. It is the multiplicative hash MuHash3072 (Bellare and Micciancio
1997, as in Bitcoin Core): each row is a number below a prime, the contents are their product.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from vmrag_link.engines.base import Engine
from vmrag_link.engines.base_session import BaseSession
from vmrag_link.engines.tables import COMPARED_COLUMNS
from vmrag_link.models import (
    At,
    ChangeCounts,
    ChangeKind,
    Collection,
    CollectionChange,
    Difference,
    Document,
    DocumentHeader,
    HeaderChange,
    HeaderDifference,
    Project,
    Record,
    Row,
    Working,
    canonical_json,
)

RowSides = tuple[Row | None, Row | None]
"""A row before and after; None where there is none."""

DocumentSides = tuple[DocumentHeader | None, Document | None]
HeaderSides = tuple[DocumentHeader | None, DocumentHeader | None]
DocumentKey = tuple[str, str]

_Before = TypeVar("_Before")
_After = TypeVar("_After")
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
            return HeaderDifference(found.collections, records_of(HeaderChange, headers(sides)))
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


def records_of(make: type[Any], sides: Mapping[Any, tuple[Record | None, Record | None]]) -> tuple[Any, ...]:
    """Records of a kind of change (`CollectionChange`, …), sorted by key."""
    # Code points order as UTF-8 bytes do.
    return tuple(make(_kind_of(*sides[key]), *sides[key]) for key in sorted(sides))


def _kind_of(before: object | None, after: object | None) -> ChangeKind:
    if before is None:
        return "added"
    return "removed" if after is None else "modified"


def joined(
    first: Mapping[Any, tuple[_Before | None, _After | None]],
    second: Mapping[Any, tuple[_Before | None, _After | None]],
) -> dict[Any, tuple[_Before | None, _After | None]]:
    """For each key in either: what stood before the first, and what stands after the second."""
    sides = dict(first)
    for key, (before, after) in second.items():
        sides[key] = (sides[key][0] if key in sides else before, after)
    return sides


def unequal(sides: Mapping[Any, RowSides]) -> dict[Any, RowSides]:
    return {key: pair for key, pair in sides.items() if pair[0] != pair[1]}


def logical(
    tables: Iterable[Mapping[Any, tuple[Any, Any]]], *, times: bool = False
) -> dict[DocumentKey, DocumentSides]:
    """The changed rows of `tables.LOGICAL`, which are documents, as changes of documents.

    One that implies another collection than before is removed there and added here. `times`: what
    differs in its times alone counts as changed.
    """
    found: dict[DocumentKey, DocumentSides] = {}
    for before, after in itertools.chain.from_iterable(each.values() for each in tables):
        if before and after and before.key == after.key:
            if times or not equal(before, after):
                found[after.key] = before.header, after
            continue
        if before:
            found[before.key] = before.header, None
        if after:
            found[after.key] = None, after
    return found


def headers(sides: Mapping[DocumentKey, DocumentSides]) -> dict[DocumentKey, HeaderSides]:
    """The same changes without the texts."""
    return {key: (before, after.header if after else None) for key, (before, after) in sides.items()}


def of_all_tables(
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


def equal(one: Document | None, other: Document) -> bool:
    fields = ("collection", "doc_id", *COMPARED_COLUMNS)
    return one is not None and all(getattr(one, field) == getattr(other, field) for field in fields)


_BYTES = 384
_PRIME: int = 2 ** (8 * _BYTES) - 1103717


class RowStep(NamedTuple):
    """What leads from one revision to another; documents without their texts."""

    rows: HeaderDifference
    projects: tuple[Project, ...]
    """Those that are there afterwards, and were not before, or not so."""

    removed_projects: tuple[Project, ...]
    """Those that were there, and are not any more, or not so."""

    @property
    def documents(self) -> int:
        return len(self.rows.documents)


class RowSet(NamedTuple):
    """The rows of a revision, as a number. Without rows it is 1."""

    product: int = 1

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits.

        Texts count by their hashes. The times of documents do not count, as in differences.
        """
        return hashlib.sha256(self.product.to_bytes(_BYTES, "big")).hexdigest()

    def after(self, step: RowStep) -> RowSet:
        """What it becomes by a step."""
        changes: tuple[HeaderChange | CollectionChange, ...] = (*step.rows.documents, *step.rows.collections)
        lost = _product([*(each.before for each in changes if each.before), *step.removed_projects])
        come = _product([*(each.after for each in changes if each.after), *step.projects])
        return RowSet(self.product * come * pow(lost, -1, _PRIME) % _PRIME)


def read(engine: Engine, revision: str) -> RowSet:
    """Of all rows: takes as long as the revision is large."""
    rows = _product(engine.headers(revision))
    return RowSet(rows * _product([*engine.collections(revision), *engine.projects(revision)]) % _PRIME)


class Steps:
    """What leads from one revision to another; made for many steps, one after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._projects: dict[str, dict[str, Project]] = {}

    def between(self, old: str, new: str) -> RowStep:
        """Costs by what differs. Documents that differ in their times alone are among them."""
        before = self._projects[old] if old in self._projects else self._read(old)
        after = self._read(new)
        self._projects = {new: after}
        return RowStep(
            self._engine.diff_headers(old, new, times=True),
            tuple(each for key, each in after.items() if before.get(key) != each),
            tuple(each for key, each in before.items() if after.get(key) != each),
        )

    def _read(self, revision: str) -> dict[str, Project]:
        return {each.key: each for each in self._engine.projects(revision)}


def _product(rows: Iterable[Row | DocumentHeader]) -> int:
    product = 1
    for row in rows:
        product = product * _number(row) % _PRIME
    return product


def _number(row: Row | DocumentHeader) -> int:
    kind = "collection" if isinstance(row, Collection) else "project" if isinstance(row, Project) else "document"
    values = [getattr(row, name) for name in type(row).__struct_fields__]
    return int.from_bytes(hashlib.shake_256(canonical_json([kind, *values]).encode()).digest(_BYTES), "big") % _PRIME
