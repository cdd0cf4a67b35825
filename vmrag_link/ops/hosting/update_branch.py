"""Merge the base into the branch of a pull request, where only the pin keeps its host from it.

Two pull requests that both change knowledge conflict in `.dolt-version` on a host without our merge
driver. Here the pin is merged as the driver does it, and all else as git does. The knowledge is
pushed first. What somebody pushes meanwhile is looked at again and never replaced, and a branch
that the host can merge is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec.structs import replace

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.errors import PinConflict
from vmrag_link.git import pin_merge, plumbing, transfer
from vmrag_link.git.transfer import Peer
from vmrag_link.models import Record
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.history.merge_base import base_of
from vmrag_link.ops.hosting import host_commits
from vmrag_link.ops.merge.merge_pins import merge_pins
from vmrag_link.ops.publish.push import publish_revision
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace, twins

Result = Literal["gone", "contained", "clean", "updated", "code", "knowledge"]
Bring = Callable[[str, str], None]
"""Fetches what is missing of the history of two commits."""


class BranchUpdate(Record, frozen=True):
    """`gone`: one of the branches is not there any more. `contained`: nothing to merge. `clean`:
    the host can merge it. `updated`: `commit` is on the branch and pins `revision`.

    `code`, `knowledge`: a person has to decide about `conflicts`, paths or documents.
    """

    result: Result
    commit: str = ""
    revision: str = ""
    conflicts: tuple[str, ...] = ()


class HostedMerge(NamedTuple):
    """Branches `base` and `name` without `refs/heads/` on the host `peer`.

    `bring` fetches what the clone lacks.
    """

    peer: Peer
    base: str
    name: str
    bring: Bring


def update_branch(ws: Workspace, wanted: HostedMerge) -> BranchUpdate:
    """Merge the base into the branch, if nothing but the pin is in conflict; push knowledge and
    branch.

    Raises `RemoteMoved` if a branch moves all the time, `RemoteRejected` if the host refuses,
    `PinMissing` and `PinMalformed` for a pin that cannot be merged, `PinRevisionMissing`, and as
    `transport.publish.publish`.
    """
    return host_commits.retry_if_moved(wanted.name, lambda: _updated(ws, wanted))


def look(ws: Workspace, base: str, head: str, bring: Bring) -> BranchUpdate:
    """What keeps two commits from being merged, as git alone sees it: `knowledge` where only the
    pin is in conflict. Nothing is pushed, and no pin is read.
    """
    bring(base, head)
    if transfer.contains(ws.places, head, base):
        return BranchUpdate("contained")
    return _found(pin_merge.merge_trees(ws.places, head, base))


def _found(merged: pin_merge.MergedTree) -> BranchUpdate:
    if not merged.conflicts:
        return BranchUpdate("clean")
    return BranchUpdate("knowledge" if merged.conflicts == (PIN_NAME,) else "code", conflicts=merged.conflicts)


def _updated(ws: Workspace, wanted: HostedMerge) -> BranchUpdate:
    base, head = (host_commits.branch_tip(ws.places, wanted.peer, each) for each in (wanted.base, wanted.name))
    if base is None or head is None:
        return BranchUpdate("gone")
    wanted.bring(base, head)
    if transfer.contains(ws.places, head, base):
        return BranchUpdate("contained")
    merged = pin_merge.merge_trees(ws.places, head, base)
    found = _found(merged)
    if found.result != "knowledge":
        return found
    try:
        data = _merged_pin(ws, wanted, base, head)
    except PinConflict as conflict:
        return replace(found, conflicts=tuple(conflict.details.get("conflicts", (conflict.message,))))
    pin = migrated.read_pin(ws.places.kb, data)
    publish_revision(ws, pin.dolt_remote, pin.dolt_commit)
    made = host_commits.commit_with_pin(
        ws.places, merged.name, data, parents=[head, base], message=_message(wanted, base)
    )
    host_commits.push_branch(ws.places, wanted.peer, made, wanted.name, expected=head)
    return BranchUpdate("updated", commit=made, revision=pin.dolt_commit)


def _merged_pin(ws: Workspace, wanted: HostedMerge, base: str, head: str) -> bytes:
    """What the merge driver would make of it. Raises `PinConflict`."""
    sides = [(head, wanted.name), (base, wanted.base)]
    ours, theirs = (lazy_fetch.pin_at(ws, commit, shown=name, limit=pins.MAX_BYTES) for commit, name in sides)
    for (_, name), pin in zip(sides, (ours, theirs), strict=True):
        lazy_fetch.require(ws, pin, name)
    before = _base(ws, (ours.dolt_commit, theirs.dolt_commit), (head, base))
    derived = twins.derived(ws, (head, base))
    return merge_pins(ws.engine, before, pins.format(ours), pins.format(theirs), joins=True, derived=derived)


def _base(ws: Workspace, revisions: tuple[str, str], commits: tuple[str, str]) -> bytes:
    """The pin of git's merge base; of several, one that is made as git makes it. Empty where it has
    none.
    """
    bases = pin_merge.merge_bases(ws.places, [*commits])
    found = {each: data for each in bases if (data := _pin_data(ws, each))}
    if not found:
        return b""
    commit, data = next(iter(found.items()))
    pin = migrated.read_pin(ws.places.kb, data, source=f"{commit[:12]}:{PIN_NAME}")
    if len(bases) > 1:
        return pins.format(replace(pin, dolt_commit=base_of(ws, *revisions, commits)))
    lazy_fetch.require(ws, pin, "The merge base")
    return data


def _pin_data(ws: Workspace, commit: str) -> bytes | None:
    return plumbing.blob(ws.places, f"{commit}:{PIN_NAME}", limit=pins.MAX_BYTES)


def _message(wanted: HostedMerge, base: str) -> str:
    """As git's own merges; the names are those of branches, which hold no line ends."""
    return "\n".join(
        [
            f"Merge branch '{wanted.base}' into {wanted.name}",
            "",
            f"{base[:12]} changed the knowledge, too. {PIN_NAME} pins that of both, as `git merge` makes it",
            "where vmrag's merge driver is installed.",
            "",
        ]
    )
