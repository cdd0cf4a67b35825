"""The sources that vmrag proposes for a repository without any."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vmrag_link.code import languages
from vmrag_link.conversion import formats
from vmrag_link.settings import SourceSettings

PROSE = frozenset(("markdown", "rst", "asciidoc", "mdx"))
FOLDERS = ("docs", "doc", "documentation", "Documentation", "wiki", "adr", "rfcs")
"""Folders at the top in which texts are documentation, too, whatever their names end in."""

NOT_OURS = ("node_modules", "vendor", "third_party", "bower_components", "dist", "build")
"""Folders whose files others wrote, or a program."""

NAMES = {"document": ("docs", "documentation", "files"), "code": ("code", "source-code", "symbols")}
"""Names for new sources by kind, the preferred one first."""


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
        known = formats.find_built_in(parts[-1])
        if known and known.file_type in PROSE:
            prose.add(ending)
        elif known and known.file_type == "text" and parts[0] in FOLDERS and len(parts) > 1:
            folders.add(parts[0])
        elif ending and not known and languages.language_of(path) in languages.GRAMMARS:
            code.add(ending)
    exclude = tuple(f"**/{each}/**" for each in sorted(excluded))
    documents, symbols = (next((name for name in names if name not in stored), "") for names in NAMES.values())
    found = []
    if (prose or folders) and documents:
        below = [f"{each}/**/*.txt" for each in sorted(folders)]
        found.append(SourceSettings(documents, (*_everywhere(prose), *below), exclude))
    if code and symbols and not languages.problem():
        found.append(SourceSettings(symbols, _everywhere(code), exclude, "code"))
    return tuple(found)


def _everywhere(endings: Collection[str]) -> tuple[str, ...]:
    return tuple(f"**/*{each}" for each in sorted(endings))
