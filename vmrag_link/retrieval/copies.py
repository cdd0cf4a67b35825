"""Find passages that are copies of each other, so that they fill one result.

Passages of two documents are copies if their words are nearly the same: a copied file, a fixture, a
vendored page. Short passages must have the same words, and very short passages are never copies.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

MIN_EQUAL_WORDS = 8
"""Minimum number of words of copies with equal words."""

MIN_SIMILAR_WORDS = 20
"""Minimum number of words of copies with some different words."""

COPY_SHARE = 0.9
"""The share of the words, and of the pairs of words, that two copies have in common."""

_LESS_PREFERRED = (
    r"(?i)(?:^|/)(?:_*(?:tests?|e2e|fixtures?|mocks?|snapshots?|examples?|samples?|demos?)_*"
    r"|testdata|vendor|third[-_]party|node_modules|dist|build|generated)/"
)
_MARKS = 3
"""Number of marks of a passage: its longest words. Two copies share at least one of them."""

_MAX_COMPARED_PASSAGES = 50
"""Maximum number of earlier passages, the best ones, with which a passage is compared."""


class ComparedPassage(NamedTuple):
    """A ranked passage."""

    collection: str
    doc_id: str
    text: str
    negated_score: int = 0

    @property
    def document(self) -> tuple[str, str]:
        return self.collection, self.doc_id

    @property
    def preference(self) -> tuple[bool, int, int, str, str]:
        """The sort key of copies: fixtures and vendored files last, then by score and depth."""
        is_less_preferred = re.search(_LESS_PREFERRED, self.doc_id) is not None
        return is_less_preferred, self.negated_score, self.doc_id.count("/"), self.doc_id, self.collection


class _Words(NamedTuple):
    """The words of a passage."""

    words: list[str]
    unique: frozenset[str]

    @property
    def marks(self) -> list[str]:
        """See `_MARKS`."""
        return heapq.nlargest(_MARKS, self.unique, key=lambda word: (len(word), word))

    def is_copy(self, other: _Words) -> bool:
        shorter, longer = sorted((len(self.words), len(other.words)))
        if shorter < MIN_EQUAL_WORDS or shorter < COPY_SHARE * longer:
            return False
        if self.words == other.words:
            return True
        if shorter < MIN_SIMILAR_WORDS:
            return False
        return _are_alike(self.unique, other.unique) and _are_alike(self.pairs, other.pairs)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        return frozenset(itertools.pairwise(self.words))


def _are_alike(one: frozenset[object], other: frozenset[object]) -> bool:
    return len(one & other) >= COPY_SHARE * len(one | other)


def group_copies(passages: Sequence[ComparedPassage]) -> list[list[int]]:
    """Return the positions of passages in groups of copies, in the order of the best passage of
    each group.

    The first passage of a group is the one to show.
    """
    groups: dict[int, list[int]] = {}
    """Positions of copies, by the position of the first."""
    words: list[_Words] = []
    by_mark: dict[str, list[int]] = {}
    """Positions of the firsts of all groups, by mark."""
    for position, passage in enumerate(passages):
        text_words = passage.text.lower().split()
        passage_words = _Words(text_words, frozenset(text_words))
        words.append(passage_words)
        with_mark = sorted({first for mark in passage_words.marks for first in by_mark.get(mark, ())})
        in_others = (first for first in with_mark if passages[first].document != passage.document)
        compared = itertools.islice(in_others, _MAX_COMPARED_PASSAGES)
        first = next((first for first in compared if passage_words.is_copy(words[first])), position)
        groups.setdefault(first, []).append(position)
        if first == position:
            for mark in passage_words.marks:
                by_mark.setdefault(mark, []).append(position)
    return [
        sorted(members, key=lambda position: passages[position].preference) if len(members) > 1 else members
        for members in groups.values()
    ]
