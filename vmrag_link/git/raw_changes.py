"""Files in commits and in the index, and their differences in the raw format of git.

For each file it contains the mode and blob on both sides, and one letter for the kind of change.
git only reads (`readonly`), and pathspecs select files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from vmrag_link.git.readonly import list_fields, require_fewer
from vmrag_link.models import Record
from vmrag_link.paths import Places

MOST_FILES = 200_000
"""Maximum number of files in one list."""

_MOST_PATHS = 2_000_000
"""Maximum number of paths of a tree."""

REGULAR = ("100644", "100755")
LINK, SUBMODULE = "120000", "160000"
_SUBMODULE = SUBMODULE.encode()


class RawChange(Record, frozen=True):
    """A changed file with its modes and blobs before and after. The blob is zeros if git does not
    know it.
    """

    path: str
    status: str
    """`A`, `D`, `M`, `T` (another kind of file), `U` (unmerged)."""
    old_mode: str
    mode: str
    old_blob: str
    blob: str


class IndexEntry(Record, frozen=True):
    """An entry of the index."""

    path: str
    mode: str
    blob: str
    stage: int
    """0, or 1 to 3 for an unmerged path."""
    absent: bool
    """True if a sparse checkout leaves it out of the work tree."""


def require_countable(places: Places, commit: str) -> None:
    """Raise `LimitExceeded` for a tree with too many paths to compare.

    A tree of some kilobytes can have 10^12 paths, because each level can name one subtree ten
    times. git's diffs collect all results before they print the first.
    """
    require_fewer(places, "ls-tree", "-r", "-t", "-z", "--name-only", "--full-tree", commit, limit=_MOST_PATHS)


def list_tree_files(places: Places, commit: str, empty_tree: str, pathspecs: Sequence[str]) -> Iterator[RawChange]:
    """Yield all files of a commit as additions to the empty tree, because `ls-tree` does not
    support pathspecs.

    Raises `GitFailed` and `LimitExceeded`.
    """
    arguments = ("diff-tree", "--raw", "-r", "-z", "--no-renames", "--no-commit-id", empty_tree, commit, "--")
    return _parse_changes(list_fields(places, *arguments, *pathspecs, limit=2 * MOST_FILES))


def list_staged(places: Places, head: str, pathspecs: Sequence[str], *options: str) -> Iterator[RawChange]:
    """Yield the differences between a tree and the index. Raises `GitFailed` and
    `LimitExceeded`.
    """
    fixed = ("--cached", "--raw", "-z", "--no-renames", "--ignore-submodules=all")
    arguments = ("diff-index", *fixed, *options, head, "--")
    return _parse_changes(list_fields(places, *arguments, *pathspecs, limit=4 * MOST_FILES))


def list_submodules(places: Places, commit: str | None, *, of_index: bool) -> dict[str, str | None]:
    """Return the commits of the submodules that a tree names, by path.

    With `of_index`, the submodules are those of the index. A submodule that the tree lacks has
    None. Raises `GitFailed` and `LimitExceeded`.
    """
    if not of_index:
        fields = list_fields(places, "ls-tree", "-r", "-z", "--full-tree", commit or "", limit=_MOST_PATHS)
        entries = (entry.partition(b"\t") for entry in fields if entry.startswith(_SUBMODULE))
        return {os.fsdecode(path): attributes.split()[2].decode() for attributes, _, path in entries}
    fields = list_fields(places, "ls-files", "--stage", "-z", limit=_MOST_PATHS)
    entries = (entry.partition(b"\t") for entry in fields if entry.startswith(_SUBMODULE))
    named: dict[str, str | None] = {
        os.fsdecode(path): attributes.split()[1].decode() for attributes, _, path in entries
    }
    if not named or commit is None:
        return dict.fromkeys(named)
    arguments = ("diff-index", "--cached", "--raw", "-z", "--no-renames", "--ignore-submodules=dirty", commit, "--")
    changes = _parse_changes(list_fields(places, *arguments, limit=4 * MOST_FILES))
    before = {change.path: change.old_blob if change.old_mode == SUBMODULE else None for change in changes}
    return named | {path: name for path, name in before.items() if path in named}


def list_entries(places: Places, pathspecs: Sequence[str]) -> Iterator[IndexEntry]:
    """Yield the entries of the index. Raises `GitFailed` and `LimitExceeded`."""
    for entry in list_fields(places, "ls-files", "--stage", "-v", "-z", "--", *pathspecs, limit=2 * MOST_FILES):
        described, _, path = os.fsdecode(entry).partition("\t")
        tag, mode, blob, stage = described.split(" ")
        yield IndexEntry(path, mode, blob, int(stage), tag in "Ss")


def list_untracked(places: Places, pathspecs: Sequence[str]) -> list[str]:
    """Return the files that git neither tracks nor ignores, without those of nested repositories.

    Raises `GitFailed` and `LimitExceeded`.
    """
    paths = list_fields(places, "ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs, limit=MOST_FILES)
    return [os.fsdecode(path) for path in paths if not path.endswith(b"/")]


def _parse_changes(fields: Sequence[bytes]) -> Iterator[RawChange]:
    for described, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, mode, old_blob, blob, status = described[1:].decode().split(" ")
        yield RawChange(
            path=os.fsdecode(path), status=status[0], old_mode=old_mode, mode=mode, old_blob=old_blob, blob=blob
        )


def list_names(places: Places, ref: str) -> list[str]:
    """Return the paths of all files in a commit's tree. Raises `GitFailed` and `LimitExceeded`."""
    return [
        os.fsdecode(name) for name in list_fields(places, "ls-tree", "-r", "-z", "--name-only", ref, limit=MOST_FILES)
    ]


def list_blobs(places: Places, ref: str) -> dict[str, str]:
    """Return the blobs of the regular files of a commit, by path. Raises `GitFailed`."""
    fields = list_fields(places, "ls-tree", "-r", "-z", "--full-tree", ref, limit=MOST_FILES)
    entries = (entry.partition(b"\t") for entry in fields)
    return {
        os.fsdecode(path): attributes.split()[2].decode()
        for attributes, _, path in entries
        if attributes[:6].decode() in REGULAR
    }
