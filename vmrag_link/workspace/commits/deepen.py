"""The history that a comparison needs, of a checkout that has one commit.

`actions/checkout` fetches one commit unless it is told otherwise. What more is needed is fetched
into the same repository, by its own git configuration, so that the checkout's credentials apply. No
ref moves, and nothing is checked out: a stranger's commits are objects that nothing names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from vmrag_link.errors import GitReferenceMissing, HistoryMissing, RemoteError
from vmrag_link.git import history, objects, plumbing, remotes, transfer
from vmrag_link.git.refs import BRANCHES
from vmrag_link.git.remotes import Peer
from vmrag_link.paths import Places
from vmrag_link.workspace.commits.ancestry import is_comparable

HINT = "git fetch --unshallow   (in a workflow: fetch-depth: 0 for actions/checkout)"

# 50, 200, 800 commits, all. Blobs are left out: of old commits only the pins are read, and those
# are fetched at once where they are needed.
_STEPS = ("--deepen=50", "--deepen=150", "--deepen=600", "--unshallow")
_WITHOUT_FILES = "--filter=blob:none"


def fetch_commits(places: Places, commits: Iterable[str], *, files: bool = False) -> None:
    """Fetch those of these commits that are not here; `files`: with their contents, which git
    fetches one by one otherwise when they are read. Raises `HistoryMissing`.
    """
    if lacking := objects.find_missing_commits(places, commits):
        # A depth would make a complete clone a shallow one.
        depth = ("--depth=1",) if history.read_shallow_boundary(places) else ()
        _fetch(places, lacking, *depth, "--no-filter" if files else _WITHOUT_FILES)


def is_gone(missing: HistoryMissing) -> bool:
    """Whether the remote answered that it has no such commit."""
    cause = missing.__cause__
    return isinstance(cause, RemoteError) and "not our ref" in cause.details.get("said", "")


def make_comparable(places: Places, base: str | None, head: str) -> None:
    """Fetch as much history as decides which commits `head` has and `base` has not.

    `base` None: the head and its parents. Raises `HistoryMissing`, because with less "nothing is
    lost" would be a guess.
    """
    fetch_commits(places, [head])
    base = base or next(iter(objects.read_parents(places, head)), None)
    ends = [head, base] if base else [head]
    fetch_commits(places, ends)
    for step in _STEPS:
        if is_comparable(places, base, head):
            return
        _fetch(places, ends, step, _WITHOUT_FILES)
    if not is_comparable(places, base, head):
        raise HistoryMissing(
            f"{' and '.join(end[:12] for end in ends)} cannot be compared: {find_code_remote(places).remote} itself has no more "
            "of their history.",
            hint="git fetch --unshallow   (in the repository that it was cloned from)",
        )


def fetch_all_history(places: Places, tip: str) -> None:
    """Fetch the whole history of a commit. Raises `HistoryMissing`."""
    if history.read_shallow_boundary(places):
        _fetch(places, [tip], "--unshallow", _WITHOUT_FILES)


def resolve_name(places: Places, name: str) -> str:
    """As `plumbing.resolve`; a remote's branch that was not fetched, as `origin/main`, is brought
    from there, and so is the history that `HEAD~3` goes through. Raises `HistoryMissing`, and as
    a fetch.
    """
    try:
        return plumbing.resolve_commit(places, name)
    except GitReferenceMissing:
        start = re.split(r"[~^]", name)[0] or name
        if start != name and history.read_shallow_boundary(places):
            return _through(places, name, resolve_name(places, start))
        remote, _, branch = name.removeprefix("refs/remotes/").partition("/")
        if remote not in remotes.list_remotes(places) or not plumbing.is_ref_name(places, BRANCHES + branch):
            raise
        tip = transfer.read_remote_ref(places, Peer(remote), BRANCHES + branch)
        if tip is None:
            raise
        fetch_commits(places, [tip])
        return tip


def _through(places: Places, name: str, start: str) -> str:
    for step in _STEPS:
        _fetch(places, [start], step, _WITHOUT_FILES)
        with contextlib.suppress(GitReferenceMissing):
            return plumbing.resolve_commit(places, name)
        if not history.read_shallow_boundary(places):
            break
    return plumbing.resolve_commit(places, name)


def find_code_remote(places: Places) -> Peer:
    """The remote that the code came from. Raises `HistoryMissing`."""
    names = remotes.list_for_reading(places, None)
    if not names:
        raise HistoryMissing("This checkout has no remote from which history could come.", hint=HINT)
    return Peer(names[0])


def _fetch(places: Places, commits: list[str], *options: str) -> None:
    peer = find_code_remote(places)
    try:
        transfer.fetch_commits(places, peer, commits, *options)
    except RemoteError as problem:
        names = " and ".join(commit[:12] for commit in commits)
        raise HistoryMissing(
            f"The history of {names} is not in this checkout, and could not be fetched. {problem.message}", hint=HINT
        ) from problem
