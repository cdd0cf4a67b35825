"""Take a KB branch back to a commit; give up uncommitted documents and an open merge.

All of it stays reachable.
"""

from __future__ import annotations

from vmrag_link.errors import ConfirmationMissing
from vmrag_link.models import ChangeCounts, Record, RevisionInfo, Working
from vmrag_link.ops.branches import uncommitted
from vmrag_link.ops.documents import writing
from vmrag_link.ops.follow.pin import go_to
from vmrag_link.ops.history import revparse
from vmrag_link.ops.merge import merge_state
from vmrag_link.workspace import Workspace


class ResetReport(Record, frozen=True):
    """`discarded`: the uncommitted documents; `changes` of the visible documents.

    `orphaned` are the commits, newest first, that no branch and no remote holds any more: only
    `vmrag_keep` does.
    """

    from_commit: str
    to_commit: str
    discarded: ChangeCounts
    changes: ChangeCounts
    orphaned: tuple[RevisionInfo, ...]
    staged: bool = True
    pending: str = ""


def reset(ws: Workspace, target: str, *, confirmed: bool) -> ResetReport:
    """Go back to the revision that `target` names (see `revparse.tool_rev`).

    Raises `RevisionMissing` before anything is changed, `ConfirmationMissing` with uncommitted
    documents or an open merge unless `confirmed`, and as `writing.movable`.
    """
    here = writing.movable(ws)
    revision, stood = revparse.tool_rev(ws, target), ws.revision_here()
    branch, merge = here.kb_branch, merge_state.opened(ws)
    dirty = branch is not None and branch.dirty
    if (dirty or merge) and not confirmed:
        raise _confirmation_missing(ws, merge.source if merge else "")
    # First: a merge without its documents would be committed as one that dropped theirs.
    if merge:
        merge_state.clear(ws, merge.kind)
    head = branch.head if branch else stood
    discarded = ws.engine.count_changes(head, Working(branch.name)) if branch and dirty else ChangeCounts()
    held = uncommitted.give_up(ws, branch) if branch and dirty else stood
    staged, pending = True, ""
    if revision != here.revision or (branch and branch.head != revision):
        report = go_to(ws, revision, trigger=here.trigger)
        staged, pending = report.staged, report.pending
        _follow(ws, revision)
    changes = ws.engine.count_changes(held, revision)
    return ResetReport(stood, revision, discarded, changes, _orphans(ws, head), staged, pending)


def _confirmation_missing(ws: Workspace, merging: str) -> ConfirmationMissing:
    branch = ws.kb_branch()
    refused = uncommitted.refusal(ws, branch) if branch and branch.dirty else None
    what = [refused.message] if refused else []
    if merging:
        what.append(f"The merge of {merging} is open.")
    return ConfirmationMissing(
        f"{' '.join(what)} A reset gives that up.",
        hint="vmrag commit",
        merge_in_progress=bool(merging),
        **(refused.details if refused else {}),
    )


def _follow(ws: Workspace, revision: str) -> None:
    """Move the branch where the pin named the revision already: then reconciling did not."""
    branch = ws.kb_branch()
    if branch and branch.head != revision:
        ws.engine.move_branch(branch.name, revision, expected=branch.head)


def _orphans(ws: Workspace, head: str) -> tuple[RevisionInfo, ...]:
    lost = {*ws.engine.unreachable(ws.engine.parents([head]), heads=revparse.visible(ws))}
    found = []
    for each in ws.engine.log(head) if lost else ():
        if each.revision in lost:
            found.append(each)
            lost.remove(each.revision)
        if not lost:
            break
    return tuple(found)
