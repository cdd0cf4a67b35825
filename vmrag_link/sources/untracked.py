"""Files of sources that git does not track."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import LimitExceeded
from vmrag_link.git import raw_changes
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.rules import build_excluded, build_included, build_pathspecs, searches_untracked


def list_untracked_files(places: Places, sources: Sequence[SourceSettings]) -> list[list[str]]:
    """Return the files of each source that git neither tracks nor ignores. Raises
    `LimitExceeded`.
    """
    return [raw_changes.list_untracked(places, build_pathspecs(source)) for source in sources]


def list_searched_untracked(places: Places, sources: Sequence[SourceSettings], *, untracked: bool) -> list[list[str]]:
    """Return the untracked files that are documents, for each source.

    `untracked`: the setting, without which only notes are documents before git tracks them. Raises
    `LimitExceeded`.
    """
    return [
        raw_changes.list_untracked(places, build_pathspecs(source))
        if searches_untracked(source, untracked=untracked)
        else []
        for source in sources
    ]


def count_untracked_files(places: Places, sources: Sequence[SourceSettings]) -> int:
    """Return the number of untracked files of all sources. If there are too many to list, the limit
    is returned.

    The work tree is walked once for all sources with the same excluded files.
    """
    paths_by_excluded: dict[tuple[str, ...], list[str]] = {}
    for source in sources:
        paths_by_excluded.setdefault(tuple(build_excluded(source)), []).extend(build_included(source))
    try:
        listed = (raw_changes.list_untracked(places, [*paths, *others]) for others, paths in paths_by_excluded.items())
        return len(set[str]().union(*listed))
    except LimitExceeded:  # an unignored folder of a package manager must not make the command fail
        return raw_changes.MOST_FILES
