"""Files that would be of a source if git tracked them."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import LimitExceeded
from vmrag_link.git import own_index
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import pathspecs


def untracked_files(places: Places, sources: Sequence[SourceSettings]) -> list[list[str]]:
    """What git does not track and does not ignore, of each source. Raises `LimitExceeded`."""
    return [own_index.untracked(places, pathspecs.arguments(source)) for source in sources]


def untracked_count(places: Places, sources: Sequence[SourceSettings]) -> int:
    """How many there are; of more than can be listed, as many as can. It walks the work tree."""
    try:
        return len(set().union(*untracked_files(places, sources)))
    except LimitExceeded:  # a folder of a package manager that nobody ignores must not hide the rest
        return own_index.MOST_FILES
