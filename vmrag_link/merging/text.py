"""Merge texts by line, like git merges files, and write conflicts between markers. Pure functions:
equal inputs give equal results on every machine.

The algorithm is diff3's (Khanna, Kunal, Pierce: A Formal Investigation of Diff3, 2007), with
vmrag's own matcher. git's `merge-file` is not used, because its result depends on the installed
version and settings. The matcher decides the content of merged revisions, so its limits are numbers
of lines, never seconds. A change of its results must change `VERSION`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate
from typing import Literal, NamedTuple

from vmrag_link.models import Record
from vmrag_link.worddiff import count_common_ends, find_longest_chain

VERSION = "lines-1"
"""Name of matcher and algorithm in the revisions that they make."""

Take = Literal["ours", "theirs", "union"]
"""Choices for a whole part. `union`, both texts, is for hunks."""


class Hunk(Record, frozen=True):
    """Lines that the sides changed differently, each with its line end. A side without such lines
    is empty.
    """

    line: int
    """Number of the first line in our text, from 1."""
    base: str
    ours: str
    theirs: str
    key: str
    """Identifies the hunk in its text, and stays the same as long as the hunk does."""

    def get_side(self, take: Take) -> str:
        """Return the resulting lines. `union` has ours before theirs."""
        if take == "union":
            return add_final_newline(self.ours) + self.theirs
        return self.ours if take == "ours" else self.theirs


class MergedText(Record, frozen=True):
    """A text in parts: merged lines, and hunks in conflict."""

    parts: tuple[str | Hunk, ...]

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        return tuple(part for part in self.parts if isinstance(part, Hunk))

    def resolve_text(self, texts: Mapping[str, str]) -> str:
        """Return the whole text, with these texts in place of the hunks, by key."""
        return "".join(part if isinstance(part, str) else texts[part.key] for part in self.parts)


def merge_texts(base: str, ours: str, theirs: str) -> MergedText:
    """Merge a text that two sides have changed. Swapped sides give the same parts."""
    texts = split_lines(base), split_lines(ours), split_lines(theirs)
    parts: list[str | Hunk] = []
    seen: Counter[str] = Counter()
    for spans in _list_chunks(*texts):
        base_lines, our_lines, their_lines = (text[span] for text, span in zip(texts, spans, strict=True))
        if base_lines == our_lines:
            parts.append("".join(their_lines))
        elif their_lines in (base_lines, our_lines):
            parts.append("".join(our_lines))
        else:
            parts += _build_hunk(base_lines, our_lines, their_lines, spans[1].start + 1, seen)
    return MergedText(tuple(_join_parts(parts)))


def _list_chunks(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[slice, slice, slice]]:
    """Cut the three texts into chunks that follow each other in all of them, like diff3.

    Chunks alternate between lines that at least one side changed, and lines that all three have.
    """
    i = j = k = 0
    for base_start, our_start, their_start, length in _list_stable_runs(base, ours, theirs):
        if (i, j, k) != (base_start, our_start, their_start):
            yield slice(i, base_start), slice(j, our_start), slice(k, their_start)
        i, j, k = base_start + length, our_start + length, their_start + length
        if length:
            yield slice(base_start, i), slice(our_start, j), slice(their_start, k)


def _list_stable_runs(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the lines of the base that match on both sides: their starts in the three texts, and
    their number. The last run is empty and at the ends.
    """
    in_ours, in_theirs = find_matching_blocks(base, ours), find_matching_blocks(base, theirs)
    x = y = 0
    while x < len(in_ours) and y < len(in_theirs):
        a, our_start, n = in_ours[x]
        b, their_start, m = in_theirs[y]
        start, end = max(a, b), min(a + n, b + m)
        if start < end:
            yield start, our_start + start - a, their_start + start - b, end - start
        if a + n <= b + m:
            x += 1
        else:
            y += 1
    yield len(base), len(ours), len(theirs), 0


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends. Like in git, a line ends with a line feed only."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def add_final_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _build_hunk(
    base: list[str], ours: list[str], theirs: list[str], line: int, seen: Counter[str]
) -> Iterator[str | Hunk]:
    """Yield a hunk, without the lines at its ends that both sides have, like git's `zdiff3`."""
    head, tail = count_common_ends(ours, theirs)
    yield "".join(ours[:head])
    our_text, their_text = ("".join(side[head : len(side) - tail]) for side in (ours, theirs))
    base_text = "".join(base)
    digest = hashlib.sha256("\0".join((base_text, *sorted((our_text, their_text)))).encode()).hexdigest()[:8]
    seen[digest] += 1
    yield Hunk(
        line + head, base_text, our_text, their_text, digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    )
    yield "".join(ours[len(ours) - tail :])


def _join_parts(parts: list[str | Hunk]) -> Iterator[str | Hunk]:
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
"""Longer lines are not markers. Otherwise an untrusted line of a megabyte would make vmrag's
markers as long.
"""


class Labels(Record, frozen=True):
    """Names of the versions of a conflict next to the markers."""

    ours: str = "ours"
    theirs: str = "theirs"
    base: str = "base"


class MarkerLine(NamedTuple):
    number: int
    """The number of the line, from 1."""
    text: str


class Markers(Record, frozen=True):
    """Conflict markers with `size` characters."""

    labels: Labels = Labels()
    size: int = _SIZE

    @classmethod
    def from_texts(cls, texts: Iterable[str], labels: Labels = Labels()) -> Markers:  # noqa: B008  it is frozen
        """Return markers that are longer than any marker in these texts, because a document may be
        about conflicts.
        """
        longest = max((len(match[1]) for text in texts for match in _MARKER.finditer(text)), default=0)
        return cls(labels, max(_SIZE, longest + 1))

    def format_conflict(self, ours: str, theirs: str, *, base: str | None = None) -> str:
        """Return the sides between markers, in git's format, or in `diff3`'s if there is a base. A
        text without a final line end gets one.
        """
        start, before, middle, end = (f"{line}\n" for line in self._marker_lines)
        shown = [start, ours, *([] if base is None else [before, base]), middle, theirs, end]
        return "".join(add_final_newline(part) for part in shown)

    def find_marker(self, text: str, *, middle: bool = False) -> MarkerLine | None:
        """Return the first line that is one of these markers, or None.

        `middle`: a line of only `=` is also a marker. Elsewhere it may underline a heading.
        """
        start, before, between, end = self._marker_lines
        markers = {start, before, end} | ({between} if middle else set())
        lines = (MarkerLine(number, line.rstrip()) for number, line in enumerate(text.split("\n"), 1))
        return next((line for line in lines if line.text in markers), None)

    @property
    def _marker_lines(self) -> tuple[str, str, str, str]:
        marks = (character * self.size for character in "<|=>")
        names = (self.labels.ours, self.labels.base, "", self.labels.theirs)
        start, base, middle, end = (f"{mark} {name}".rstrip() for mark, name in zip(marks, names, strict=True))
        return start, base, middle, end


def join_texts(ours: str, theirs: str) -> str:
    """Return both texts between conflict markers."""
    return Markers.from_texts((ours, theirs)).format_conflict(ours, theirs)


Block = tuple[int, int, int]
"""Start of equal lines in the first text and in the second, and their number."""

MAX_PAIRS = 1_000_000
"""Maximum number of pairs of equal lines that are compared in one text. Lines beyond that do not
match.

The limit is for the whole text, because difflib would take hours for long runs of equal lines.
"""


def find_matching_blocks(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """Return maximal blocks of equal lines in order. The last block is empty and at both ends.

    Lines that both texts have exactly once are anchors, like in git's patience diff. Between two
    anchors difflib finds the longest matches, without its heuristic that frequent lines are junk.
    Texts of 10,000 lines take well under a second.
    """
    joined: list[Block] = []
    i = j = n = 0
    for next_i, next_j, more in _list_blocks(a, b):
        if i + n == next_i and j + n == next_j:
            n += more
            continue
        if n:
            joined.append((i, j, n))
        i, j, n = next_i, next_j, more
    return [*joined, *([(i, j, n)] if n else []), (len(a), len(b), 0)]


def _list_blocks(a: Sequence[str], b: Sequence[str]) -> Iterator[Block]:
    """Yield blocks of equal lines in order. Some may be empty or adjacent."""
    head, tail = count_common_ends(a, b)
    yield 0, 0, head
    inner_a, inner_b = (lines[head : len(lines) - tail] for lines in (a, b))
    at_left = at_right = 0
    allowance = MAX_PAIRS
    for i, j in (*_find_anchors(inner_a, inner_b), (len(inner_a), len(inner_b))):
        if i > at_left and j > at_right:
            between, allowance = _find_longest_matches(inner_a[at_left:i], inner_b[at_right:j], allowance)
            yield from ((head + at_left + x, head + at_right + y, n) for x, y, n in between)
        if i < len(inner_a):
            yield head + i, head + j, 1
        at_left, at_right = i + 1, j + 1
    yield len(a) - tail, len(b) - tail, tail


def _find_anchors(lines_a: Sequence[str], lines_b: Sequence[str]) -> list[tuple[int, int]]:
    """Return the longest ascending sequence of lines that each text has exactly once."""
    once = {line for line, count in Counter(lines_a).items() if count == 1}
    once &= {line for line, count in Counter(lines_b).items() if count == 1}
    places = {line: number for number, line in enumerate(lines_b) if line in once}
    pairs = [(number, places[line]) for number, line in enumerate(lines_a) if line in once]
    return find_longest_chain(pairs)


def _find_longest_matches(
    lines_a: Sequence[str], lines_b: Sequence[str], allowance: int
) -> tuple[Sequence[Block], int]:
    """Return the matching blocks, and the rest of the allowance."""
    if lines_a == lines_b:
        return [(0, 0, len(lines_a))], allowance
    if set(lines_a).isdisjoint(lines_b):  # most of a text with a million changes
        return [], allowance
    matcher = _BoundedMatcher(lines_a, lines_b, allowance)
    return matcher.get_matching_blocks()[:-1], matcher.allowance


class _BoundedMatcher(SequenceMatcher[str]):
    """Compare at most `allowance` pairs of lines. The attribute has the rest of the allowance."""

    def __init__(self, lines_a: Sequence[str], lines_b: Sequence[str], allowance: int) -> None:
        super().__init__(None, lines_a, lines_b, autojunk=False)
        self.allowance = allowance
        counts = Counter(lines_b)
        self._pairs = list(accumulate((1 + counts[line] for line in lines_a), initial=0))

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Return the longest match, or an empty one if the comparison costs more than the rest of
        the allowance. Then difflib stops there.
        """
        cost = self._pairs[-1 if ahi is None else ahi] - self._pairs[alo]
        if cost > self.allowance:
            return Match(alo, blo, 0)
        self.allowance -= cost
        return super().find_longest_match(alo, ahi, blo, bhi)
