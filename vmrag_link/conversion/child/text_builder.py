"""Write data as text: one line for each value, with the path of names that leads to it.

A document is split at its paragraphs and lines. So a record is a paragraph, and each of its lines
is complete.
"""

from __future__ import annotations

from vmrag_link.conversion.limits import ContentUnreadable

MAX_LEVELS = 200
"""Maximum depth of nested containers. Formats that people write have a dozen."""


class TextBuilder:
    """A text that is composed of lines and paragraphs.

    The methods raise `ContentUnreadable` if it would have more than `limit` bytes.
    """

    def __init__(self, limit: int) -> None:
        self._pieces: list[str] = []
        self._limit = limit
        self._room = limit
        self._separator = ""

    def add_line(self, text: str) -> None:
        self._room -= len(text.encode(errors="replace")) + len(self._separator)
        if self._room < 0:
            raise too_much_text(self._limit)
        self._pieces += (self._separator, text)
        self._separator = "\n"

    def add_value(self, path: str, text: str) -> None:
        """Add a value with its name, if it has one. Line breaks in the value stay."""
        self.add_line(f"{path}: {text}" if path else text)

    def begin_paragraph(self) -> None:
        """Begin a new paragraph with the next line."""
        if self._pieces:
            self._separator = "\n\n"

    def text(self) -> str:
        return "".join(self._pieces)


def too_much_text(limit: int) -> ContentUnreadable:
    mib = limit >> 20
    hint = f"run 'git config vmrag.ingest.text-mb {2 * mib}'"
    return ContentUnreadable(f"would become a text of more than {mib} MiB", hint)


def too_deep() -> ContentUnreadable:
    return ContentUnreadable(f"nests deeper than {MAX_LEVELS} levels")


def make_path_part(name: str) -> str:
    """Return a name as part of a path."""
    return " ".join(name.split()) or '""'
