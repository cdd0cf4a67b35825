"""Markdown pages of the standard library's documentation, one a module; the same bytes each time for one Python."""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link.demo import definitions, library
from vmrag_link.models import Record

LONGEST = 20_000
"""Characters of a page, about; what would go beyond is named, not told."""


class Page(Record, frozen=True):
    """`text` is Markdown with a title; `name` the module's."""

    name: str
    text: str

    @property
    def file(self) -> str:
        return f"{self.name}.md"


def pages() -> Iterator[Page]:
    """Modules that document nothing have no page."""
    for module in library.modules():
        documented = definitions.documentation(module)
        if documented.doc or documented.entries:
            yield page(module.name, documented)


def page(name: str, documented: definitions.Documentation) -> Page:
    parts = [f"# {name}", documented.doc]
    size = len(documented.doc)
    for number, entry in enumerate(documented.entries):
        if size > LONGEST:
            names = ", ".join(f"`{each.name}`" for each in documented.entries[number:])
            parts.append(f"## More in this module\n\n{names}")
            break
        parts.append(_section(name, entry))
        size += len(parts[-1])
    return Page(name, "\n\n".join(part for part in parts if part) + "\n")


def _section(module: str, entry: definitions.Entry) -> str:
    mark = "###" if "." in entry.name else "##"
    kind = "class " if entry.signature.startswith("class ") else ""
    return f"{mark} {kind}`{module}.{entry.signature.removeprefix('class ')}`\n\n{entry.doc}".rstrip()
