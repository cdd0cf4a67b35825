"""`vmrag show`: a document, or a revision with what it changed."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from vmrag_link.errors import GitReferenceMissing
from vmrag_link.ops.documents import listing
from vmrag_link.ops.documents.listing import ShowReport
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history import document_names, known, log, revparse
from vmrag_link.ops.history.history import LogStep, Revisions
from vmrag_link.workspace import Workspace


class ShownRevision(NamedTuple):
    """`history` has the one step, and reads what it changed."""

    history: Revisions
    step: LogStep


def show(ws: Workspace, name: str | None) -> ShowReport | ShownRevision:
    """What `[REF:]DOCUMENT` or a revision's name means; a document goes first. Without a name, the
    revision here.

    Raises as `document_names.find_at`.
    """
    if name is None:
        move_and_warn(ws)
        return _revision(ws, ws.revision_here())
    if file := listing.show_file(ws, name):
        return file
    with known.naming_files(ws, name):
        return _stored(ws, name)


def _stored(ws: Workspace, name: str) -> ShowReport | ShownRevision:
    try:
        place, rest = document_names.split_ref(ws, name)
    except GitReferenceMissing as unknown:
        return _revision(ws, _resolved(ws, name, unknown))  # an expression of git's may have a colon
    if rest == name and not document_names.candidates(ws.engine, place.at, name):
        with contextlib.suppress(GitReferenceMissing):
            return _revision(ws, revparse.resolve_rev(ws, name))
    return listing.shown(ws, place, document_names.find_in(ws.engine, place, rest))


def _resolved(ws: Workspace, name: str, unknown: GitReferenceMissing) -> str:
    try:
        return revparse.resolve_rev(ws, name)
    except GitReferenceMissing:
        raise unknown from None


def _revision(ws: Workspace, revision: str) -> ShownRevision:
    (info,) = log.pinned(ws, [log.info(ws.engine, revision)])
    step = LogStep(info, info.parents)
    return ShownRevision(Revisions(ws, [step], more=False), step)
