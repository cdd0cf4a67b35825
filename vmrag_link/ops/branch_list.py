"""The branches of the knowledge base and of the remote, as one list of names."""

from __future__ import annotations

import re
from fnmatch import translate

from msgspec.structs import replace

from vmrag_link.engines.base import is_reserved
from vmrag_link.models import Record, RevisionInfo
from vmrag_link.transport import probe
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits.revisions import AheadBehind, Distances
from vmrag_link.workspace.follow.provenance import AnswerOrigin
from vmrag_link.workspace.remotes.destinations import Upstream, find_upstream


class Branch(Record, frozen=True):
    """`head`: ours where it is local, else the remote's. `ahead`, `behind`: of branches that both
    have.
    """

    name: str
    current: bool
    local: bool
    remote: bool
    head: RevisionInfo
    ahead: int | None = None
    behind: int | None = None


class BranchList(Record, frozen=True):
    """`doubt`: why the remote's branches may be out of date.

    Empty without a remote, or if they are not.
    """

    current: str | None
    branches: tuple[Branch, ...]
    doubt: str


def list_branches(ws: Workspace, here: AnswerOrigin, *, local: bool, pattern: str = "") -> BranchList:
    """By name. Not `local`: only those that the remote has.

    `pattern`: a glob; reserved names are listed only if it begins like one.

    The remote is asked whether it has moved; nothing is fetched, because that is slow and changes
    the knowledge base.
    """
    remote = find_upstream(ws)
    ours = {branch.name: branch.head for branch in ws.engine.list_branches()}
    theirs = _theirs(ws, remote)
    matches = re.compile(translate(pattern or "*")).match
    kept = bool(pattern) and is_reserved(pattern)
    names = sorted(
        name
        for name in (ours.keys() | theirs.keys() if local else theirs.keys())
        if matches(name) and (kept or not is_reserved(name))
    )
    both = [name for name in names if name in ours and name in theirs and ours[name] != theirs[name]]
    distances = Distances(ws.engine, [side[name] for name in both for side in (ours, theirs)]) if both else None
    rows = []
    for name in names:
        head = ws.engine.read_revision(ours.get(name) or theirs[name])
        row = Branch(name, name == here.kb.branch, name in ours, name in theirs, head)
        if name in ours and name in theirs:
            apart = distances.count_apart([ours[name]], [theirs[name]]) if distances and name in both else AheadBehind()
            row = replace(row, ahead=apart.ahead, behind=apart.behind)
        rows.append(row)
    return BranchList(here.kb.branch, tuple(rows), _doubt(ws, remote))


def _theirs(ws: Workspace, remote: Upstream | None) -> dict[str, str]:
    heads = ws.engine.remote_heads(remote.address.key) if remote and remote.address else {}
    return {name: head for name, head in heads.items() if ws.engine.has_revision(head)}


def _doubt(ws: Workspace, remote: Upstream | None) -> str:
    if remote is None:
        return ""
    return probe.describe_doubt(ws.places, ws.engine, remote.address) if remote.address else remote.problem


def list_heads(ws: Workspace, here: AnswerOrigin) -> dict[str, str]:
    """Heads by branch: the current one first, those that only the remote has as `REMOTE/NAME`."""
    ours = {branch.name: branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name)}
    current = {here.kb.branch: ours[here.kb.branch]} if here.kb.branch in ours else {}
    remote = find_upstream(ws)
    theirs = (
        {}
        if remote is None
        else {f"{remote.name}/{name}": head for name, head in remote.heads.items() if name not in ours}
    )
    return {**current, **ours, **theirs}
