"""git's raw format of changes, of trees, of the index and of the work tree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmrag_link.git.beside import fields, require_fewer
from vmrag_link.paths import Places

MOST_FILES = 200_000
"""In one list."""

_MOST_PATHS = 2_000_000
"""Of a tree, whatever is asked of it."""

REGULAR = ("100644", "100755")
LINK, SUBMODULE = "120000", "160000"


class RawChange(NamedTuple):
    """Modes and blobs before and after; the blob is zeros where git does not know it.

    `status`: `A`, `D`, `M`, `T` (another kind of file), `U` (unmerged).
    """

    path: str
    status: str
    old_mode: str
    mode: str
    old_blob: str
    blob: str


class IndexEntry(NamedTuple):
    """`stage` is 0, or 1 to 3 of an unmerged path. `absent`: left out of the work tree (sparse)."""

    path: str
    mode: str
    blob: str
    stage: int
    absent: bool


def require_countable(places: Places, commit: str) -> None:
    """Raise `LimitExceeded` for a tree with more paths than can be compared.

    Some kilobytes can have 10^12 of them: each level names one subtree ten times. git's diffs
    gather all that they find before they say the first.
    """
    require_fewer(places, "ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", commit, most=_MOST_PATHS)


def tree_files(places: Places, commit: str, empty_tree: str, pathspecs: Sequence[str]) -> Iterator[RawChange]:
    """All files of a commit, as what was added to the empty tree: `ls-tree` knows no pathspecs.

    Raises as `beside.fields`.
    """
    arguments = ("diff-tree", "--raw", "-r", "-z", "--no-renames", "--no-commit-id", empty_tree, commit, "--")
    return _changes(fields(places, *arguments, *pathspecs, most=2 * MOST_FILES))


def staged(places: Places, head: str, pathspecs: Sequence[str], *options: str) -> Iterator[RawChange]:
    """How the index differs from a tree. Raises as `beside.fields`."""
    arguments = (
        "diff-index",
        "--cached",
        "--raw",
        "-z",
        "--no-renames",
        "--ignore-submodules=all",
        *options,
        head,
        "--",
    )
    return _changes(fields(places, *arguments, *pathspecs, most=4 * MOST_FILES))


def entries(places: Places, pathspecs: Sequence[str]) -> Iterator[IndexEntry]:
    """What git tracks. Raises as `beside.fields`."""
    for entry in fields(places, "ls-files", "--stage", "-v", "-z", "--", *pathspecs, most=2 * MOST_FILES):
        described, _, path = os.fsdecode(entry).partition("\t")
        tag, mode, blob, stage = described.split(" ")
        yield IndexEntry(path, mode, blob, int(stage), tag in "Ss")


def untracked(places: Places, pathspecs: Sequence[str]) -> list[str]:
    """Files that git neither tracks nor ignores; of repositories in the work tree none.

    Raises as `beside.fields`.
    """
    found = fields(places, "ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs, most=MOST_FILES)
    return [os.fsdecode(each) for each in found if not each.endswith(b"/")]


def _changes(listed: Sequence[bytes]) -> Iterator[RawChange]:
    for described, path in zip(listed[::2], listed[1::2], strict=True):
        old_mode, mode, old_blob, blob, status = described[1:].decode().split(" ")
        yield RawChange(os.fsdecode(path), status[0], old_mode, mode, old_blob, blob)


def changed_files(listed: Sequence[bytes]) -> dict[str, str]:
    """The statuses of `diff-files --raw -z` by path: of an unmerged one `U`, whatever else is
    said.
    """
    found: dict[str, str] = {}
    for described, path in zip(listed[::2], listed[1::2], strict=True):
        name, status = os.fsdecode(path), described[-1:].decode()
        found[name] = "U" if "U" in (status, found.get(name)) else status
    return found


def names_at(places: Places, ref: str) -> list[str]:
    """The paths of all files in a commit's tree. Raises as `beside.fields`."""
    return [os.fsdecode(name) for name in fields(places, "ls-tree", "-r", "-z", "--name-only", ref, most=MOST_FILES)]
