"""The pathspecs of `sources`, which strangers write (`settings_flaws.pathspec_flaw`), as arguments
of git.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.settings import SourceSettings
from vmrag_link.sources.attributes import PATHSPEC


def arguments(source: SourceSettings) -> list[str]:
    """For git, after `--`: `*` stays within a folder, `**/` is any folder or none."""
    excluded = source.exclude if source.paths else ("**",)  # without any, git would take all
    return [*included(source), *(f":(top,glob,exclude){each}" for each in excluded)]


def included(source: SourceSettings) -> list[str]:
    """As `arguments`, without the excludes."""
    return [f":(top,glob){each}" for each in source.paths]


def looked_at(sources: Sequence[SourceSettings]) -> list[str]:
    """All that matters to these sources, and some that none of them has."""
    return [*dict.fromkeys(each for source in sources for each in included(source)), PATHSPEC]
