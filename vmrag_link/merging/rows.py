"""Merge two versions of a row: cell by cell, a text by line, metadata by key, and links by whole
rows. Pure functions.

A text and its hash are one cell, and so are the parts of an embedding. Times never conflict: the
later one is kept. Clones write links independently, so the result of merging links does not depend
on the order or number of merges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import msgspec
from msgspec.structs import astuple, replace

from vmrag_link.documents.library_origin import KEY as ORIGIN
from vmrag_link.documents.library_origin import is_origin
from vmrag_link.merging.text import Hunk, MergedText, join_texts, merge_texts
from vmrag_link.models import (
    Collection,
    Distance,
    Document,
    Link,
    Project,
    Row,
    content_hash,
    encode_canonical_json,
    read_text,
)

CONTENT, METADATA = "content", "metadata"
"""Cells of which only parts may be in conflict: hunks, and keys."""

SETS = ("related_chat_ids",)
"""Keys of metadata with a set of ids, to which programs add on every branch."""

CELLS: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    Document: {
        "title": ("title",),
        "content": ("content", "content_hash"),
        "metadata": ("metadata",),
        "source": ("source", "source_key"),
        "file_type": ("file_type",),
    },
    Collection: {
        "kind": ("kind",),
        "metadata": ("metadata",),
        "embedding": ("embedding_function", "embedding_model", "embedding_dimensions"),
        "distance": ("distance",),
        "chunking": ("chunking",),
        "import_base": ("import_base",),
    },
    Project: {"name": ("name",), "repository_url": ("repository_url",), "metadata": ("metadata",)},
}
_LATER: Mapping[type, tuple[str, ...]] = {Document: ("last_modified", "updated_at")}

R = TypeVar("R", bound=Row)


class MergedRow(NamedTuple, Generic[R]):
    """A merged row, and its conflicts."""

    row: R
    """The row, with our values of cells in conflict."""
    fields: tuple[str, ...]
    """The cells in conflict."""
    hunks: tuple[Hunk, ...]
    """The parts of the content in conflict."""
    keys: tuple[str, ...]
    """The keys of the metadata in conflict."""


def merge_rows(base: R | None, ours: R, theirs: R) -> MergedRow[R]:
    """Merge a row that both sides have changed or added."""
    kind = type(ours)
    values: dict[str, Any] = {}
    fields: list[str] = []
    hunks: tuple[Hunk, ...] = ()
    keys: tuple[str, ...] = ()
    for field, names in CELLS[kind].items():
        base_cell, our_cell, their_cell = (_get_cell(row, names) for row in (base, ours, theirs))
        if their_cell in (our_cell, base_cell):
            continue
        if our_cell == base_cell:
            values |= dict(zip(names, their_cell or (), strict=True))
            continue
        if field == CONTENT:
            text = merge_content(base, ours, theirs)
            hunks = text.hunks
            is_conflicting = bool(hunks)
            values |= {} if is_conflicting else make_content_values(text.resolve_text({}))
        elif field == METADATA:
            values[METADATA], keys = _merge_metadata(base, ours, theirs)
            is_conflicting = bool(keys)
        else:
            is_conflicting = True
        if is_conflicting:
            fields.append(field)
    for name in _LATER.get(kind, ()) if values or fields else ():  # a new time alone is not a change
        values[name] = max(getattr(ours, name), getattr(theirs, name))
    return MergedRow(msgspec.structs.replace(ours, **values), tuple(fields), hunks, keys)


def merge_content(base: Row | None, ours: Row | None, theirs: Row | None) -> MergedText:
    """Merge the contents of three versions by line."""
    return merge_texts(*(read_text(row) for row in (base, ours, theirs)))


def make_content_values(text: str) -> dict[str, Any]:
    """Return the values of a content and its hash."""
    return {"content": text, "content_hash": content_hash(text)}


def format_metadata_value(row: Row, key: str) -> str:
    """Return the JSON of one key of the metadata, or an empty text."""
    return _parse_values(row).get(key, b"").decode()


def set_metadata_key(row: Row, key: str, take: str, ours: Row | None, theirs: Row | None) -> dict[str, Any]:
    """Return the metadata of `row` with one key from the side `take`. The key is removed if that
    side does not have it.

    With `neither`, the value differs from both sides.
    """
    sides = {"ours": _parse_values(ours).get(key), "theirs": _parse_values(theirs).get(key)}
    if take == "neither":
        value: bytes | None = encode_canonical_json({side: raw.decode() for side, raw in sides.items() if raw}).encode()
    else:
        value = sides[take]
    kept = {name: raw for name, raw in _parse_values(row).items() if name != key}
    return {METADATA: _format_values(kept | ({key: value} if value else {}))}


def make_neither_metadata(ours: Row | None, theirs: Row | None) -> dict[str, Any]:
    """Return metadata that differs from both sides, for a row that one side removed."""
    sides = {"ours": ours, "theirs": theirs}
    return {METADATA: encode_canonical_json({side: row.metadata if row else "" for side, row in sides.items()})}


def _merge_metadata(base: Row | None, ours: Row, theirs: Row) -> tuple[str, tuple[str, ...]]:
    """Return the merged metadata, with ours for conflicting keys, and those keys.

    An origin never conflicts: if both sides have different ones, it is removed. Sets of ids do not
    conflict either: the additions and removals of both sides apply.
    """
    base_by_key, ours_by_key, theirs_by_key = (_parse_values(row) for row in (base, ours, theirs))
    merged, conflicts = dict(ours_by_key), []
    for key in sorted(base_by_key.keys() | theirs_by_key.keys()):
        base_value, our_value, their_value = (values.get(key) for values in (base_by_key, ours_by_key, theirs_by_key))
        if their_value in (our_value, base_value):
            continue
        if our_value != base_value:
            if key == ORIGIN and our_value and their_value and is_origin(our_value) and is_origin(their_value):
                del merged[key]  # the merged text has neither origin
            elif key in SETS and (ids := _merge_sets(base_value, our_value, their_value)) is not None:
                merged[key] = ids
            else:
                conflicts.append(key)
        elif their_value is None:
            del merged[key]
        else:
            merged[key] = their_value
    return _format_values(merged), tuple(conflicts)


def _merge_sets(*values: bytes | None) -> bytes | None:
    """Merge a set of ids of base, ours and theirs. None if a value is not a set of ids."""
    try:
        base, ours, theirs = (set(msgspec.json.decode(value or b"[]", type=list[str])) for value in values)
    except msgspec.ValidationError:
        return None
    return encode_canonical_json(sorted((ours | theirs) - (base - ours) - (base - theirs))).encode()


def _parse_values(row: Row | None) -> dict[str, bytes]:
    """Return the metadata's values as JSON. They are compared as JSON, because in Python 1 equals
    True.
    """
    text = row.metadata if row else "{}"
    return {key: bytes(raw) for key, raw in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items()}


def _format_values(values: Mapping[str, bytes]) -> str:
    return msgspec.json.encode({key: msgspec.Raw(raw) for key, raw in values.items()}, order="sorted").decode()


def make_neither_values(field: str, ours: Row | None, theirs: Row | None) -> dict[str, Any]:
    """Return values for a cell that are made of both sides' and differ from them. They keep the
    cell's types, because they are read again.
    """
    name = "embedding_function" if field == "embedding" else field
    sides: list[Any] = ["" if row is None else getattr(row, name) for row in (ours, theirs)]
    our_value, their_value = sides
    match field:
        case "distance":
            return {name: next(distance for distance in get_args(Distance) if distance not in (our_value, their_value))}
        case "chunking":
            return {name: msgspec.structs.replace(our_value, size=our_value.size + their_value.size)}
    return {name: join_texts(our_value, their_value)}


def _get_cell(row: Row | None, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    return None if row is None else tuple(getattr(row, name) for name in names)


LINK_AUTHOR = "vmrag <vmrag@localhost>"
"""Author of commits of links, because the person who links did not write the documents."""


def list_link_additions(present: Iterable[Link], additional: Iterable[Link]) -> list[Link]:
    """Return the rows of both tables, joined, that are missing or different in `present`."""
    before = {link.git_commit: link for link in present}
    after = dict(before)
    for link in additional:
        joined = after.get(link.git_commit)
        after[link.git_commit] = join_links(joined, link) if joined else link
    return [row for commit, row in sorted(after.items()) if row != before.get(commit)]


def join_links(one: Link, other: Link) -> Link:
    """Return one row from two rows of one commit.

    A manual link wins, then the one of the later revision. A commit that was replaced stays
    replaced, whichever wins.
    """
    lower, upper = sorted((one, other), key=lambda link: (_rank_link(link), astuple(link)))
    if _rank_link(lower) == _rank_link(upper):  # they differ only in fields that one clone did not know
        upper = Link(*map(max, zip(astuple(lower), astuple(upper), strict=True)))
    return replace(upper, superseded_by=max(lower.superseded_by, upper.superseded_by))


def _rank_link(link: Link) -> tuple[bool, str, str, str]:
    return link.source == "manual", link.linked_at.removesuffix("Z"), link.dolt_commit, link.dolt_branch
