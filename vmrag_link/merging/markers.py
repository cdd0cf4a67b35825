"""Conflict markers: how the sides of a conflict stand in a text that a person edits."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vmrag_link.merging.text import with_final_newline
from vmrag_link.models import Record

_SIZE = 7  # git's
_MARKER = re.compile(r"^(<{7,1000}|\|{7,1000}|={7,1000}|>{7,1000})(?:[ \r]|$)", re.MULTILINE)
"""Longer lines are no markers: a stranger's of a megabyte would make one of ours as long."""


class Labels(Record, frozen=True):
    """What the versions of a conflict are called beside the markers."""

    ours: str = "ours"
    theirs: str = "theirs"
    base: str = "base"


class Markers(Record, frozen=True):
    """`size`: how long the markers are."""

    labels: Labels = Labels()
    size: int = _SIZE

    @classmethod
    def apart_from(cls, texts: Iterable[str], labels: Labels = Labels()) -> Markers:  # noqa: B008  it is frozen
        """So long that no line of these texts is one: a document may be about conflicts."""
        longest = max((len(each[1]) for text in texts for each in _MARKER.finditer(text)), default=0)
        return cls(labels, max(_SIZE, longest + 1))

    def between(self, ours: str, theirs: str, *, base: str | None = None) -> str:
        """The sides, as git writes them, and the base as `diff3` does. A text without a final end
        of line gets one.
        """
        start, before, middle, end = (f"{each}\n" for each in self._lines)
        shown = [start, ours, *([] if base is None else [before, base]), middle, theirs, end]
        return "".join(with_final_newline(each) for each in shown)

    def find(self, text: str, *, middle: bool = False) -> tuple[int, str] | None:
        """The number and text of the first line that is one of these markers, or None.

        `middle`: a bare line of `=` is one, too. Elsewhere it may underline a heading.
        """
        start, before, between, end = self._lines
        sought = {start, before, end} | ({between} if middle else set())
        return next(((number, line) for number, line in enumerate(_stripped(text), 1) if line in sought), None)

    @property
    def _lines(self) -> tuple[str, str, str, str]:
        marks = (each * self.size for each in "<|=>")
        names = (self.labels.ours, self.labels.base, "", self.labels.theirs)
        start, base, middle, end = (f"{mark} {name}".rstrip() for mark, name in zip(marks, names, strict=True))
        return start, base, middle, end


def _stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n")]


def both_texts(ours: str, theirs: str) -> str:
    return Markers.apart_from((ours, theirs)).between(ours, theirs)
