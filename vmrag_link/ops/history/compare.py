"""`vmrag diff`: what differs between two places, or two documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from vmrag_link.engines.base import root_of
from vmrag_link.errors import GitReferenceMissing, NotInitialized, PinMissing, UsageInvalid
from vmrag_link.models import At, Document, HeaderChange
from vmrag_link.ops.history import diff as diffs
from vmrag_link.ops.history import document_names, file_diff, known, rev_range
from vmrag_link.ops.history.diff import Diff, DiffTexts
from vmrag_link.ops.history.known import KnownEnds, KnownNames, KnownPlace
from vmrag_link.ops.history.revparse import WORKING
from vmrag_link.ops.history.word_diff import Detail, WordDiff
from vmrag_link.workspace import Workspace

_BOTH = 2


def compare(
    ws: Workspace, names: Sequence[str], *, only: Sequence[str] = (), detail: Detail = "text", code: bool = False
) -> WordDiff:
    """What turns one place into another one: `[OLD [NEW]]` or a range, as `rev_range.ends` takes
    them, and after that the documents to compare, as `document_names.select` does.

    `REF:DOCUMENT [[REF:]DOCUMENT]`: two documents; by default the second is that of the same name
    here. `only`: more documents, folders, collections or patterns. Files of code are counted, and
    compared where they are named, or with `code`. Raises as they do.
    """
    here = known.working(ws)
    if _is_document_elsewhere(ws, here, names):
        return _of_documents(ws, names, detail)
    (old, new), rest = _ends(ws, here, names)
    return between(ws, old, new, [*rest, *only], detail=detail, code=code)


def between(
    ws: Workspace, old: KnownPlace, new: KnownPlace, chosen: Sequence[str] = (), *, detail: Detail, code: bool = False
) -> WordDiff:
    """As `compare`. `chosen`: names of documents; empty for all."""
    found = stored_diff(ws, old.at, new.at)
    is_code = file_diff.is_code(old.tree, new.tree)
    if chosen:
        names = KnownNames(ws, new, old)
        selection = document_names.select(names.rows, names.places, chosen)
        keys = {each.key for each in selection.documents}
        found = file_diff.with_files(
            found.only(selection), old, new, shown=lambda key: key in keys, counted=lambda _: False
        )
    else:
        found = file_diff.with_files(found, old, new, shown=lambda key: code or not is_code(key), counted=is_code)
    return WordDiff(reader(ws, found, old, new), found, detail)


def stored_diff(ws: Workspace, old: At | None, new: At | None) -> Diff:
    """Of the knowledge bases; None is the one before its first document."""
    if old is None and new is None:
        return Diff(None, "", (), ())
    return diffs.diff(ws.engine, old, root_of(ws.engine) if new is None else new)


def reader(ws: Workspace, found: Diff, old: KnownPlace, new: KnownPlace) -> DiffTexts:
    """What reads the documents of a diff."""
    if old.at is None and new.at is None:
        stored = DiffTexts(lambda _: {}, lambda _: {})
    else:
        stored = diffs.stored_texts(ws.engine, found.old, found.new)
    return file_diff.texts(stored, old.tree, new.tree)


def _ends(ws: Workspace, here: KnownPlace, names: Sequence[str]) -> tuple[KnownEnds, Sequence[str]]:
    """The places, and the names behind them, which are documents: one that some place has, and
    what stands behind a range or two places.
    """
    committed = known.committed(ws, here)
    if not names or KnownNames(ws, here, committed).has(names[0]):
        return KnownEnds(committed, here), names
    if rev_range.is_range(names[0]):
        return known.ends(ws, names[:1]), names[1:]
    old = known.named(ws, names[0])
    if len(names) == 1 or KnownNames(ws, here, committed, old).has(names[1]):
        return KnownEnds(old, here), names[1:]
    _, new = rev_range.sides(ws, names[:_BOTH])  # refuses a range here
    return KnownEnds(old, known.named(ws, new or WORKING)), names[_BOTH:]


def _is_document_elsewhere(ws: Workspace, here: KnownPlace, names: Sequence[str]) -> bool:
    """Whether the first name is `REF:DOCUMENT`, and no expression of git's with a colon."""
    if not names or ":" not in names[0] or KnownNames(ws, here).has(names[0]):
        return False
    try:
        known.ends(ws, names[:1])
    except GitReferenceMissing:
        return True
    except (NotInitialized, PinMissing):
        return False
    return False


class _ComparedDocument(NamedTuple):
    """`code`: as in `KnownPlace`, of a file."""

    document: Document
    at: At
    code: str = ""


def _of_documents(ws: Workspace, names: Sequence[str], detail: Detail) -> WordDiff:
    """Raises as `document_names.find_at`."""
    if len(names) > _BOTH:
        raise UsageInvalid("Two documents can be compared at once.", hint="vmrag diff v1:guide/faq.md v2:guide/faq.md")
    old = _document(ws, names[0])
    new = _document(ws, names[1] if len(names) == _BOTH else f"{WORKING}:{'/'.join(old.document.key)}")
    before, after = file_diff.header_of(old.document), file_diff.header_of(new.document)
    alike = msgspec.structs.astuple(before)[2:] == msgspec.structs.astuple(after)[2:]  # all but the names
    changes = () if alike else (HeaderChange("modified", before, after),)
    read = DiffTexts(lambda _: {before.key: old.document}, lambda _: {after.key: new.document})
    return WordDiff(read, Diff(old.at, new.at, changes, (), commits=(old.code, new.code)), detail)


def _document(ws: Workspace, name: str) -> _ComparedDocument:
    file = known.find_file(ws, name)
    if file and (document := file.tree.documents([file.name.key]).get(file.name.key)):
        return _ComparedDocument(document, "", file.tree.commit or WORKING)
    with known.naming_files(ws, name):
        place, found = document_names.find_at(ws, name)
    stored = ws.engine.document(place.at, *found.key)
    if stored is None:  # removed since it was looked up
        raise document_names.no_document(ws.engine, place.at, *found.key)
    return _ComparedDocument(stored, place.at)
