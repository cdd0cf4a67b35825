"""The present paths of files that are missing, by the renames that git detects."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from vmrag_link.git.run import check_git, join_lines, run_git
from vmrag_link.paths import Places

_MAX_COMMITS = 32
"""Maximum number of commits that are compared. Files that were removed one by one, in a commit
each, cost one comparison each.
"""


def find_renames(places: Places, gone: Collection[str]) -> dict[str, str]:
    """Return the present paths of these missing paths, from the top of the work tree.

    The index is the present state: `git mv` changes it, and after `mv` alone, `git add` does. A
    file that a commit removed is matched by its content right before. Raises `GitFailed`.
    """
    renames: dict[str, str] = {}
    remaining = set(gone)
    for before in _list_states(places, remaining):
        for old, new in _list_renames(places, before):
            if old in remaining:
                renames[old] = new
                remaining.remove(old)
        if not remaining:
            break
    return renames


def _list_states(places: Places, paths: Collection[str]) -> Iterator[str]:
    """Yield commits that had some of the paths: HEAD, then those before each removal, newest first.

    The caller may remove paths from the collection meanwhile.
    """
    if run_git(places, "rev-parse", "--verify", "--quiet", "HEAD").returncode:
        return  # no commit yet
    yield "HEAD"
    # A path that a merge removed was removed by one of its parents. The names are not patterns.
    options = ("--no-merges", "--diff-filter=D", "--no-renames", "--name-only", "-z", "--format=%x01%H", "--stdin")
    log = (
        check_git(places, "--literal-pathspecs", "log", *options, stdin=join_lines(("HEAD", "--", *paths))).text
        if paths
        else ""
    )
    removals = (record.split("\0") for record in log.split("\1") if record)
    states = (f"{commit}^" for commit, *names in removals if any(name.strip("\n") in paths for name in names))
    yield from itertools.islice(states, _MAX_COMMITS)


def _list_renames(places: Places, before: str) -> Iterator[tuple[str, str]]:
    """Yield the renames from a commit to the index."""
    options = ("--cached", "-M", "--diff-filter=R", "--name-status", "-z", "--no-ext-diff", "--ignore-submodules")
    fields = check_git(places, "diff", *options, before, "--").text.split("\0")
    yield from zip(fields[1::3], fields[2::3], strict=False)  # a score, the old path, the new one
