"""Where files went that are gone: renames, as git detects them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from vmrag_link.git.run import demand, git
from vmrag_link.paths import Places

_MOST = 32
"""Commits that are compared with: files that went one by one, each in its own, cost one each."""


def renamed(places: Places, gone: Collection[str]) -> dict[str, str]:
    """The paths of today of these paths that are gone, from the top of the work tree.

    The index counts as today: `git mv` says it there, and `mv` alone says it after `git add`. A
    file that was removed in a commit is looked for by what it was right before. Raises `GitFailed`.
    """
    found: dict[str, str] = {}
    left = set(gone)
    for before in _states_with(places, left):
        for old, new in _compared(places, before):
            if old in left:
                found[old] = new
                left.remove(old)
        if not left:
            break
    return found


def _states_with(places: Places, paths: Collection[str]) -> Iterator[str]:
    """Commits that had some of the paths: HEAD, then those before each removal, newest first.

    The paths may get fewer meanwhile.
    """
    if git(places, "rev-parse", "--verify", "--quiet", "HEAD").returncode:
        return  # no commit yet
    yield "HEAD"
    asked = "".join(f"{line}\n" for line in ("HEAD", "--", *paths))
    # What a merge removed, one of its parents had removed. The names are no patterns.
    options = ("--no-merges", "--diff-filter=D", "--no-renames", "--name-only", "-z", "--format=%x01%H", "--stdin")
    said = demand(places, "--literal-pathspecs", "log", *options, stdin=asked.encode()).text if paths else ""
    removals = (each.split("\0") for each in said.split("\1") if each)
    states = (f"{commit}^" for commit, *names in removals if any(name.strip("\n") in paths for name in names))
    yield from itertools.islice(states, _MOST)


def _compared(places: Places, before: str) -> Iterator[tuple[str, str]]:
    """The renames from a commit to the index."""
    options = ("--cached", "-M", "--diff-filter=R", "--name-status", "-z", "--no-ext-diff", "--ignore-submodules")
    said = demand(places, "diff", *options, before, "--").text.split("\0")
    yield from zip(said[1::3], said[2::3], strict=False)  # a score, the old path, the new one
