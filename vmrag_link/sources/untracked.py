"""Files of sources that git does not track."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import LimitExceeded
from vmrag_link.git import raw_changes
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.rules import build_excluded, build_included, build_pathspecs


def list_untracked_files(places: Places, sources: Sequence[SourceSettings]) -> list[list[str]]:
    """What git does not track and does not ignore, of each source. Raises `LimitExceeded`."""
    return [raw_changes.list_untracked(places, build_pathspecs(source)) for source in sources]


def count_untracked_files(places: Places, sources: Sequence[SourceSettings]) -> int:
    """How many there are; of more than can be listed, as many as can. It walks the work tree, once
    for all sources that leave out the same files.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for source in sources:
        alike.setdefault(tuple(build_excluded(source)), []).extend(build_included(source))
    try:
        found = (raw_changes.list_untracked(places, [*paths, *others]) for others, paths in alike.items())
        return len(set[str]().union(*found))
    except LimitExceeded:  # a folder of a package manager that nobody ignores must not hide the rest
        return raw_changes.MOST_FILES
