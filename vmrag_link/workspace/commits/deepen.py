"""Fetch missing git history into a shallow clone, as far as a comparison of commits needs it.

The GitHub Action needs this, because `actions/checkout` fetches one commit by default. git fetches
into the same repository, so that the checkout's credentials apply. No ref moves, and nothing is
checked out.
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

HINT = "run 'git fetch --unshallow', or set 'fetch-depth: 0' for actions/checkout in a workflow"

# Together 50, 200, 800 and all commits. Blobs are left out, because only the pins of old commits
# are read. git fetches them when they are needed.
_STEPS = ("--deepen=50", "--deepen=150", "--deepen=600", "--unshallow")
_WITHOUT_FILES = "--filter=blob:none"


def fetch_commits(places: Places, commits: Iterable[str], *, files: bool = False) -> None:
    """Fetch those of the commits that are missing. Raises `HistoryMissing`.

    `files`: also fetch the contents of their files, which git otherwise fetches on demand.
    """
    if lacking := objects.find_missing_commits(places, commits):
        # A depth would make a complete clone a shallow one.
        depth = ("--depth=1",) if history.read_shallow_boundary(places) else ()
        _fetch_history(places, lacking, *depth, "--no-filter" if files else _WITHOUT_FILES)


def is_gone(missing: HistoryMissing) -> bool:
    """Return whether the remote answered that it does not have the commit."""
    cause = missing.__cause__
    return isinstance(cause, RemoteError) and "not our ref" in cause.details.get("said", "")


def make_comparable(places: Places, base: str | None, head: str) -> None:
    """Fetch enough history to decide which commits `head` contains and `base` does not.

    `base`: by default the first parent of the head. Raises `HistoryMissing` if the history cannot
    be fetched.
    """
    fetch_commits(places, [head])
    base = base or next(iter(objects.read_parents(places, head)), None)
    ends = [head, base] if base else [head]
    fetch_commits(places, ends)
    for step in _STEPS:
        if is_comparable(places, base, head):
            return
        _fetch_history(places, ends, step, _WITHOUT_FILES)
    if not is_comparable(places, base, head):
        raise HistoryMissing(
            f"cannot compare {' and '.join(end[:12] for end in ends)}: {find_code_remote(places).remote} itself has no more "
            "of their history.",
            hint="run 'git fetch --unshallow' in the repository that it was cloned from",
        )


def fetch_all_history(places: Places, tip: str) -> None:
    """Fetch the whole history of a commit. Raises `HistoryMissing`."""
    if history.read_shallow_boundary(places):
        _fetch_history(places, [tip], "--unshallow", _WITHOUT_FILES)


def resolve_name(places: Places, name: str) -> str:
    """Return the commit that a name means, and fetch it if it is missing.

    For example, fetch the branch for `origin/main`, or the history for `HEAD~3`. Raises
    `HistoryMissing`, `GitReferenceMissing` and the errors of a fetch.
    """
    try:
        return plumbing.resolve_commit(places, name)
    except GitReferenceMissing:
        start = re.split(r"[~^]", name)[0] or name
        if start != name and history.read_shallow_boundary(places):
            return _resolve_deeper(places, name, resolve_name(places, start))
        remote, _, branch = name.removeprefix("refs/remotes/").partition("/")
        if remote not in remotes.list_remotes(places) or not plumbing.is_ref_name(places, BRANCHES + branch):
            raise
        tip = transfer.read_remote_ref(places, Peer(remote), BRANCHES + branch)
        if tip is None:
            raise
        fetch_commits(places, [tip])
        return tip


def _resolve_deeper(places: Places, name: str, start: str) -> str:
    """Fetch the history of `start` step by step until the name has a commit."""
    for step in _STEPS:
        _fetch_history(places, [start], step, _WITHOUT_FILES)
        with contextlib.suppress(GitReferenceMissing):
            return plumbing.resolve_commit(places, name)
        if not history.read_shallow_boundary(places):
            break
    return plumbing.resolve_commit(places, name)


def find_code_remote(places: Places) -> Peer:
    """Return the git remote from which to fetch code. Raises `HistoryMissing` without a remote."""
    names = remotes.list_for_reading(places, None)
    if not names:
        raise HistoryMissing("this checkout has no remote to fetch history from.", hint=HINT)
    return Peer(names[0])


def _fetch_history(places: Places, commits: list[str], *options: str) -> None:
    """Run `git fetch` for these commits. Raises `HistoryMissing`."""
    peer = find_code_remote(places)
    try:
        transfer.fetch_commits(places, peer, commits, *options)
    except RemoteError as problem:
        names = " and ".join(commit[:12] for commit in commits)
        raise HistoryMissing(
            f"the history of {names} is missing in this checkout, and could not be fetched: {problem.message}",
            hint=HINT,
        ) from problem
