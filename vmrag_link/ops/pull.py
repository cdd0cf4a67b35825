"""`vmrag pull`: fetch, then take in what the upstream branch of the code pins.

A remote's KB branch is a name, and whoever uses it first or pushes in vain moves it; what belongs to the code is what the code pins.
"""

from __future__ import annotations

from typing import NamedTuple

from vmrag_link import pin as pins
from vmrag_link.engines.base import RESERVED_PREFIX
from vmrag_link.errors import GitBusy, GitReferenceMissing, UpstreamMissing, quoted
from vmrag_link.git import plumbing, remotes, transfer
from vmrag_link.git.heads import BRANCHES
from vmrag_link.models import Record
from vmrag_link.ops import arrival, destinations, merge
from vmrag_link.ops.bases import base_of
from vmrag_link.ops.fetch import first_with
from vmrag_link.ops.merge import MergeReport
from vmrag_link.ops.push import no_such_branch
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.travel.address import Address
from vmrag_link.travel.publish import Moved
from vmrag_link.workspace import Workspace


class PullReport(Record, frozen=True):
    """`remote`, as people know it, is where the knowledge was fetched from; `updates`: its KB branches that moved. `code_behind`: the
    upstream branch has commits that HEAD lacks, which git brings.
    """

    remote: str
    updates: tuple[Moved, ...]
    merge: MergeReport
    code_behind: bool = False


class _Upstream(NamedTuple):
    """A code branch as it was last fetched: its name for people, its commit, and the pin of that."""

    name: str
    commit: str
    pin: Pin


def pull(ws: Workspace, remote: str | None = None, *, branch: str | None = None) -> PullReport:
    """Merge what the upstream of HEAD's code branch pins, or the remote's KB branch that is named; the result is pinned.

    The knowledge is fetched first; the code's branches are git's, and count as of its last fetch. What the code has reverted since stays
    reverted; a KB branch that is named is taken in whatever the code did with it. Raises `UpstreamMissing`, `BranchMissing`, and as
    `ops.fetch.fetch` and `ops.merge.merge`.
    """
    addresses = destinations.asked(ws, remote)
    return _of_upstream(ws, addresses, remote) if branch is None else _of_kb_branch(ws, addresses, branch)


def _of_upstream(ws: Workspace, addresses: list[Address], remote: str | None) -> PullReport:
    upstream = _upstream(ws, remote)
    source, updates = first_with(ws, addresses, upstream.pin.dolt_commit)
    target = merge.mergeable(ws)
    theirs = arrival.require(ws, upstream.pin, upstream.name)
    head = plumbing.head(ws.places).commit
    base = base_of(ws, target.revision, theirs, (head, upstream.commit) if head else None)
    report = merge.merge_revision(ws, target, upstream.name, base=base, theirs=theirs)
    behind = head is None or not transfer.contains(ws.places, head, upstream.commit)
    return PullReport(source.text, updates, report, code_behind=behind)


def _of_kb_branch(ws: Workspace, addresses: list[Address], name: str) -> PullReport:
    pin = ws.target().pin
    source, updates = first_with(ws, addresses, pin.dolt_commit if pin else None)
    target = merge.mergeable(ws)
    there = ws.engine.remote_heads(source.key)
    if name not in there or name.startswith(RESERVED_PREFIX):
        raise no_such_branch(source.text, name, there)
    theirs = there[name]
    report = merge.merge_revision(
        ws, target, f"{source.text}/{name}", base=base_of(ws, target.revision, theirs), theirs=theirs
    )
    return PullReport(source.text, updates, report)


def _upstream(ws: Workspace, remote: str | None) -> _Upstream:
    """The branch that `git pull` takes, or else the remote's of the same name. `remote`: a git remote counts, anything else says only where
    the knowledge is.
    """
    branch = ws.trigger().branch
    if branch is None:
        raise GitBusy("HEAD is detached: it follows no branch.", hint="git switch BRANCH", operation="detached")
    name, refs = _refs(ws, branch, remote)
    for ref in refs:
        try:
            commit = plumbing.resolve(ws.places, ref)
        except GitReferenceMissing:
            continue
        name = name or ref.removeprefix("refs/remotes/")
        data = plumbing.blob(ws.places, f"{commit}:{PIN_NAME}", limit=pins.MAX_BYTES)
        if data is None:
            raise UpstreamMissing(f"{name} pins no knowledge.", hint=f"git log {quoted(name)} -- {PIN_NAME}", ref=name)
        return _Upstream(name, commit, pins.parse(data, source=f"{name}:{PIN_NAME}"))
    raise UpstreamMissing(
        f"{name} is not here." if name else f"The code branch {branch!r} has no upstream branch.",
        hint="git fetch (or, if there is none yet: git push -u REMOTE HEAD; to take in a KB branch by its name: vmrag pull --branch NAME)",
        branch=branch,
    )


def _refs(ws: Workspace, branch: str, remote: str | None) -> tuple[str, list[str]]:
    """Where the upstream's commit may stand, and its name where the configuration has it."""
    section = f"branch.{branch}"
    own = plumbing.config_section(ws.places, section)
    at, merges = own.get(f"{section}.remote", ""), own.get(f"{section}.merge", "")
    chosen = remote if remote in remotes.names(ws.places) else None
    if at and merges and chosen in (None, at):
        short = merges.removeprefix(BRANCHES)
        return short if at == "." else f"{remotes.shown(at)}/{short}", [f"{branch}@{{upstream}}"]
    there = [chosen] if chosen else remotes.nearest(ws.places, branch)
    return "", [f"refs/remotes/{each}/{branch}" for each in there]
