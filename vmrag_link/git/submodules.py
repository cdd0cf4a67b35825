"""The submodules and symbolic links of a tree, and how many files a submodule has.

git never runs in a submodule: its configuration may name programs, and a stranger may have packed
it. git runs here and only borrows the objects of the submodule.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import GitFailed
from vmrag_link.git import beside, raw_changes
from vmrag_link.git.raw_changes import LINK, MOST_FILES, SUBMODULE
from vmrag_link.paths import Places

_GIT_FILE_BYTES = 4096
_GIT_FILE = "gitdir: "
_LONGEST_TARGET = 4096


class NestedPaths(NamedTuple):
    """The commits of submodules and the blobs of links, by path."""

    submodules: Mapping[str, str]
    links: Mapping[str, str]


def find_nested(places: Places, commit: str | None) -> NestedPaths:
    """Return the submodules and links of a commit, or of the index. Raises `GitFailed`."""
    if commit is None:
        entries = [(entry.path, entry.mode, entry.blob) for entry in raw_changes.entries(places, ()) if not entry.stage]
    else:
        listed = beside.fields(places, "ls-tree", "-r", "-z", "--full-tree", commit, most=MOST_FILES)
        parts = (entry.partition(b"\t") for entry in listed)
        described = ((os.fsdecode(path), about.decode().split()) for about, _, path in parts)
        entries = [(path, mode, name) for path, (mode, _, name) in described]
    return NestedPaths(
        {path: name for path, mode, name in entries if mode == SUBMODULE},
        {path: name for path, mode, name in entries if mode == LINK},
    )


def read_targets(places: Places, links: Mapping[str, str]) -> dict[str, str]:
    """Return the targets of links, by path. Raises `GitFailed`."""
    sizes = beside.sizes(places, links.values())
    contents = beside.contents(places, [blob for blob, size in sizes.items() if size <= _LONGEST_TARGET])
    return {path: os.fsdecode(contents[blob]) for path, blob in links.items() if blob in contents}


def count_files(places: Places, path: str, commit: str) -> int | None:
    """Return how many files a submodule has at its commit, at most `MOST_FILES`; None if the commit
    is not in this clone, or if counting takes too long.
    """
    objects = _find_objects(places, path)
    if objects is None:
        return None
    quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
    number = 0

    def count_names(part: bytes) -> bool:
        nonlocal number
        number += part.count(b"\0")
        return number < MOST_FILES

    arguments = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    borrowed = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}
    try:
        counted = beside.feed_output(
            places, *arguments, take=count_names, seconds=beside.seconds_left(), extra=borrowed
        )
    except GitFailed:  # the submodule was not fetched that far
        return None
    return min(number, MOST_FILES) if counted else None


def _find_objects(places: Places, path: str) -> Path | None:
    """Return the folder with the objects of a submodule, if git keeps it where it creates it."""
    git_file = places.top / path / ".git"
    folder = places.common / "modules" / path  # if it is not checked out
    if git_file.is_file():
        with git_file.open("rb") as opened:
            text = os.fsdecode(opened.read(_GIT_FILE_BYTES)).rstrip("\n")
        folder = git_file.parent / text.removeprefix(_GIT_FILE)
    elif git_file.is_dir():
        folder = git_file
    objects = Path(os.path.realpath(folder / "objects"))
    places_of_git = (places.top / path, places.common / "modules", places.git_dir / "modules")
    is_usual = any(objects.is_relative_to(os.path.realpath(place)) for place in places_of_git)
    return objects if is_usual and objects.is_dir() else None
