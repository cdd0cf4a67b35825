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

FEWEST, LONG = 8, 20
"""Minimum number of words of copies with equal words, and of copies with some different words."""

COPY_SHARE = 0.9
"""The part of the words, and of the pairs of words, that two copies share."""

_ASIDE = (
    r"(?i)(?:^|/)(?:_*(?:tests?|e2e|fixtures?|mocks?|snapshots?|examples?|samples?|demos?)_*"
    r"|testdata|vendor|third[-_]party|node_modules|dist|build|generated)/"
)
_MARKS = 3

_MOST_COMPARED = 50
"""Earlier passages, the best ones, with which a passage is compared."""


class ComparedPassage(NamedTuple):
    """A ranked passage."""

    collection: str
    doc_id: str
    text: str
    negative: int = 0
    """The score, negated."""

    @property
    def document(self) -> tuple[str, str]:
        return self.collection, self.doc_id

    @property
    def preference(self) -> tuple[bool, int, int, str, str]:
        """The order of copies: fixtures and vendored files are last, then by score and depth."""
        aside = re.search(_ASIDE, self.doc_id) is not None
        return aside, self.negative, self.doc_id.count("/"), self.doc_id, self.collection


class _Words(NamedTuple):
    words: list[str]
    unique: frozenset[str]

    @property
    def marks(self) -> list[str]:
        """The longest words, because two copies share at least one of them."""
        return heapq.nlargest(_MARKS, self.unique, key=lambda word: (len(word), word))

    def is_copy(self, other: _Words) -> bool:
        shorter, longer = sorted((len(self.words), len(other.words)))
        if shorter < FEWEST or shorter < COPY_SHARE * longer:
            return False
        if self.words == other.words:
            return True
        return shorter >= LONG and _are_alike(self.unique, other.unique) and _are_alike(self.pairs, other.pairs)

    @property
    def pairs(self) -> frozenset[tuple[str, str]]:
        return frozenset(itertools.pairwise(self.words))


def _are_alike(one: frozenset[object], other: frozenset[object]) -> bool:
    return len(one & other) >= COPY_SHARE * len(one | other)


def group_copies(passages: Sequence[ComparedPassage]) -> list[list[int]]:
    """Return the positions of passages in groups of copies, in the order of the best of each group.

    The first passage of a group is the one to show.
    """
    groups: dict[int, list[int]] = {}
    words: list[_Words] = []
    marked: dict[str, dict[int, None]] = {}
    for place, passage in enumerate(passages):
        found = passage.text.lower().split()
        own = _Words(found, frozenset(found))
        words.append(own)
        near = sorted({first for mark in own.marks for first in marked.get(mark, ())})
        others = (first for first in near if passages[first].document != passage.document)
        compared = itertools.islice(others, _MOST_COMPARED)
        first = next((first for first in compared if own.is_copy(words[first])), place)
        groups.setdefault(first, []).append(place)
        if first == place:
            for mark in own.marks:
                marked.setdefault(mark, {})[place] = None
    return [
        sorted(members, key=lambda place: passages[place].preference) if len(members) > 1 else members
        for members in groups.values()
    ]
