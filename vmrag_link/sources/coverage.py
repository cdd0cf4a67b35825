"""Which source takes a file, by its path alone: before git tracks it, and after it is gone."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.settings import SourceSettings
from vmrag_link.sources import rules, wildmatch


def source_of(sources: Iterable[SourceSettings], path: str) -> SourceSettings | None:
    """The first source that names a path, which its name does not keep from being a document."""
    return next((each for each in sources if _takes(each, path)), None)


def is_named(source: SourceSettings, path: str) -> bool:
    """Whether a source names a path, whatever becomes of it then."""
    named = any(_matches(each, path) for each in source.paths)
    return named and not any(_matches(each, path) for each in source.exclude)


def _takes(source: SourceSettings, path: str) -> bool:
    flaw = rules.flaw_of_name(path) or rules.flaw_of_kind(path, source.kind, by_hand=False)
    return is_named(source, path) and not flaw


def _matches(pathspec: str, path: str) -> bool:
    """As git's `glob` magic has it: a folder means all that is in it."""
    below = f"{pathspec.rstrip('/')}/"
    if path == pathspec or path.startswith(below):
        return True
    return wildmatch.translate(pathspec).fullmatch(wildmatch.as_bytes(path)) is not None
