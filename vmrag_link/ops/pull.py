"""`vmrag pull`: fetch, then take in what the upstream branch of the code pins.

A remote's KB branch is only a name, which every push may move; what belongs to the code is what the
code pins.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.engines.base import is_reserved
from vmrag_link.errors import BranchMissing, GitBusy, GitReferenceMissing, MergeConflict, UpstreamMissing, quoted
from vmrag_link.git import plumbing, remotes, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Record
from vmrag_link.ops import reset
from vmrag_link.ops.merge import merge
from vmrag_link.ops.merge.merge import MergeReport
from vmrag_link.ops.reset import CleanedBranch, Handling
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.transport.address import Address
from vmrag_link.transport.publish import BranchMove
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.history.ranges import find_base, pair_with_head
from vmrag_link.workspace.merge import conflict_rows
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations
from vmrag_link.workspace.remotes.fetch import build_branch_missing, fetch_revision


class PullReport(Record, frozen=True):
    """`remote`: where the knowledge was fetched from, for people.

    `updates`: its KB branches that moved. `code_behind`: the upstream branch has commits that HEAD
    lacks, which git brings.
    """

    remote: str
    updates: tuple[BranchMove, ...]
    merge: MergeReport
    code_behind: bool = False


class _Upstream(NamedTuple):
    """A code branch as last fetched: its name for people, its commit, and that commit's pin."""

    name: str
    commit: str
    pin: Pin


class _Found(NamedTuple):
    """What to merge: `theirs`, its `name` for people, its code `commit` if git's history counts."""

    source: Address
    updates: tuple[BranchMove, ...]
    name: str
    theirs: str
    commit: str | None = None
    code_behind: bool = False


def pull(ws: Workspace, remote: str | None = None, *, branch: str | None = None) -> PullReport:
    """Merge what the upstream of HEAD's code branch pins, or a KB branch of the remote; pin it.

    The knowledge is fetched first; the code's branches count as of git's last fetch. What the code
    has reverted since stays reverted; a named KB branch is merged regardless of the code. Raises
    `UpstreamMissing`, `BranchMissing`, and as `ops.remotes.fetch.fetch` and
    `ops.merge.merge.merge`.
    """
    addresses = destinations.list_fetch_addresses(ws, remote)
    return _merge(ws, _upstream_at(ws, addresses, remote) if branch is None else _kb_branch_at(ws, addresses, branch))


class ClearedPull(Record, frozen=True):
    """`commits` that were merged; `cleared`: what became of the documents that were not committed.

    `left`: the remote's KB branch that is called as HEAD's, if it stands at a revision that the
    code pinned once and has left. That is not taken unless the branch is named.
    """

    cleared: CleanedBranch
    report: PullReport
    commits: int
    left: str | None


def pull_and_clear(
    ws: Workspace, remote: str | None = None, *, branch: str | None = None, how: Handling, message: str
) -> ClearedPull:
    """As `pull`, and deal with uncommitted documents as `how` says.

    What the remote's KB branch of HEAD's name holds beyond that is taken, too; a code branch
    without an upstream takes that branch alone. Raises `MergeConflict` for a merge that is open
    now, and as `pull` and `uncommitted.cleared`.
    """
    merge.require_mergeable(ws)
    addresses = destinations.list_fetch_addresses(ws, remote)
    if branch is not None:
        found = _kb_branch_at(ws, addresses, branch)
    else:
        try:
            found = _upstream_at(ws, addresses, remote)
        except UpstreamMissing as missing:
            found = _namesake_at(ws, addresses, missing)
    with reset.clean_branch(ws, how, message=message) as cleared:
        report = _merge_or_raise(ws, found)
        beyond = _namesake_beyond(ws, found, report.merge) if branch is None else None
        left = beyond if beyond and _pinned_before(ws, found, beyond) else None
        heads = [report.merge.theirs]
        if beyond and not left:
            more = _merge_or_raise(ws, beyond)
            heads.append(more.merge.theirs)
            report = msgspec.structs.replace(report, merge=_joined(ws, report.merge, more.merge))
    commits = revisions.count_beyond(ws.engine, heads, [report.merge.ours])
    return ClearedPull(cleared, report, commits, left.name if left else None)


def _merge_or_raise(ws: Workspace, found: _Found) -> PullReport:
    report = _merge(ws, found)
    if report.merge.result == "conflict":
        raise _conflict(ws, report.merge)
    return report


def _joined(ws: Workspace, first: MergeReport, second: MergeReport) -> MergeReport:
    """Two merges, one after the other, as one."""
    results = {first.result, second.result} - {"already_up_to_date"}
    after = second.revision or second.ours
    return msgspec.structs.replace(
        second,
        result="merge" if "merge" in results else second.result,
        ours=first.ours,
        changes=ws.engine.count_changes(first.ours, after),
        notes=first.notes + second.notes,
    )


def _conflict(ws: Workspace, report: MergeReport) -> MergeConflict:
    opened = conflict_rows.find_open_merge(ws)
    listed = conflict_rows.encode_rows(opened.conflicts if opened else ())
    return MergeConflict(
        f"{report.source} conflicts with what is here; the merge is open: {len(report.conflicts)} in conflict.",
        hint="vmrag resolve",
        conflicts=listed,
    )


def _merge(ws: Workspace, found: _Found) -> PullReport:
    target = merge.require_mergeable(ws)
    commits = pair_with_head(ws, target.revision, found.commit) if found.commit else None
    base = find_base(ws, target.revision, found.theirs, commits)
    report = merge.merge_revision(ws, target, found.name, base=base, theirs=found.theirs)
    return PullReport(found.source.text, found.updates, report, code_behind=found.code_behind)


def _upstream_at(ws: Workspace, addresses: list[Address], remote: str | None) -> _Found:
    upstream = _upstream(ws, remote)
    source, updates = fetch_revision(ws, addresses, upstream.pin.dolt_commit)
    theirs = lazy_fetch.require_revision(ws, upstream.pin, upstream.name)
    head = plumbing.read_head(ws.places).commit
    behind = head is None or not transfer.contains_commit(ws.places, head, upstream.commit)
    return _Found(source, updates, upstream.name, theirs, upstream.commit, code_behind=behind)


def _kb_branch_at(ws: Workspace, addresses: list[Address], name: str) -> _Found:
    pin = ws.resolve_target().pin
    source, updates = fetch_revision(ws, addresses, pin.dolt_commit if pin else None)
    there = ws.engine.remote_heads(source.key)
    if name not in there or is_reserved(name):
        raise build_branch_missing(source.text, name, there)
    return _Found(source, updates, f"{source.text}/{name}", there[name])


def _namesake_at(ws: Workspace, addresses: list[Address], missing: UpstreamMissing) -> _Found:
    name = _own_name(ws)
    if name is None:
        raise missing
    try:
        return _kb_branch_at(ws, addresses, name)
    except BranchMissing as error:
        raise UpstreamMissing(f"{missing.message} {error.message}", hint=missing.hint, **missing.details) from error


def _own_name(ws: Workspace) -> str | None:
    own = ws.find_kb_branch()
    return own.name if own else ws.read_trigger().branch


def _namesake_beyond(ws: Workspace, found: _Found, merged: MergeReport) -> _Found | None:
    """The remote's KB branch of HEAD's name, if it holds what is not here."""
    name = _own_name(ws)
    head = ws.engine.remote_heads(found.source.key).get(name) if name else None
    if name is None or head is None or ws.engine.is_ancestor(head, merged.revision or merged.ours):
        return None
    return _Found(found.source, found.updates, f"{found.source.text}/{name}", head)


def _pinned_before(ws: Workspace, found: _Found, beyond: _Found) -> bool:
    """Whether a commit of HEAD's history, or of the upstream's, pins the revision: the code was
    there, and went on without it.
    """
    commits = filter(None, (plumbing.read_head(ws.places).commit, found.commit))
    pins = (pin for commit in commits for pin, _ in history_pins.pins_reached(ws.places, commit))
    return any(migrated.translate_revision(ws.places.kb, pin.dolt_commit) == beyond.theirs for pin in pins)


def _upstream(ws: Workspace, remote: str | None) -> _Upstream:
    """The branch that `git pull` takes, or else the remote's of the same name.

    `remote`: a git remote counts, anything else says only where the knowledge is.
    """
    branch = ws.read_trigger().branch
    if branch is None:
        raise GitBusy("HEAD is detached: it follows no branch.", hint="git switch BRANCH", operation="detached")
    name, refs = _refs(ws, branch, remote)
    for ref in refs:
        try:
            commit = plumbing.resolve_commit(ws.places, ref)
        except GitReferenceMissing:
            continue
        name = name or ref.removeprefix("refs/remotes/")
        data = plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}", limit=pins.MAX_BYTES)
        if data is None:
            raise UpstreamMissing(f"{name} pins no knowledge.", hint=f"git log {quoted(name)} -- {PIN_NAME}", ref=name)
        return _Upstream(name, commit, migrated.read_pin(ws.places.kb, data, source=f"{name}:{PIN_NAME}"))
    raise UpstreamMissing(
        f"{name} is not here." if name else f"The code branch {branch!r} has no upstream branch.",
        hint="git fetch (or, if there is none yet: git push -u REMOTE HEAD; to take in a KB branch by its name: vmrag pull --branch NAME)",
        branch=branch,
    )


def _refs(ws: Workspace, branch: str, remote: str | None) -> tuple[str, list[str]]:
    """Where the upstream's commit may stand, and its name where the configuration has it."""
    section = f"branch.{branch}"
    own = plumbing.read_section(ws.places, section)
    at, merges = own.get(f"{section}.remote", ""), own.get(f"{section}.merge", "")
    chosen = remote if remote in remotes.list_remotes(ws.places) else None
    if at and merges and chosen in (None, at):
        short = merges.removeprefix(BRANCHES)
        return short if at == "." else f"{remotes.redact_url(at)}/{short}", [f"{branch}@{{upstream}}"]
    there = [chosen] if chosen else remotes.list_for_reading(ws.places, branch)
    return "", [f"refs/remotes/{each}/{branch}" for each in there]
