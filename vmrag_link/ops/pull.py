"""`vmrag pull`: fetch, then merge what the upstream branch of the code pins.

A KB branch of a remote is only a name that any push can move. The pin decides which knowledge
belongs to the code.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import (
    BranchMissing,
    GitBusy,
    GitReferenceMissing,
    MergeConflict,
    UpstreamMissing,
    plural,
    quoted,
)
from vmrag_link.git import configuration, plumbing, remotes, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import Record
from vmrag_link.ops import uncommitted
from vmrag_link.ops.merge import merge
from vmrag_link.ops.merge.merge import MergeReport
from vmrag_link.ops.uncommitted import CleanedBranch, Handling
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
    """The result of `pull`."""

    remote: str
    """The displayed name of the remote that the knowledge base was fetched from."""
    updates: tuple[BranchMove, ...]
    """KB branches of the remote that moved."""
    merge: MergeReport
    code_behind: bool = False
    """True if the upstream branch has commits that HEAD lacks, which `git pull` fetches."""


def pull(ws: Workspace, remote: str | None = None, *, branch: str | None = None) -> PullReport:
    """Merge what the upstream of HEAD's code branch pins, or a KB branch of the remote, and pin the
    result.

    This fetches the knowledge base first. The code's branches are those that git last fetched.
    Changes that the code has reverted since then stay reverted; a named KB branch is merged
    regardless of the code.

    Raises `UpstreamMissing`, `BranchMissing`, `GitBusy` if HEAD is detached, and the errors of
    `fetch` and `merge`.
    """
    addresses = destinations.list_fetch_addresses(ws, remote)
    incoming = _fetch_upstream(ws, addresses, remote) if branch is None else _fetch_kb_branch(ws, addresses, branch)
    return _merge_incoming(ws, incoming)


class ClearedPull(Record, frozen=True):
    """The result of `pull_and_clear`."""

    cleared: CleanedBranch
    """The handling of the uncommitted documents."""
    report: PullReport
    commits: int
    """Number of merged commits."""
    left_branch: str | None
    """The remote's KB branch with the name of HEAD's KB branch, if it is at a revision that the
    code once pinned and has left.

    It is merged only if the caller names the branch.
    """


def pull_and_clear(
    ws: Workspace, remote: str | None = None, *, branch: str | None = None, how: Handling, message: str
) -> ClearedPull:
    """Pull, and handle uncommitted documents as `how` specifies.

    This also merges what the remote's KB branch of the same name has beyond the upstream's pin. For
    a code branch without an upstream, it merges only that branch. Raises `MergeConflict` with an
    open merge, and the errors of `pull` and `uncommitted.clean_branch`.
    """
    merge.require_mergeable(ws)
    addresses = destinations.list_fetch_addresses(ws, remote)
    if branch is not None:
        incoming = _fetch_kb_branch(ws, addresses, branch)
    else:
        try:
            incoming = _fetch_upstream(ws, addresses, remote)
        except UpstreamMissing as missing:
            incoming = _fetch_same_branch(ws, addresses, missing)
    left_branch = None
    with uncommitted.clean_branch(ws, how, message=message) as cleared:
        report = _merge_or_raise(ws, incoming)
        heads = [report.merge.theirs]
        newer = _find_newer_branch(ws, incoming, report.merge) if branch is None else None
        if newer and _was_pinned_before(ws, incoming, newer):
            left_branch = newer.name  # the code has left its revision on purpose
        elif newer:
            second = _merge_or_raise(ws, newer)
            heads.append(second.merge.theirs)
            report = msgspec.structs.replace(report, merge=_join_reports(ws, report.merge, second.merge))
    commits = revisions.count_beyond(ws.engine, heads, [report.merge.ours])
    return ClearedPull(cleared, report, commits, left_branch)


class _Incoming(NamedTuple):
    """A fetched revision that is to be merged."""

    address: Address
    """The address of the remote that has it."""
    updates: tuple[BranchMove, ...]
    """KB branches of the remote that moved."""
    name: str
    """The displayed name of the code branch or KB branch."""
    revision: str
    commit: str | None = None
    """The code commit that pins it, if git's history decides about the merge base."""
    code_behind: bool = False


def _merge_or_raise(ws: Workspace, incoming: _Incoming) -> PullReport:
    report = _merge_incoming(ws, incoming)
    if report.merge.result == "conflict":
        raise _conflict_error(ws, report.merge)
    return report


def _join_reports(ws: Workspace, first: MergeReport, second: MergeReport) -> MergeReport:
    """Return the report of two consecutive merges."""
    after = second.revision or second.ours
    return msgspec.structs.replace(
        second,
        result="merge" if first.result == "merge" else second.result,
        ours=first.ours,
        changes=ws.engine.count_changes(first.ours, after),
        notes=first.notes + second.notes,
    )


def _conflict_error(ws: Workspace, report: MergeReport) -> MergeConflict:
    open_merge = conflict_rows.find_open_merge(ws)
    listed = conflict_rows.encode_rows(open_merge.conflicts if open_merge else ())
    return MergeConflict(
        f"{report.source} conflicts with your knowledge base; the merge is open: {plural(len(report.conflicts), 'conflict')}.",
        hint="run 'vmrag resolve' to resolve the conflicts",
        conflicts=listed,
    )


def _merge_incoming(ws: Workspace, incoming: _Incoming) -> PullReport:
    target = merge.require_mergeable(ws)
    commits = pair_with_head(ws, target.revision, incoming.commit) if incoming.commit else None
    base = find_base(ws, target.revision, incoming.revision, commits)
    report = merge.merge_revision(ws, target, incoming.name, base=base, theirs=incoming.revision)
    return PullReport(incoming.address.text, incoming.updates, report, code_behind=incoming.code_behind)


def _fetch_upstream(ws: Workspace, addresses: list[Address], remote: str | None) -> _Incoming:
    """Fetch the revision that the upstream of HEAD's code branch pins."""
    upstream = _find_upstream(ws, remote)
    address, updates = fetch_revision(ws, addresses, upstream.pin.dolt_commit)
    revision = lazy_fetch.require_revision(ws, upstream.pin, upstream.name)
    head = plumbing.read_head(ws.places).commit
    behind = head is None or not transfer.contains_commit(ws.places, head, upstream.commit)
    return _Incoming(address, updates, upstream.name, revision, upstream.commit, code_behind=behind)


def _fetch_kb_branch(ws: Workspace, addresses: list[Address], name: str) -> _Incoming:
    """Fetch the head of a KB branch of the remote."""
    pin = ws.resolve_target().pin
    address, updates = fetch_revision(ws, addresses, pin.dolt_commit if pin else None)
    heads = ws.engine.remote_heads(address.key)
    if name not in heads or is_reserved(name):
        raise build_branch_missing(address.text, name, heads)
    return _Incoming(address, updates, f"{address.text}/{name}", heads[name])


def _fetch_same_branch(ws: Workspace, addresses: list[Address], missing: UpstreamMissing) -> _Incoming:
    """Fetch the KB branch with the name of HEAD's, because HEAD's code branch has no upstream."""
    name = _name_kb_branch(ws)
    if name is None:
        raise missing
    try:
        return _fetch_kb_branch(ws, addresses, name)
    except BranchMissing as error:
        raise UpstreamMissing(f"{missing.message} {error.message}", hint=missing.hint, **missing.details) from error


def _name_kb_branch(ws: Workspace) -> str | None:
    branch = ws.find_kb_branch()
    return branch.name if branch else ws.read_trigger().branch


def _find_newer_branch(ws: Workspace, incoming: _Incoming, merged: MergeReport) -> _Incoming | None:
    """Return the remote's KB branch with the name of HEAD's, if the merge result does not contain
    it.
    """
    name = _name_kb_branch(ws)
    address = incoming.address
    head = ws.engine.remote_heads(address.key).get(name) if name else None
    if head is None or ws.engine.is_ancestor(head, merged.revision or merged.ours):
        return None
    return _Incoming(address, incoming.updates, f"{address.text}/{name}", head)


def _was_pinned_before(ws: Workspace, incoming: _Incoming, newer: _Incoming) -> bool:
    """Return whether a commit in the history of HEAD or of the upstream pins the revision.

    If so, the code was at that revision and left it.
    """
    commits = filter(None, (plumbing.read_head(ws.places).commit, incoming.commit))
    pins = (pin for commit in commits for pin, _ in history_pins.pins_reached(ws.places, commit))
    return any(migrated.translate_revision(ws.places.kb, pin.dolt_commit) == newer.revision for pin in pins)


class _Upstream(NamedTuple):
    """A code branch as git last fetched it."""

    name: str
    """The displayed name."""
    commit: str
    pin: Pin
    """The pin of the commit."""


def _find_upstream(ws: Workspace, remote: str | None) -> _Upstream:
    """Return the branch that `git pull` would merge, or else the remote's branch of the same name.

    `remote` applies if it is a git remote. Any other remote only tells where the knowledge base is.
    """
    branch = ws.read_trigger().branch
    if branch is None:
        raise GitBusy(
            "HEAD is detached, so it has no upstream branch.",
            hint="run 'git switch BRANCH' to check out a branch",
            operation="detached",
        )
    configured_name, refs = _list_upstream_refs(ws, branch, remote)
    for ref in refs:
        try:
            commit = plumbing.resolve_commit(ws.places, ref)
        except GitReferenceMissing:
            continue
        name = configured_name or ref.removeprefix("refs/remotes/")
        data = plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}", limit=pins.MAX_BYTES)
        if data is None:
            raise UpstreamMissing(
                f"{name} has no pin.",
                hint=f"run 'git log {quoted(name)} -- {PIN_NAME}' to list the commits that changed the pin",
                ref=name,
            )
        return _Upstream(name, commit, migrated.read_pin(ws.places.kb, data, source=f"{name}:{PIN_NAME}"))
    if configured_name:
        raise UpstreamMissing(
            f"{configured_name} was not fetched yet.", hint="run 'git fetch' to fetch it", branch=branch
        )
    raise UpstreamMissing(
        f"the code branch {branch!r} has no upstream branch.",
        hint="run 'git push -u REMOTE HEAD', or 'vmrag pull --branch NAME' to merge a KB branch by its name",
        branch=branch,
    )


def _list_upstream_refs(ws: Workspace, branch: str, remote: str | None) -> tuple[str, list[str]]:
    """Return the upstream's name if it is configured (else an empty one), and the refs that may
    have its commit.
    """
    section = f"branch.{branch}"
    settings = configuration.read_section(ws.places, section)
    remote_name, merge_ref = settings.get(f"{section}.remote", ""), settings.get(f"{section}.merge", "")
    chosen = remote if remote in remotes.list_remotes(ws.places) else None
    if remote_name and merge_ref and chosen in (None, remote_name):
        name = merge_ref.removeprefix(BRANCHES)
        if remote_name != ".":
            name = f"{remotes.redact_url(remote_name)}/{name}"
        return name, [f"{branch}@{{upstream}}"]
    remote_names = [chosen] if chosen else remotes.list_for_reading(ws.places, branch)
    return "", [f"refs/remotes/{name}/{branch}" for name in remote_names]
