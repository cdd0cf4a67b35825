"""What git makes of two commits where nobody has configured anything, as on a code's host.

The commits may be strangers'. Nothing of them is checked out; no driver, filter or hook runs, and
no attributes count, neither theirs nor this work tree's.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed
from vmrag_link.git.run import failure, git_in
from vmrag_link.paths import Places

_CONFLICT = 1
_MOST_SECONDS = 300.0
"""Thousands of renamed files are compared with each other: a stranger's commit may take hours."""


class MergedTree(NamedTuple):
    """A tree, which holds git's markers where it has `conflicts`, paths as git names them."""

    name: str
    conflicts: tuple[str, ...]


def merge_trees(places: Places, ours: str, theirs: str) -> MergedTree:
    """The tree of a merge of two commits, given by their hashes; no ref moves.

    Their history must be here as far back as their merge bases. Raises `GitFailed`, also where it
    is not done after five minutes.
    """
    arguments = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    with tempfile.TemporaryDirectory(prefix="vmrag-merge-") as folder:  # a work tree without attributes
        where = (f"--git-dir={places.git_dir}", f"--work-tree={folder}")
        settings = ("-c", f"core.attributesFile={os.devnull}", "-c", "merge.renormalize=false")
        done = _merged(Path(folder), *where, *settings, *arguments)
    if done.returncode not in (0, _CONFLICT):
        raise failure(arguments, done)
    tree, *paths = os.fsdecode(done.stdout).removesuffix("\0").split("\0")
    return MergedTree(tree, tuple(paths) if done.returncode else ())


def _merged(folder: Path, *arguments: str) -> proc.Finished:
    extra = env.unattended() | {"GIT_ATTR_NOSYSTEM": "1"}
    try:
        return git_in(folder, *arguments, index_file=folder / "index", extra=extra, timeout=_MOST_SECONDS)
    except TimeoutError as error:
        raise GitFailed(
            f"git did not say within {_MOST_SECONDS:g} s whether they can be merged.",
            hint="git merge, in a clone",
        ) from error
