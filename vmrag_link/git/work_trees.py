"""The work trees of a repository, and what git's refs and reflogs do not name of their content:
commits of operations in progress, and pins in indexes and folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.file_access import read_regular
from vmrag_link.git.refs import BRANCHES, COMMIT_NAME
from vmrag_link.git.run import check_git
from vmrag_link.paths import JJ_WORKSPACES, PIN_NAME, PIN_READ_LIMIT, Places

# Files with the commits with which a merge, rebase, bisect or fetch continues, or to which it
# returns.
_OPERATION_FILES = ("*_HEAD", "MERGE_AUTOSTASH", "rebase-*/orig-head", "rebase-*/onto", "rebase-*/autostash")
_OWN_REFS = ("refs/bisect/*", "refs/worktree/*", "refs/rewritten/*")  # `--all` includes those of one work tree only
_NAME_AT_LINE_START = rf"(?m)^{COMMIT_NAME}\b".encode()


def list_git_dirs(places: Places) -> list[Path]:
    """Return the git directories of the main work tree (or the bare repository) and of each linked
    one, whether its directory exists or not.
    """
    return [places.common, *sorted(head.parent for head in places.common.glob("worktrees/*/HEAD"))]


def list_work_trees(places: Places) -> list[Path]:
    """Return the directories of the existing work trees."""
    tops = (Path(value) for key, value in _list_worktree_lines(places) if key == "worktree")
    return [places.top, *(top for top in tops if top != places.top and (top / ".git").exists())]


def list_code_branches(places: Places) -> set[str]:
    """Return all branches, including unborn ones of work trees, which their next commit creates."""
    existing = check_git(places, "for-each-ref", "--format=%(refname)", BRANCHES).text.splitlines()
    checked_out = (value for key, value in _list_worktree_lines(places) if key == "branch")
    return {name.removeprefix(BRANCHES) for name in (*existing, *checked_out)}


def list_checked_out(places: Places) -> set[str]:
    """Return the code branches of the existing work trees."""
    branches, exists = set[str](), False
    for key, value in _list_worktree_lines(places):
        exists = (Path(value) / ".git").exists() if key == "worktree" else exists
        if key == "branch" and exists:
            branches.add(value.removeprefix(BRANCHES))
    return branches


def _list_worktree_lines(places: Places) -> Iterator[tuple[str, str]]:
    for line in check_git(places, "worktree", "list", "--porcelain").text.splitlines():
        key, _, value = line.partition(" ")
        yield key, value


def list_noted_commits(places: Places) -> list[str]:
    """Return the commits that git noted for operations in progress in any work tree: outside of
    refs and reflogs, or in the refs of a single work tree.

    Some may be missing, or be other objects.
    """
    names: dict[str, None] = {}
    for folder in list_git_dirs(places):
        for pattern in (*_OPERATION_FILES, *_OWN_REFS):
            for path in folder.glob(pattern):
                if path.is_file():
                    matches = re.findall(_NAME_AT_LINE_START, path.read_bytes())
                    names.update(dict.fromkeys(name.decode() for name in matches))
    return list(names)


def list_uncommitted_pins(places: Places) -> list[bytes]:
    """Return every `.dolt-version` in the index of a work tree, including each stage of a conflict,
    and in work trees. For a jj workspace, the staged pins are returned.
    """
    pins: dict[bytes, None] = {}
    for folder in (*list_git_dirs(places), *(head.parent for head in places.common.glob(f"{JJ_WORKSPACES}/*/HEAD"))):
        # The repository of a jj workspace is untrusted: core.fsmonitor may name any program.
        list_pin = ("-c", "core.fsmonitor=false", "ls-files", "--stage", "-z", "--", PIN_NAME)
        staged = check_git(places._replace(git_dir=folder), *list_pin)
        for entry in filter(None, staged.stdout.split(b"\0")):
            pins[check_git(places, "cat-file", "blob", entry.split(b" ")[1].decode()).stdout[:PIN_READ_LIMIT]] = None
    for top in list_work_trees(places):
        try:
            pins[read_regular(top / PIN_NAME, PIN_READ_LIMIT)] = None
        except OSError:
            continue  # missing, or not a regular file
    return list(pins)
