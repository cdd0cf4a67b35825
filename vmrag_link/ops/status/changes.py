"""What a person may want to keep, discard, take in or push: the lists of `vmrag status`, and the
files that are documents, with how the work tree differs from HEAD in them. Uses no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vmrag_link.engines.base import root_of
from vmrag_link.errors import GitError, LimitExceeded
from vmrag_link.models import ChangeKind, HeaderDifference, Record, Working
from vmrag_link.ops.commits.revisions import Distances
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.copies import StoredCopy, list_copies
from vmrag_link.ops.remotes.destinations import upstream
from vmrag_link.sources import rules
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, source_tree


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
    """`documents` and `collections` that are not committed, and stored `copies` of tracked files.

    `unpushed` is None where there is no remote.
    """

    documents: tuple[PendingDocument, ...] = ()
    collections: tuple[PendingCollection, ...] = ()
    copies: tuple[StoredCopy, ...] = ()
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
        list_copies(ws, writing.place(target)),
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


class SourceCollection(Record, frozen=True):
    """`files`: how many there are; a few of them may say nothing, and be no documents."""

    collection: str
    kind: Literal["document", "code"]
    files: int


class SourcesStatus(Record, frozen=True):
    """`uncommitted`: `COLLECTION/PATH`, as they are; `edited`: their paths, or names of notes;
    `removed`: paths that the work tree has no more; `untracked`: how many more files git does not
    track. `missing`: paths of which this clone has no contents. `unavailable`: why collections
    cannot be searched, by name. `problem`: why nothing is known of the files; empty otherwise.
    """

    collections: tuple[SourceCollection, ...] = ()
    uncommitted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    untracked: int = 0
    missing: tuple[str, ...] = ()
    unavailable: Mapping[str, str] = {}
    problem: str = ""
    edited: tuple[str, ...] = ()


def sources_status(ws: Workspace) -> SourcesStatus | None:
    """None where no sources are configured. Reads no file that did not change, and needs no index.

    Raises `ConfigInvalid`.
    """
    if not ws.sources.configured:
        return None
    from vmrag_link.sources import work_tree

    try:
        tree = source_tree.in_work_tree(ws)
        assert tree is not None  # noqa: S101  there are sources
        everything = ws.config.searches_untracked
        unsearched = [source for source in tree.sources if not rules.searches_untracked(source, untracked=everything)]
        untracked = work_tree.untracked_count(ws.places, unsearched) if unsearched else 0
    except (GitError, LimitExceeded) as why:  # a status has to answer
        return SourcesStatus(problem=why.message)
    counts = {name: len(files) for name, files in tree.listing.files.items()}
    edited = sorted(key for key, file in tree.files.items() if file.uncommitted)
    return SourcesStatus(
        collections=tuple(
            SourceCollection(each.collection, each.kind, counts.get(each.collection, 0)) for each in tree.sources
        ),
        uncommitted=tuple(map("/".join, edited)),
        edited=tuple(sorted({"/".join(key) if tree.files[key].note_id else key[1] for key in edited})),
        removed=tree.listing.removed,
        untracked=untracked,
        missing=tree.listing.missing,
        unavailable=tree.unavailable,
    )
