"""The scores of an index's chunks for a query: whole numbers by row (`keywords.row_id`)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link.index import keywords, lengths, vectors
from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.retrieval import bm25, fusion
from vmrag_link.retrieval.fusion import Ranking
from vmrag_link.retrieval.query import Mode
from vmrag_link.retrieval.query_vectors import QueryVectors

if TYPE_CHECKING:
    from vmrag_link.retrieval.exact import ExactVectors

DEPTH = 100
"""How many chunks of each part take part in the fusion."""

UNIT = vectors.SCALE**2
"""The score of two equal unit vectors."""

Slots = Mapping[int, list[int]]
"""Slots by collection id."""

Scores = dict[int, int]


class Asked(NamedTuple):
    """What is ranked: the chunks of these collections, or only the slots `among`, if given."""

    text: str
    collections: Sequence[IndexedCollection]
    among: Slots | None


class Ranker:
    """One index directory, open for reading.

    Scores depend on contents only. Whoever orders them breaks ties by what names a chunk, never by
    its row.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        postings: Callable[[], keywords.Postings],
        query_vectors: QueryVectors,
        ranking: Ranking,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._postings = postings
        self._query_vectors = query_vectors
        self._ranking = ranking
        self._vectors: dict[int, ExactVectors] = {}

    def close(self) -> None:
        self._vectors.clear()

    def best(self, asked: Asked, mode: Mode, k: int, *, per_document: int = 0) -> tuple[Scores, float]:
        """The best `k` chunks and all ties with the last, with at most `per_document` of one
        document (0: any number); and the unit in which their scores are shown.
        """
        depth = max(DEPTH, k)
        while True:
            scores, unit = self._scored(asked, mode, depth)
            kept = self._at_most(per_document, scores) if per_document else scores
            if len(kept) >= k or len(scores) < depth:
                return _best(kept, k), unit
            depth *= 4  # a few documents fill the ranking

    def exact(self, held: IndexedCollection) -> ExactVectors:
        if held.id not in self._vectors:
            from vmrag_link.retrieval.exact import ExactVectors  # numpy: 0.1 s that keyword queries do not need

            self._vectors[held.id] = ExactVectors(
                self._folder / vectors.file_name(held.id),
                slots=held.slots,
                dimensions=held.collection.embedding_dimensions,
                dead=self._manifest.dead_slots(held),
            )
        return self._vectors[held.id]

    def _scored(self, asked: Asked, mode: Mode, depth: int) -> tuple[Scores, float]:
        """At least the best `depth` chunks, if there are as many, and the unit of their scores."""
        if mode == Mode.VECTOR:
            return self._by_vector(asked, depth), UNIT
        words = self._words.scores(asked.text, document_weight=self._ranking.document_weight)
        wordy = words.best(depth, _chosen(words.rows, asked))
        if mode == Mode.KEYWORD:
            return wordy, bm25.BILLION
        near = self._by_vector(asked, depth)
        by_vector = near | self._vector_scores(asked, wordy.keys() - near.keys())
        by_words = wordy | {row: words.of(row) for row in near.keys() - wordy.keys()}
        return fusion.fuse(by_vector, by_words, self._ranking.vector_weight)

    def _by_vector(self, asked: Asked, depth: int) -> Scores:
        """The best `depth` chunks by vectors, and all ties with the last."""
        found: Scores = {}
        for held in asked.collections:
            slots = None if asked.among is None else asked.among[held.id]
            best = self.exact(held).best(self._query_vectors.of(held, asked.text), depth, among=slots)
            found |= {keywords.row_id(held.id, slot): score for slot, score in best}
        return _best(found, depth)

    def _vector_scores(self, asked: Asked, rows: Iterable[int]) -> Scores:
        wanted: dict[int, list[int]] = {}
        for row in rows:
            wanted.setdefault(keywords.collection_of(row), []).append(keywords.slot_of(row))
        found: Scores = {}
        for held in asked.collections:
            if slots := wanted.get(held.id):
                scores = self.exact(held).scores_of(self._query_vectors.of(held, asked.text), slots)
                found |= {keywords.row_id(held.id, slot): score for slot, score in zip(slots, scores, strict=True)}
        return found

    def _at_most(self, number: int, scores: Scores) -> Scores:
        """The best `number` chunks of each document."""
        kept: Scores = {}
        taken: Counter[int] = Counter()
        for row in sorted(scores, key=lambda row: (-scores[row], row)):  # within a document, rows are in its order
            document = lengths.first_row(self._lengths, row)
            if taken[document] < number:
                taken[document] += 1
                kept[row] = scores[row]
        return kept

    @cached_property
    def _lengths(self) -> dict[int, Sequence[int]]:
        held = self._manifest.collections().values()
        return {each.id: lengths.read(self._folder, each.id, slots=each.slots) for each in held}

    @cached_property
    def _words(self) -> bm25.WordIndex:
        return bm25.WordIndex(self._postings(), self._lengths, documents=self._manifest.counts()[0])


def _chosen(rows: Iterable[int], asked: Asked) -> list[int]:
    """Those of the rows that are asked."""
    if asked.among is not None:
        passing = {keywords.row_id(number, slot) for number, slots in asked.among.items() for slot in slots}
        return [row for row in rows if row in passing]
    numbers = {held.id for held in asked.collections}
    return [row for row in rows if keywords.collection_of(row) in numbers]


def _best(scores: Scores, k: int) -> Scores:
    """The best `k` and all ties with the last."""
    if len(scores) <= k:
        return scores
    lowest = heapq.nlargest(k, scores.values())[-1]
    return {row: score for row, score in scores.items() if score >= lowest}
