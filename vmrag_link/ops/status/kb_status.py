"""Where the knowledge base of a work tree stands: what is in conflict or not indexed, and how remote and pin compare.

Facts for programs; `ops.status.status` is what `vmrag status` says to a person.
"""

from __future__ import annotations

from typing import Literal

from vmrag_link import pin as pins
from vmrag_link.errors import PinMalformed, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import Record, Working
from vmrag_link.ops.commits import ahead_behind
from vmrag_link.ops.commits.ahead_behind import AheadBehind
from vmrag_link.ops.follow.provenance import Standing
from vmrag_link.ops.index import index_status
from vmrag_link.ops.merge import conflict_rows
from vmrag_link.ops.merge.conflict_rows import OpenConflict
from vmrag_link.ops.remotes.upstream import Upstream, upstream
from vmrag_link.paths import PIN_NAME
from vmrag_link.transport import probe
from vmrag_link.workspace import Workspace

PinState = Literal["in_sync", "kb_ahead", "kb_behind", "diverged", "no_link"]


class IndexBlock(Record, frozen=True):
    status: Literal["synced", "pending", "error"]
    pending_collections: list[str]


class PinStatus(Record, frozen=True):
    """`state`: how the knowledge base stands to `pinned_commit`, which the pin file names; `no_link` where that cannot be read."""

    link_file: str
    pinned_commit: str | None
    state: PinState


class Situation(Record, frozen=True):
    """`commit`: what is read, with the uncommitted documents of `branch`. `apart`: from the remote, as of the last fetch. `notes`: what a
    person should know about it.
    """

    branch: str | None
    commit: str
    remote: Upstream | None
    apart: AheadBehind
    merge_in_progress: bool
    conflicts: tuple[OpenConflict, ...]
    index: IndexBlock
    link: PinStatus
    notes: tuple[str, ...] = ()


class Reached(Record, frozen=True):
    """Whether the remote answers, and why not."""

    connected: bool
    problem: str = ""


def situation(ws: Workspace, here: Standing) -> Situation:
    """As the workspace stands; asks no network. Raises what the knowledge base itself raises, and nothing else."""
    remote = upstream(ws)
    merge = conflict_rows.open_merge(ws)
    return Situation(
        branch=here.kb.branch,
        commit=here.revision,
        remote=remote,
        apart=_apart(ws, here, remote),
        merge_in_progress=merge is not None,
        conflicts=merge.conflicts if merge else (),
        index=_index(ws, here),
        link=_pin(ws, here),
        notes=(merge.problem,) if merge and merge.problem else (),
    )


def reached(ws: Workspace, remote: Upstream) -> Reached:
    """Ask the remote, for a moment; not one that is not trusted."""
    if remote.address is None:
        return Reached(connected=False, problem=remote.problem)
    problem = probe.asked(ws.places, remote.address).problem
    return Reached(problem is None, problem.message if problem else "")


def known(ws: Workspace, remote: Upstream) -> bool | None:
    """Whether the remote answered when it was asked a moment ago; None if nobody did. Nobody is asked now."""
    answer = probe.remembered(ws.places, remote.address) if remote.address else None
    return answer.problem is None if answer else None


def _apart(ws: Workspace, here: Standing, remote: Upstream | None) -> AheadBehind:
    if remote is None or here.kb.branch is None:
        return AheadBehind()
    return ahead_behind.from_remote(ws.engine, here.revision, here.kb.branch, remote.heads)


def _index(ws: Workspace, here: Standing) -> IndexBlock:
    if not here.notes and not _unindexed(ws, here):
        return IndexBlock("synced", [])
    try:
        found = [each for each in index_status.look(ws).collections if each.status != "synced"]
    except VmragError:  # a status has to answer; what uses the index says what is wrong with it
        return IndexBlock("error", [])
    names = [each.collection.name for each in found]
    failed = any(each.status == "error" for each in found)
    return IndexBlock("error" if failed else "pending" if names else "synced", names)


def _unindexed(ws: Workspace, here: Standing) -> str:
    """Why the index cannot answer as it is; empty if it can."""
    if isinstance(here.at, Working):
        return ws.sync_context.working_copy(here.at.branch, here.revision).problem()
    return ws.snapshots.problem(here.revision)


def _pin(ws: Workspace, here: Standing) -> PinStatus:
    data = plumbing.pin_bytes(ws.places)
    try:
        pinned = pins.parse(data).dolt_commit if data is not None else None
    except PinMalformed:
        pinned = None
    return PinStatus(PIN_NAME, pinned, "no_link" if pinned is None else _compared(ws, here, pinned))


def _compared(ws: Workspace, here: Standing, pinned: str) -> PinState:
    engine, branch = ws.engine, ws.kb_branch()
    ours = branch.head if branch else here.revision
    if ours == pinned:
        return "in_sync"
    if not engine.has_revision(pinned) or engine.is_ancestor(ours, pinned):
        return "kb_behind"
    return "kb_ahead" if engine.is_ancestor(pinned, ours) else "diverged"
