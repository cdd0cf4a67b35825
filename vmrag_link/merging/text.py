"""Texts merge by line, as git merges files, and a conflict stands in a text between markers. Pure:
equal inputs give equal results on every machine.

The algorithm is diff3's (Khanna, Kunal, Pierce: A Formal Investigation of Diff3, 2007), the matcher
ours. git's own `merge-file` would not do: its result depends on the installed version and settings.
The matcher's answer decides what a merged revision holds, so it counts lines, never seconds.
Whatever changes its answer changes `VERSION`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Literal

from vmrag_link.models import Record
from vmrag_link.worddiff import count_common_ends, find_longest_chain

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

    def get_side(self, take: Take) -> str:
        """The lines that result; `union` has ours before theirs."""
        if take == "union":
            return add_final_newline(self.ours) + self.theirs
        return self.ours if take == "ours" else self.theirs


class MergedText(Record, frozen=True):
    """A text in parts: lines that are decided, and hunks that are not."""

    parts: tuple[str | Hunk, ...]

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        return tuple(part for part in self.parts if isinstance(part, Hunk))

    def resolve_text(self, texts: Mapping[str, str]) -> str:
        """The whole text, with these texts in the place of the hunks, by key."""
        return "".join(part if isinstance(part, str) else texts[part.key] for part in self.parts)


def merge_texts(base: str, ours: str, theirs: str) -> MergedText:
    """What becomes of a text that two sides have changed. Swapped sides give the same parts."""
    texts = split_lines(base), split_lines(ours), split_lines(theirs)
    parts: list[str | Hunk] = []
    seen: Counter[str] = Counter()
    for spans in _chunks(*texts):
        before, left, right = (text[span] for text, span in zip(texts, spans, strict=True))
        if before == left:
            parts.append("".join(right))
        elif right in (before, left):
            parts.append("".join(left))
        else:
            parts += _conflict(before, left, right, spans[1].start + 1, seen)
    return MergedText(tuple(_joined(parts)))


def _chunks(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[slice, slice, slice]]:
    """Cuts the three texts into chunks that follow each other in all of them, as diff3 does.

    By turns: lines that at least one side changed, and lines that all three have.
    """
    i = j = k = 0
    for start, stable_run, right, length in _stable_runs(base, ours, theirs):
        if (i, j, k) != (start, stable_run, right):
            yield slice(i, start), slice(j, stable_run), slice(k, right)
        i, j, k = start + length, stable_run + length, right + length
        if length:
            yield slice(start, i), slice(stable_run, j), slice(right, k)


def _stable_runs(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Where lines of the base match on both sides: their starts in the three texts, and how many
    there are. The last run is empty and stands at the ends.
    """
    in_ours, in_theirs = find_matching_blocks(base, ours), find_matching_blocks(base, theirs)
    x = y = 0
    while x < len(in_ours) and y < len(in_theirs):
        (a, left, n), (b, right, m) = in_ours[x], in_theirs[y]
        start, end = max(a, b), min(a + n, b + m)
        if start < end:
            yield start, left + start - a, right + start - b, end - start
        if a + n <= b + m:
            x += 1
        else:
            y += 1
    yield len(base), len(ours), len(theirs), 0


def split_lines(text: str) -> list[str]:
    """With their ends. A line ends as git's do: by a line feed, and nothing else."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def add_final_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _conflict(
    base: list[str], ours: list[str], theirs: list[str], line: int, seen: Counter[str]
) -> Iterator[str | Hunk]:
    """A hunk, without the lines at its ends that both sides have, as `zdiff3` shows it."""
    head, tail = count_common_ends(ours, theirs)
    yield "".join(ours[:head])
    left, right = ("".join(each[head : len(each) - tail]) for each in (ours, theirs))
    before = "".join(base)
    digest = hashlib.sha256("\0".join((before, *sorted((left, right)))).encode()).hexdigest()[:8]
    seen[digest] += 1
    yield Hunk(line + head, before, left, right, digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    yield "".join(ours[len(ours) - tail :])


def _joined(parts: list[str | Hunk]) -> Iterator[str | Hunk]:
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        yield part
        text = ""
    if text:
        yield text


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
    def from_texts(cls, texts: Iterable[str], labels: Labels = Labels()) -> Markers:  # noqa: B008  it is frozen
        """So long that no line of these texts is one: a document may be about conflicts."""
        longest = max((len(match[1]) for text in texts for match in _MARKER.finditer(text)), default=0)
        return cls(labels, max(_SIZE, longest + 1))

    def format_conflict(self, ours: str, theirs: str, *, base: str | None = None) -> str:
        """The sides, as git writes them, and the base as `diff3` does. A text without a final end
        of line gets one.
        """
        start, before, middle, end = (f"{line}\n" for line in self._lines)
        shown = [start, ours, *([] if base is None else [before, base]), middle, theirs, end]
        return "".join(add_final_newline(each) for each in shown)

    def find_marker(self, text: str, *, middle: bool = False) -> tuple[int, str] | None:
        """The number and text of the first line that is one of these markers, or None.

        `middle`: a bare line of `=` is one, too. Elsewhere it may underline a heading.
        """
        start, before, between, end = self._lines
        sought = {start, before, end} | ({between} if middle else set())
        return next(((number, line) for number, line in enumerate(_without_line_ends(text), 1) if line in sought), None)

    @property
    def _lines(self) -> tuple[str, str, str, str]:
        marks = (each * self.size for each in "<|=>")
        names = (self.labels.ours, self.labels.base, "", self.labels.theirs)
        start, base, middle, end = (f"{mark} {name}".rstrip() for mark, name in zip(marks, names, strict=True))
        return start, base, middle, end


def _without_line_ends(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n")]


def join_texts(ours: str, theirs: str) -> str:
    return Markers.from_texts((ours, theirs)).format_conflict(ours, theirs)


Block = tuple[int, int, int]
"""Where equal lines begin in the first text and in the second, and how many there are."""

MOST_PAIRS = 1_000_000
"""Pairs of equal lines that are compared in one text; what would need more does not match.

It bounds the whole text: lines between unique ones, all alike, would take difflib hours.
"""


def find_matching_blocks(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """In order and maximal; the last is empty and stands at both ends.

    Lines that both texts have once are anchors, as in git's patience diff. Between two of them
    difflib finds the longest matches, without its guess that frequent lines are junk. Texts of
    10,000 lines take well under a second.
    """
    joined: list[Block] = []
    i = j = n = 0
    for next_i, next_j, more in _blocks(a, b):
        if i + n == next_i and j + n == next_j:
            n += more
            continue
        if n:
            joined.append((i, j, n))
        i, j, n = next_i, next_j, more
    return [*joined, *([(i, j, n)] if n else []), (len(a), len(b), 0)]


def _blocks(a: Sequence[str], b: Sequence[str]) -> Iterator[Block]:
    """In order, some of them empty or adjacent."""
    head, tail = count_common_ends(a, b)
    yield 0, 0, head
    left, right = (each[head : len(each) - tail] for each in (a, b))
    at_left = at_right = 0
    allowance = MOST_PAIRS
    for i, j in (*_anchors(left, right), (len(left), len(right))):
        if i > at_left and j > at_right:
            between, allowance = _longest_matches(left[at_left:i], right[at_right:j], allowance)
            yield from ((head + at_left + x, head + at_right + y, n) for x, y, n in between)
        if i < len(left):
            yield head + i, head + j, 1
        at_left, at_right = i + 1, j + 1
    yield len(a) - tail, len(b) - tail, tail


def _anchors(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """The longest ascending sequence of lines that each text has exactly once."""
    once = {line for line, count in Counter(left).items() if count == 1}
    once &= {line for line, count in Counter(right).items() if count == 1}
    places = {line: number for number, line in enumerate(right) if line in once}
    pairs = [(number, places[line]) for number, line in enumerate(left) if line in once]
    return find_longest_chain(pairs)


def _longest_matches(left: Sequence[str], right: Sequence[str], allowance: int) -> tuple[Sequence[Block], int]:
    """Returns what is left of the allowance, too."""
    if left == right:
        return [(0, 0, len(left))], allowance
    if set(left).isdisjoint(right):  # most of a text with a million changes
        return [], allowance
    matcher = _BoundedMatcher(left, right, allowance)
    return matcher.get_matching_blocks()[:-1], matcher.allowance


class _BoundedMatcher(SequenceMatcher[str]):
    """Compares `allowance` pairs of lines at most, and tells how many are left."""

    def __init__(self, left: Sequence[str], right: Sequence[str], allowance: int) -> None:
        super().__init__(None, left, right, autojunk=False)
        self.allowance = allowance
        counts = Counter(right)
        self._pairs = list(accumulate((1 + counts[line] for line in left), initial=0))

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Empty where the comparison costs more than is left; difflib goes no further there."""
        cost = self._pairs[-1 if ahi is None else ahi] - self._pairs[alo]
        if cost > self.allowance:
            return Match(alo, blo, 0)
        self.allowance -= cost
        return super().find_longest_match(alo, ahi, blo, bhi)
