"""Merge the base into the branch of a pull request, where only the pin keeps its host from it.

Two pull requests that both change knowledge conflict in `.dolt-version` on a host without our merge
driver. Here the pin is merged as the driver does it, and all else as git does. The knowledge is
pushed first. What somebody pushes meanwhile is looked at again and never replaced, and a branch
that the host can merge is left alone.

The merge is the tree of another commit with another pin, made of objects alone: no work tree, no
index and no branch of the clone changes. Only the code's own remote is pushed to, and a branch only
if it still is where it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.errors import PinConflict, RemoteMoved
from vmrag_link.git import objects, pin_merge, plumbing, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.git.remotes import Peer
from vmrag_link.models import Record
from vmrag_link.ops.push import publish_revision
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.history.ranges import find_base
from vmrag_link.workspace.merge.merge_pins import merge_pins

Result = Literal["gone", "contained", "clean", "updated", "code", "knowledge"]
FetchHistory = Callable[[str, str], None]
"""Fetches what is missing of the history of two commits."""
BOT = "github-actions[bot] <41898282+github-actions[bot]@users.noreply.github.com>"
"""As GitHub calls the author of what a job commits by the default token."""

CODE = "commits"
"""What the messages of a refused push call its content."""

ATTEMPTS = 5
"""How often a branch may move between the look at it and the push."""

T = TypeVar("T")


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
    fetch_history: FetchHistory


def update_branch(ws: Workspace, wanted: HostedMerge) -> BranchUpdate:
    """Merge the base into the branch, if nothing but the pin is in conflict; push knowledge and
    branch.

    Raises `RemoteMoved` if a branch moves all the time, `RemoteRejected` if the host refuses,
    `PinMissing` and `PinMalformed` for a pin that cannot be merged, `PinRevisionMissing`, and as
    `transport.publish.publish`.
    """
    return retry_if_moved(wanted.name, lambda: _updated(ws, wanted))


def inspect_merge(ws: Workspace, base: str, head: str, bring: FetchHistory) -> BranchUpdate:
    """What keeps two commits from being merged, as git alone sees it: `knowledge` where only the
    pin is in conflict. Nothing is pushed, and no pin is read.
    """
    bring(base, head)
    if transfer.contains_commit(ws.places, head, base):
        return BranchUpdate("contained")
    return _classify(pin_merge.merge_trees(ws.places, head, base))


def _classify(merged: pin_merge.MergedTree) -> BranchUpdate:
    if not merged.conflicts:
        return BranchUpdate("clean")
    return BranchUpdate("knowledge" if merged.conflicts == (PIN_NAME,) else "code", conflicts=merged.conflicts)


def _updated(ws: Workspace, wanted: HostedMerge) -> BranchUpdate:
    base, head = (find_branch_tip(ws.places, wanted.peer, each) for each in (wanted.base, wanted.name))
    if base is None or head is None:
        return BranchUpdate("gone")
    wanted.fetch_history(base, head)
    if transfer.contains_commit(ws.places, head, base):
        return BranchUpdate("contained")
    merged = pin_merge.merge_trees(ws.places, head, base)
    found = _classify(merged)
    if found.result != "knowledge":
        return found
    try:
        data = _merged_pin(ws, wanted, base, head)
    except PinConflict as conflict:
        return replace(found, conflicts=tuple(conflict.details.get("conflicts", (conflict.message,))))
    pin = migrated.read_pin(ws.places.kb, data)
    publish_revision(ws, pin.dolt_remote, pin.dolt_commit)
    made = commit_with_pin(ws.places, merged.name, data, parents=[head, base], message=_message(wanted, base))
    push_branch(ws.places, wanted.peer, made, wanted.name, expected=head)
    return BranchUpdate("updated", commit=made, revision=pin.dolt_commit)


def _merged_pin(ws: Workspace, wanted: HostedMerge, base: str, head: str) -> bytes:
    """What the merge driver would make of it. Raises `PinConflict`."""
    sides = [(head, wanted.name), (base, wanted.base)]
    ours, theirs = (lazy_fetch.pin_at(ws, commit, shown=name, limit=pins.MAX_BYTES) for commit, name in sides)
    for (_, name), pin in zip(sides, (ours, theirs), strict=True):
        lazy_fetch.require_revision(ws, pin, name)
    before = _base(ws, (ours.dolt_commit, theirs.dolt_commit), (head, base))
    derived = twins.build_derived(ws, (head, base))
    return merge_pins(ws.engine, before, pins.format_pin(ours), pins.format_pin(theirs), joins=True, derived=derived)


def _base(ws: Workspace, revisions: tuple[str, str], commits: tuple[str, str]) -> bytes:
    """The pin of git's merge base; of several, one that is made as git makes it. Empty where it has
    none.
    """
    bases = pin_merge.list_merge_bases(ws.places, [*commits])
    found = {base: data for base in bases if (data := _pin_data(ws, base))}
    if not found:
        return b""
    commit, data = next(iter(found.items()))
    pin = migrated.read_pin(ws.places.kb, data, source=f"{commit[:12]}:{PIN_NAME}")
    if len(bases) > 1:
        return pins.format_pin(replace(pin, dolt_commit=find_base(ws, *revisions, commits)))
    lazy_fetch.require_revision(ws, pin, "The merge base")
    return data


def _pin_data(ws: Workspace, commit: str) -> bytes | None:
    return plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}", limit=pins.MAX_BYTES)


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


def read_signature(places: Places) -> str:
    """The author and committer: whom git is configured with, else GitHub's bot."""
    return plumbing.read_configured_identity(places) or BOT


def find_branch_tip(places: Places, peer: Peer, branch: str) -> str | None:
    """Where a branch is on the host now; None if it is not there. Raises as `transfer.fetch`."""
    return transfer.read_remote_ref(places, peer, BRANCHES + branch)


def commit_with_pin(places: Places, tree: str, pin: bytes, *, parents: Sequence[str], message: str) -> str:
    """Make a commit of `tree`, or of that of a commit, with this pin in it; no ref moves.

    Files of the tree need not be here, as in a partial clone. Raises `GitFailed`.
    """
    blob = objects.write_blob(places, pin)
    made = objects.add_file_to_tree(places, tree, PIN_NAME, blob)
    return objects.commit_tree(places, made, parents=parents, message=message, signature=read_signature(places))


def retry_if_moved(branch: str, attempt: Callable[[], T]) -> T:
    """What `attempt` returns, which reads a branch of the host and pushes it; it is called again
    where others pushed meanwhile. Raises `RemoteMoved` after `ATTEMPTS`, and as `attempt`.
    """
    for _ in range(ATTEMPTS):
        try:
            return attempt()
        except RemoteMoved as error:
            moved = error
    raise RemoteMoved(
        f"{branch} moved {ATTEMPTS} times while this job looked at it, and stays as it is.",
        hint="Run the job again.",
        **moved.details,
    )


def push_branch(places: Places, peer: Peer, commit: str, branch: str, *, expected: str | None) -> None:
    """Let a branch of the host be the commit, if it still is `expected` (None: not there).

    Raises `RemoteMoved` where it is not, also where another job made and pushed the very same
    commit; `RemoteRejected` where the host refuses (a protected branch), `AuthenticationFailed`
    where the credentials may not write at all.
    """
    if not transfer.push(places, peer, commit, BRANCHES + branch, expected=expected, content=CODE):
        raise RemoteMoved(f"Another job pushed the same commit to {branch} meanwhile.", hint="Run the job again.")
