"""Two versions of a row become one: cell by cell, a text by line, metadata by key; links by whole
rows. Pure.

A text and its hash are one cell, and so are the parts of an embedding. Times never conflict: the
later one stays. Clones write links without asking each other, so their result is the same whichever
comes first, and however often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import msgspec
from msgspec.structs import astuple, replace

from vmrag_link.documents.import_base import KEY as ORIGIN
from vmrag_link.documents.import_base import is_origin
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
"""The cells of which only parts may be in conflict: hunks, and keys."""

SETS = ("related_chat_ids",)
"""Keys of metadata that hold a set of ids, which programs add to on every branch."""

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
    """`row` is ours where the sides conflict. `fields`: the cells in which they do; of the content
    in these `hunks`, of the metadata in these `keys`.
    """

    row: R
    fields: tuple[str, ...]
    hunks: tuple[Hunk, ...]
    keys: tuple[str, ...]


def merge_rows(base: R | None, ours: R, theirs: R) -> MergedRow[R]:
    """What becomes of a row that both sides have changed or added."""
    kind = type(ours)
    taken: dict[str, Any] = {}
    fields: list[str] = []
    hunks: tuple[Hunk, ...] = ()
    keys: tuple[str, ...] = ()
    for field, names in CELLS[kind].items():
        before, left, right = (_cell(row, names) for row in (base, ours, theirs))
        if right in (left, before):
            continue
        if left == before:
            taken |= dict(zip(names, right or (), strict=True))
            continue
        if field == CONTENT:
            text = merge_content(base, ours, theirs)
            hunks = text.hunks
            conflicting = bool(hunks)
            taken |= {} if conflicting else content_cell(text.resolve_text({}))
        elif field == METADATA:
            taken[METADATA], keys = _merge_metadata(base, ours, theirs)
            conflicting = bool(keys)
        else:
            conflicting = True
        if conflicting:
            fields.append(field)
    for name in _LATER.get(kind, ()) if taken or fields else ():  # a time alone is no change
        taken[name] = max(getattr(ours, name), getattr(theirs, name))
    return MergedRow(msgspec.structs.replace(ours, **taken), tuple(fields), hunks, keys)


def merge_content(base: Row | None, ours: Row | None, theirs: Row | None) -> MergedText:
    """The contents of three versions, merged by line."""
    return merge_texts(*(read_text(row) for row in (base, ours, theirs)))


def content_cell(text: str) -> dict[str, Any]:
    return {"content": text, "content_hash": content_hash(text)}


def format_metadata_value(row: Row, key: str) -> str:
    """The JSON of one key of the metadata; empty if there is none."""
    return _values(row).get(key, b"").decode()


def set_metadata_key(row: Row, key: str, take: str, ours: Row | None, theirs: Row | None) -> dict[str, Any]:
    """The metadata of `row`, with one key as a side has it, which may be not at all, or as neither
    has it.
    """
    sides = {"ours": _values(ours).get(key), "theirs": _values(theirs).get(key)}
    if take == "neither":
        value: bytes | None = encode_canonical_json({side: raw.decode() for side, raw in sides.items() if raw}).encode()
    else:
        value = sides[take]
    kept = {name: raw for name, raw in _values(row).items() if name != key}
    return {METADATA: _as_text(kept | ({key: value} if value else {}))}


def make_neither_metadata(ours: Row | None, theirs: Row | None) -> dict[str, Any]:
    """Metadata that no side has, for a row that one side removed."""
    sides = {"ours": ours, "theirs": theirs}
    return {METADATA: encode_canonical_json({side: row.metadata if row else "" for side, row in sides.items()})}


def _merge_metadata(base: Row | None, ours: Row, theirs: Row) -> tuple[str, tuple[str, ...]]:
    """The merged metadata, ours where a key is in conflict, and those keys.

    An origin never is: where both sides have another one, there is none. Nor are sets of ids, of
    which each side's additions and removals count.
    """
    before, left, right = (_values(row) for row in (base, ours, theirs))
    merged, conflicting = dict(left), []
    for key in sorted(before.keys() | right.keys()):
        was, here, there = (values.get(key) for values in (before, left, right))
        if there in (here, was):
            continue
        if here != was:
            if key == ORIGIN and here and there and is_origin(here) and is_origin(there):
                del merged[key]  # what both were made of, the merged text is not
            elif key in SETS and (ids := _merge_sets(was, here, there)) is not None:
                merged[key] = ids
            else:
                conflicting.append(key)
        elif there is None:
            del merged[key]
        else:
            merged[key] = there
    return _as_text(merged), tuple(conflicting)


def _merge_sets(*values: bytes | None) -> bytes | None:
    """A set of ids, of base, ours and theirs; None if one of them is something else."""
    try:
        base, ours, theirs = (set(msgspec.json.decode(value or b"[]", type=list[str])) for value in values)
    except msgspec.ValidationError:
        return None
    return encode_canonical_json(sorted((ours | theirs) - (base - ours) - (base - theirs))).encode()


def _values(row: Row | None) -> dict[str, bytes]:
    """The metadata's values as their JSON; they are compared as such, because 1 equals true."""
    text = row.metadata if row else "{}"
    return {key: bytes(raw) for key, raw in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items()}


def _as_text(values: Mapping[str, bytes]) -> str:
    return msgspec.json.encode({key: msgspec.Raw(raw) for key, raw in values.items()}, order="sorted").decode()


def make_neither(field: str, ours: Row | None, theirs: Row | None) -> dict[str, Any]:
    """Values for a cell, made of both sides' and equal to neither; of their types, because they are
    read again.
    """
    name = "embedding_function" if field == "embedding" else field
    sides: list[Any] = ["" if row is None else getattr(row, name) for row in (ours, theirs)]
    left, right = sides
    match field:
        case "distance":
            return {name: next(each for each in get_args(Distance) if each not in (left, right))}
        case "chunking":
            return {name: msgspec.structs.replace(left, size=left.size + right.size)}
    return {name: join_texts(left, right)}


def _cell(row: Row | None, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    return None if row is None else tuple(getattr(row, name) for name in names)


LINK_AUTHOR = "vmrag <vmrag@localhost>"
"""Who commits links: who links is not who knows."""


def list_link_additions(there: Iterable[Link], more: Iterable[Link]) -> list[Link]:
    """The rows of both tables joined that `there` lacks or has otherwise."""
    before = {each.git_commit: each for each in there}
    after = dict(before)
    for each in more:
        known = after.get(each.git_commit)
        after[each.git_commit] = join_links(known, each) if known else each
    return [row for commit, row in sorted(after.items()) if row != before.get(commit)]


def join_links(one: Link, other: Link) -> Link:
    """What two rows of one commit say together.

    A link that was made by hand wins, then the one of the later revision. A commit that was
    replaced stays so, whichever wins.
    """
    lower, upper = sorted((one, other), key=lambda each: (_rank(each), astuple(each)))
    if _rank(lower) == _rank(upper):  # they differ in what one of the clones did not know
        upper = Link(*map(max, zip(astuple(lower), astuple(upper), strict=True)))
    return replace(upper, superseded_by=max(lower.superseded_by, upper.superseded_by))


def _rank(link: Link) -> tuple[bool, str, str, str]:
    return link.source == "manual", link.linked_at.removesuffix("Z"), link.dolt_commit, link.dolt_branch
