"""`vmrag commit`: commit the uncommitted documents, pin the new revision, stage the pin.

The commit is atomic. A journal entry is written before the first step and deleted after the last,
so the next command after a kill finishes what the entry lists (`recovery.recover`).
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import msgspec

from vmrag_link import clock, locks
from vmrag_link.engines import migrated
from vmrag_link.engines.base import Write
from vmrag_link.engines.logical import implied_table
from vmrag_link.engines.own_branches import has_remembered_changes
from vmrag_link.errors import (
    INDEXING_FAILURES,
    GitBusy,
    GitFailed,
    KnowledgeMoved,
    LockError,
    MessageMissing,
    NoChanges,
    RevisionUnpinned,
    UsageInvalid,
    quoted,
)
from vmrag_link.git import identity
from vmrag_link.git.refs import BRANCHES
from vmrag_link.journal import CommitEntry
from vmrag_link.models import At, ChangeCounts, Record, WorkingSet
from vmrag_link.sync.plan import assume_collection
from vmrag_link.sync.target import Target, list_dirty_branches
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.pins import pinning
from vmrag_link.workspace.pins.pinning import PinBlock, PinReport

# The parts of `Name <email>`.
_NAME = r"[^<>\s]([^<>\0-\x1f]*[^<>\s])?"
_ADDRESS = r"[^<>\s@]+@[^<>\s@]+"
_AUTHOR = rf"{_NAME} <[^<>\s]+>"


class CommitReport(Record, frozen=True):
    """The result of a commit."""

    revision: str
    parent: str
    branch: str
    changes: ChangeCounts
    pin: PinBlock | None
    staged: bool
    """False if another git command held the index, so that `git add .dolt-version` is left to do.
    """
    pending: str = ""
    """Why the index did not follow. The revision is committed and pinned, and the next command
    updates the index.
    """


class PlannedCommit(Record, frozen=True):
    """The changes that a commit would contain, such as `added: handbook/faq.md`."""

    symbolic: str | None
    """HEAD's symbolic ref."""
    kb_branch: str
    documents: tuple[str, ...]
    collections: tuple[str, ...]
    merged: str = ""
    """The source of the open merge; empty if no merge is open."""


def commit(
    ws: Workspace,
    message: str,
    *,
    author: str | None = None,
    follow: bool = True,
    planned: PlannedCommit | None = None,
) -> CommitReport:
    """Commit the uncommitted documents, or close the open merge, and pin the result.

    Without `follow`, an index that is already outdated is left to the next command. `planned`: the
    plan that the user saw. HEAD must still be on its branch.

    Raises `NoChanges`, `MessageMissing`, `GitBusy`, `MergeConflict` if the open merge has undecided
    conflicts, `KnowledgeMoved` if HEAD moved, `FileFailed` if the disk is full (nothing was changed
    then), `UsageInvalid` and `GitFailed` for the author, and the errors of
    `writing.require_writable`. Raises `RevisionUnpinned` if the revision is committed, but HEAD
    moved at the same moment; a switch back to the branch completes the commit.
    """
    if not message.strip():
        raise MessageMissing(
            "a commit needs a message.",
            hint="run 'vmrag commit -m \"What changed in the documents\"' to commit the documents",
        )
    target = writing.require_writable(ws)
    if planned and target.trigger.symbolic != planned.symbolic:
        code_branch = (planned.symbolic or "").removeprefix(BRANCHES)
        raise KnowledgeMoved(
            "HEAD moved to another branch while you wrote the message, so nothing was committed",
            hint=f"run 'git switch {quoted(code_branch)} && vmrag commit' to return to the branch",
        )
    author_identity = resolve_author(ws, author)
    if _find_merge_to_close(ws, target):
        return _close_merge(ws, target, message, author_identity)
    if target.kb_branch is None or not target.kb_branch.dirty:
        raise _no_changes_error(ws, target)
    copy = ws.sync_context.working_copy(target.kb_branch.name, target.revision)
    defers_index = not follow and bool(copy.find_problem())
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="commit", timeout=ws.lock_timeout):
        if ws.read_trigger() != target.trigger:
            raise KnowledgeMoved(
                "HEAD moved while the commit waited for a lock, so nothing was committed.",
                hint="run 'vmrag status' to see the state",
            )
        report = _commit_and_pin(ws, target, message, author_identity)
    if defers_index:
        return msgspec.structs.replace(report, pending="The next command updates the index.")
    try:
        ws.bring_to_pin()
    except (*INDEXING_FAILURES, GitBusy, LockError) as error:
        return msgspec.structs.replace(report, pending=f"The index could not be updated yet: {error.sentence}")
    return report


def plan_commit(ws: Workspace, *, author: str | None = None) -> PlannedCommit:
    """Return what `commit` would commit now, for the editor in which the user writes the message.

    Raises the errors of `commit` that can occur before the user writes a message: `NoChanges`,
    `UsageInvalid` and `GitFailed` for the author, and the errors of `writing.require_writable` for
    a work tree that cannot be written on.
    """
    resolve_author(ws, author)
    target = writing.require_writable(ws, index=False)
    merge = _find_merge_to_close(ws, target)
    branch = target.kb_branch
    if not merge and (branch is None or not branch.dirty):
        raise _no_changes_error(ws, target)
    changes = _describe_changes(ws, branch.head, WorkingSet(branch.name)) if branch else _Changes()
    return PlannedCommit(
        symbolic=target.trigger.symbolic,
        kb_branch=branch.name if branch else "",
        documents=changes.documents,
        collections=changes.collections,
        merged=merge.source if merge else "",
    )


def list_unplanned(ws: Workspace, planned: PlannedCommit, report: CommitReport) -> tuple[str, ...]:
    """Return the changes of documents in a commit that its plan does not list."""
    if planned.merged:
        return ()
    changes = _describe_changes(ws, report.parent, report.revision)
    return tuple(change for change in changes.documents if change not in planned.documents)


def count_chunks(ws: Workspace, report: CommitReport) -> int:
    """Count the chunks that the index holds of the documents that the commit added or modified.

    The result is 0 while the index is outdated.
    """
    from vmrag_link.index.contents import count_chunks

    if report.pending:
        return 0
    keys = [document.key for document in ws.engine.diff(report.parent, report.revision).documents if document.after]
    return ws.reader.read(lambda view: count_chunks(view.folder, keys))


def resolve_author(ws: Workspace, author: str | None) -> str:
    """Return the author of a commit as `Name <email>`.

    `author` is such a line, an address alone, or a name alone. None means git's identity. Raises
    `UsageInvalid` for any other text, and `GitFailed` if git has no identity.
    """
    if author is None:
        return identity.read_identity(ws.places)
    line = author.strip()
    if re.fullmatch(_ADDRESS, line):
        line = f"{line.partition('@')[0]} <{line}>"
    elif re.fullmatch(_NAME, line):
        line = f"{line} <{identity.read_identity(ws.places).rpartition('<')[2]}"
    if not re.fullmatch(_AUTHOR, line):
        raise UsageInvalid(
            f"invalid author {author!r}.", hint="pass '--author \"Name <email>\"'", author=author, parameter="author"
        )
    return line


def _no_changes_error(ws: Workspace, target: Target) -> NoChanges:
    message = "no documents have changed since the last commit."
    hint = "run 'vmrag import DIR --collection NAME' to store documents"
    dirty_branches = list_dirty_branches(ws.engine, target)
    if dirty_branches:
        message += f" Other branches have uncommitted documents: {', '.join(map(repr, dirty_branches))}."
        hint = "run 'vmrag branch' to list the KB branches"
    return NoChanges(message, hint=hint)


def _find_merge_to_close(ws: Workspace, target: Target) -> merge_state.MergeState | None:
    """Return the open merge of HEAD's branch, which a commit closes."""
    merge = merge_state.recover_merge(ws)
    return merge if merge and merge.kind == "merge" and merge.symbolic == target.trigger.symbolic else None


def _close_merge(ws: Workspace, target: Target, message: str, author: str) -> CommitReport:
    """Close the open merge. Its result is the commit, whatever documents it changes."""
    from vmrag_link.merging.revisions import Signature
    from vmrag_link.ops.merge import merge

    state = merge_state.require_merge(ws)
    if not state.commit and not state.written:
        merge.continue_merge(ws)  # its result waits for the commit
    report = merge.continue_merge(ws, Signature(message, author, clock.now()))
    name = target.kb_branch.name if target.kb_branch else ""
    return CommitReport(
        revision=report.revision or "",
        parent=state.ours,
        branch=name,
        changes=report.changes,
        pin=report.pin,
        staged=report.staged,
        pending=report.pending,
    )


def _commit_and_pin(ws: Workspace, target: Target, message: str, author: str) -> CommitReport:
    """Commit the branch and, unless `auto_pin` is off, pin the revision."""
    assert target.kb_branch is not None  # noqa: S101  commit() checked it
    branch = target.kb_branch.name
    parent = target.revision
    _create_missing_collections(ws, branch, parent)
    commit_branch = functools.partial(
        ws.engine.commit, branch, message=message, author=author, date=clock.now(), expected=parent
    )
    pin = None
    staged = False
    if ws.config.auto_pin:
        pin_text = target.trigger.pin.decode() if target.trigger.pin is not None else None
        symbolic = target.trigger.symbolic or ""
        entry = CommitEntry(str(ws.places.git_dir), symbolic, pin_text, kb_branch=branch, parent=parent)
        with ws.journal.record_entry(entry):
            revision = commit_branch()
            pin_report = _write_pin(ws, target, revision, branch)
        pin = pin_report.pin
        staged = pin_report.staged
    else:
        revision = commit_branch()
    if has_remembered_changes(ws.engine):
        from vmrag_link.merging import replay  # rarely needed

        replay.forget_changes(ws.engine, branch)  # the commit includes them
    changes = ws.engine.diff(parent, revision).count_changes()  # the engine keeps the difference for the index
    return CommitReport(revision=revision, parent=parent, branch=branch, changes=changes, pin=pin, staged=staged)


def _create_missing_collections(ws: Workspace, branch: str, parent: str) -> None:
    """Store the collections of documents that another program inserted without one."""
    names = [name for name in ws.engine.find_undefined_collections(branch, since=parent) if not implied_table(name)]
    if names:
        ws.engine.write(
            branch,
            Write(put_collections=[assume_collection(name, ws.models.load_for) for name in names]),
            expected=parent,
        )


def _write_pin(ws: Workspace, target: Target, revision: str, branch: str) -> PinReport:
    """Write and stage the pin. Compare HEAD before and after, because git may move it
    in between.
    """
    try:
        report = pinning.write_pin(ws, revision, branch) if ws.read_trigger() == target.trigger else None
    except (OSError, GitFailed) as error:
        raise _unpinned_error(target, revision, branch, str(error)) from error
    trigger = ws.read_trigger()
    pin = migrated.try_read_pin(ws.places.kb, trigger.pin)
    is_pinned = trigger.symbolic == target.trigger.symbolic and pin is not None and pin.dolt_commit == revision
    if report is None or not is_pinned:
        reason = "another git command moved HEAD or the pin at the same moment"
        raise _unpinned_error(target, revision, branch, reason)
    return report


def _unpinned_error(target: Target, revision: str, branch: str, reason: str) -> RevisionUnpinned:
    return RevisionUnpinned(
        f"revision {revision[:7]} is committed to {branch!r}, but it could not be pinned: {reason}.",
        hint=f"run 'git switch {quoted(target.trigger.branch or '')} && vmrag pin {revision}'",
        revision=revision,
        branch=branch,
    )


class _Changes(NamedTuple):
    """The fields `documents` and `collections` of a `PlannedCommit`."""

    documents: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()


def _describe_changes(ws: Workspace, before: At, after: At) -> _Changes:
    difference = ws.engine.diff_headers(before, after)
    return _Changes(
        documents=tuple(f"{change.kind}: {'/'.join(change.key)}" for change in difference.documents),
        collections=tuple(f"{change.kind}: {change.key} (the collection)" for change in difference.collections),
    )
