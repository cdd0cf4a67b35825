"""Merge the knowledge that a merge button dropped, on a branch of the code's host.

A merge button takes one side's pin and ignores the other's, so that documents of one side are
*dropped*. The Action calls this after each push. It does for all commits of the push what
`vmrag merge --repair` does for one, as one commit on the branch.

The knowledge is pushed first, so that a branch that the host refuses leaves no pin without a
revision. Commits that others push at the same time are examined again and never replaced. A loss
that is already repaired is not repaired twice.

Knowledge that the hosted branch itself never had is left out. A pull request may contain a commit
with knowledge that its later commits revert, and its reviewers did not see that knowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from vmrag_link import pin as pins
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.engines.own_branches import RESERVED_PREFIX
from vmrag_link.errors import RemoteRejected, plural, quoted
from vmrag_link.git import history, objects, transfer
from vmrag_link.git.remotes import Peer
from vmrag_link.merging.revisions import merge_revisions
from vmrag_link.models import ChangeCounts, Record
from vmrag_link.ops.merge.repair import find_dropped_side
from vmrag_link.ops.pull_requests import update_branch
from vmrag_link.ops.push import publish_revision
from vmrag_link.ops.verify.verify import find_knowledge_remote, verify_between
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.follow import lazy_fetch

OFFER_PREFIX = f"{RESERVED_PREFIX}/repair-"
"""The prefix of branches that offer a repair, because the repaired branch refused it.

The first eight digits of the commit that dropped documents follow.
"""

TRAILER = "Vmrag-Repairs"
"""The trailer in the message of a repair, before the full hash of a commit that dropped something.
"""

Result = Literal["nothing", "repaired", "offered", "conflict"]
FetchHistory = Callable[[str | None, str], None]
"""A function that fetches the missing history between two commits."""


class RepairConflict(Record, frozen=True):
    """A conflict that you must resolve: the commit that dropped, and the documents that both sides
    changed.
    """

    commit: str
    documents: tuple[str, ...]


class BranchRepair(Record, frozen=True):
    """The result of `repair_branch`."""

    result: Result
    branch: str
    tip: str | None
    """The examined head of the branch; None if the branch was deleted."""
    dropped: tuple[PinFinding, ...] = ()
    """Drops that are not repaired."""
    mended: tuple[PinFinding, ...] = ()
    """Drops that were already repaired."""
    others: tuple[PinFinding, ...] = ()
    """Further errors, which prevent a check."""
    commit: str | None = None
    """The commit of the repair."""
    revision: str | None = None
    changes: ChangeCounts = ChangeCounts()
    conflict: RepairConflict | None = None
    offered_on: str = ""
    """The branch with the repair, because `branch` refused it."""
    refusal: str = ""
    """The reason that the host gave for the refusal."""


class HostedBranch(NamedTuple):
    """A branch on the code's host."""

    peer: Peer
    """The host's repository."""
    name: str
    """The name without `refs/heads/`."""
    since: str | None
    """The commit before the pushed ones; None if there is none."""
    fetch_history: FetchHistory
    """Fetches the history that the clone lacks."""


def repair_branch(ws: Workspace, branch: HostedBranch) -> BranchRepair:
    """Repair what the commits of a branch after `since` dropped, and push knowledge and branch.

    Nothing is pushed if one of them has a conflict. Raises `RemoteMoved` if the branch keeps
    moving, `RemoteRejected` if the host also refuses a branch for the repair, `PinMissing` and
    `PinMalformed` if the branch has no pin to merge into, and the errors of `verify_between`,
    `publish_revision` and `find_dropped_side`.
    """
    return update_branch.retry_if_moved(branch.name, lambda: _repair_branch(ws, branch))


def _repair_branch(ws: Workspace, branch: HostedBranch) -> BranchRepair:
    tip = update_branch.find_branch_tip(ws.places, branch.peer, branch.name)
    if tip is None:
        return BranchRepair("nothing", branch.name, None)
    repair = _examine_branch(ws, branch, tip)
    if not repair.dropped:
        return repair
    pin = lazy_fetch.pin_at(ws, tip)
    merged = _merge_dropped(ws, tip, repair.dropped)
    if isinstance(merged, RepairConflict):
        return replace(repair, result="conflict", conflict=merged)
    if not ws.engine.is_ancestor(pin.dolt_commit, merged):  # one side reverted what is pinned now
        reason = f"Merging it would drop what {branch.name} pins now, so you must decide which one to keep."
        undecided = [_add_reason(finding, reason) for finding in repair.dropped]
        return replace(repair, dropped=(), others=(*repair.others, *undecided))
    publish_revision(ws, find_knowledge_remote(ws, tip), merged)
    changes = ws.engine.count_changes(pin.dolt_commit, merged)
    commit = update_branch.commit_with_pin(
        ws.places, tip, _form_pin(ws, pin, merged), parents=[tip], message=_form_message(repair.dropped, changes)
    )
    repair = replace(repair, commit=commit, revision=merged, changes=changes)
    try:
        update_branch.push_branch(ws.places, branch.peer, commit, branch.name, expected=tip)
    except RemoteRejected as refusal:
        return _offer_repair(ws, branch, replace(repair, result="offered", refusal=refusal.message), commit)
    return replace(repair, result="repaired")


def _examine_branch(ws: Workspace, branch: HostedBranch, tip: str) -> BranchRepair:
    """Return the drops between `since` and a commit, and those that are already repaired there."""
    branch.fetch_history(branch.since, tip)
    report = verify_between(ws, branch.since, tip)
    errors = [finding for finding in report.findings if finding.level == "error"]
    dropped = [error for error in errors if error.code == "KNOWLEDGE_DROPPED"]
    commits = {finding.commit for finding in dropped}
    unseen = _list_unseen_commits(ws, commits, since=branch.since, tip=tip) if commits else set()
    reason = f"{branch.name} itself has never pinned this, so it is not merged automatically."
    return BranchRepair(
        "nothing",
        branch.name,
        tip,
        dropped=tuple(finding for finding in dropped if finding.commit not in unseen),
        mended=tuple(drop for drop in report.findings if drop.code == "KNOWLEDGE_DROPPED" and drop.mended_by),
        others=(
            *(error for error in errors if error.code != "KNOWLEDGE_DROPPED"),
            *(_add_reason(finding, reason) for finding in dropped if finding.commit in unseen),
        ),
    )


def _add_reason(finding: PinFinding, reason: str) -> PinFinding:
    return replace(finding, message=f"{finding.message} {reason}")


def _merge_dropped(ws: Workspace, tip: str, dropped: Sequence[PinFinding]) -> str | RepairConflict:
    """Return the tip's revision merged with everything that the commits dropped.

    It is the same for the same commits on every machine.
    """
    revision = lazy_fetch.pinned_at(ws, tip)
    derived = twins.build_derived(ws, (tip,))
    for finding in dropped:
        while side := find_dropped_side(ws, finding.commit, revision):
            outcome = merge_revisions(
                ws.engine, base=side.base, ours=revision, theirs=side.theirs, joins=True, derived=derived
            )
            if outcome.revision is None:
                return RepairConflict(finding.commit, tuple(conflict.id for conflict in outcome.conflicts))
            revision = outcome.revision
    return revision


def _form_pin(ws: Workspace, pin: Pin, revision: str) -> bytes:
    """Return the branch's pin with another revision. Its other fields stay."""
    committed_at = ws.engine.read_revision(revision).date
    next_pin = pins.update_pin(
        pin, remote=pin.dolt_remote, branch=pin.dolt_branch, commit=revision, committed_at=committed_at
    )
    return pins.format_pin(next_pin)


def _form_message(dropped: Sequence[PinFinding], changes: ChangeCounts) -> str:
    """Return the message of the repair. It contains no untrusted text."""
    commits = list(dict.fromkeys(finding.commit for finding in dropped))
    subject = f"commit {commits[0][:12]}" if len(commits) == 1 else plural(len(commits), "commit")
    return "\n".join(
        [
            f"Merge the knowledge that {subject} dropped",
            "",
            *dict.fromkeys(finding.message for finding in dropped),
            f"Merged like `vmrag merge --repair`: {changes.text}.",
            "",
            *(f"{TRAILER}: {commit}" for commit in commits),
            "",
        ]
    )


def _offer_repair(ws: Workspace, branch: HostedBranch, repair: BranchRepair, commit: str) -> BranchRepair:
    """Push the repair to a separate branch, from which a maintainer can open a pull request.

    An existing branch stays if it has the same effect. An outdated repair is replaced.
    """
    name = f"{OFFER_PREFIX}{repair.dropped[0].commit[:8]}"
    existing = update_branch.find_branch_tip(ws.places, branch.peer, name)
    repair = replace(repair, offered_on=name)
    if existing is not None:
        is_ours = bool(objects.read_trailers(ws.places, existing, TRAILER))
        if _is_equivalent(ws, branch, repair, existing) and (not is_ours or _is_current(ws, existing, commit)):
            return replace(repair, commit=existing)
        if not is_ours:
            raise RemoteRejected(
                f"{repair.refusal} The branch {name} already exists on the host, with commits that do not repair it.",
                hint=f"run 'git push {quoted(branch.peer.remote)} --delete {quoted(name)}' if you do not need it, then run "
                "the job again",
            )
    update_branch.push_branch(ws.places, branch.peer, commit, name, expected=existing)
    return repair


def _is_equivalent(ws: Workspace, branch: HostedBranch, repair: BranchRepair, existing: str) -> bool:
    """Return whether a commit contains all commits that dropped something, and repairs
    all of them.
    """
    examined = _examine_branch(ws, branch, existing)
    return not examined.dropped and all(
        transfer.contains_commit(ws.places, existing, finding.commit) for finding in repair.dropped
    )


def _is_current(ws: Workspace, existing: str, commit: str) -> bool:
    """Return whether an existing repair has the same parents and files as the new one.

    Its trailer alone proves nothing, because anyone can write it.
    """
    readers = (objects.read_parents, objects.read_tree)
    return all(read(ws.places, existing) == read(ws.places, commit) for read in readers)


def _list_unseen_commits(ws: Workspace, commits: Collection[str], *, since: str | None, tip: str) -> set[str]:
    """Return the commits with a parent whose pin the hosted branch never had.

    The branch had what its tips contain. The tips are its heads from `since` to `tip`, and the
    commits that were merged into it. Raises the errors of the engine.
    """
    parents_by_commit = {commit: objects.read_parents(ws.places, commit) for commit in commits}
    branch_tips = _list_tips(history.list_commits(ws.places, [tip], without=since), tip)
    if since:
        branch_tips.add(since)
    revisions = _read_revisions(ws, branch_tips.union(*parents_by_commit.values()))
    heads = [revision for commit, revision in revisions.items() if commit in branch_tips]
    unseen = set(ws.engine.find_unreachable(set(revisions.values()), heads=heads))
    return {
        commit
        for commit, parents in parents_by_commit.items()
        if any(revisions.get(parent) in unseen for parent in parents)
    }


def _list_tips(parents_by_commit: Mapping[str, tuple[str, ...]], tip: str) -> set[str]:
    """Return the first parents from a tip on, and what they merged."""
    tips = {tip}
    commit = tip
    while parents := parents_by_commit.get(commit):
        tips.update(parents)
        commit = parents[0]
    return tips


def _read_revisions(ws: Workspace, commits: Collection[str]) -> dict[str, str]:
    """Return the revision that each commit pins, if the knowledge base has it."""
    revisions: dict[str, str] = {}
    for commit, data in history.read_pins(ws.places, commits).items():
        pin = try_read_pin(ws.places.kb, data)
        if pin and ws.engine.has_revision(pin.dolt_commit):
            revisions[commit] = pin.dolt_commit
    return revisions
