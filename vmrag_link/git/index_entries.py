"""What git's index says: which files it tracks; of single paths, so that it can be put back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vmrag_link.git.run import demand
from vmrag_link.paths import Places


def tracked_files(places: Places) -> list[str]:
    """The regular files, by their paths from the top: no links, no submodules."""
    # A repository that a stranger packed must not name a program: core.fsmonitor would be one.
    entries = demand(places, "-c", "core.fsmonitor=false", "ls-files", "--stage", "-z").stdout.split(b"\0")
    found = (each.partition(b"\t") for each in entries if each.startswith(b"100"))
    return [*dict.fromkeys(os.fsdecode(path) for _, _, path in found)]


def read(places: Places, paths: Sequence[Path]) -> bytes:
    """For `put_back`: the entries of these files at the top of the work tree."""
    return demand(places, "--literal-pathspecs", "ls-files", "--stage", "-z", "--", *_names(paths)).stdout


def put_back(places: Places, paths: Sequence[Path], entries: bytes) -> None:
    """Raises `GitFailed`, as while another git command holds the index."""
    if read(places, paths) != entries:
        demand(places, "update-index", "--force-remove", "--", *_names(paths))
        demand(places, "update-index", "-z", "--index-info", stdin=entries)


def _names(paths: Sequence[Path]) -> list[str]:
    return [path.name for path in paths]
