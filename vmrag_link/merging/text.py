"""Texts merge by line, as git merges files. Pure: equal inputs give equal results on every machine.

The algorithm is merge3's, the matcher ours. git's own `merge-file` would not do: its result depends
on the installed version and its settings.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from vmrag_link.alignment import common_ends
from vmrag_link.models import Record

VERSION = "lines-1"
"""Names matcher and algorithm in the revisions that they make."""

Take = Literal["ours", "theirs", "union"]
"""What a person may choose at once; `union`, both texts, is for hunks."""


class Hunk(Record, frozen=True):
    """Lines that the sides changed differently, each with its end; empty where a side has none.

    `line`: the first of them in our text, from 1. `key` names the hunk among those of its text, and
    stays the same while the hunk does.
    """

    line: int
    base: str
    ours: str
    theirs: str
    key: str

    def side(self, take: Take) -> str:
        """The lines that result; `union` has ours before theirs."""
        if take == "union":
            return with_final_newline(self.ours) + self.theirs
        return self.ours if take == "ours" else self.theirs


class MergedText(Record, frozen=True):
    """A text in parts: lines that are decided, and hunks that are not."""

    parts: tuple[str | Hunk, ...]

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        return tuple(each for each in self.parts if isinstance(each, Hunk))

    def resolved(self, texts: Mapping[str, str]) -> str:
        """The whole text, with these texts in the place of the hunks, by key."""
        return "".join(each if isinstance(each, str) else texts[each.key] for each in self.parts)


def merge_texts(base: str, ours: str, theirs: str) -> MergedText:
    """What becomes of a text that two sides have changed. Swapped sides give the same parts."""
    from merge3 import Merge3  # most merges need neither

    from vmrag_link.merging.line_matcher import LineMatcher

    lines = split_lines(base), split_lines(ours), split_lines(theirs)
    parts: list[str | Hunk] = []
    seen: Counter[str] = Counter()
    for kind, *at in Merge3(lines[0], lines[1], lines[2], sequence_matcher=LineMatcher).merge_regions():
        if kind != "conflict":
            source = {"unchanged": 0, "a": 1, "same": 1, "b": 2}[kind]
            parts.append("".join(lines[source][at[0] : at[1]]))
            continue
        before, left, right = (lines[side][at[2 * side] : at[2 * side + 1]] for side in range(3))
        parts += _conflict(before, left, right, at[2] + 1, seen)
    return MergedText(tuple(_joined(parts)))


def split_lines(text: str) -> list[str]:
    """With their ends. A line ends as git's do: by a line feed, and nothing else."""
    lines = text.split("\n")
    last = lines.pop()
    return [each + "\n" for each in lines] + ([last] if last else [])


def with_final_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _conflict(
    base: list[str], ours: list[str], theirs: list[str], line: int, seen: Counter[str]
) -> Iterator[str | Hunk]:
    """A hunk, without the lines at its ends that both sides have, as `zdiff3` shows it."""
    head, tail = common_ends(ours, theirs)
    yield "".join(ours[:head])
    left, right = ("".join(each[head : len(each) - tail]) for each in (ours, theirs))
    before = "".join(base)
    digest = hashlib.sha256("\0".join((before, *sorted((left, right)))).encode()).hexdigest()[:8]
    seen[digest] += 1
    yield Hunk(line + head, before, left, right, digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    yield "".join(ours[len(ours) - tail :])


def _joined(parts: list[str | Hunk]) -> Iterator[str | Hunk]:
    text = ""
    for each in parts:
        if isinstance(each, str):
            text += each
            continue
        if text:
            yield text
        yield each
        text = ""
    if text:
        yield text
