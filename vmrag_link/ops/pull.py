"""`vmrag pull`: fetch, then take the remote's KB branch into ours."""

from __future__ import annotations

from vmrag_link.errors import UpstreamMissing
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.ops import branches, destinations, merge
from vmrag_link.ops.bases import base_of
from vmrag_link.ops.fetch import first_with
from vmrag_link.ops.merge import MergeReport
from vmrag_link.travel.publish import Moved
from vmrag_link.workspace import Workspace


class PullReport(Record, frozen=True):
    remote: str
    updates: tuple[Moved, ...]
    merge: MergeReport


def pull(ws: Workspace, remote: str | None = None, *, branch: str | None = None) -> PullReport:
    """Merge the remote's KB branch (that of HEAD's code branch, unless it is named); the result is pinned.

    Raises `UpstreamMissing`, and as `ops.fetch.fetch` and `ops.merge.merge`.
    """
    pin = ws.target().pin
    source, updates = first_with(ws, destinations.asked(ws, remote), pin.dolt_commit if pin else None)
    target = merge.mergeable(ws)
    name = branch or (target.kb_branch.name if target.kb_branch else _would_be(ws, target.trigger.branch or ""))
    theirs = ws.engine.remote_heads(source.key).get(name)
    if theirs is None:
        raise UpstreamMissing(
            f"{source.text} has no KB branch {name!r}.",
            hint="vmrag push (makes it), or name another one: vmrag pull --branch NAME",
            branch=name,
        )
    base = base_of(ws, target.revision, theirs)
    report = merge.merge_revision(ws, target, f"{source.text}/{name}", base=base, theirs=theirs)
    return PullReport(source.text, updates, report)


def _would_be(ws: Workspace, code: str) -> str:
    """The KB branch that the first write on a code branch makes."""
    return plumbing.kb_branch_of(ws.places, code) or branches.free_name(ws.engine, code, set())
