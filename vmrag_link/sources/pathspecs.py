"""The pathspecs of `sources`: as arguments of git, the untracked files that they would take, and
the ones that a repository probably wants, by the names of its files.

Strangers write pathspecs; `settings.flaws.pathspec_flaw` says which are accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from vmrag_link.code import languages
from vmrag_link.conversion import formats
from vmrag_link.errors import LimitExceeded
from vmrag_link.git import raw_changes
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.attributes import PATHSPEC


def arguments(source: SourceSettings) -> list[str]:
    """Pathspecs as git's arguments after `--`: `*` stays within a folder, `**/` is any folder or
    none.
    """
    excluded = source.exclude if source.paths else ("**",)  # without any, git would take all
    return [*included(source), *(f":(top,glob,exclude){each}" for each in excluded)]


def included(source: SourceSettings) -> list[str]:
    """As `arguments`, without the excludes."""
    return [f":(top,glob){each}" for each in source.paths]


def looked_at(sources: Sequence[SourceSettings]) -> list[str]:
    """All that matters to these sources, and some that none of them has."""
    return [*dict.fromkeys(each for source in sources for each in included(source)), PATHSPEC]


def untracked_files(places: Places, sources: Sequence[SourceSettings]) -> list[list[str]]:
    """What git does not track and does not ignore, of each source. Raises `LimitExceeded`."""
    return [raw_changes.untracked(places, arguments(source)) for source in sources]


def untracked_count(places: Places, sources: Sequence[SourceSettings]) -> int:
    """How many there are; of more than can be listed, as many as can. It walks the work tree."""
    try:
        return len(set().union(*untracked_files(places, sources)))
    except LimitExceeded:  # a folder of a package manager that nobody ignores must not hide the rest
        return raw_changes.MOST_FILES


PROSE = frozenset(("markdown", "rst", "asciidoc", "mdx"))
FOLDERS = ("docs", "doc", "documentation", "Documentation", "wiki", "adr", "rfcs")
"""Folders at the top in which texts are documentation, too, whatever their names end in."""

NOT_OURS = ("node_modules", "vendor", "third_party", "bower_components", "dist", "build")
"""Folders whose files others wrote, or a program."""

_NAMES = (("docs", "documentation", "files"), ("code", "source-code", "symbols"))


def propose(paths: Iterable[str], *, stored: Collection[str] = ()) -> tuple[SourceSettings, ...]:
    """The documentation, and, where it can be cut here, the code among these tracked files.

    `stored`: the collections of the knowledge base, whose names no source can have.
    """
    prose, code, folders, excluded = set[str](), set[str](), set[str](), set[str]()
    for path in paths:
        parts = path.split("/")
        if others := {each for each in parts[:-1] if each in NOT_OURS}:
            excluded |= others
            continue
        ending = f".{parts[-1].rpartition('.')[2]}" if "." in parts[-1] else ""
        known = formats.by_suffix(parts[-1])
        if known and known.file_type in PROSE:
            prose.add(ending)
        elif known and known.file_type == "text" and parts[0] in FOLDERS and len(parts) > 1:
            folders.add(parts[0])
        elif ending and not known and languages.language_of(path) in languages.GRAMMARS:
            code.add(ending)
    exclude = tuple(f"**/{each}/**" for each in sorted(excluded))
    documents, symbols = (next((name for name in names if name not in stored), "") for names in _NAMES)
    found = []
    if (prose or folders) and documents:
        below = [f"{each}/**/*.txt" for each in sorted(folders)]
        found.append(SourceSettings(documents, (*_everywhere(prose), *below), exclude))
    if code and symbols and not languages.problem():
        found.append(SourceSettings(symbols, _everywhere(code), exclude, "code"))
    return tuple(found)


def _everywhere(endings: Collection[str]) -> tuple[str, ...]:
    return tuple(f"**/*{each}" for each in sorted(endings))
