"""A fingerprint of what a revision holds, the same on every engine.

It is of a set: rows come and go in any order, so the fingerprint of a revision follows from its
parent's and from what differs. That is the multiplicative hash MuHash3072 (Bellare and Micciancio
1997, as in Bitcoin Core): each row is a number below a prime, the contents are their product.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from vmrag_link.engines.base import Engine
from vmrag_link.models import (
    Collection,
    CollectionChange,
    DocumentHeader,
    HeaderChange,
    HeaderDifference,
    Project,
    Row,
    encode_canonical_json,
)

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

    def apply_step(self, step: RowStep) -> RowSet:
        """What it becomes by a step."""
        changes: tuple[HeaderChange | CollectionChange, ...] = (*step.rows.documents, *step.rows.collections)
        lost = _product([*(change.before for change in changes if change.before), *step.removed_projects])
        come = _product([*(change.after for change in changes if change.after), *step.projects])
        return RowSet(self.product * come * pow(lost, -1, _PRIME) % _PRIME)


def read_row_set(engine: Engine, revision: str) -> RowSet:
    """Of all rows: takes as long as the revision is large."""
    rows = _product(engine.read_headers(revision))
    return RowSet(rows * _product([*engine.list_collections(revision), *engine.read_projects(revision)]) % _PRIME)


class StepReader:
    """What leads from one revision to another; made for many steps, one after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._projects: dict[str, dict[str, Project]] = {}

    def read_step(self, old: str, new: str) -> RowStep:
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
        return {project.key: project for project in self._engine.read_projects(revision)}


def _product(rows: Iterable[Row | DocumentHeader]) -> int:
    product = 1
    for row in rows:
        product = product * _number(row) % _PRIME
    return product


def _number(row: Row | DocumentHeader) -> int:
    kind = "collection" if isinstance(row, Collection) else "project" if isinstance(row, Project) else "document"
    values = [getattr(row, name) for name in type(row).__struct_fields__]
    return (
        int.from_bytes(hashlib.shake_256(encode_canonical_json([kind, *values]).encode()).digest(_BYTES), "big")
        % _PRIME
    )
