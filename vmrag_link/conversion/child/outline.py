"""Data as text: one line a value, with the path of names that leads to it.

A document is cut into chunks at its paragraphs and lines. So a record is a paragraph, and each of
its lines says by itself what its value is.
"""

from __future__ import annotations

from vmrag_link.conversion.limits import ContentUnreadable

MAX_LEVELS = 200
"""Containers within each other. Formats that people write have a dozen."""


class Outline:
    """Text that grows by lines and paragraphs.

    Raises `ContentUnreadable` where it would have more than `limit` bytes.
    """

    def __init__(self, limit: int) -> None:
        self._pieces: list[str] = []
        self._room = self._limit = limit
        self._separator = ""

    def line(self, text: str) -> None:
        self._room -= len(text.encode(errors="replace")) + len(self._separator)
        if self._room < 0:
            raise too_much_text(self._limit)
        self._pieces += (self._separator, text)
        self._separator = "\n"

    def value(self, path: str, text: str) -> None:
        """A value with its name, if it has one; its own lines stay as they are."""
        self.line(f"{path}: {text}" if path else text)

    def paragraph(self) -> None:
        """What follows is a paragraph of its own."""
        if self._pieces:
            self._separator = "\n\n"

    def text(self) -> str:
        return "".join(self._pieces)


def too_much_text(limit: int) -> ContentUnreadable:
    mib = limit >> 20
    hint = f"git config vmrag.ingest.text-mb {2 * mib}"
    return ContentUnreadable(f"would become a text of more than {mib} MiB", hint)


def too_deep() -> ContentUnreadable:
    return ContentUnreadable(f"nests deeper than {MAX_LEVELS} levels")


def path_part(name: str) -> str:
    """A name as part of a path."""
    return " ".join(name.split()) or '""'
