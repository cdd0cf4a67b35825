"""The rows before and after of what changed, whatever engine compared them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from vmrag_link.engines.tables import COMPARED_COLUMNS
from vmrag_link.models import ChangeKind, Document, IssueLog, KnowledgeDoc, Record, Row

RowSides = tuple[Row | None, Row | None]
"""A row before and after; None where there is none."""

_Before = TypeVar("_Before")
_After = TypeVar("_After")


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
    """Those that differ in more than the time of the last change."""
    return {key: pair for key, pair in sides.items() if _timeless(pair[0]) != _timeless(pair[1])}


def _timeless(row: Row | None) -> Row | None:
    if isinstance(row, IssueLog | KnowledgeDoc):
        return msgspec.structs.replace(row, updated_at="")
    return row


def equal(one: Document | None, other: Document) -> bool:
    fields = ("collection", "doc_id", *COMPARED_COLUMNS)
    return one is not None and all(getattr(one, field) == getattr(other, field) for field in fields)
