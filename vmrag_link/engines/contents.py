"""A fingerprint of the contents of a revision, the same on every engine.

It is the fingerprint of a set, so the order of rows does not matter, and the fingerprint of a
revision follows from its parent's and the difference. The multiplicative hash MuHash3072 does this
(Bellare and Micciancio 1997, as in Bitcoin Core): each row is a number below a prime, and the
contents are the product of these numbers.
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
    """The difference between two revisions, with documents as headers."""

    rows: HeaderDifference
    projects: tuple[Project, ...]
    """Projects that were added or changed."""

    removed_projects: tuple[Project, ...]
    """Projects that were removed or changed, with their values before."""

    @property
    def documents(self) -> int:
        return len(self.rows.documents)


class RowSet(NamedTuple):
    """The rows of a revision as a number, which is 1 without rows."""

    product: int = 1

    @property
    def fingerprint(self) -> str:
        """The fingerprint as 64 hexadecimal digits.

        Texts contribute their hashes. The times of documents are ignored, like in differences.
        """
        return hashlib.sha256(self.product.to_bytes(_BYTES, "big")).hexdigest()

    def apply_step(self, step: RowStep) -> RowSet:
        """Return the row set after a step."""
        changes: tuple[HeaderChange | CollectionChange, ...] = (*step.rows.documents, *step.rows.collections)
        removed = _multiply_rows([*(change.before for change in changes if change.before), *step.removed_projects])
        added = _multiply_rows([*(change.after for change in changes if change.after), *step.projects])
        return RowSet(self.product * added * pow(removed, -1, _PRIME) % _PRIME)


def read_row_set(engine: Engine, revision: str) -> RowSet:
    """Read all rows of a revision. The time grows with its size."""
    rows = _multiply_rows(engine.read_headers(revision))
    return RowSet(rows * _multiply_rows([*engine.list_collections(revision), *engine.read_projects(revision)]) % _PRIME)


class StepReader:
    """Reads the difference between two revisions, efficiently for many consecutive steps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._projects: dict[str, dict[str, Project]] = {}

    def read_step(self, old: str, new: str) -> RowStep:
        """Return the difference, including documents that differ only in their times.

        The cost grows with the number of changes.
        """
        before = self._projects[old] if old in self._projects else self._read_projects(old)
        after = self._read_projects(new)
        self._projects = {new: after}
        return RowStep(
            self._engine.diff_headers(old, new, times=True),
            tuple(project for key, project in after.items() if before.get(key) != project),
            tuple(project for key, project in before.items() if after.get(key) != project),
        )

    def _read_projects(self, revision: str) -> dict[str, Project]:
        return {project.key: project for project in self._engine.read_projects(revision)}


def _multiply_rows(rows: Iterable[Row | DocumentHeader]) -> int:
    product = 1
    for row in rows:
        product = product * _hash_row(row) % _PRIME
    return product


def _hash_row(row: Row | DocumentHeader) -> int:
    kinds = {Collection: "collection", Project: "project"}
    kind = kinds.get(type(row), "document")
    values = [getattr(row, name) for name in type(row).__struct_fields__]
    return (
        int.from_bytes(hashlib.shake_256(encode_canonical_json([kind, *values]).encode()).digest(_BYTES), "big")
        % _PRIME
    )
