"""What the editors of JSON, TOML and YAML have in common.

An editor adds, changes or removes one entry of one section of a person's file. Every other byte
stays: the comments, the order, the line ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from vmrag_link.models import Record

Entry = Mapping[str, Any]


class TextRefused(Exception):
    """The text cannot be read, or not be edited. `reason` completes `FILE is left as it is: …`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Addition(Record, frozen=True):
    """What was made with an entry, so that its removal can undo that, too.

    `made`: the outermost thing that was not there. `blank`: the white space that stood in its
    place; for a document, all of the former text.
    """

    made: Literal["entry", "section", "document"] = "entry"
    blank: str = ""


class Editor(Protocol):
    """One format. All functions raise `TextRefused`.

    The caller compares what `read` finds before and after: an editor need not foresee every way
    in which a person can write a file.
    """

    def read(self, text: str) -> dict[str, Any]:
        """All values of the text."""

    def add(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        """The text with an entry that is not there."""

    def change(self, text: str, section: str, name: str, values: Entry) -> str:
        """The text with these values in place of those that the entry has."""

    def remove(self, text: str, section: str, name: str, added: Addition | None) -> str:
        """The text without the entry; None: nothing is known of how it came there."""


class Replacement(NamedTuple):
    """Characters `start` to `end` of a text become `written`."""

    start: int
    end: int
    written: str


def apply(text: str, changes: Iterable[Replacement]) -> str:
    """The text after changes that do not overlap; of two at one place, the first stands first."""
    ordered = sorted(changes, key=lambda change: change.start)
    for each in ordered[::-1]:
        text = text[: each.start] + each.written + text[each.end :]
    return text


def line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def not_built_so(section: str) -> TextRefused:
    return TextRefused(f"{section} is not built as that client's file is")
