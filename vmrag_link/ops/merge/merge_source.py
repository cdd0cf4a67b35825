"""What git knows of the source of a `vmrag merge`, where that is a code commit."""

from __future__ import annotations

from vmrag_link.errors import GitReferenceMissing
from vmrag_link.git import plumbing, transfer
from vmrag_link.ops.history.ranges import base_of, pinned, with_head
from vmrag_link.workspace import Workspace


def base(ws: Workspace, source: str, *, ours: str, theirs: str) -> str:
    """The base of a merge with the revision that `source` names.

    git's merge base counts, too, if `source` is a code commit that pins the revision.
    """
    commit = _code_commit(ws, source, theirs)
    return base_of(ws, ours, theirs, with_head(ws, ours, commit) if commit else None)


def is_code_behind(ws: Workspace, source: str, theirs: str) -> bool:
    """Whether `source` is a code commit that pins the revision, and HEAD does not contain it."""
    head = plumbing.head(ws.places).commit
    commit = _code_commit(ws, source, theirs)
    return bool(head and commit and not transfer.contains(ws.places, head, commit))


def _code_commit(ws: Workspace, source: str, theirs: str) -> str | None:
    if ws.engine.has_revision(source):
        return None
    try:
        commit = plumbing.resolve(ws.places, source)
    except GitReferenceMissing:
        return None
    return commit if pinned(ws, commit) == theirs else None
