"""Take in what a merge button dropped, on a branch of the code's host.

What `vmrag merge --repair` does for one commit in a work tree is done for all of a push, as one
commit on the branch. The knowledge is pushed first: a branch that the host refuses leaves no pin
that nobody can resolve. What somebody pushes meanwhile is looked at again and never replaced, and
what is repaired already is not repaired twice.

Knowledge that the hosted branch itself never had is left out: a pull request may hold a commit with
knowledge that its own later commits take back, and its reviewers saw nothing of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from vmrag_link import pin as pins
from vmrag_link.engines.base import RESERVED_PREFIX
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import RemoteRejected, plural, quoted
from vmrag_link.git import history, objects, transfer
from vmrag_link.git.remotes import Peer
from vmrag_link.merging.revisions import merge_revisions
from vmrag_link.models import ChangeCounts, Record
from vmrag_link.ops.merge.repair import find_dropped_side
from vmrag_link.ops.pull_requests import update_branch
from vmrag_link.ops.push import publish_revision
from vmrag_link.ops.verify.verify import VerifyReport, find_knowledge_remote, verify_between
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.follow import lazy_fetch

OFFER_PREFIX = f"{RESERVED_PREFIX}/repair-"
"""The branches on which a repair waits whose own branch refused it; eight digits of the commit that
dropped follow.
"""

TRAILER = "Vmrag-Repairs"
"""In the message of a repair, before the full name of a commit that dropped something."""

Result = Literal["nothing", "repaired", "offered", "conflict"]
FetchHistory = Callable[[str | None, str], None]
"""Fetches what is missing of the history between two commits."""


class RepairConflict(Record, frozen=True):
    """What needs a person: the commit that dropped, and the documents that both sides changed."""

    commit: str
    documents: tuple[str, ...]


class BranchRepair(Record, frozen=True):
    """`tip`: the branch as it was looked at; None: it is gone. `commit`: the repair.

    `dropped` stands there unmended; `mended` was dropped, and is there again without this repair.
    `others`: further errors, because of which something could not be judged. `offered_on`: the
    branch that holds the repair because `branch` refused it, and `refusal` what the host said.
    """

    result: Result
    branch: str
    tip: str | None
    dropped: tuple[PinFinding, ...] = ()
    mended: tuple[PinFinding, ...] = ()
    others: tuple[PinFinding, ...] = ()
    commit: str | None = None
    revision: str | None = None
    changes: ChangeCounts = ChangeCounts()
    conflict: RepairConflict | None = None
    offered_on: str = ""
    refusal: str = ""


class HostedBranch(NamedTuple):
    """A `name` without `refs/heads/` on the host `peer`. `since`: the commit before the pushed
    ones, None if there is none; `bring` fetches what the clone lacks.
    """

    peer: Peer
    name: str
    since: str | None
    fetch_history: FetchHistory


def repair_branch(ws: Workspace, branch: HostedBranch) -> BranchRepair:
    """Repair what the commits of a branch after `since` dropped, and push knowledge and branch.

    Nothing is pushed if one of them needs a person. Raises `RemoteMoved` if the branch moves all
    the time, `RemoteRejected` if the host takes no branch for the repair either, `PinMissing` and
    `PinMalformed` if the branch itself pins nothing that something could be merged into, and as
    `verify_between`, `transport.publish.publish` and `dropped_side`.
    """
    return update_branch.retry_if_moved(branch.name, lambda: _repair(ws, branch))


def _repair(ws: Workspace, branch: HostedBranch) -> BranchRepair:
    tip = update_branch.find_branch_tip(ws.places, branch.peer, branch.name)
    if tip is None:
        return BranchRepair("nothing", branch.name, None)
    found = _examined(ws, branch, tip)
    if not found.dropped:
        return found
    pin, merged = lazy_fetch.pin_at(ws, tip), _merged(ws, tip, found.dropped)
    if isinstance(merged, RepairConflict):
        return replace(found, result="conflict", conflict=merged)
    if not ws.engine.is_ancestor(pin.dolt_commit, merged):  # one side took back what is pinned now
        said = f"To take it in would drop what {branch.name} pins now, so a person has to decide."
        return replace(found, dropped=(), others=(*found.others, *(_explain(each, said) for each in found.dropped)))
    publish_revision(ws, find_knowledge_remote(ws, tip), merged)
    changes = ws.engine.count_changes(pin.dolt_commit, merged)
    made = update_branch.commit_with_pin(
        ws.places, tip, _next_pin(ws, pin, merged), parents=[tip], message=_message(found.dropped, changes)
    )
    found = replace(found, commit=made, revision=merged, changes=changes)
    try:
        update_branch.push_branch(ws.places, branch.peer, made, branch.name, expected=tip)
    except RemoteRejected as refusal:
        return _offered(ws, branch, replace(found, result="offered", refusal=refusal.message), made)
    return replace(found, result="repaired")


def _examined(ws: Workspace, branch: HostedBranch, tip: str) -> BranchRepair:
    """What was dropped between `since` and a commit, and what is mended there."""
    branch.fetch_history(branch.since, tip)
    report = verify_between(ws, branch.since, tip)
    errors = [finding for finding in report.findings if finding.level == "error"]
    dropped = [error for error in errors if error.code == "KNOWLEDGE_DROPPED"]
    commits = {each.commit for each in dropped}
    never_there = f"{branch.name} itself has never pinned that, so it is not taken in without a person."
    left = _unseen_commits(ws, commits, since=branch.since, tip=tip) if commits else set()
    return BranchRepair(
        "nothing",
        branch.name,
        tip,
        dropped=tuple(each for each in dropped if each.commit not in left),
        mended=_mended(report),
        others=(
            *(error for error in errors if error.code != "KNOWLEDGE_DROPPED"),
            *(_explain(each, never_there) for each in dropped if each.commit in left),
        ),
    )


def _explain(finding: PinFinding, why: str) -> PinFinding:
    return replace(finding, message=f"{finding.message} {why}")


def _mended(report: VerifyReport) -> tuple[PinFinding, ...]:
    return tuple(finding for finding in report.findings if finding.code == "KNOWLEDGE_DROPPED" and finding.mended_by)


def _merged(ws: Workspace, tip: str, dropped: Sequence[PinFinding]) -> str | RepairConflict:
    """The revision with everything that the commits dropped; the same for the same commits, on
    every machine.
    """
    revision, derived = lazy_fetch.pinned_at(ws, tip), twins.build_derived(ws, (tip,))
    for each in dropped:
        while side := find_dropped_side(ws, each.commit, revision):
            outcome = merge_revisions(
                ws.engine, base=side.base, ours=revision, theirs=side.theirs, joins=True, derived=derived
            )
            if outcome.revision is None:
                return RepairConflict(each.commit, tuple(conflict.id for conflict in outcome.conflicts))
            revision = outcome.revision
    return revision


def _next_pin(ws: Workspace, pin: Pin, revision: str) -> bytes:
    """The branch's own pin with another revision: nothing else of it is this job's to decide."""
    committed_at = ws.engine.read_revision(revision).date
    made = pins.update_pin(
        pin, remote=pin.dolt_remote, branch=pin.dolt_branch, commit=revision, committed_at=committed_at
    )
    return pins.format_pin(made)


def _message(dropped: Sequence[PinFinding], changes: ChangeCounts) -> str:
    """Nothing of it is a stranger's text."""
    commits = list(dict.fromkeys(each.commit for each in dropped))
    what = f"commit {commits[0][:12]}" if len(commits) == 1 else plural(len(commits), "commit")
    return "\n".join(
        [
            f"Take in the knowledge that {what} dropped",
            "",
            *dict.fromkeys(each.message for each in dropped),
            f"Merged, as `vmrag merge --repair` does: {changes.text}.",
            "",
            *(f"{TRAILER}: {commit}" for commit in commits),
            "",
        ]
    )


# -- where the branch itself refuses


def _offered(ws: Workspace, branch: HostedBranch, found: BranchRepair, made: str) -> BranchRepair:
    """Push the repair to a branch of its own, from which somebody opens a pull request.

    One that is there already stays if it does the same; an outdated repair of ours is replaced.
    """
    name = f"{OFFER_PREFIX}{found.dropped[0].commit[:8]}"
    there = update_branch.find_branch_tip(ws.places, branch.peer, name)
    found = replace(found, offered_on=name)
    if there is not None:
        ours = _is_repair(ws, there)
        if _does_the_same(ws, branch, found, there) and (not ours or _is_as_new(ws, there, made)):
            return replace(found, commit=there)
        if not ours:
            raise RemoteRejected(
                f"{found.refusal} And {name} is on the host already, with commits that do not repair it.",
                hint=f"git push {quoted(branch.peer.remote)} --delete {quoted(name)}   (if nobody needs it), then run the job again",
            )
    update_branch.push_branch(ws.places, branch.peer, made, name, expected=there)
    return found


def _does_the_same(ws: Workspace, branch: HostedBranch, found: BranchRepair, there: str) -> bool:
    """Whether a commit follows those that dropped something, and mends them all."""
    known = _examined(ws, branch, there)
    return not known.dropped and all(transfer.contains_commit(ws.places, there, each.commit) for each in found.dropped)


def _is_as_new(ws: Workspace, there: str, made: str) -> bool:
    """Whether a repair stands on the same commit as the one that was made now, with the same files.
    Anybody can write its trailer.
    """
    commits = (there, made)
    parents, trees = (
        [find(ws.places, commit) for commit in commits] for find in (objects.read_parents, objects.read_tree)
    )
    return parents[0] == parents[1] and trees[0] == trees[1]


def _is_repair(ws: Workspace, commit: str) -> bool:
    """Whether a commit says that it is one that this module makes."""
    return bool(objects.read_trailers(ws.places, commit, TRAILER))


def _unseen_commits(ws: Workspace, commits: Collection[str], *, since: str | None, tip: str) -> set[str]:
    """The commits, of some, with a parent whose pin the hosted branch never had.

    The branch had what its tips contain: the commits that it stood at from `since` to `tip`, and
    those that were merged into it. Raises as the engine.
    """
    sides = {commit: objects.read_parents(ws.places, commit) for commit in commits}
    stood = _tips(history.list_commits(ws.places, [tip], without=since), tip) | ({since} if since else set())
    pins = _revisions(ws, stood.union(*sides.values()))
    heads = [revision for commit, revision in pins.items() if commit in stood]
    strange = set(ws.engine.find_unreachable(set(pins.values()), heads=heads))
    return {commit for commit, parents in sides.items() if any(pins.get(parent) in strange for parent in parents)}


def _tips(known: Mapping[str, tuple[str, ...]], tip: str) -> set[str]:
    """The first parents from a tip on, and what they merged."""
    found, commit = {tip}, tip
    while parents := known.get(commit):
        found.update(parents)
        commit = parents[0]
    return found


def _revisions(ws: Workspace, commits: Collection[str]) -> dict[str, str]:
    """What commits pin, as far as it is here."""
    read = {commit: try_read_pin(ws.places.kb, data) for commit, data in history.read_pins(ws.places, commits).items()}
    return {commit: pin.dolt_commit for commit, pin in read.items() if pin and ws.engine.has_revision(pin.dolt_commit)}
