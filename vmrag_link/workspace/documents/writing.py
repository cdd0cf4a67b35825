"""Store rows in the KB branch of HEAD's code branch, and let the index follow in the same call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from vmrag_link import locks
from vmrag_link.engines.base import Engine, Write
from vmrag_link.errors import (
    INDEXING_FAILURES,
    BranchInUse,
    FileSystemError,
    GitBusy,
    IndexFailed,
    KnowledgeMoved,
    LimitExceeded,
    MergeConflict,
    Uncommitted,
    file_failures,
)
from vmrag_link.git import plumbing, sidecar_repo
from vmrag_link.models import At, KbBranch, WorkingSet
from vmrag_link.sync import lease
from vmrag_link.sync.target import Target, describe_held, describe_unpinned, restore_command
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow.follow_pin import follow

if TYPE_CHECKING:
    from vmrag_link.index.draft import Draft
    from vmrag_link.workspace import DocumentStore, LocalStore
    from vmrag_link.workspace.documents.note_files import NotesWritten

ATTEMPTS = 3

R = TypeVar("R")
LISTED = 1000
"""Documents that a refusal names in its details."""


class Planned(NamedTuple, Generic[R]):
    """A plan's answer: `rows` to store (None: nothing), and what it reports of them."""

    rows: Write | None
    report: R


Plan = Callable[[At], Planned[R]]
"""Reads the documents at a place; may be asked more than once, and the last answer counts."""


class WriteResult(NamedTuple, Generic[R]):
    """The plan's report, and the KB branch that its rows landed on; None: there were none.

    `pending`: why the index did not follow; the rows are stored, and the next command catches up.
    `chunks`: how many the index holds of the documents that were put. `versioned` False: they are
    on this machine alone, on no branch. `notes`: files of a writable source, instead of rows.
    """

    report: R
    branch: str | None
    pending: str = ""
    chunks: int = 0
    versioned: bool = True
    notes: NotesWritten | None = None


def require_writable(ws: Workspace, *, index: bool = True) -> Target:
    """Bring the workspace to its pin; returns what a write goes to. `index` as in `movable`.

    Raises where nothing may be written.
    """
    target = require_movable(ws, index=index)
    if target.attachment in ("held", "behind"):
        # Between the two steps of another process's commit it looks so, too: the pin comes after
        # the branch.
        target = require_movable(ws, index=index)
    if target.kb_branch and target.attachment == "held":
        raise Uncommitted(
            describe_held(target.kb_branch, target.revision),
            hint=restore_command(target.kb_branch),
            local_changes=count_local_changes(ws.engine, target.kb_branch),
        )
    if target.kb_branch and target.attachment == "behind":
        raise KnowledgeMoved(
            describe_unpinned(target.kb_branch, target.revision), hint=restore_command(target.kb_branch)
        )
    return target


def require_movable(ws: Workspace, *, index: bool = True) -> Target:
    """As `writable`, for commands that move the KB branch: it need not stand at the pin.

    With `index` the index is brought to the pin, too. One that cannot be built does not prevent
    writing. The target of a branch that another work tree writes has a KB branch of its own, or
    gets one with the first write.
    """
    refuse_if_busy(ws)
    sidecar_repo.prepare_folders(ws.places)
    if index:
        try:
            with file_failures():
                follow(ws)
        except (IndexFailed, FileSystemError, LimitExceeded):
            follow(ws, index=False)
    else:
        follow(ws, index=False)
    # Before planning: without the lease, uncommitted documents are another work tree's, and not
    # for us to read.
    target = _with_lease(ws)
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    return target


def _with_lease(ws: Workspace) -> Target:
    """What is written to, once no other work tree can begin to write there."""
    target = ws.resolve_target()
    if target.in_use_by or target.has_own_branch:
        return target
    try:
        lease.take_lease(ws.places, target.trigger.symbolic or "", timeout=ws.lock_timeout)
    except BranchInUse:  # another one was faster
        return ws.resolve_target()
    return target


def refuse_if_busy(ws: Workspace) -> None:
    """Refuse to write while a git operation is under way.

    Raises `GitBusy`, `MergeConflict` with the command that helps.
    """
    from vmrag_link.git import pin_conflict
    from vmrag_link.sync import apply

    refuse_git_operation(ws)
    apply.wait_for_git(ws.sync_context)
    if pin_conflict.read_stages(ws.places):
        raise MergeConflict(
            "The pin is in conflict; what would be written now would take one side.", hint="vmrag resolve"
        )


def refuse_git_operation(ws: Workspace) -> None:
    """As `refuse_if_busy`, also where there is no knowledge base. Raises `GitBusy`."""
    from vmrag_link.git import pin_conflict

    what = plumbing.find_operation(ws.places)
    if what:
        then = plumbing.operation_hint(what)
        raise GitBusy(
            f"A {what} is under way in this work tree; knowledge is not written meanwhile.",
            hint=f"vmrag resolve, then: {then}" if pin_conflict.find_undecided(ws.places) else then,
            operation=what,
        )
    if ws.read_trigger().branch is None:
        from vmrag_link.git import jj

        raise GitBusy(
            "HEAD is detached: documents are written on a branch, and here is none.",
            hint=jj.main_folder_hint(ws.places, "git switch -c NAME")
            if ws.places.is_jj_workspace
            else "git switch -c NAME",
            operation="detached",
        )


def write_rows(
    ws: DocumentStore,
    plan: Plan[R],
    purpose: str,
    *,
    follow: bool = True,
    alter: Callable[[Draft, R], None] = lambda _draft, _report: None,
    moved_source: str = "",
) -> WriteResult[R]:
    """Store what `plan` makes of the documents at a place; durable on return.

    `plan` is asked again when HEAD, the pin or a document move before its rows are stored: they
    land where they were planned for, and on what they were made from, or nowhere. Without `follow`
    the next reader of the index brings it up to date; `alter` changes the index beyond what rows
    decide. `moved_source`: the source whose place the rows take. Raises the errors of `writable`
    and of `plan`, and `Busy`, `ContentRefused`, `EngineFailed`.

    Documents without versions have neither HEAD nor pin: they are stored whatever git is doing, and
    the next reader of their index brings it up to date.
    """
    from vmrag_link.workspace.pins import kb_branches

    if not isinstance(ws, Workspace):
        return _store_here(ws, plan, purpose)
    for _ in range(ATTEMPTS):
        target = require_writable(ws, index=follow)
        stamp = ws.engine.read_stamp()
        planned = plan(target.at)
        if planned.rows is None:
            return WriteResult(planned.report, None)
        _refuse_sources(ws, target.at, planned.rows, moved_source)
        name = kb_branches.prepare_branch(ws, target)
        with locks.hold_exclusive(ws.places.workspace_lock, purpose=purpose, timeout=ws.lock_timeout):
            if ws.read_trigger() != target.trigger:
                continue  # a checkout in another terminal: plan for where it went, or be refused there
            if not target.in_use_by:
                lease.take_lease(ws.places, target.trigger.symbolic or "", timeout=ws.lock_timeout)
            change = _Change(plan, planned, stamp, name, target.revision)
            return _store_and_index(ws, change, purpose, alter) if follow else _store_only(ws, change, purpose)
    raise KnowledgeMoved("HEAD kept moving while this waited; nothing was written.", hint="Run the command again.")


def _refuse_sources(ws: Workspace, at: At, rows: Write, moved: str) -> None:
    """Raise `SourceReadOnly` for a new collection that has the name of a source, except `moved`."""
    from vmrag_link.workspace.documents.collections import source_read_only

    derived = {source.collection for source in ws.sources.configured} - {moved}
    named = [put_collection.name for put_collection in rows.put_collections if put_collection.name in derived]
    if named and not {collection.name for collection in ws.engine.list_collections(at)}.intersection(named):
        raise source_read_only(named[0])


class _Change(NamedTuple, Generic[R]):
    """A planned change of a branch at a revision; `stamp`: the knowledge base's before planning."""

    plan: Plan[R]
    planned: Planned[R]
    stamp: object
    branch: str
    revision: str

    def store(self, ws: Workspace, purpose: str) -> Planned[R]:
        """Returns the plan that was stored."""
        with ws.engine.write_lock(purpose):
            there, planned = ws.engine.find_branch(self.branch), self.planned
            if ws.engine.read_stamp() != self.stamp:  # somebody has written meanwhile; from here on nobody can
                planned = self.plan(WorkingSet(self.branch) if there else self.revision)
            if there is None:
                ws.engine.create_branch(self.branch, self.revision)
            ws.engine.write(self.branch, planned.rows or Write(), expected=self.revision)
        return planned


def _store_and_index(
    ws: Workspace, change: _Change[R], purpose: str, alter: Callable[[Draft, R], None]
) -> WriteResult[R]:
    from vmrag_link.index.contents import count_chunks

    branch, revision = change.branch, change.revision
    copy = ws.sync_context.working_copy(branch, revision)
    planned = None
    try:
        with file_failures(), copy.lock_for_writing() as stood:
            planned = change.store(ws, purpose)
            report = planned.report
            changed = _documents_alone(planned.rows) if stood == "current" else None
            ws.reader.update_copy(
                copy.path,
                branch,
                revision,
                whole=stood != "gone",
                changed=changed,
                alter=lambda draft: alter(draft, report),
            )
            put = planned.rows.put_documents if planned.rows else ()
            chunks = count_chunks(copy.path, (each.key for each in put))
    except INDEXING_FAILURES as error:
        if planned is None:
            raise
        pending = f"The documents are stored, but the index could not follow yet: {error.sentence}"
        return WriteResult(planned.report, branch, pending)
    return WriteResult(report, branch, chunks=chunks)


def _documents_alone(rows: Write | None) -> frozenset[tuple[str, str]] | None:
    """The documents that a write changes; None where it may change more than these rows."""
    if rows is None:
        return frozenset()
    put = rows.put_documents
    if not isinstance(put, list | tuple) or any(each.table != "documents" for each in put):
        return None  # a row of another table leaves the collection that it was in
    alone = msgspec.structs.replace(rows, put_documents=(), remove_documents=()).is_empty
    return frozenset((*(each.key for each in put), *rows.remove_documents)) if alone else None


def _store_only(ws: Workspace, change: _Change[R], purpose: str) -> WriteResult[R]:
    with ws.sync_context.working_copy(change.branch, change.revision).defer_update():
        planned = change.store(ws, purpose)
    return WriteResult(
        planned.report, change.branch, "The documents are stored, and the index follows when it is needed next."
    )


def _store_here(store: LocalStore, plan: Plan[R], purpose: str) -> WriteResult[R]:
    from vmrag_link.workspace import local_store

    engine = store.engine
    stamp = engine.read_stamp()
    planned = plan(local_store.AT)
    if planned.rows is not None:
        with store.get_index().defer_update(), engine.write_lock(purpose):
            if engine.read_stamp() != stamp:  # as in `_Change.store`
                planned = plan(local_store.AT)
            engine.write(local_store.BRANCH, planned.rows or Write(), expected=store.base)
    return WriteResult(planned.report, None, versioned=False)


def count_local_changes(engine: Engine, branch: KbBranch) -> dict[str, Any]:
    """`added`, `modified`, `deleted` and `total` count documents; `documents` are ids."""
    found = engine.diff(branch.head, WorkingSet(branch.name))
    counts = found.count_changes()
    return {
        "added": counts.added,
        "modified": counts.modified,
        "deleted": counts.removed,
        "total": counts.total,
        "documents": [document.key[1] for document in found.documents[:LISTED]],
    }
