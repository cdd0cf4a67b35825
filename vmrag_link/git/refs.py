"""Refs: the names that people see (branches, tags, branches of remotes), the tracking branches that
say where code was pushed to, and what the work trees hold that no ref and no reflog names.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from vmrag_link.git.heads import BRANCHES, COMMIT_NAME
from vmrag_link.git.run import demand
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places, read_regular

REMOTES = "refs/remotes/"
_TAGS = "refs/tags/"
_FORMAT = "%(refname)%00%(objectname)%00%(*objectname)%00%(symref)"


def tips(places: Places) -> dict[str, str]:
    """What each name stands on, in the order in which git decorates its log: `main`, `tag: v1`,
    `origin/main`. Names that only point to others, such as `origin/HEAD`, are left out.
    """
    text = demand(places, "for-each-ref", f"--format={_FORMAT}", BRANCHES, _TAGS, REMOTES).text
    found = (line.split("\0") for line in text.splitlines())
    known = {name: peeled or commit for name, commit, peeled, symbolic in found if not symbolic}
    shown = (
        (_decoration(name), commit)
        for prefix in (BRANCHES, _TAGS, REMOTES)
        for name, commit in known.items()
        if name.startswith(prefix)
    )
    return dict(shown)


def _decoration(ref: str) -> str:
    if ref.startswith(_TAGS):
        return f"tag: {ref.removeprefix(_TAGS)}"
    return ref.removeprefix(BRANCHES).removeprefix(REMOTES)


_SETTLED_SECONDS = 1.0
"""Two changes within one tick of the file system's clock look alike."""


def pushed(places: Places) -> dict[str, str]:
    """The tracking branches that are called as a branch here, with their commits."""
    lines = demand(places, "for-each-ref", "--format=%(objectname) %(refname)", BRANCHES, REMOTES).text.splitlines()
    refs = {name: commit for commit, _, name in (line.partition(" ") for line in lines)}
    here = {name.removeprefix(BRANCHES) for name in refs if name.startswith(BRANCHES)}
    return {name: commit for name, commit in refs.items() if name.startswith(REMOTES) and _branch_of(name) in here}


def _branch_of(tracking: str) -> str:
    """A remote's name may have slashes, which git advises against: it then counts as another."""
    return tracking.removeprefix(REMOTES).partition("/")[2]


def pins(places: Places, commits: Iterable[str]) -> dict[str, bytes]:
    """The pins of those commits that have one, by commit. What is too large for one is not read."""
    asked = list(dict.fromkeys(commits))
    blobs = {}
    query = "".join(f"{commit}:{PIN_NAME}\n" for commit in asked).encode()
    answers = demand(places, "cat-file", "--batch-check", stdin=query).text.splitlines() if asked else []
    for commit, answer in zip(asked, answers, strict=True):
        match answer.split(" "):
            case [blob, "blob", size] if int(size) <= PIN_READ_LIMIT:
                blobs[commit] = blob
    contents = {blob: demand(places, "cat-file", "blob", blob).stdout for blob in dict.fromkeys(blobs.values())}
    return {commit: contents[blob] for commit, blob in blobs.items()}


def stamp(places: Places) -> str:
    """A text that changes when a tracking branch does; empty where that cannot be told yet."""
    common = places.common
    files = [common / "packed-refs", common / "reftable" / "tables.list", *_folders(common / REMOTES)]
    found = [(str(path), at) for path in files if (at := _changed_ns(path))]
    if any(time.time_ns() - at < _SETTLED_SECONDS * 1e9 for _, at in found):
        return ""
    return "\n".join(f"{at} {path}" for path, at in found) or "none"


def _folders(top: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(top)]


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return 0


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
    listed = (Path(value) for key, value in _worktree_list(places) if key == "worktree")
    return [places.top, *(top for top in listed if top != places.top and (top / ".git").exists())]


def code_branches(places: Places) -> set[str]:
    """Every branch, also unborn ones of work trees, which their next commit creates."""
    born = demand(places, "for-each-ref", "--format=%(refname)", BRANCHES).text.splitlines()
    checked_out = (value for key, value in _worktree_list(places) if key == "branch")
    return {name.removeprefix(BRANCHES) for name in (*born, *checked_out)}


def checked_out(places: Places) -> set[str]:
    """The code branches of the work trees that are there now."""
    found, there = set[str](), False
    for key, value in _worktree_list(places):
        there = (Path(value) / ".git").exists() if key == "worktree" else there
        if key == "branch" and there:
            found.add(value.removeprefix(BRANCHES))
    return found


def _worktree_list(places: Places) -> Iterator[tuple[str, str]]:
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
    trees; of a workspace of jj's (`jj`) what is staged.
    """
    found: dict[bytes, None] = {}
    for folder in (*git_dirs(places), *(head.parent for head in places.common.glob("vmrag/jj/*/HEAD"))):
        staged = demand(places._replace(git_dir=folder), "ls-files", "--stage", "-z", "--", PIN_NAME)
        for entry in filter(None, staged.stdout.split(b"\0")):
            found[demand(places, "cat-file", "blob", entry.split(b" ")[1].decode()).stdout[:PIN_READ_LIMIT]] = None
    for top in tops(places):
        try:
            found[read_regular(top / PIN_NAME, PIN_READ_LIMIT)] = None
        except OSError:
            continue  # not there, or something that cannot be a pin
    return list(found)
