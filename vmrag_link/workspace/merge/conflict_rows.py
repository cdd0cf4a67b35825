"""Convert conflicts of a merge to records for the results and errors of tools.

A conflict concerns one row: a document, the settings of a collection, or a project. It lists the
fields of this row that both sides changed differently.
"""

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

_MAX_TEXT_CHARACTERS = 500
"""Longer texts in a conflict are cut."""

_INTERNAL_COLUMNS = ("content_hash", "source_key")


class OpenHunk(Record, frozen=True):
    """Lines of a text that the sides changed differently."""

    line: int
    """The number of the first line in our text, from 1."""
    base: str
    ours: str
    theirs: str


class OpenConflict(Record, frozen=True):
    """A conflict with the values of its `fields` on each side.

    A side without the row is `None`. If one side removed the row, all fields are included. Texts
    are cut to 500 characters.
    """

    table: str
    collection: str
    """Empty for a row of a table other than documents and collections."""
    doc_id: str
    """Empty for the settings of a collection."""
    title: str
    """Our title, if there is one."""
    fields: list[str]
    base: dict[str, Any] | None
    ours: dict[str, Any] | None
    theirs: dict[str, Any] | None
    hunks: list[OpenHunk]
    """The conflicting parts of the content. The other parts are merged."""


class OpenMerge(Record, frozen=True):
    """An open merge."""

    conflicts: tuple[OpenConflict, ...] = ()
    problem: str = ""
    """Why its conflicts cannot be listed; empty if they can."""


def list_conflict_rows(conflicts: Iterable[Conflict]) -> list[OpenConflict]:
    """Return the conflicts as records, in the given order."""
    return list(map(_build_row, conflicts))


def encode_rows(conflicts: Iterable[OpenConflict]) -> list[dict[str, Any]]:
    """Encode conflicts for results and for the details of an error."""
    return msgspec.to_builtins(list(conflicts))  # type: ignore[no-any-return]


def find_open_merge(ws: Workspace) -> OpenMerge | None:
    """Return the open merge, git's or vmrag's, or None. Nothing is changed or fetched."""
    try:
        state = merge_state.read_merge(ws)
        if state is not None:
            return OpenMerge(tuple(list_conflict_rows(merge_state.apply_decisions(ws, state).conflicts)))
    except VmragError as error:  # a side is missing, or HEAD moved; the merge is still open
        return OpenMerge(problem=error.message)
    return OpenMerge() if pin_conflict.read_stages(ws.places) else None


def _build_row(conflict: Conflict) -> OpenConflict:
    return OpenConflict(
        table=_name_table(conflict.ours or conflict.theirs),
        collection=conflict.collection,
        doc_id=conflict.doc_id,
        title=getattr(conflict.ours or conflict.theirs, "title", ""),
        fields=list(conflict.fields),
        base=_read_values(conflict.base, conflict),
        ours=_read_values(conflict.ours, conflict),
        theirs=_read_values(conflict.theirs, conflict),
        hunks=[
            OpenHunk(hunk.line, _shorten_value(hunk.base), _shorten_value(hunk.ours), _shorten_value(hunk.theirs))
            for hunk in conflict.hunks
        ],
    )


def _name_table(row: Row | None) -> str:
    if isinstance(row, Document):
        return row.table
    return PROJECTS if isinstance(row, Project) else COLLECTIONS


def _read_values(row: Row | None, conflict: Conflict) -> dict[str, Any] | None:
    """Return the values of a side's row in the conflicting fields, by column."""
    if row is None:
        return None
    cells = CELLS[type(row)]
    fields: Sequence[str] = tuple(cells) if conflict.is_whole else conflict.fields
    names = [name for field in fields for name in cells[field] if name not in _INTERNAL_COLUMNS]
    return {name: _shorten_value(_read_value(row, name)) for name in names}


def _read_value(row: Row, name: str) -> Any:
    value = getattr(row, name)
    return msgspec.json.decode(value) if name == "metadata" else msgspec.to_builtins(value)


def _shorten_value(value: Any) -> Any:
    """Cut all texts in a value."""
    match value:
        case str():
            return value[:_MAX_TEXT_CHARACTERS]
        case dict():
            return {key: _shorten_value(item) for key, item in value.items()}
        case list():
            return [_shorten_value(item) for item in value]
    return value
