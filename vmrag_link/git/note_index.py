"""Questions to git about notes that are about to be written: ignored, unmerged, attributes.

A note is a Markdown file of the work tree that is also a document. All paths are from the top.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from vmrag_link.git.run import build_failure, check_git, run_git
from vmrag_link.paths import Places

_OFFLINE = ("-c", "core.fsmonitor=false", "--no-optional-locks")
_ID_LINE = "^[\"']?id[\"']?[[:space:]]*:"


def list_files_with_id(places: Places, folder: str, *, without: Sequence[str] = ()) -> list[str]:
    """Return the files below a folder with a line that begins with `id:`, untracked ones as well.

    Files in `without` are not read. Raises `GitFailed`.
    """
    excluded = (f":(top,literal,exclude){path}" for path in without)
    paths = (f":(top,literal){folder}", *excluded)
    options = ("grep", "--untracked", "--no-recurse-submodules", "-l", "-z", "-I", "-E", "-e", _ID_LINE, "--", *paths)
    result = run_git(places, *_OFFLINE, *options)
    if result.returncode > 1:
        raise build_failure(options, result)
    return sorted(os.fsdecode(name) for name in result.stdout.split(b"\0") if name)


def list_unmerged_files(places: Places) -> list[str]:
    """Return the files that a merge left in conflict in git's index. Raises `GitFailed`."""
    entries = check_git(places, *_OFFLINE, "ls-files", "--unmerged", "-z").stdout.split(b"\0")
    paths = (os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry)
    return list(dict.fromkeys(paths))  # git lists each file once for each version in conflict


def list_ignored_files(places: Places, paths: Sequence[str]) -> list[str]:
    """Return the files that git ignores and does not track. Raises `GitFailed`."""
    if not paths:
        return []
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    result = run_git(places, *_OFFLINE, "check-ignore", "-z", "--stdin", stdin=names)
    if result.returncode > 1:
        raise build_failure(("check-ignore",), result)
    return [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]


def read_attributes(places: Places, paths: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str | bool]]:
    """Return the attributes of files that are set or unset, by path. Raises `GitFailed`."""
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    parts = check_git(places, *_OFFLINE, "check-attr", "-z", "--stdin", *names, stdin=stdin).stdout.split(b"\0")
    values: dict[str, dict[str, str | bool]] = {path: {} for path in paths}
    for path, name, value in zip(parts[0::3], parts[1::3], parts[2::3], strict=False):
        if value != b"unspecified":
            text = os.fsdecode(value)
            values[os.fsdecode(path)][os.fsdecode(name)] = {"set": True, "unset": False}.get(text, text)
    return values


def list_blobs(places: Places, commit: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the blobs of files in a commit, by path. Raises `GitFailed`."""
    entries = check_git(places, "--literal-pathspecs", "ls-tree", "-z", commit, "--", *paths).stdout.split(b"\0")
    pairs = (entry.partition(b"\t") for entry in entries if entry)
    return {os.fsdecode(path): about.split()[2].decode() for about, _, path in pairs}


def is_checked_out(places: Places, folder: str) -> bool:
    """Return whether a sparse checkout has a folder, as far as git's index shows it.

    A folder without tracked files counts as left out, unless it exists. Raises `GitFailed`.
    """
    listing = check_git(places, *_OFFLINE, "--literal-pathspecs", "ls-files", "-t", "-z", "--", folder).stdout
    marks = {entry[:1] for entry in listing.split(b"\0") if entry}  # S: left out of the work tree
    return b"S" not in marks and (bool(marks) or (places.top / folder).is_dir())
