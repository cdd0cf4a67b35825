"""All work trees of a repository, and what they hold that no ref and no reflog names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.git.heads import BRANCHES, COMMIT_NAME
from vmrag_link.git.run import demand
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places, read_regular

_COMMIT = rf"(?m)^{COMMIT_NAME}\b".encode()
# What a merge, rebase, bisect or fetch will go on with, or back to.
_NOTES = ("*_HEAD", "MERGE_AUTOSTASH", "rebase-*/orig-head", "rebase-*/onto", "rebase-*/autostash")
_OWN_REFS = ("refs/bisect/*", "refs/worktree/*", "refs/rewritten/*")  # `--all` knows those of one work tree only


def git_dirs(places: Places) -> list[Path]:
    """The main (or bare) repository's work tree and each linked one, whether its directory exists
    or not.
    """
    return [places.common, *sorted(head.parent for head in places.common.glob("worktrees/*/HEAD"))]


def tops(places: Places) -> list[Path]:
    """The directories of the work trees that are there now."""
    listed = (Path(value) for key, value in _described(places) if key == "worktree")
    return [places.top, *(top for top in listed if top != places.top and (top / ".git").exists())]


def code_branches(places: Places) -> set[str]:
    """Every branch, also unborn ones of work trees, which their next commit creates."""
    born = demand(places, "for-each-ref", "--format=%(refname)", BRANCHES).text.splitlines()
    checked_out = (value for key, value in _described(places) if key == "branch")
    return {name.removeprefix(BRANCHES) for name in (*born, *checked_out)}


def _described(places: Places) -> Iterator[tuple[str, str]]:
    for line in demand(places, "worktree", "list", "--porcelain").text.splitlines():
        key, _, value = line.partition(" ")
        yield key, value


def noted_commits(places: Places) -> list[str]:
    """Commits that git noted outside of refs and reflogs for operations under way in any work tree.

    Some may be gone, or be other objects.
    """
    found: dict[str, None] = {}
    for folder in git_dirs(places):
        for pattern in (*_NOTES, *_OWN_REFS):
            for path in folder.glob(pattern):
                if path.is_file():
                    found.update(dict.fromkeys(name.decode() for name in re.findall(_COMMIT, path.read_bytes())))
    return list(found)


def uncommitted_pins(places: Places) -> list[bytes]:
    """Every `.dolt-version` in the index of a work tree (every stage of a conflict) and in work
    trees.
    """
    found: dict[bytes, None] = {}
    for folder in git_dirs(places):
        staged = demand(places._replace(git_dir=folder), "ls-files", "--stage", "-z", "--", PIN_NAME)
        for entry in filter(None, staged.stdout.split(b"\0")):
            found[demand(places, "cat-file", "blob", entry.split(b" ")[1].decode()).stdout[:PIN_READ_LIMIT]] = None
    for top in tops(places):
        try:
            found[read_regular(top / PIN_NAME, PIN_READ_LIMIT)] = None
        except OSError:
            continue  # not there, or something that cannot be a pin
    return list(found)
