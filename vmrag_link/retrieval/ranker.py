"""The scores of an index's chunks for a query: whole numbers by row (`keywords.row_id`)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link.index import keywords, lengths, vectors
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.retrieval import bm25, fusion
from vmrag_link.retrieval.bm25 import WordScores
from vmrag_link.retrieval.fusion import Parts, Ranking
from vmrag_link.retrieval.query import Mode
from vmrag_link.retrieval.query_vectors import QueryVectors

if TYPE_CHECKING:
    from vmrag_link.retrieval.exact import ExactVectors

DEPTH = 100
"""How many chunks of each part of a collection take part in the fusion."""

UNIT = vectors.SCALE**2
"""The score of two equal unit vectors."""

Rows = Mapping[str, Sequence[int]]
"""Rows by collection."""

Scores = dict[int, int]


class Asked(NamedTuple):
    """What is ranked: the chunks of these collections, or only the rows `among`, if given."""

    text: str
    collections: Sequence[IndexedCollection]
    among: Rows | None

    def chosen(self, held: IndexedCollection) -> Sequence[int] | None:
        return None if self.among is None else self.among[held.collection.name]


class Ranker:
    """An index, open for reading.

    Scores depend on contents only. Whoever orders them breaks ties by what names a chunk, never by
    its row.
    """

    def __init__(self, index: IndexReader, query_vectors: QueryVectors, ranking: Ranking) -> None:
        self._index = index
        self._query_vectors = query_vectors
        self._ranking = ranking
        self._vectors: dict[str, ExactVectors] = {}
        self._lengths: dict[int, Sequence[int]] = {}
        self._measured: set[str] = set()

    def close(self) -> None:
        self._vectors.clear()
        self._lengths.clear()

    def best(self, asked: Asked, mode: Mode, k: int, *, per_document: int = 0) -> tuple[Scores, float]:
        """The best `k` chunks and all ties with the last, with at most `per_document` of one
        document (0: any number); and the unit in which their scores are shown.
        """
        depth = max(DEPTH, k)
        words = {} if mode == Mode.VECTOR else self._word_scores(asked)
        while True:
            scores, unit = self._scored(asked, mode, words, depth)
            kept = self._at_most(per_document, scores) if per_document else scores
            if len(kept) >= k or len(scores) < depth:
                return _best(kept, k), unit
            depth *= 4  # a few documents fill the ranking

    def exact(self, held: IndexedCollection) -> ExactVectors:
        name = held.collection.name
        if name not in self._vectors:
            from vmrag_link.retrieval.exact import ExactVectors, VectorPiece  # numpy: 0.1 s that keyword queries save

            pieces = [
                VectorPiece(
                    each.first_row,
                    each.segment.vectors(each.piece.id),
                    each.piece.slots,
                    each.piece.dead,
                )
                for each in self._index.pieces(name)
            ]
            self._vectors[name] = ExactVectors(pieces, dimensions=held.collection.embedding_dimensions)
        return self._vectors[name]

    def _scored(self, asked: Asked, mode: Mode, words: Mapping[str, WordScores], depth: int) -> tuple[Scores, float]:
        """At least the best `depth` chunks, if there are as many, and the unit of their scores."""
        if mode == Mode.VECTOR:
            return _best(_joined(self._by_vector(asked, held, depth) for held in asked.collections), depth), UNIT
        if mode == Mode.KEYWORD:
            found = [(words[held.collection.name], asked.chosen(held)) for held in asked.collections]
            wordy = [(_wordy(scores, among, depth), scores.most) for scores, among in found]
            return _best(fusion.by_share(wordy), depth), bm25.BILLION
        parts = [self._parts(asked, held, words[held.collection.name], depth) for held in asked.collections]
        return fusion.fuse(parts, self._ranking.vector_weight), fusion.UNIT

    def _parts(self, asked: Asked, held: IndexedCollection, words: WordScores, depth: int) -> Parts:
        near, wordy = self._by_vector(asked, held, depth), _wordy(words, asked.chosen(held), depth)
        further = list(wordy.keys() - near.keys())
        if further:
            scores = self.exact(held).scores_of(self._query_vectors.of(held, asked.text), further)
            near |= zip(further, scores, strict=True)
        return Parts(near, wordy | {row: words.of(row) for row in near.keys() - wordy.keys()}, words.most)

    def _by_vector(self, asked: Asked, held: IndexedCollection, depth: int) -> Scores:
        """The best `depth` chunks of a collection by vectors, and all ties with the last."""
        return self.exact(held).best(self._query_vectors.of(held, asked.text), depth, among=asked.chosen(held))

    def _word_scores(self, asked: Asked) -> dict[str, WordScores]:
        """The scores by words of each collection's chunks."""
        held = {each.collection.name: each for each in asked.collections}
        words: dict[str, list[Sequence[int]]] = {name: [] for name in held}
        for terms in keywords.terms(asked.text):
            found = self._index.occurrences(terms, held)
            for name, rows in words.items():
                rows.append(found.get(name, ()))
        self._measure(held)
        weight = self._ranking.document_weight
        return {
            name: bm25.scores(held[name], rows, self._lengths, document_weight=weight) for name, rows in words.items()
        }

    def _measure(self, collections: Iterable[str]) -> None:
        """Have the lengths of these collections' chunks."""
        for name in set(collections) - self._measured:
            self._lengths |= self._index.lengths(name)
            self._measured.add(name)

    def _at_most(self, number: int, scores: Scores) -> Scores:
        """The best `number` chunks of each document."""
        self._measure({self._index.collection_of(row) for row in scores})
        kept: Scores = {}
        taken: Counter[int] = Counter()
        for row in sorted(scores, key=lambda row: (-scores[row], row)):  # within a document, rows are in its order
            document = lengths.first_row(self._lengths, row)
            if taken[document] < number:
                taken[document] += 1
                kept[row] = scores[row]
        return kept


def _wordy(words: WordScores, among: Sequence[int] | None, depth: int) -> Scores:
    """The best `depth` chunks by words, and all ties with the last; `among`: of these rows."""
    if among is None:
        return words.best(depth, words.rows)
    passing = set(among)
    return words.best(depth, [row for row in words.rows if row in passing])


def _joined(scores: Iterable[Scores]) -> Scores:
    found: Scores = {}
    for each in scores:
        found |= each
    return found


def _best(scores: Scores, k: int) -> Scores:
    """The best `k` and all ties with the last."""
    if len(scores) <= k:
        return scores
    lowest = heapq.nlargest(k, scores.values())[-1]
    return {row: score for row, score in scores.items() if score >= lowest}
