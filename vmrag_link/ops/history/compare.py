"""`vmrag diff`: what differs between two places, or two documents."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vmrag_link.errors import GitReferenceMissing, UsageInvalid
from vmrag_link.models import At, DocumentHeader, HeaderChange
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history import document_names, rev_range, revparse
from vmrag_link.ops.history.diff import Diff, diff
from vmrag_link.ops.history.document_names import DocumentName, DocumentPlace
from vmrag_link.ops.history.rev_range import Ends
from vmrag_link.ops.history.word_diff import Detail, WordDiff
from vmrag_link.workspace import Workspace

_BOTH = 2


def compare(ws: Workspace, names: Sequence[str], *, only: Sequence[str] = (), detail: Detail = "text") -> WordDiff:
    """What turns one place into another one: `[OLD [NEW]]` or a range, as `rev_range.ends` takes
    them, and after that the documents to compare, as `document_names.select` does.

    `REF:DOCUMENT [[REF:]DOCUMENT]`: two documents; by default the second is that of the same name
    here. `only`: more documents, folders, collections or patterns. Raises as they do.
    """
    move_and_warn(ws)
    if _is_document_elsewhere(ws, names):
        return WordDiff(ws.engine, _of_documents(ws, names), detail)
    (old, new), named = _ends(ws, names)
    found = diff(ws.engine, old, new)
    if chosen := [*named, *only]:
        found = found.only(document_names.select(ws.engine, [new, old], chosen))
    return WordDiff(ws.engine, found, detail)


def _ends(ws: Workspace, names: Sequence[str]) -> tuple[Ends, Sequence[str]]:
    """The places, and the names behind them, which are documents: one that some place has, and
    what stands behind a range or two places.
    """
    here, committed = ws.at(), ws.revision_here()
    if not names or _has(ws, names[0], here, committed):
        return Ends(committed, here), names
    if rev_range.is_range(names[0]):
        return rev_range.ends(ws, names[:1]), names[1:]
    old = revparse.resolve_at(ws, names[0])
    if len(names) == 1 or _has(ws, names[1], here, committed, old):
        return Ends(old, here), names[1:]
    _, new = rev_range.sides(ws, names[:_BOTH])  # refuses a range here
    return Ends(old, revparse.resolve_at(ws, new or revparse.WORKING)), names[_BOTH:]


def _has(ws: Workspace, name: str, *places: At) -> bool:
    return any(document_names.candidates(ws.engine, at, name) for at in places)


def _is_document_elsewhere(ws: Workspace, names: Sequence[str]) -> bool:
    """Whether the first name is `REF:DOCUMENT`, and no expression of git's with a colon."""
    if not names or ":" not in names[0] or document_names.candidates(ws.engine, ws.at(), names[0]):
        return False
    try:
        rev_range.ends(ws, names[:1])
    except GitReferenceMissing:
        return True
    return False


def _of_documents(ws: Workspace, names: Sequence[str]) -> Diff:
    """Raises as `document_names.find_at`."""
    if len(names) > _BOTH:
        raise UsageInvalid("Two documents can be compared at once.", hint="vmrag diff v1:guide/faq.md v2:guide/faq.md")
    old, before = document_names.find_at(ws, names[0])
    new, after = _document(ws, names[1] if len(names) == _BOTH else str(before))
    one, other = _header(ws, old, before), _header(ws, new, after)
    alike = msgspec.structs.astuple(one)[2:] == msgspec.structs.astuple(other)[2:]  # all but the names
    return Diff(old.at, new.at, () if alike else (HeaderChange("modified", one, other),), ())


def _document(ws: Workspace, name: str) -> tuple[DocumentPlace, DocumentName]:
    if ":" in name:
        return document_names.find_at(ws, name)
    here = DocumentPlace(ws.at(), ws.revision_here())
    return here, document_names.find(ws.engine, [here.at], name)


def _header(ws: Workspace, place: DocumentPlace, name: DocumentName) -> DocumentHeader:
    found = next(ws.engine.headers(place.at, collection=name.collection, ids=[name.doc_id]), None)
    if found is None:  # removed since it was looked up
        raise document_names.no_document(ws.engine, place.at, *name.key)
    return found
