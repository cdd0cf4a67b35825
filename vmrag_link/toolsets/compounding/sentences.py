"""Find the sentences of a Markdown text that are nearest to a query, for answers without a language
model.
"""

from __future__ import annotations

import array
import itertools
import re
from collections.abc import Iterator, Sequence

from vmrag_link.embedding.base import Model
from vmrag_link.index import flat_files
from vmrag_link.models import Record

MAX_SENTENCES = 3
"""Maximum number of sentences of one text."""

MAX_CANDIDATES = 200
"""Maximum number of sentences that are compared with the query, from the beginning of the text."""

_MIN_SENTENCE_CHARS = 20
"""Minimum number of characters of a sentence. A shorter sentence has no meaning of its own."""

_MAX_SENTENCE_CHARS = 500

_MIN_SHARE = 0.25
"""Minimum similarity of a further sentence, as a share of the similarity of the text's best
sentence.
"""

_FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})")
_NO_PROSE = re.compile(r"\s*(?:#|\||<|>|[-=*_]{3,}\s*$)")
_MARKER = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+")
_END = re.compile(r"[.!?][\"')\]*_`]{0,3}(?=\s)|[\u3002\uff01\uff1f]")


class Sentence(Record, frozen=True):
    """A sentence, and its position in the text."""

    text: str
    start: int


def find_nearest_sentences(model: Model, query: str, text: str) -> list[str]:
    """Return the one to three sentences nearest to the query, unchanged and in the order of the
    text.

    The result is the same on every machine with the same model.
    """
    candidates = [*itertools.islice(split_sentences(text), MAX_CANDIDATES)]
    if not candidates:
        return []
    query_vector = _round_vector(model.embed_queries([query])[0])
    scores = [
        _multiply_vectors(query_vector, _round_vector(vector))
        for vector in model.embed([candidate.text for candidate in candidates])
    ]
    ranked = sorted(zip(scores, candidates, strict=True), key=lambda row: (-row[0], row[1].start))
    best = ranked[0][0]
    chosen = [candidate for score, candidate in ranked[:MAX_SENTENCES] if score >= _MIN_SHARE * best or score == best]
    return [candidate.text for candidate in sorted(chosen, key=lambda candidate: candidate.start)]


def split_sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a Markdown text's paragraphs and list items, unchanged."""
    for start, end in _find_paragraphs(text):
        ends = [start, *(match.end() for match in _END.finditer(text, start, end)), end]
        for first, last in itertools.pairwise(ends):
            piece = text[first:last]
            bare = piece.strip()
            if _MIN_SENTENCE_CHARS <= len(bare) <= _MAX_SENTENCE_CHARS:
                yield Sentence(bare, first + len(piece) - len(piece.lstrip()))


def _find_paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each paragraph, without the mark of a list item."""
    is_fenced = False
    line_end = 0
    start: int | None = None
    for line in text.splitlines(keepends=True):
        line_start = line_end
        line_end += len(line)
        fence = _FENCE.match(line)
        marker = _MARKER.match(line)
        is_prose = not (is_fenced or fence or _NO_PROSE.match(line) or not line.strip())
        if start is not None and (not is_prose or marker):
            yield start, line_start
            start = None
        if is_prose and start is None:
            start = line_start + (marker.end() if marker else 0)
        if fence:
            is_fenced = not is_fenced
    if start is not None:
        yield start, line_end


def _round_vector(vector: bytes) -> Sequence[int]:
    """Return a vector of whole numbers, rounded as in the index, so that products are equal
    everywhere.
    """
    return array.array("b", flat_files.quantise(vector))


def _multiply_vectors(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))
