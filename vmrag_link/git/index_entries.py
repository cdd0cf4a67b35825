"""What git's index says of single paths, so that it can be put back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmrag_link.git.run import demand
from vmrag_link.paths import Places


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
