"""How remote, index and pin compare with the knowledge base: the parts of a tool's status.

`ops.status.status` says to a person whether they agree, and what to type. No function but `reach`
asks the network.
"""

from __future__ import annotations

from typing import Literal

from vmrag_link.engines import migrated
from vmrag_link.errors import PinMalformed, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import Record, WorkingSet
from vmrag_link.paths import PIN_NAME
from vmrag_link.sync.chroma_state import ChromaState
from vmrag_link.transport import probe
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import index_status
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.commits.revisions import AheadBehind
from vmrag_link.workspace.follow.provenance import AnswerOrigin
from vmrag_link.workspace.remotes.destinations import Upstream

PinState = Literal["in_sync", "kb_ahead", "kb_behind", "diverged", "no_link"]


class IndexBlock(Record, frozen=True):
    """`chroma`: the store for Chroma's own clients, which follows the index."""

    status: Literal["synced", "pending", "error"]
    pending_collections: list[str]
    chroma: ChromaState


class PinStatus(Record, frozen=True):
    """`state`: the knowledge base against `pinned_commit`, the pin file's; `no_link` if that cannot
    be read.
    """

    link_file: str
    pinned_commit: str | None
    state: PinState


def probe_remote(ws: Workspace, remote: Upstream) -> str:
    """Ask the remote, for a moment; returns why it does not answer, empty if it does.

    One that is not trusted is not asked.
    """
    if remote.address is None:
        return remote.problem
    problem = probe.probe_remote(ws.places, remote.address).problem
    return problem.message if problem else ""


def read_probe(ws: Workspace, remote: Upstream) -> bool | None:
    """Whether the remote answered when it was asked a moment ago; None if it was not asked."""
    answer = probe.last_result(ws.places, remote.address) if remote.address else None
    return answer.problem is None if answer else None


def count_ahead_behind(ws: Workspace, here: AnswerOrigin, remote: Upstream | None) -> AheadBehind:
    """Numbers of commits, as of the last fetch.

    The remote's KB branch of HEAD's name counts, which `pull` takes, too.
    """
    name = here.kb.branch or ws.read_trigger().branch
    if remote is None or name is None:
        return AheadBehind()
    return revisions.compare_with_remote(ws.engine, here.revision, name, remote.heads)


def build_index_block(ws: Workspace, here: AnswerOrigin) -> IndexBlock:
    """Which collections the index does not hold as they are now. Brings nothing."""
    chroma = ws.chroma.local.read_state()
    if not here.notes and not _index_problem(ws, here):
        return IndexBlock("synced", [], chroma)
    try:
        found = [
            collection for collection in index_status.read_status(ws).collections if collection.sync_status != "synced"
        ]
    except VmragError:  # a status has to answer; what uses the index says what is wrong with it
        return IndexBlock("error", [], chroma)
    names = [each.collection_name for each in found]
    failed = any(each.sync_status == "error" for each in found)
    return IndexBlock("error" if failed else "pending" if names else "synced", names, chroma)


def _index_problem(ws: Workspace, here: AnswerOrigin) -> str:
    """Why the index cannot answer as it is; empty if it can."""
    if isinstance(here.at, WorkingSet):
        return ws.sync_context.working_copy(here.at.branch, here.revision).find_problem()
    return ws.views.find_problem(here.revision)


def build_pin_status(ws: Workspace, here: AnswerOrigin) -> PinStatus:
    data = plumbing.read_pin_bytes(ws.places)
    try:
        pinned = migrated.read_pin(ws.places.kb, data).dolt_commit if data is not None else None
    except PinMalformed:
        pinned = None
    return PinStatus(PIN_NAME, pinned, "no_link" if pinned is None else _compare(ws, here, pinned))


def _compare(ws: Workspace, here: AnswerOrigin, pinned: str) -> PinState:
    engine, branch = ws.engine, ws.find_kb_branch()
    ours = branch.head if branch else here.revision
    if ours == pinned:
        return "in_sync"
    if not engine.has_revision(pinned) or engine.is_ancestor(ours, pinned):
        return "kb_behind"
    return "kb_ahead" if engine.is_ancestor(pinned, ours) else "diverged"
