"""Where an answer comes from: what every report says that reads documents."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import FAILED_CHECK, KnowledgeMoved, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import At, Record
from vmrag_link.sync import sentences
from vmrag_link.workspace import DocumentStore, LocalStore, View, Workspace, local_store, reasons


class KbBlock(Record, frozen=True, omit_defaults=True):
    """`commit` is the revision that was read, with the uncommitted documents if `dirty`; `in_sync`
    False: not the pinned one. `versioned` False: no revision, what this machine alone holds.
    """

    worktree: str
    git_head: str | None
    branch: str | None
    commit: str
    dirty: bool
    in_sync: bool
    versioned: bool = True


class Standing(Record, frozen=True):
    """`at`: where documents are read; `revision`: the same without uncommitted documents. `notes`
    say why that is not the pinned revision, if so.
    """

    at: At
    revision: str
    kb: KbBlock
    notes: tuple[str, ...]


def standing(ws: DocumentStore) -> Standing:
    """Where the workspace stands now; nothing is brought anywhere. Raises as `Workspace.moment`."""
    if not isinstance(ws, Workspace):
        return _unversioned(ws, plumbing.head(ws.places).commit)
    seen = ws.reader.moment()
    if not ws.engine.has_revision(seen.revision):
        raise reasons.unusable(ws, seen.target)
    notes = reasons.notes(ws, seen.target, seen.revision)
    block = KbBlock(str(ws.places.top), seen.git_head, seen.branch, seen.revision, seen.dirty, in_sync=not notes)
    return Standing(seen.at, seen.revision, block, notes)


def viewed(ws: DocumentStore, view: View) -> Standing:
    """Where an index that is held open answers from."""
    if not isinstance(ws, Workspace):
        return _unversioned(ws, view.git_head)
    block = KbBlock(str(ws.places.top), view.git_head, view.branch, view.revision, view.dirty, in_sync=not view.notes)
    return Standing(view.at, view.revision, block, view.notes)


def _unversioned(store: LocalStore, git_head: str | None) -> Standing:
    block = KbBlock(str(store.places.top), git_head, branch=None, commit="", dirty=False, in_sync=True, versioned=False)
    return Standing(local_store.AT, store.base, block, ())


def require_pinned(ws: Workspace, notes: Sequence[str]) -> None:
    """Raise why what is read is not the knowledge that the checked-out code pins, if so;
    for callers that must not take another answer for it.

    `notes`: what the answer says about it (`Standing.notes`).
    """
    if not notes:
        return
    target = ws.target()
    if target.state != "pinned":
        raise reasons.unusable(ws, target)
    if ws.unbuilt:
        raise ws.unbuilt
    behind = tuple(notes) == sentences.left_behind(target)  # which name the commands themselves
    raise KnowledgeMoved(" ".join(notes), hint="vmrag status" if behind else "vmrag sync")


def refuse_outdated(ws: Workspace, notes: Sequence[str], *, strict: bool) -> None:
    """As `require_pinned`, if it is `strict`; the exit code is drift's, whatever the reason."""
    if not strict:
        return
    try:
        require_pinned(ws, notes)
    except VmragError as why:
        if why.exit_code == FAILED_CHECK:
            raise
        raise KnowledgeMoved(why.message, hint=why.hint, cause=why.cause) from why
