"""Store documents in the KB branch of HEAD's code branch, and update the index.

Every command that changes documents calls `write_rows` with a plan: a function that reads the
documents and returns the rows to store. It runs without a lock, because converting files may take
long. Under the lock, the rows are stored only if HEAD, the pin and the knowledge base are as they
were before planning. Otherwise the plan runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from vmrag_link import hints, locks
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
from vmrag_link.git import folder_modes, git_operation
from vmrag_link.models import At, KbBranch, WorkingSet
from vmrag_link.sync import lease
from vmrag_link.sync.target import Target, describe_held, describe_unpinned, form_pin_hint
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow.follow_pin import follow

if TYPE_CHECKING:
    from vmrag_link.index.draft import Draft
    from vmrag_link.workspace import DocumentStore, LocalStore
    from vmrag_link.workspace.documents.note_files import NotesWritten

ATTEMPTS = 3
_MAX_LISTED_DOCUMENTS = 1000
"""Maximum number of documents in the details of an error."""

R = TypeVar("R")


class Planned(NamedTuple, Generic[R]):
    """The result of a plan."""

    rows: Write | None
    """The rows to store, None for nothing."""
    report: R


Plan = Callable[[At], Planned[R]]
"""Plan a write from the documents that are stored `at` a branch or revision.

If it is called again, only its last result is used.
"""


class WriteResult(NamedTuple, Generic[R]):
    """The result of a write."""

    report: R
    branch: str | None
    """The KB branch with the new rows; None if there were none."""
    pending: str = ""
    """Why the index was not updated; empty if it was. The next command updates it."""
    chunks: int = 0
    """Number of chunks in the index for the stored documents."""
    versioned: bool = True
    """False if the documents are only on this machine (`LocalStore`)."""
    notes: NotesWritten | None = None
    """Files of a writable source that were written instead of rows."""


def write_rows(
    ws: DocumentStore,
    plan: Plan[R],
    purpose: str,
    *,
    follow: bool = True,
    alter: Callable[[Draft, R], None] = lambda _draft, _report: None,
    moved_source: str = "",
) -> WriteResult[R]:
    """Store the rows of a plan. They are durable on return.

    * `purpose`: the reason for holding locks, for messages of other processes.
    * `follow`: update the index now. Otherwise the next command that needs it updates it.
    * `alter`: changes the index beyond the rows, for example by vectors that a client gave.
    * `moved_source`: the source whose files the rows replace. Other sources keep their names.

    In a `LocalStore`, rows are stored whatever git is doing, and the next reader updates the index.
    Raises the errors of `require_writable` and of `plan`, `KnowledgeMoved` if HEAD keeps moving,
    and `Busy`, `ContentRefused`, `EngineFailed`.
    """
    from vmrag_link.workspace.pins import kb_branches

    if not isinstance(ws, Workspace):
        return _store_local(ws, plan, purpose)
    for _ in range(ATTEMPTS):
        target = require_writable(ws, index=follow)
        stamp = ws.engine.read_stamp()  # differs after any write
        planned = plan(target.at)
        if planned.rows is None:
            return WriteResult(planned.report, None)
        _refuse_sources(ws, target.at, planned.rows, moved_source)
        name = kb_branches.prepare_branch(ws, target)
        with locks.hold_exclusive(ws.places.workspace_lock, purpose=purpose, timeout=ws.lock_timeout):
            if ws.read_trigger() != target.trigger:
                continue  # another process changed HEAD or the pin, so plan again
            if not target.in_use_by:
                lease.take_lease(ws.places, target.trigger.symbolic or "", timeout=ws.lock_timeout)
            change = _Change(plan, planned, stamp, branch=name, revision=target.revision, purpose=purpose)
            return _store_and_index(ws, change, alter) if follow else _store_only(ws, change)
    raise KnowledgeMoved("HEAD moved several times, so nothing was written.", hint="run the command again")


def _refuse_sources(ws: Workspace, at: At, rows: Write, moved: str) -> None:
    """Raise `SourceReadOnly` for a new collection that has the name of a source, except `moved`."""
    from vmrag_link.workspace.documents.collections import source_read_only

    sources = {source.collection for source in ws.sources.configured} - {moved}
    names = [collection.name for collection in rows.put_collections if collection.name in sources]
    if names and not {collection.name for collection in ws.engine.list_collections(at)}.intersection(names):
        raise source_read_only(names[0])


class _Change(NamedTuple, Generic[R]):
    """Planned rows, and what they were planned for."""

    plan: Plan[R]
    planned: Planned[R]
    stamp: object
    """`Engine.read_stamp` before planning. If it differs now, another process has written."""
    branch: str
    """The KB branch. The first write creates it."""
    revision: str
    """The head of the KB branch."""
    purpose: str

    def store_rows(self, ws: Workspace) -> Planned[R]:
        """Store the rows under the write lock, and return them.

        If another process has written since planning, the plan runs again.
        """
        with ws.engine.write_lock(self.purpose):
            branch = ws.engine.find_branch(self.branch)
            planned = self.planned
            if ws.engine.read_stamp() != self.stamp:  # another process has written; from here on none can
                planned = self.plan(WorkingSet(self.branch) if branch else self.revision)
            if branch is None:
                ws.engine.create_branch(self.branch, self.revision)
            ws.engine.write(self.branch, planned.rows or Write(), expected=self.revision)
        return planned


def _store_and_index(ws: Workspace, change: _Change[R], alter: Callable[[Draft, R], None]) -> WriteResult[R]:
    """Store the rows, and update the working copy of the index.

    A failure of the index is not raised, because the rows are stored.
    """
    from vmrag_link.index.contents import count_chunks

    copy = ws.sync_context.working_copy(change.branch, change.revision)
    planned = None
    try:
        with file_failures(), copy.lock_for_writing() as copy_state:
            planned = change.store_rows(ws)
            report = planned.report
            changed = _list_changed_documents(planned.rows) if copy_state == "current" else None
            ws.reader.update_copy(
                copy.path,
                change.branch,
                change.revision,
                is_usable=copy_state != "gone",
                changed=changed,
                alter=lambda draft: alter(draft, report),
            )
            put = planned.rows.put_documents if planned.rows else ()
            chunks = count_chunks(copy.path, (document.key for document in put))
    except INDEXING_FAILURES as error:
        if planned is None:
            raise
        pending = f"the documents are stored, but the index could not be updated: {error.sentence}"
        return WriteResult(planned.report, change.branch, pending)
    return WriteResult(report, change.branch, chunks=chunks)


def _list_changed_documents(rows: Write | None) -> frozenset[tuple[str, str]] | None:
    """Return the documents that a write changes. None if it may change more than documents."""
    if rows is None:
        return frozenset()
    put = rows.put_documents
    if not isinstance(put, list | tuple) or any(document.table != "documents" for document in put):
        return None  # a row of another table may have been in another collection before
    has_other_rows = not msgspec.structs.replace(rows, put_documents=(), remove_documents=()).is_empty
    return None if has_other_rows else frozenset((*(document.key for document in put), *rows.remove_documents))


def _store_only(ws: Workspace, change: _Change[R]) -> WriteResult[R]:
    """Store the rows, and mark the index as behind."""
    with ws.sync_context.working_copy(change.branch, change.revision).defer_update():
        planned = change.store_rows(ws)
    pending = "the documents are stored, and the next command that needs the index updates it."
    return WriteResult(planned.report, change.branch, pending)


def _store_local(store: LocalStore, plan: Plan[R], purpose: str) -> WriteResult[R]:
    """Store the rows on this machine, and mark their index as behind."""
    from vmrag_link.workspace import local_store

    engine = store.engine
    stamp = engine.read_stamp()
    planned = plan(local_store.AT)
    if planned.rows is not None:
        with store.get_index().defer_update(), engine.write_lock(purpose):
            if engine.read_stamp() != stamp:  # as in `_Change.store_rows`
                planned = plan(local_store.AT)
            engine.write(local_store.BRANCH, planned.rows or Write(), expected=store.base)
    return WriteResult(planned.report, None, versioned=False)


def require_writable(ws: Workspace, *, index: bool = True) -> Target:
    """Bring the work tree to its pin, and return the target to which documents can be written.

    `index`: also update the index. Raises `Uncommitted` or `KnowledgeMoved` if the KB branch is not
    at the pin, and the errors of `require_movable`.
    """
    target = require_movable(ws, index=index)
    if target.attachment in ("held", "behind"):
        # A commit of another process looks the same between its two steps, because it moves the
        # branch before the pin.
        target = require_movable(ws, index=index)
    if target.kb_branch and target.attachment == "held":
        raise Uncommitted(
            describe_held(target.kb_branch, target.revision),
            hint=form_pin_hint(target.kb_branch),
            local_changes=count_local_changes(ws.engine, target.kb_branch),
        )
    if target.kb_branch and target.attachment == "behind":
        raise KnowledgeMoved(describe_unpinned(target.kb_branch, target.revision), hint=form_pin_hint(target.kb_branch))
    return target


def require_movable(ws: Workspace, *, index: bool = True) -> Target:
    """Bring the work tree to its pin, and return the target for a command that moves the KB branch.

    The KB branch need not be at the pin. `index`: also update the index, but continue if it cannot
    be built. If another work tree writes on HEAD's KB branch, the target has a separate one, or
    gets one with the first write.

    Raises the errors of `refuse_if_busy`, and the reason if the pin cannot be used (`PinMissing`,
    `PinMalformed`, `PinRevisionMissing`).
    """
    refuse_if_busy(ws)
    folder_modes.prepare_folders(ws.places)
    if index:
        try:
            with file_failures():
                follow(ws)
        except (IndexFailed, FileSystemError, LimitExceeded):
            follow(ws, index=False)
    else:
        follow(ws, index=False)
    # Without the lease, uncommitted documents belong to another work tree and must not be read.
    target = _take_lease(ws)
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    return target


def _take_lease(ws: Workspace) -> Target:
    """Take the lease of HEAD's KB branch, so that no other work tree can write on it.

    Return the target. It has `in_use_by` if another work tree has the lease.
    """
    target = ws.resolve_target()
    if target.in_use_by or target.has_own_branch:
        return target
    try:
        lease.take_lease(ws.places, target.trigger.symbolic or "", timeout=ws.lock_timeout)
    except BranchInUse:  # another work tree was faster
        return ws.resolve_target()
    return target


def refuse_if_busy(ws: Workspace) -> None:
    """Raise `GitBusy` while a git operation is in progress or HEAD is detached.

    Raise `MergeConflict` while the pin is in conflict. Waits for a git command that is running.
    """
    from vmrag_link.git import pin_conflict
    from vmrag_link.sync import apply

    refuse_git_operation(ws)
    apply.wait_for_git(ws.sync_context)
    if pin_conflict.read_stages(ws.places):
        raise MergeConflict(
            "cannot write documents while the pin is in conflict.",
            hint="run 'vmrag resolve' to resolve the conflicts",
        )


def refuse_git_operation(ws: Workspace) -> None:
    """Raise `GitBusy` during a rebase, merge or bisect, and on a detached HEAD.

    The repository needs no knowledge base.
    """
    from vmrag_link.git import pin_conflict

    operation = git_operation.find_operation(ws.places)
    if operation:
        hint = git_operation.suggest_finish(operation)
        if pin_conflict.find_undecided(ws.places):
            hint = hints.join_steps(hints.suggest_command("vmrag resolve"), hint)
        sentence = f"a {operation} is in progress in this working tree, so vmrag cannot write documents now."
        raise GitBusy(sentence, hint=hint, operation=operation)
    if ws.read_trigger().branch is None:
        hint = "run 'git switch -c NAME' to create a branch"
        if ws.places.is_jj_workspace:
            from vmrag_link.git import jj

            hint = jj.main_folder_hint(ws.places, "git switch -c NAME")
        raise GitBusy(
            "HEAD is detached, but documents can only be written on a branch.", hint=hint, operation="detached"
        )


def count_local_changes(engine: Engine, branch: KbBranch) -> dict[str, Any]:
    """Return the numbers of uncommitted documents and their ids, for the details of an error."""
    difference = engine.diff(branch.head, WorkingSet(branch.name))
    counts = difference.count_changes()
    return {
        "added": counts.added,
        "modified": counts.modified,
        "deleted": counts.removed,
        "total": counts.total,
        "documents": [document.key[1] for document in difference.documents[:_MAX_LISTED_DOCUMENTS]],
    }
