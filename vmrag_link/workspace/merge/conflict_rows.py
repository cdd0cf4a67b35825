"""Conflicts as tools list them, the same in results and in errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from vmrag_link.errors import VmragError
from vmrag_link.git import pin_conflict
from vmrag_link.merging.conflicts import Conflict
from vmrag_link.merging.rows import CELLS
from vmrag_link.models import Document, Project, Record, Row
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.collections import COLLECTIONS, PROJECTS
from vmrag_link.workspace.merge import merge_state

TEXT = 500
"""Characters of a text in a conflict."""

_INTERNAL = ("content_hash", "source_key")


class OpenHunk(Record, frozen=True):
    """Lines of a text that the sides changed differently; `line` is the first in ours, from 1."""

    line: int
    base: str
    ours: str
    theirs: str


class OpenConflict(Record, frozen=True):
    """A conflict with the values of its `fields` on each side; None where the row does not exist.

    Where one side removed the row, all fields are given. Texts are cut to `TEXT` characters.
    `title`: ours, where there is one. `doc_id` is empty for a collection's settings, `collection`
    for a row of another table. `hunks`: what of the content is in conflict; the rest is merged.
    """

    table: str
    collection: str
    doc_id: str
    title: str
    fields: list[str]
    base: dict[str, Any] | None
    ours: dict[str, Any] | None
    theirs: dict[str, Any] | None
    hunks: list[OpenHunk]


class OpenMerge(Record, frozen=True):
    """`problem`: why its conflicts are unknown."""

    conflicts: tuple[OpenConflict, ...] = ()
    problem: str = ""


def list_conflict_rows(conflicts: Iterable[Conflict]) -> list[OpenConflict]:
    """In the order in which they are given."""
    return list(map(_row, conflicts))


def encode_rows(conflicts: Iterable[OpenConflict]) -> list[dict[str, Any]]:
    """For results and for an error's details."""
    return msgspec.to_builtins(list(conflicts))  # type: ignore[no-any-return]


def find_open_merge(ws: Workspace) -> OpenMerge | None:
    """The open merge, git's or one of ours; None if there is none.

    Changes nothing and fetches nothing.
    """
    try:
        state = merge_state.read_merge(ws)
        if state is not None:
            return OpenMerge(tuple(list_conflict_rows(merge_state.apply_decisions(ws, state).conflicts)))
    except VmragError as error:  # a side that is not here, or a merge that was left: it is open all the same
        return OpenMerge(problem=error.message)
    return OpenMerge() if pin_conflict.read_stages(ws.places) else None


def _row(conflict: Conflict) -> OpenConflict:
    sides = (conflict.base, conflict.ours, conflict.theirs)
    base, ours, theirs = (None if side is None else _values(side, conflict) for side in sides)
    return OpenConflict(
        _table(conflict.ours or conflict.theirs),
        conflict.collection,
        conflict.doc_id,
        getattr(conflict.ours or conflict.theirs, "title", ""),
        list(conflict.fields),
        base,
        ours,
        theirs,
        [OpenHunk(hunk.line, *map(_cut, (hunk.base, hunk.ours, hunk.theirs))) for hunk in conflict.hunks],
    )


def _table(row: Row | None) -> str:
    if isinstance(row, Document):
        return row.table
    return PROJECTS if isinstance(row, Project) else COLLECTIONS


def _values(row: Row, conflict: Conflict) -> dict[str, Any]:
    cells = CELLS[type(row)]
    fields: Sequence[str] = tuple(cells) if conflict.is_whole else conflict.fields
    names = [name for field in fields for name in cells[field] if name not in _INTERNAL]
    return {name: _cut(_value(row, name)) for name in names}


def _value(row: Row, name: str) -> Any:
    found = getattr(row, name)
    return msgspec.json.decode(found) if name == "metadata" else msgspec.to_builtins(found)


def _cut(value: Any) -> Any:
    match value:
        case str():
            return value[:TEXT]
        case dict():
            return {key: _cut(each) for key, each in value.items()}
        case list():
            return [_cut(each) for each in value]
    return value
