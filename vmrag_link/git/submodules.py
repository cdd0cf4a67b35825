"""The submodules and symbolic links of a tree, and how git reads the files of a submodule.

git never runs in a submodule, because its configuration may be untrusted and can name programs. git
runs in this repository with its settings, and only borrows the objects and the index of the
submodule.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import GitFailed, LimitExceeded
from vmrag_link.git import raw_changes, readonly
from vmrag_link.git.raw_changes import LINK, MOST_FILES, SUBMODULE
from vmrag_link.paths import BorrowedParts, Places

_MAX_GIT_FILE_BYTES = 4096
_GIT_FILE_START = "gitdir: "
_MAX_TARGET_BYTES = 4096

_FATAL = 128  # exit code of git
_MAX_SUBMODULES = 500
"""Limited, because each submodule takes some processes."""


class NestedPaths(NamedTuple):
    """The commits of submodules and the blobs of links, by path."""

    submodules: Mapping[str, str]
    links: Mapping[str, str]


def find_nested(places: Places, commit: str | None) -> NestedPaths:
    """Return the submodules and links of a commit, or of the index. Raises `GitFailed`."""
    if commit is None:
        listed = raw_changes.list_entries(places, ())
        entries = [(entry.path, entry.mode, entry.blob) for entry in listed if not entry.stage]
    else:
        entries = []
        for entry in readonly.list_fields(places, "ls-tree", "-r", "-z", "--full-tree", commit, limit=MOST_FILES):
            attributes, _, path = entry.partition(b"\t")
            mode, _, name = attributes.decode().split()
            entries.append((os.fsdecode(path), mode, name))
    return NestedPaths(
        {path: name for path, mode, name in entries if mode == SUBMODULE},
        {path: name for path, mode, name in entries if mode == LINK},
    )


def read_targets(places: Places, links: Mapping[str, str]) -> dict[str, str]:
    """Return the targets of links, by path. Raises `GitFailed`."""
    sizes = readonly.read_blob_sizes(places, links.values())
    contents = readonly.read_blobs(places, [blob for blob, size in sizes.items() if size <= _MAX_TARGET_BYTES])
    return {path: os.fsdecode(contents[blob]) for path, blob in links.items() if blob in contents}


class Submodule(NamedTuple):
    """A submodule of a tree."""

    path: str
    """Path from the top of the outermost repository."""
    commit: str | None
    """The commit that the tree names, or in the work tree the one that HEAD names. None if HEAD
    names none.
    """
    places: Places | None
    """Places for git, which runs in the repository around the submodule. None if the commit, or the
    work tree, is missing in this clone.
    """


class _Parent(NamedTuple):
    """A repository whose submodules are to be found."""

    places: Places
    prefix: str
    """The beginning of its submodules' paths."""
    commit: str | None
    modules: Path
    """The folder in which git creates the git directories of its submodules."""


def find_submodules(
    places: Places, commit: str | None, *, of_work_tree: bool, is_wanted: Callable[[str], bool]
) -> list[Submodule]:
    """Return the submodules of a commit, or of the work tree, including nested ones.

    `commit`: for the work tree HEAD's commit, or None. `is_wanted` gets a path and returns whether
    to read that submodule. Raises `GitFailed`, and `LimitExceeded` for too many.
    """
    submodules: list[Submodule] = []
    waiting = [_Parent(places, "", commit, places.common / "modules")]
    while waiting:
        parent = waiting.pop()
        for below, name in raw_changes.list_submodules(parent.places, parent.commit, of_index=of_work_tree).items():
            path = parent.prefix + below
            if not is_wanted(path):
                continue
            folder = _find_git_folder(places, path, parent.modules / below, is_checked_out=of_work_tree)
            submodule = Submodule(path, name, None)
            if folder:
                submodule = _open_submodule(places, path, folder, name, of_work_tree=of_work_tree)
            submodules.append(submodule)
            if folder and submodule.places:
                waiting.append(_Parent(submodule.places, f"{path}/", submodule.commit, folder / "modules"))
        if len(submodules) > _MAX_SUBMODULES:
            raise LimitExceeded(
                f"the sources name more than {_MAX_SUBMODULES} submodules.",
                hint="leave out folders with `exclude` in `sources` of .vmrag.yaml",
                most=_MAX_SUBMODULES,
            )
    return submodules


def lend_objects(places: Places, submodules: Iterable[Submodule]) -> Places:
    """Return the places of a repository in which git also reads the objects of its submodules."""
    objects = list_objects(submodules)
    return places._replace(borrowed=BorrowedParts(objects)) if objects else places


def list_objects(submodules: Iterable[Submodule]) -> tuple[Path, ...]:
    """Return the folders with the objects of the submodules that this clone has."""
    folders: list[Path] = []
    for submodule in submodules:
        if submodule.places and submodule.places.borrowed:
            folders += submodule.places.borrowed.objects
    return tuple(folders)


def count_files(places: Places, path: str, commit: str) -> int | None:
    """Return the number of files of a submodule at its commit, at most `MOST_FILES`.

    None if the commit is missing in this clone, or if counting takes too long.
    """
    folder = _find_git_folder(places, path, places.common / "modules" / path, is_checked_out=False)
    if folder is None:
        return None
    number = 0

    def count_names(part: bytes) -> bool:
        nonlocal number
        number += part.count(b"\0")
        return number < MOST_FILES

    arguments = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit)
    inner = _borrow_parts(places, path, folder, commit, of_work_tree=False)
    try:
        counted = readonly.feed_output(inner, *arguments, take=count_names, seconds=readonly.seconds_left(), extra={})
    except GitFailed:  # the submodule was not fetched that far
        return None
    return min(number, MOST_FILES) if counted else None


def _open_submodule(places: Places, path: str, folder: Path, commit: str | None, *, of_work_tree: bool) -> Submodule:
    """Return a submodule whose git directory exists. If the commit that HEAD names is missing, its
    work tree is still readable, as if HEAD named none.
    """
    if commit:
        inner = _borrow_parts(places, path, folder, commit, of_work_tree=of_work_tree)
        finished = readonly.run_readonly(inner, "cat-file", "-e", f"{commit}^{{commit}}", fine=(0, 1, _FATAL))
        if finished.returncode == 0:
            return Submodule(path, commit, inner)
    work_tree = _borrow_parts(places, path, folder, None, of_work_tree=True) if of_work_tree else None
    return Submodule(path, None, work_tree)


def _borrow_parts(places: Places, path: str, folder: Path, commit: str | None, *, of_work_tree: bool) -> Places:
    """Return the places with which git reads a submodule at a commit, or its work tree."""
    if not of_work_tree:
        return places._replace(borrowed=BorrowedParts((folder / "objects",)))
    return places._replace(
        top=places.top / path, borrowed=BorrowedParts((folder / "objects",), folder / "index", commit)
    )


def _find_git_folder(places: Places, path: str, usual: Path, *, is_checked_out: bool) -> Path | None:
    """Return the git directory of a submodule, if it is where git creates it. Otherwise the folder
    may belong to someone else.

    `usual`: its path if the submodule is not checked out.
    """
    top = Path(os.path.realpath(places.top)) / path
    git_file = top / ".git"
    folder = usual
    if Path(os.path.realpath(top)) != top:  # a link would lead out of the work tree
        if is_checked_out:
            return None
    elif git_file.is_file():
        with git_file.open("rb") as opened:
            text = os.fsdecode(opened.read(_MAX_GIT_FILE_BYTES)).rstrip("\n")
        folder = git_file.parent / text.removeprefix(_GIT_FILE_START)
    elif git_file.is_dir():
        folder = git_file
    elif is_checked_out:
        return None
    try:
        folder = Path(os.path.realpath(folder))
        objects = Path(os.path.realpath(folder / "objects"))
    except ValueError:  # a NUL in the file
        return None
    folders_of_git = (top, places.common / "modules", places.git_dir / "modules")
    is_usual = any(objects.is_relative_to(os.path.realpath(parent)) for parent in folders_of_git)
    if not (is_usual and objects == folder / "objects" and objects.is_dir()):
        return None
    index = folder / "index"
    # A pipe in place of the index would wait for a writer. A link is refused before it is followed.
    return folder if not is_checked_out or (not index.is_symlink() and index.is_file()) else None
