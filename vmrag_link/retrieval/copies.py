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
"""The share of the words, and of the pairs of words, that two copies have in common."""

_LESS_PREFERRED = (
    r"(?i)(?:^|/)(?:_*(?:tests?|e2e|fixtures?|mocks?|snapshots?|examples?|samples?|demos?)_*"
    r"|testdata|vendor|third[-_]party|node_modules|dist|build|generated)/"
)
_MARKS = 3

_MOST_COMPARED = 50
"""Maximum number of earlier passages, the best ones, with which a passage is compared."""


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
        """The sort key of copies: fixtures and vendored files last, then by score and depth."""
        is_less_preferred = re.search(_LESS_PREFERRED, self.doc_id) is not None
        return is_less_preferred, self.negative, self.doc_id.count("/"), self.doc_id, self.collection


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
    """Return the positions of passages in groups of copies, in the order of the best passage of
    each group.

    The first passage of a group is the one to show.
    """
    groups: dict[int, list[int]] = {}
    words: list[_Words] = []
    by_mark: dict[str, dict[int, None]] = {}
    for position, passage in enumerate(passages):
        text_words = passage.text.lower().split()
        passage_words = _Words(text_words, frozenset(text_words))
        words.append(passage_words)
        candidates = sorted({first for mark in passage_words.marks for first in by_mark.get(mark, ())})
        other_documents = (first for first in candidates if passages[first].document != passage.document)
        compared = itertools.islice(other_documents, _MOST_COMPARED)
        first = next((first for first in compared if passage_words.is_copy(words[first])), position)
        groups.setdefault(first, []).append(position)
        if first == position:
            for mark in passage_words.marks:
                by_mark.setdefault(mark, {})[position] = None
    return [
        sorted(members, key=lambda position: passages[position].preference) if len(members) > 1 else members
        for members in groups.values()
    ]
