"""Markdown pages of the standard library, one per module, the same for one Python."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.demo import definitions, library
from vmrag_link.models import Record
from vmrag_link.progress import QUIET, Progress

LONGEST = 20_000
"""Characters of a page, about; what would go beyond is named, not told."""


class ModulePage(Record, frozen=True):
    """`text` is Markdown with a title; `name` the module's."""

    name: str
    text: str

    @property
    def file(self) -> str:
        return f"{self.name}.md"


def pages(modules: Iterable[library.Module], progress: Progress = QUIET) -> list[ModulePage]:
    """In the order of the modules; those that document nothing have no page."""
    modules = list(modules)
    found = []
    with progress.task("reading the library", len(modules)) as task:
        for module in modules:
            documented = definitions.documentation(module)
            if documented.doc or documented.entries:
                found.append(page(module.name, documented))
            task.advance()
    return found


def page(name: str, documented: definitions.Documentation) -> ModulePage:
    parts = [f"# {name}", documented.doc]
    size = len(documented.doc)
    for number, entry in enumerate(documented.entries):
        if size > LONGEST:
            names = ", ".join(f"`{each.name}`" for each in documented.entries[number:])
            parts.append(f"## More in this module\n\n{names}")
            break
        parts.append(_section(name, entry))
        size += len(parts[-1])
    return ModulePage(name, "\n\n".join(part for part in parts if part) + "\n")


def _section(module: str, entry: definitions.DocEntry) -> str:
    mark = "###" if "." in entry.name else "##"
    kind = "class " if entry.signature.startswith("class ") else ""
    return f"{mark} {kind}`{module}.{entry.signature.removeprefix('class ')}`\n\n{entry.doc}".rstrip()
