"""List the branches of the knowledge base and of its remote by name."""

from __future__ import annotations

import re
from fnmatch import translate

from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.models import Record, RevisionInfo
from vmrag_link.transport import probe
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits.revisions import AheadBehind, Distances
from vmrag_link.workspace.follow.provenance import AnswerOrigin
from vmrag_link.workspace.remotes.destinations import Upstream, find_upstream


class Branch(Record, frozen=True):
    """A KB branch of this clone, of the remote, or of both."""

    name: str
    current: bool
    local: bool
    remote: bool
    head: RevisionInfo
    """The local head, or the remote's if the branch is not local."""
    ahead: int | None = None
    """Number of commits that the remote lacks. None unless both have the branch."""
    behind: int | None = None
    """Number of commits that only the remote has. None unless both have the branch."""


class BranchList(Record, frozen=True):
    """All KB branches that a caller asked for."""

    current: str | None
    branches: tuple[Branch, ...]
    doubt: str
    """Why the remote's branches may be out of date. Empty if they are not, or if there is no
    remote.
    """


def list_branches(ws: Workspace, origin: AnswerOrigin, *, local: bool, pattern: str = "") -> BranchList:
    """List KB branches by name.

    Without `local`, the list contains only the branches of the remote. `pattern` is a glob;
    reserved names are listed only if it begins like one of them.

    This checks whether the remote has moved, but fetches nothing, because a fetch is slow and
    changes the knowledge base.
    """
    remote = find_upstream(ws)
    our_heads = {branch.name: branch.head for branch in ws.engine.list_branches()}
    their_heads = _read_remote_heads(ws, remote)
    matches = re.compile(translate(pattern or "*")).match
    lists_reserved = bool(pattern) and is_reserved(pattern)
    candidates = our_heads.keys() | their_heads.keys() if local else their_heads.keys()
    names = sorted(name for name in candidates if matches(name) and (lists_reserved or not is_reserved(name)))
    common = [name for name in names if name in our_heads and name in their_heads]
    diverged_heads = [
        head for name in common if our_heads[name] != their_heads[name] for head in (our_heads[name], their_heads[name])
    ]
    distances = Distances(ws.engine, diverged_heads) if diverged_heads else None
    rows = []
    for name in names:
        distance = None
        if name in common:
            distance = AheadBehind()
            if distances and our_heads[name] != their_heads[name]:
                distance = distances.count_apart([our_heads[name]], [their_heads[name]])
        row = Branch(
            name=name,
            current=name == origin.kb.branch,
            local=name in our_heads,
            remote=name in their_heads,
            head=ws.engine.read_revision(our_heads.get(name) or their_heads[name]),
            ahead=distance.ahead if distance else None,
            behind=distance.behind if distance else None,
        )
        rows.append(row)
    return BranchList(origin.kb.branch, tuple(rows), _explain_doubt(ws, remote))


def list_heads(ws: Workspace, origin: AnswerOrigin) -> dict[str, str]:
    """Return the heads by branch name, the current branch first.

    A branch that only the remote has is listed as `REMOTE/NAME`.
    """
    our_heads = {branch.name: branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name)}
    heads = {}
    if origin.kb.branch in our_heads:
        heads[origin.kb.branch] = our_heads[origin.kb.branch]
    heads |= our_heads
    remote = find_upstream(ws)
    if remote:
        heads |= {f"{remote.name}/{name}": head for name, head in remote.heads.items() if name not in our_heads}
    return heads


def _read_remote_heads(ws: Workspace, remote: Upstream | None) -> dict[str, str]:
    """Return the remote's heads whose revisions are in this knowledge base."""
    heads = ws.engine.remote_heads(remote.address.key) if remote and remote.address else {}
    return {name: head for name, head in heads.items() if ws.engine.has_revision(head)}


def _explain_doubt(ws: Workspace, remote: Upstream | None) -> str:
    """Return `doubt` of the list. It asks the remote, if the remote may be contacted."""
    if remote is None:
        return ""
    return probe.describe_doubt(ws.places, ws.engine, remote.address) if remote.address else remote.problem
