"""Which files a work tree has, as git lists them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link import env
from vmrag_link.git.run import demand, failure, git, git_in
from vmrag_link.paths import Places
from vmrag_link.proc import Finished

_INDEX = ("-c", "core.fsmonitor=false", "ls-files", "-z", "-t", "--stage")
"""A repository that a stranger packed must not name a program: core.fsmonitor would be one."""


class IndexListing(NamedTuple):
    """What git's index has, as paths from the top: `tracked` files and links; `hidden`, those of
    them that a sparse checkout leaves out of the work tree (skip-worktree); `submodules`.
    """

    tracked: frozenset[str]
    hidden: frozenset[str]
    submodules: frozenset[str]


def files_below(places: Places, folders: Sequence[str]) -> list[str]:
    """The files in these folders, as paths below the root: tracked ones, also those that are gone,
    and others unless they are ignored. Those of submodules are none. Raises `GitFailed`.
    """
    if not folders:
        return []
    # A repository that a stranger packed must not name a program: core.fsmonitor would be one.
    listed = demand(
        places,
        *("-c", "core.fsmonitor=false", "--literal-pathspecs"),
        *("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--"),
        *folders,
    )
    return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def index(places: Places) -> IndexListing:
    """Raises `GitFailed`."""
    return _listed(git(places, *_INDEX, extra=env.GIT_OFFLINE))


def removed_from_index(places: Places) -> set[str]:
    """The files of HEAD that the next git commit will not have. Raises `GitFailed`."""
    options = ("--cached", "--name-only", "-z", "--diff-filter=D", "--no-renames", "--no-ext-diff")
    listed = demand(places, "-c", "core.fsmonitor=false", "diff", *options, "--ignore-submodules", "--")
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}


def not_checked_out(places: Places, paths: Collection[str]) -> set[str]:
    """Those of these paths, from the top, that may be missing though git has them: a sparse
    checkout hides them, here or in a submodule, or their submodule is not checked out.

    Raises `GitFailed`.
    """
    return _left_out(index(places), places.top, paths) if paths else set()


def _left_out(listing: IndexListing, top: Path, paths: Collection[str]) -> set[str]:
    found = {each for each in paths if each in listing.hidden}
    for submodule in listing.submodules:
        start, folder = f"{submodule}/", top / submodule
        inside = {each.removeprefix(start): each for each in paths if each.startswith(start)}
        if inside and not os.path.lexists(folder / ".git"):
            found.update(inside.values())
        elif inside:
            own = _listed(git_in(folder, *_INDEX, extra=env.GIT_OFFLINE))
            found.update(inside[each] for each in _left_out(own, folder, inside))
    return found


def _listed(done: Finished) -> IndexListing:
    if done.returncode != 0:
        raise failure(_INDEX[2:], done)
    tracked, hidden, submodules = set[str](), set[str](), set[str]()
    for entry in done.stdout.split(b"\0"):
        about, _, name = entry.partition(b"\t")  # H 100644 <object> <stage>
        path = os.fsdecode(name)
        if about[2:8] == b"160000":
            submodules.add(path)
        elif path:
            tracked.add(path)
            if about[:1] == b"S":
                hidden.add(path)
    return IndexListing(frozenset(tracked), frozenset(hidden), frozenset(submodules))
