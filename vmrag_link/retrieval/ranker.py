"""Compute the scores of an index's chunks for a query: integers by row (`keywords.pack_row`)."""

from __future__ import annotations

import functools
import heapq
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from vmrag_link.index import flat_files, keywords
from vmrag_link.index.postings import WordOccurrences
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import IndexedPiece, parse_pieces
from vmrag_link.retrieval import bm25, fusion
from vmrag_link.retrieval.bm25 import WordScores
from vmrag_link.retrieval.fusion import CollectionScores, Nearness
from vmrag_link.retrieval.query import Mode, QueryVectors
from vmrag_link.retrieval.ranking import Ranking

if TYPE_CHECKING:
    from vmrag_link.retrieval.code_ranking import CodeQuestion, RankedPiece
    from vmrag_link.retrieval.records import RecordFinder
    from vmrag_link.retrieval.vectors import ExactVectors

DEPTH = 100
"""Number of chunks of each part of a collection that take part in the fusion."""

MOST_EXTENDED = 50
"""Maximum number of words of a query for which compounds are searched. Longer queries have enough
words.
"""

MOST_RECORDS = 20
"""Number of records of each part of a collection that take part in the fusion in addition to the
best chunks.
"""

MOST_NAMED = 1_000
"""Maximum number of pieces of code with a name that are searched for its declaration."""

CODE_VECTORS = 750
"""Weight of vectors for code, in thousandths of their weight for documents."""

UNIT = flat_files.SCALE**2
"""The score of two equal unit vectors."""

Rows = Mapping[str, Sequence[int]]
"""Rows by collection."""

Scores = dict[int, int]


class Ranked(NamedTuple):
    """Scores of chunks in their `unit`, and the nearness of the best ones."""

    scores: Scores
    unit: float
    nearness: Nearness


class RankingRequest:
    """The chunks to rank: those of these collections, or only the rows `among`, if given.

    `of_paths`: the rows were selected by their files.
    """

    def __init__(
        self, text: str, collections: Sequence[IndexedCollection], among: Rows | None, *, of_paths: bool = False
    ) -> None:
        self.text = text
        self.collections = collections
        self.among = among
        self.of_paths = of_paths

    @functools.cached_property
    def code_question(self) -> CodeQuestion:
        """The question for collections of code."""
        from vmrag_link.retrieval.code_ranking import CodeQuestion

        return CodeQuestion(self.text, of_paths=self.of_paths)

    def list_chosen_rows(self, indexed: IndexedCollection) -> Sequence[int] | None:
        return None if self.among is None else self.among[indexed.collection.name]


class Ranker:
    """Ranks the chunks of an open index.

    Scores depend on contents only. To order chunks with equal scores, use their documents and
    numbers, never their rows.
    """

    scored_postings: ClassVar[int] = 0
    """Number of postings of the words of all queries in this process."""

    def __init__(self, index: IndexReader, query_vectors: QueryVectors, ranking: Ranking) -> None:
        self._index = index
        self._query_vectors = query_vectors
        self._ranking = ranking
        self._vectors: dict[str, ExactVectors] = {}
        self._lengths: dict[int, Sequence[int]] = {}
        self._loaded: set[str] = set()
        self._code: dict[int, tuple[str, Sequence[IndexedPiece]]] = {}
        """Path and pieces of documents of code, by their first row."""

    def close(self) -> None:
        self._vectors.clear()
        self._code.clear()
        self._lengths.clear()

    def rank_best(self, request: RankingRequest, mode: Mode, k: int, *, per_document: int = 0) -> Ranked:
        """Return the best `k` chunks and all ties with the last.

        `per_document`: the maximum number of chunks of one document; 0 for any number.
        """
        depth = max(DEPTH, k)
        word_scores = {} if mode == Mode.VECTOR else self._score_words(request)
        while True:
            ranked = self._score_chunks(request, mode, word_scores, depth)
            kept = self._limit_per_document(per_document, ranked.scores) if per_document else ranked.scores
            if len(kept) >= k or len(ranked.scores) < depth:
                return ranked._replace(scores=_select_best(kept, k))
            depth *= 4  # a few documents fill the ranking

    def open_vectors(self, indexed: IndexedCollection) -> ExactVectors:
        """Return the vectors of a collection."""
        name = indexed.collection.name
        if name not in self._vectors:
            from vmrag_link.retrieval.vectors import ExactVectors, VectorPiece  # keyword queries need no vectors

            pieces = [
                VectorPiece(
                    piece.first_row,
                    piece.segment.map_vectors(piece.piece.id),
                    piece.piece.slots,
                    piece.piece.dead,
                )
                for piece in self._index.list_pieces(name)
            ]
            self._vectors[name] = ExactVectors(pieces, dimensions=indexed.collection.embedding_dimensions)
        return self._vectors[name]

    def _score_chunks(self, request: RankingRequest, mode: Mode, words: Mapping[str, WordScores], depth: int) -> Ranked:
        """Return at least the best `depth` chunks, if there are so many."""
        if mode == Mode.VECTOR:
            nearest = _select_best(
                _merge_scores(self._rank_by_vector(request, indexed, depth) for indexed in request.collections), depth
            )
            return Ranked(nearest, UNIT, Nearness(max(0, *nearest.values()) if nearest else 0, 0))
        if mode == Mode.KEYWORD:
            chosen = [
                (words[indexed.collection.name], request.list_chosen_rows(indexed)) for indexed in request.collections
            ]
            word_rankings = [(scores.select_best(depth, among), scores.max_score) for scores, among in chosen]
            nearness = fusion.combine_nearness(
                fusion.measure_nearness(CollectionScores({}, scores, max_score)) for scores, max_score in word_rankings
            )
            return Ranked(_select_best(fusion.normalize_scores(word_rankings), depth), bm25.BILLION, nearness)
        parts = [
            self._score_collection(request, indexed, words[indexed.collection.name], depth)
            for indexed in request.collections
        ]
        scores = fusion.fuse_scores(parts, self._vector_weight(request))
        highest = max(scores.values(), default=0)
        for indexed, part in zip(request.collections, parts, strict=True):
            if indexed.collection.is_code:
                from vmrag_link.retrieval import code_ranking

                code_scores = {row: scores[row] for row in part.words}
                scores |= code_ranking.rank_pieces(
                    code_scores, request.code_question, self._read_piece, self._index.read_texts, highest
                )
        of_text = {
            indexed.collection.name: {row: scores[row] for row in part.words}
            for indexed, part in zip(request.collections, parts, strict=True)
            if not indexed.collection.is_code
        }
        if of_text:
            scores |= self._record_finder.promote_records(request.text, of_text, request.among)
        return Ranked(scores, fusion.UNIT, fusion.combine_nearness(map(fusion.measure_nearness, parts)))

    @functools.cached_property
    def _record_finder(self) -> RecordFinder:
        from vmrag_link.retrieval.records import RecordFinder  # only a hybrid ranking promotes records

        return RecordFinder(self._index)

    def is_definition(self, request: RankingRequest, row: int) -> bool:
        """Return whether the question is a name that this piece of code declares."""
        return request.code_question.is_name and request.code_question.score_declaration(self._read_piece(row)) > 0

    def _vector_weight(self, request: RankingRequest) -> float:
        """Return the share of the vectors. It is half for languages that the models do not know."""
        weight = self._ranking.vector_weight
        if keywords.is_english(request.text):
            return weight
        is_english = all(self._query_vectors.load_stored_model(indexed).english for indexed in request.collections)
        return weight / 2 if is_english else weight

    def _read_piece(self, row: int) -> RankedPiece:
        from vmrag_link.retrieval.code_ranking import RankedPiece

        first = flat_files.find_first_row(self._lengths, row)
        if first not in self._code:
            chunk = self._index.read_chunk(first)
            self._code[first] = chunk.doc_id, parse_pieces(chunk)
        path, pieces = self._code[first]
        return RankedPiece(path, row - first, pieces[row - first])

    def _score_collection(
        self, request: RankingRequest, indexed: IndexedCollection, words: WordScores, depth: int
    ) -> CollectionScores:
        by_vector = self._rank_by_vector(request, indexed, depth)
        by_words = words.select_best(depth, request.list_chosen_rows(indexed))
        if indexed.collection.is_code:
            by_words |= self._score_declarations(request, indexed, words)
        elif records := self._record_finder.find_rows(indexed.collection.name, request.list_chosen_rows(indexed)):
            by_vector |= self.open_vectors(indexed).select_best(
                self._query_vectors.embed_query(indexed, request.text), MOST_RECORDS, among=records
            )
            by_words |= words.select_best(MOST_RECORDS, records)
        without_vector = list(by_words.keys() - by_vector.keys())
        if without_vector:
            scores = self.open_vectors(indexed).score_rows(
                self._query_vectors.embed_query(indexed, request.text), without_vector
            )
            by_vector |= zip(without_vector, scores, strict=True)
        share = CODE_VECTORS if indexed.collection.is_code else fusion.FULL_WEIGHT
        return CollectionScores(
            by_vector,
            by_words | {row: words.score_row(row) for row in by_vector.keys() - by_words.keys()},
            words.max_score,
            share,
        )

    def _rank_by_vector(self, request: RankingRequest, indexed: IndexedCollection, depth: int) -> Scores:
        """Return the best `depth` chunks of a collection by vectors, and all ties with the last."""
        return self.open_vectors(indexed).select_best(
            self._query_vectors.embed_query(indexed, request.text), depth, among=request.list_chosen_rows(indexed)
        )

    def _score_words(self, request: RankingRequest) -> dict[str, WordScores]:
        """Return the scores by words of each collection's chunks."""
        by_name = {collection.collection.name: collection for collection in request.collections}
        words: dict[str, list[Sequence[WordOccurrences]]] = {name: [] for name in by_name}
        code = [name for name, indexed in by_name.items() if indexed.collection.is_code]
        documents = by_name.keys() - code
        questions = [(documents, self._document_terms(request.text, documents) if documents else [])]
        if code:
            questions.append((set(code), request.code_question.list_terms(request.text)))
        for names, terms in questions:
            extended, alone = len(terms) <= MOST_EXTENDED, len(terms) == 1
            for term in terms:
                for name, occurrences in self._index.find_occurrences(term, names).items():
                    words[name].append(
                        self._index.add_compounds(term, name, occurrences, alone=alone) if extended else occurrences
                    )
        for term in request.code_question.list_joined_terms(request.text) if code else ():
            for name, occurrences in self._index.find_occurrences(term, code).items():
                if any(True for holding in occurrences for _ in holding.alive_pairs()):
                    words[name].append(occurrences)  # a joined word that no code contains is ignored
        self._load_lengths(by_name)
        postings = sum(len(holding.slots) for lists in words.values() for word in lists for holding in word)
        Ranker.scored_postings += postings
        scores_class, weight = _choose_scores(Ranker.scored_postings), self._ranking.document_weight
        return {
            name: bm25.score_collection(by_name[name], lists, self._lengths, document_weight=weight, by=scores_class)
            for name, lists in words.items()
        }

    def _document_terms(self, text: str, collections: Iterable[str]) -> list[list[str]]:
        """Return the terms of a question for documents. A version that the documents contain is one
        phrase.
        """
        terms = keywords.find_query_terms(text)
        versions = [
            term for term in keywords.find_version_terms(text) if self._index.find_rows_with_word(term, collections)
        ]
        numbers = {(number,) for term in versions for number in term}
        return [*(term for term in terms if tuple(term) not in numbers), *versions]

    def _score_declarations(self, request: RankingRequest, indexed: IndexedCollection, words: WordScores) -> Scores:
        """Return the scores by words of the pieces that declare a name of the question."""
        name, chosen = indexed.collection.name, request.list_chosen_rows(indexed)
        rows: set[int] = set()
        for term in keywords.list_terms(parts[-1] for parts in request.code_question.names):
            rows |= self._index.find_rows_with_word(term, [name], names=True)
        named = words.select_best(MOST_NAMED, list(rows if chosen is None else rows.intersection(chosen)))
        return {
            row: score for row, score in named.items() if request.code_question.score_declaration(self._read_piece(row))
        }

    def _load_lengths(self, collections: Iterable[str]) -> None:
        """Load the lengths of these collections' chunks."""
        for name in set(collections) - self._loaded:
            self._lengths |= self._index.read_lengths(name)
            self._loaded.add(name)

    def _limit_per_document(self, number: int, scores: Scores) -> Scores:
        """Return the best `number` chunks of each document."""
        self._load_lengths({self._index.find_collection(row) for row in scores})
        kept: Scores = {}
        counts: Counter[int] = Counter()
        for row in sorted(scores, key=lambda row: (-scores[row], row)):  # the rows of a document are in its order
            document = flat_files.find_first_row(self._lengths, row)
            if counts[document] < number:
                counts[document] += 1
                kept[row] = scores[row]
        return kept


MANY_POSTINGS = 100_000
"""Number of postings that take as long without numpy as importing numpy takes."""


def _choose_scores(postings: int) -> type[WordScores]:
    """Return the class that scores so many postings in the least time."""
    if "numpy" not in sys.modules and postings < MANY_POSTINGS:
        return WordScores
    try:
        from vmrag_link.retrieval.array_scores import ArrayScores
    except ImportError:
        return WordScores
    return ArrayScores


def _merge_scores(scores: Iterable[Scores]) -> Scores:
    merged: Scores = {}
    for score in scores:
        merged |= score
    return merged


def _select_best(scores: Scores, k: int) -> Scores:
    """Return the best `k` scores and all ties with the last."""
    if len(scores) <= k:
        return scores
    lowest = heapq.nlargest(k, scores.values())[-1]
    return {row: score for row, score in scores.items() if score >= lowest}
