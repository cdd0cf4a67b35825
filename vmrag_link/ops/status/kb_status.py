"""Compare remote, index and pin with the knowledge base, for the MCP tools about the status.

The command has more: `ops.status.status` also explains what to type. Only `probe_remote` uses the
network.
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
    """The state of the index."""

    status: Literal["synced", "pending", "error"]
    pending_collections: list[str]
    chroma: ChromaState
    """The store for Chroma's own clients, which follows the index."""


class PinStatus(Record, frozen=True):
    """The state of the pin."""

    link_file: str
    pinned_commit: str | None
    """The revision in the pin file."""
    state: PinState
    """The knowledge base relative to `pinned_commit`; `no_link` if the pin cannot be read."""


def probe_remote(ws: Workspace, remote: Upstream) -> str:
    """Contact the remote briefly, and return why it does not answer; empty if it does.

    An untrusted remote is not contacted.
    """
    if remote.address is None:
        return remote.problem
    problem = probe.probe_remote(ws.places, remote.address).problem
    return problem.message if problem else ""


def read_probe(ws: Workspace, remote: Upstream) -> bool | None:
    """Return whether the remote answered when it was last contacted, a moment ago; None if it was
    not contacted.
    """
    answer = probe.last_result(ws.places, remote.address) if remote.address else None
    return answer.problem is None if answer else None


def count_ahead_behind(ws: Workspace, origin: AnswerOrigin, remote: Upstream | None) -> AheadBehind:
    """Count commits relative to the remote, as of the last fetch.

    The remote's KB branch with the name of HEAD's is compared, which `pull` also merges.
    """
    name = origin.kb.branch or ws.read_trigger().branch
    if remote is None or name is None:
        return AheadBehind()
    return revisions.compare_with_remote(ws.engine, origin.revision, name, remote.heads)


def build_index_block(ws: Workspace, origin: AnswerOrigin) -> IndexBlock:
    """Return which collections the index lacks in their present state. Updates nothing."""
    chroma = ws.chroma.local.read_state()
    if not origin.notes and not _explain_index_problem(ws, origin):
        return IndexBlock("synced", [], chroma)
    try:
        outdated = [
            collection for collection in index_status.read_status(ws).collections if collection.sync_status != "synced"
        ]
    except VmragError:  # the status must succeed; a search reports the error
        return IndexBlock("error", [], chroma)
    names = [collection.collection_name for collection in outdated]
    if any(collection.sync_status == "error" for collection in outdated):
        return IndexBlock("error", names, chroma)
    return IndexBlock("pending" if names else "synced", names, chroma)


def _explain_index_problem(ws: Workspace, origin: AnswerOrigin) -> str:
    """Return why the index cannot answer in its present state; empty if it can."""
    if isinstance(origin.at, WorkingSet):
        return ws.sync_context.working_copy(origin.at.branch, origin.revision).find_problem()
    return ws.views.find_problem(origin.revision)


def build_pin_status(ws: Workspace, origin: AnswerOrigin) -> PinStatus:
    """Compare the pin with the knowledge base."""
    data = plumbing.read_pin_bytes(ws.places)
    try:
        pinned = migrated.read_pin(ws.places.kb, data).dolt_commit if data is not None else None
    except PinMalformed:
        pinned = None
    return PinStatus(PIN_NAME, pinned, "no_link" if pinned is None else _compare_pin(ws, origin, pinned))


def _compare_pin(ws: Workspace, origin: AnswerOrigin, pinned: str) -> PinState:
    branch = ws.find_kb_branch()
    ours = branch.head if branch else origin.revision
    if ours == pinned:
        return "in_sync"
    if not ws.engine.has_revision(pinned) or ws.engine.is_ancestor(ours, pinned):
        return "kb_behind"
    return "kb_ahead" if ws.engine.is_ancestor(pinned, ours) else "diverged"
