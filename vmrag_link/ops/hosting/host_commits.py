"""A commit on a branch of the code's host: the tree of another commit with another pin.

It is made of objects alone: no work tree, no index and no branch of the clone changes. Only the
code's own remote is pushed to, and a branch only if it still is where it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from vmrag_link.errors import RemoteMoved
from vmrag_link.git import objects, plumbing, transfer
from vmrag_link.git.heads import BRANCHES
from vmrag_link.git.transfer import Peer
from vmrag_link.paths import PIN_NAME, Places

BOT = "github-actions[bot] <41898282+github-actions[bot]@users.noreply.github.com>"
"""As GitHub calls the author of what a job commits by the default token."""

CODE = "commits"
"""What the messages of a refused push call its content."""

ATTEMPTS = 5
"""How often a branch may move between the look at it and the push."""

T = TypeVar("T")


def signature(places: Places) -> str:
    """The author and committer: whom git is configured with, else GitHub's bot."""
    return plumbing.configured_identity(places) or BOT


def branch_tip(places: Places, peer: Peer, branch: str) -> str | None:
    """Where a branch is on the host now; None if it is not there. Raises as `transfer.fetch`."""
    return transfer.advertised(places, peer, BRANCHES + branch)


def commit_with_pin(places: Places, tree: str, pin: bytes, *, parents: Sequence[str], message: str) -> str:
    """Make a commit of `tree`, or of that of a commit, with this pin in it; no ref moves.

    Files of the tree need not be here, as in a partial clone. Raises `GitFailed`.
    """
    blob = objects.write_blob(places, pin)
    made = objects.tree_with_file(places, tree, PIN_NAME, blob)
    return objects.commit_tree(places, made, parents=parents, message=message, signature=signature(places))


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
