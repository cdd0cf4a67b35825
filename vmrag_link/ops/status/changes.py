"""What a person may want to keep, discard, take in or push: the lists of `vmrag status`.

Uses no network.
"""

from __future__ import annotations

from vmrag_link.engines.base import root_of
from vmrag_link.models import ChangeKind, HeaderDifference, Record, Working
from vmrag_link.ops.commits.revisions import Distances
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.file_changes import FileChanges, file_changes
from vmrag_link.ops.remotes.destinations import upstream
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace


class PendingDocument(Record, frozen=True):
    collection: str
    doc_id: str
    title: str
    kind: ChangeKind


class PendingCollection(Record, frozen=True):
    """A collection's settings."""

    name: str
    kind: ChangeKind


class Unpushed(Record, frozen=True):
    """`revisions` that the remote is not known to have, as of the last fetch or push; None where
    nothing is known of it, because it is not to be asked: `problem` says why.
    """

    remote: str
    revisions: int | None
    problem: str = ""


class PendingChanges(Record, frozen=True):
    """`documents` and `collections` that are not committed, and `files` that are not imported.

    `unpushed` is None where there is no remote.
    """

    documents: tuple[PendingDocument, ...] = ()
    collections: tuple[PendingCollection, ...] = ()
    files: FileChanges = FileChanges()
    unpushed: Unpushed | None = None


def changes(ws: Workspace, target: Target) -> PendingChanges:
    """Everything; documents and files only where HEAD's branch can be written on."""
    if ws.trigger().branch is None or target.state != "pinned" or target.attachment in ("held", "behind"):
        return PendingChanges(unpushed=_unpushed(ws, target))
    branch = target.kb_branch
    found = (
        ws.engine.diff_headers(branch.head, Working(branch.name))
        if branch and branch.dirty
        else HeaderDifference((), ())
    )
    return PendingChanges(
        tuple(PendingDocument(*each.key, each.header.title, each.kind) for each in found.documents),
        tuple(PendingCollection(each.key, each.kind) for each in found.collections),
        file_changes(ws, writing.place(target)),
        _unpushed(ws, target),
    )


def _unpushed(ws: Workspace, target: Target) -> Unpushed | None:
    """Of what is read here. A revision that only the remote's anchors hold is there, too."""
    pinned = target.revision if target.state == "pinned" else None
    revision = target.kb_branch.head if target.kb_branch else pinned
    if revision is None or ws.engine.shared:  # on a server, everybody has all of it
        return None
    remote = upstream(ws)
    if remote is None:
        return None
    if remote.address is None:
        return Unpushed(remote.name, None, remote.problem)
    # The root, which is made with the knowledge base, is no revision of anybody's.
    there = {root_of(ws.engine), *ws.engine.remote_heads(remote.address.key).values()}
    if revision in there:
        return Unpushed(remote.name, 0)
    return Unpushed(remote.name, Distances(ws.engine, [revision, *there]).apart([revision], there).ahead)
