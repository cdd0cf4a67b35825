"""The result of merging two commits as a code host does it, without any configuration.

The two commits may be untrusted. Nothing is checked out. No driver, filter or hook runs, and no
attributes apply, neither from the commits nor from this work tree.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed
from vmrag_link.git.run import build_failure, run_git_in
from vmrag_link.models import Record
from vmrag_link.paths import Places

_CONFLICT = 1  # exit code of `git merge-tree`
_MAX_SECONDS = 300.0
"""git compares thousands of renamed files with each other, so an untrusted commit may take hours.
"""


class MergedTree(Record, frozen=True):
    """A merged tree. If it has `conflicts`, these files contain git's markers. Their paths are as
    git names them.
    """

    name: str
    conflicts: tuple[str, ...]


def merge_trees(places: Places, ours: str, theirs: str) -> MergedTree:
    """Return the tree of a merge of two commits, given by their hashes. No ref moves.

    Their history must be in this clone back to their merge bases. Raises `GitFailed`, also after
    five minutes.
    """
    arguments = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    with tempfile.TemporaryDirectory(prefix="vmrag-merge-") as folder:  # a work tree without attributes
        repository = (f"--git-dir={places.git_dir}", f"--work-tree={folder}")
        settings = ("-c", f"core.attributesFile={os.devnull}", "-c", "merge.renormalize=false")
        finished = _run_merge(Path(folder), *repository, *settings, *arguments)
    if finished.returncode not in (0, _CONFLICT):
        raise build_failure(arguments, finished)
    tree, *paths = os.fsdecode(finished.stdout).removesuffix("\0").split("\0")
    return MergedTree(tree, tuple(paths) if finished.returncode else ())


def _run_merge(folder: Path, *arguments: str) -> proc.FinishedProcess:
    extra = env.read_unattended() | {"GIT_ATTR_NOSYSTEM": "1"}
    try:
        return run_git_in(folder, *arguments, index_file=folder / "index", extra=extra, timeout=_MAX_SECONDS)
    except TimeoutError as error:
        raise GitFailed(
            f"git took more than {_MAX_SECONDS:g} s to merge the two commits.",
            hint="run 'git merge' in a clone, and push the result",
        ) from error
