"""Recognize weak answers, and select the relevant hits.

An answer is weak if its best hit shares no rare word with the question, and if no cosine of its
first hits reaches the limit of unrelated texts (`Model.unrelated`). A word is rare if it is about
as rare as the rarest word of the question, even if no text contains it. An answer by words alone
has no cosines: it is weak if none of its first hits covers the question. This module does not
change rankings. `bench/weakness.py` has the measurements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

from vmrag_link.index import keywords
from vmrag_link.retrieval.query import FIRST_HITS, Hit

WEAK_NOTE = "weak: no passage shares a rare word with the question"

_RARE = 0.9
"""A word is rare if it has at least this part of the weight of the rarest word."""

_COVERED = 0.4
"""A hit covers a question if it has at least this part of the weight of its words."""

_RELEVANT = 0.6
"""A hit is relevant if it has at least this part of the best score."""


def select_relevant(hits: Sequence[Hit]) -> Sequence[Hit]:
    """Return the first hits of a hybrid ranking, without hits that are far below the best.

    If documents and code answer, up to `FIRST_HITS` hits of the less likely kind stay.
    """
    if not hits:
        return []
    likely = [hit for hit in hits if hit.kind == hits[0].kind]
    other = [hit for hit in hits if hit.kind != hits[0].kind]
    relevant = itertools.takewhile(lambda hit: hit.score >= hits[0].score * _RELEVANT, likely)
    count = max(len([*relevant]), FIRST_HITS)
    return sorted([*likely[:count], *other[:FIRST_HITS]], key=lambda hit: hit.rank)


def shares_rare_word(hit: Hit, counts: Mapping[tuple[str, ...], int], texts: int) -> bool:
    """Return whether a hit has a rare word of a question.

    `counts`: the number of texts with each word, by the terms of the word. `texts`: the number of
    all texts.
    """
    weights = _weigh_words(counts, texts)
    rarest = max(weights.values(), default=0)
    rare = {word for word, weight in weights.items() if weight >= _RARE * rarest}
    terms = _list_hit_terms(hit)
    return not rare or any(_holds_word(terms, word) for word in rare)


def _holds_word(terms: Collection[tuple[str, ...]], word: tuple[str, ...]) -> bool:
    """Return whether the terms of a hit include a word or a compound with the word."""
    if word in terms:
        return True
    part = [term.encode() for term in word]
    single_terms = (parts[0].encode() for parts in terms if len(parts) == 1)
    return keywords.is_part(part) and any(keywords.is_compound(term, part[0]) for term in single_terms)


def covers_question(hit: Hit, counts: Mapping[tuple[str, ...], int], texts: int) -> bool:
    """Return whether a hit by words has a rare word of a question, or a large part of its words.

    The arguments are those of `shares_rare_word`.
    """
    weights = _weigh_words(counts, texts)
    terms = _list_hit_terms(hit)
    shared = sum(weight for term, weight in weights.items() if term in terms)
    return shared >= _COVERED * sum(weights.values()) or shares_rare_word(hit, counts, texts)


def _weigh_words(counts: Mapping[tuple[str, ...], int], texts: int) -> dict[tuple[str, ...], float]:
    """Return the inverse document frequency of each word. The rarer a word, the higher."""
    return {term: math.log1p((texts - count + 0.5) / (count + 0.5)) for term, count in counts.items()}


def _list_hit_terms(hit: Hit) -> set[tuple[str, ...]]:
    """Return the terms of a hit's text, path, title and symbol. Each term is a tuple of words."""
    text = " ".join([hit.text, hit.doc_id, *(str(hit.metadata.get(key, "")) for key in ("title", "symbol"))])
    words = {*keywords.split_words(text), *keywords.split_identifiers(text).lower().split()}
    words |= {part for word in words if "_" in word for part in word.split("_") if part}
    return set(map(tuple, keywords.list_terms(words)))
