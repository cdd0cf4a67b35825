"""Merge the base into the branch of a pull request if only the pin prevents the host from merging
it.

Two pull requests that both change knowledge conflict in `.dolt-version` on a host without vmrag's
merge driver. This merges the pin like the driver, and everything else like git. The knowledge is
pushed first. Commits that others push at the same time are examined again and never replaced. A
branch that the host can merge is left alone.

The merge is the tree of another commit with another pin. It is made of git objects only: no work
tree, no index and no branch of the clone changes. It is pushed only to the code's own remote, and
only if the branch did not move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.errors import PinConflict, RemoteMoved
from vmrag_link.git import identity, merge_tree, objects, pin_merge, plumbing, transfer
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
"""A function that fetches the missing history of two commits."""
BOT = "github-actions[bot] <41898282+github-actions[bot]@users.noreply.github.com>"
"""GitHub's name for the author of what a job commits with the default token."""

ATTEMPTS = 5
"""Maximum number of attempts if the branch moves between reading and pushing it."""

_Result = TypeVar("_Result")


class BranchUpdate(Record, frozen=True):
    """The result of `update_branch`."""

    result: Result
    """The outcome.

    * `gone`: one of the branches was deleted.
    * `contained`: the branch already contains the base.
    * `clean`: the host can merge.
    * `updated`: `commit` is on the branch and pins `revision`.
    * `code`, `knowledge`: you must resolve `conflicts`, which are paths or documents.
    """
    commit: str = ""
    revision: str = ""
    conflicts: tuple[str, ...] = ()


class HostedMerge(NamedTuple):
    """A pull request: the branch `name` on the code's host, which is to be merged into `base`."""

    peer: Peer
    """The host's repository."""
    base: str
    name: str
    """The name without `refs/heads/`, like that of `base`."""
    fetch_history: FetchHistory
    """Fetches the history that the clone lacks."""


def update_branch(ws: Workspace, hosted_merge: HostedMerge) -> BranchUpdate:
    """Merge the base into the branch if only the pin has a conflict, and push knowledge and branch.

    Raises `RemoteMoved` if a branch keeps moving, `RemoteRejected` if the host refuses the push,
    `PinMissing` and `PinMalformed` for a pin that cannot be merged, `PinRevisionMissing`, and the
    errors of `publish_revision`.
    """
    return retry_if_moved(hosted_merge.name, lambda: _try_update(ws, hosted_merge))


def inspect_merge(ws: Workspace, base: str, head: str, fetch_history: FetchHistory) -> BranchUpdate:
    """Return what prevents git from merging two commits.

    The result is `knowledge` if only the pin has a conflict. Nothing is pushed, and no pin is read.
    """
    fetch_history(base, head)
    if transfer.contains_commit(ws.places, head, base):
        return BranchUpdate("contained")
    return _classify_merge(merge_tree.merge_trees(ws.places, head, base))


def _classify_merge(merged: merge_tree.MergedTree) -> BranchUpdate:
    if not merged.conflicts:
        return BranchUpdate("clean")
    return BranchUpdate("knowledge" if merged.conflicts == (PIN_NAME,) else "code", conflicts=merged.conflicts)


def _try_update(ws: Workspace, hosted_merge: HostedMerge) -> BranchUpdate:
    base = find_branch_tip(ws.places, hosted_merge.peer, hosted_merge.base)
    head = find_branch_tip(ws.places, hosted_merge.peer, hosted_merge.name)
    if base is None or head is None:
        return BranchUpdate("gone")
    hosted_merge.fetch_history(base, head)
    if transfer.contains_commit(ws.places, head, base):
        return BranchUpdate("contained")
    merged = merge_tree.merge_trees(ws.places, head, base)
    update = _classify_merge(merged)
    if update.result != "knowledge":
        return update
    try:
        data = _merge_pin(ws, hosted_merge, base, head)
    except PinConflict as conflict:
        return replace(update, conflicts=tuple(conflict.details.get("conflicts", (conflict.message,))))
    pin = migrated.read_pin(ws.places.kb, data)
    publish_revision(ws, pin.dolt_remote, pin.dolt_commit)
    commit = commit_with_pin(
        ws.places, merged.name, data, parents=[head, base], message=_form_message(hosted_merge, base)
    )
    push_branch(ws.places, hosted_merge.peer, commit, hosted_merge.name, expected=head)
    return BranchUpdate("updated", commit=commit, revision=pin.dolt_commit)


def _merge_pin(ws: Workspace, hosted_merge: HostedMerge, base: str, head: str) -> bytes:
    """Merge the pin like the merge driver. Raises `PinConflict`."""
    ours = lazy_fetch.pin_at(ws, head, shown=hosted_merge.name, limit=pins.MAX_BYTES)
    theirs = lazy_fetch.pin_at(ws, base, shown=hosted_merge.base, limit=pins.MAX_BYTES)
    lazy_fetch.require_revision(ws, ours, hosted_merge.name)
    lazy_fetch.require_revision(ws, theirs, hosted_merge.base)
    base_pin = _find_base_pin(ws, (ours.dolt_commit, theirs.dolt_commit), (head, base))
    derived = twins.build_derived(ws, (head, base))
    return merge_pins(ws.engine, base_pin, pins.format_pin(ours), pins.format_pin(theirs), joins=True, derived=derived)


def _find_base_pin(ws: Workspace, revisions: tuple[str, str], commits: tuple[str, str]) -> bytes:
    """Return the pin of the merge base; empty if it has none.

    If there are several merge bases, the pin names the merge base of the revisions, like git's
    virtual base.
    """
    bases = pin_merge.list_merge_bases(ws.places, [*commits])
    for base in bases:
        data = plumbing.read_blob(ws.places, f"{base}:{PIN_NAME}", limit=pins.MAX_BYTES)
        if data:
            pin = migrated.read_pin(ws.places.kb, data, source=f"{base[:12]}:{PIN_NAME}")
            if len(bases) > 1:
                return pins.format_pin(replace(pin, dolt_commit=find_base(ws, *revisions, commits)))
            lazy_fetch.require_revision(ws, pin, "The merge base")
            return data
    return b""


def _form_message(hosted_merge: HostedMerge, base: str) -> str:
    """Return a message like git's own. Names of branches contain no line ends."""
    return "\n".join(
        [
            f"Merge branch '{hosted_merge.base}' into {hosted_merge.name}",
            "",
            f"{base[:12]} also changed the knowledge. {PIN_NAME} pins the merge of both, like `git merge`",
            "with vmrag's merge driver.",
            "",
        ]
    )


def read_signature(places: Places) -> str:
    """Return the author and committer: git's configured identity, or else GitHub's bot."""
    return identity.read_configured_identity(places) or BOT


def find_branch_tip(places: Places, peer: Peer, branch: str) -> str | None:
    """Return the head of a branch on the host; None if it does not exist. Raises the errors of
    `transfer.fetch`.
    """
    return transfer.read_remote_ref(places, peer, BRANCHES + branch)


def commit_with_pin(places: Places, tree: str, pin: bytes, *, parents: Sequence[str], message: str) -> str:
    """Make a commit of `tree` (a tree or a commit) with this pin. No ref moves.

    The clone need not have the files of the tree, for example in a partial clone. Raises
    `GitFailed`.
    """
    blob = objects.write_blob(places, pin)
    new_tree = objects.add_file_to_tree(places, tree, PIN_NAME, blob)
    return objects.commit_tree(places, new_tree, parents=parents, message=message, signature=read_signature(places))


def retry_if_moved(branch: str, attempt: Callable[[], _Result]) -> _Result:
    """Return the result of `attempt`, which reads and pushes a branch of the host.

    It is called again if others pushed in between. Raises `RemoteMoved` after `ATTEMPTS` calls, and
    the errors of `attempt`.
    """
    for _ in range(ATTEMPTS):
        try:
            return attempt()
        except RemoteMoved as error:
            moved = error
    raise RemoteMoved(
        f"{branch} moved {ATTEMPTS} times while this job examined it, so the job did not change it.",
        hint="run the job again",
        **moved.details,
    )


def push_branch(places: Places, peer: Peer, commit: str, branch: str, *, expected: str | None) -> None:
    """Set a branch of the host to the commit if it is still at `expected` (None: the branch does
    not exist).

    Raises `RemoteMoved` if it is not, or if another job already pushed the same commit,
    `RemoteRejected` if the host refuses (for example, a protected branch), and
    `AuthenticationFailed` if the credentials do not allow pushing.
    """
    if not transfer.push(places, peer, commit, BRANCHES + branch, expected=expected, content="commits"):
        raise RemoteMoved(f"another job already pushed the same commit to {branch}.", hint="run the job again")
