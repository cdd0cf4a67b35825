"""The scores of an index's chunks for a query: whole numbers by row (`keywords.row_id`)."""

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
from vmrag_link.retrieval.fusion import CollectionScores, Nearness, Ranking
from vmrag_link.retrieval.query import Mode, QueryVectors

if TYPE_CHECKING:
    from vmrag_link.retrieval.code_ranking import CodeQuestion, RankedPiece
    from vmrag_link.retrieval.records import RecordFinder
    from vmrag_link.retrieval.vectors import ExactVectors

DEPTH = 100
"""How many chunks of each part of a collection take part in the fusion."""

MOST_EXTENDED = 50
"""Maximum number of words of a query that compounds also answer. Longer queries have enough words.
"""

MOST_RECORDS = 20
"""Number of records of each part of a collection that take part in the fusion in addition to the
best chunks.
"""

MOST_NAMED = 1_000
"""How many pieces of code with a name are looked at for one that declares it."""

CODE_VECTORS = 750
"""Weight of vectors for code, in thousandths of their weight for documents."""

UNIT = flat_files.SCALE**2
"""The score of two equal unit vectors."""

Rows = Mapping[str, Sequence[int]]
"""Rows by collection."""

Scores = dict[int, int]


class Ranked(NamedTuple):
    """Scores of chunks in their `unit`, and the nearness of the best."""

    scores: Scores
    unit: float
    nearness: Nearness


class RankingRequest:
    """What is ranked: the chunks of these collections, or only the rows `among`, if given.

    `of_paths`: the rows were chosen by their files.
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
        """What is asked of collections of code."""
        from vmrag_link.retrieval.code_ranking import CodeQuestion

        return CodeQuestion(self.text, of_paths=self.of_paths)

    def list_chosen_rows(self, held: IndexedCollection) -> Sequence[int] | None:
        return None if self.among is None else self.among[held.collection.name]


class Ranker:
    """An index, open for reading.

    Scores depend on contents only. Whoever orders them breaks ties by what names a chunk, never by
    its row.
    """

    scored_postings: ClassVar[int] = 0
    """Postings of the words of all queries of this process."""

    def __init__(self, index: IndexReader, query_vectors: QueryVectors, ranking: Ranking) -> None:
        self._index = index
        self._query_vectors = query_vectors
        self._ranking = ranking
        self._vectors: dict[str, ExactVectors] = {}
        self._lengths: dict[int, Sequence[int]] = {}
        self._measured: set[str] = set()
        self._code: dict[int, tuple[str, Sequence[IndexedPiece]]] = {}
        """Path and pieces of documents of code, by their first row."""

    def close(self) -> None:
        self._vectors.clear()
        self._code.clear()
        self._lengths.clear()

    def rank_best(self, asked: RankingRequest, mode: Mode, k: int, *, per_document: int = 0) -> Ranked:
        """The best `k` chunks and all ties with the last, with at most `per_document` of one
        document (0: any number).
        """
        depth = max(DEPTH, k)
        words = {} if mode == Mode.VECTOR else self._word_scores(asked)
        while True:
            ranked = self._scored(asked, mode, words, depth)
            kept = self._at_most(per_document, ranked.scores) if per_document else ranked.scores
            if len(kept) >= k or len(ranked.scores) < depth:
                return ranked._replace(scores=_best(kept, k))
            depth *= 4  # a few documents fill the ranking

    def open_vectors(self, held: IndexedCollection) -> ExactVectors:
        name = held.collection.name
        if name not in self._vectors:
            from vmrag_link.retrieval.vectors import ExactVectors, VectorPiece  # keyword queries have no vectors

            pieces = [
                VectorPiece(
                    piece.first_row,
                    piece.segment.map_vectors(piece.piece.id),
                    piece.piece.slots,
                    piece.piece.dead,
                )
                for piece in self._index.list_pieces(name)
            ]
            self._vectors[name] = ExactVectors(pieces, dimensions=held.collection.embedding_dimensions)
        return self._vectors[name]

    def _scored(self, asked: RankingRequest, mode: Mode, words: Mapping[str, WordScores], depth: int) -> Ranked:
        """At least the best `depth` chunks, if there are as many."""
        if mode == Mode.VECTOR:
            nearest = _best(_joined(self._by_vector(asked, held, depth) for held in asked.collections), depth)
            return Ranked(nearest, UNIT, Nearness(max(0, *nearest.values()) if nearest else 0, 0))
        if mode == Mode.KEYWORD:
            found = [(words[held.collection.name], asked.list_chosen_rows(held)) for held in asked.collections]
            wordy = [(scores.select_best(depth, among), scores.max_score) for scores, among in found]
            nearness = fusion.combine_nearness(
                fusion.measure_nearness(CollectionScores({}, scores, most)) for scores, most in wordy
            )
            return Ranked(_best(fusion.normalize_scores(wordy), depth), bm25.BILLION, nearness)
        parts = [self._parts(asked, held, words[held.collection.name], depth) for held in asked.collections]
        scores = fusion.fuse_scores(parts, self._vector_weight(asked))
        highest = max(scores.values(), default=0)
        for held, part in zip(asked.collections, parts, strict=True):
            if held.collection.is_code:
                from vmrag_link.retrieval import code_ranking

                own = {row: scores[row] for row in part.words}
                scores |= code_ranking.rank_pieces(
                    own, asked.code_question, self._piece, self._index.read_texts, highest
                )
        of_text = {
            held.collection.name: {row: scores[row] for row in part.words}
            for held, part in zip(asked.collections, parts, strict=True)
            if not held.collection.is_code
        }
        if of_text:
            scores |= self._records.promote_records(asked.text, of_text, asked.among)
        return Ranked(scores, fusion.UNIT, fusion.combine_nearness(map(fusion.measure_nearness, parts)))

    @functools.cached_property
    def _records(self) -> RecordFinder:
        from vmrag_link.retrieval.records import RecordFinder  # a ranking by words or vectors alone has no records

        return RecordFinder(self._index)

    def is_definition(self, asked: RankingRequest, row: int) -> bool:
        """Return whether the question is a name that this piece of code declares."""
        return asked.code_question.is_name and asked.code_question.score_declaration(self._piece(row)) > 0

    def _vector_weight(self, asked: RankingRequest) -> float:
        """Return the share of the vectors. It is half for languages that the models do not know."""
        weight = self._ranking.vector_weight
        if keywords.is_english(asked.text):
            return weight
        is_english = all(self._query_vectors.load_stored_model(held).english for held in asked.collections)
        return weight / 2 if is_english else weight

    def _piece(self, row: int) -> RankedPiece:
        from vmrag_link.retrieval.code_ranking import RankedPiece

        first = flat_files.find_first_row(self._lengths, row)
        if first not in self._code:
            chunk = self._index.read_chunk(first)
            self._code[first] = chunk.doc_id, parse_pieces(chunk)
        path, pieces = self._code[first]
        return RankedPiece(path, row - first, pieces[row - first])

    def _parts(self, asked: RankingRequest, held: IndexedCollection, words: WordScores, depth: int) -> CollectionScores:
        near, wordy = self._by_vector(asked, held, depth), words.select_best(depth, asked.list_chosen_rows(held))
        if held.collection.is_code:
            wordy |= self._declaring(asked, held, words)
        elif records := self._records.find_rows(held.collection.name, asked.list_chosen_rows(held)):
            near |= self.open_vectors(held).select_best(
                self._query_vectors.embed_query(held, asked.text), MOST_RECORDS, among=records
            )
            wordy |= words.select_best(MOST_RECORDS, records)
        further = list(wordy.keys() - near.keys())
        if further:
            scores = self.open_vectors(held).score_rows(self._query_vectors.embed_query(held, asked.text), further)
            near |= zip(further, scores, strict=True)
        share = CODE_VECTORS if held.collection.is_code else fusion.FULL_WEIGHT
        return CollectionScores(
            near, wordy | {row: words.score_row(row) for row in near.keys() - wordy.keys()}, words.max_score, share
        )

    def _by_vector(self, asked: RankingRequest, held: IndexedCollection, depth: int) -> Scores:
        """The best `depth` chunks of a collection by vectors, and all ties with the last."""
        return self.open_vectors(held).select_best(
            self._query_vectors.embed_query(held, asked.text), depth, among=asked.list_chosen_rows(held)
        )

    def _word_scores(self, asked: RankingRequest) -> dict[str, WordScores]:
        """The scores by words of each collection's chunks."""
        held = {collection.collection.name: collection for collection in asked.collections}
        words: dict[str, list[Sequence[WordOccurrences]]] = {name: [] for name in held}
        code = [name for name, each in held.items() if each.collection.is_code]
        documents = held.keys() - code
        questions = [(documents, self._document_terms(asked.text, documents) if documents else [])]
        if code:
            questions.append((set(code), asked.code_question.list_terms(asked.text)))
        for names, terms in questions:
            extended, alone = len(terms) <= MOST_EXTENDED, len(terms) == 1
            for term in terms:
                for name, own in self._index.find_occurrences(term, names).items():
                    words[name].append(self._index.add_compounds(term, name, own, alone=alone) if extended else own)
        for term in asked.code_question.list_joined_terms(asked.text) if code else ():
            for name, own in self._index.find_occurrences(term, code).items():
                if any(True for holding in own for _ in holding.alive_pairs()):
                    words[name].append(own)  # a word that no code holds is not one of the question
        self._measure(held)
        postings = sum(len(holding.slots) for lists in words.values() for each in lists for holding in each)
        Ranker.scored_postings += postings
        by, weight = _choose_scores(Ranker.scored_postings), self._ranking.document_weight
        return {
            name: bm25.score_collection(held[name], lists, self._lengths, document_weight=weight, by=by)
            for name, lists in words.items()
        }

    def _document_terms(self, text: str, collections: Iterable[str]) -> list[list[str]]:
        """Return the terms of a question for documents. A version that they have is one phrase."""
        terms = keywords.find_query_terms(text)
        versions = [
            term for term in keywords.find_version_terms(text) if self._index.find_rows_with_word(term, collections)
        ]
        numbers = {(number,) for term in versions for number in term}
        return [*(term for term in terms if tuple(term) not in numbers), *versions]

    def _declaring(self, asked: RankingRequest, held: IndexedCollection, words: WordScores) -> Scores:
        """Scores by words of the pieces that declare a name that is asked for."""
        name, chosen = held.collection.name, asked.list_chosen_rows(held)
        found: set[int] = set()
        for term in keywords.list_terms(each[-1] for each in asked.code_question.names):
            found |= self._index.find_rows_with_word(term, [name], names=True)
        named = words.select_best(MOST_NAMED, list(found if chosen is None else found.intersection(chosen)))
        return {row: score for row, score in named.items() if asked.code_question.score_declaration(self._piece(row))}

    def _measure(self, collections: Iterable[str]) -> None:
        """Have the lengths of these collections' chunks."""
        for name in set(collections) - self._measured:
            self._lengths |= self._index.read_lengths(name)
            self._measured.add(name)

    def _at_most(self, number: int, scores: Scores) -> Scores:
        """The best `number` chunks of each document."""
        self._measure({self._index.find_collection(row) for row in scores})
        kept: Scores = {}
        taken: Counter[int] = Counter()
        for row in sorted(scores, key=lambda row: (-scores[row], row)):  # within a document, rows are in its order
            document = flat_files.find_first_row(self._lengths, row)
            if taken[document] < number:
                taken[document] += 1
                kept[row] = scores[row]
        return kept


MANY_POSTINGS = 100_000
"""Postings that take as long without numpy as importing numpy takes."""


def _choose_scores(postings: int) -> type[WordScores]:
    """Return the class that scores postings in the least time in a process with so many."""
    if "numpy" not in sys.modules and postings < MANY_POSTINGS:
        return WordScores
    try:
        from vmrag_link.retrieval.array_scores import ArrayScores
    except ImportError:
        return WordScores
    return ArrayScores


def _joined(scores: Iterable[Scores]) -> Scores:
    found: Scores = {}
    for score in scores:
        found |= score
    return found


def _best(scores: Scores, k: int) -> Scores:
    """The best `k` and all ties with the last."""
    if len(scores) <= k:
        return scores
    lowest = heapq.nlargest(k, scores.values())[-1]
    return {row: score for row, score in scores.items() if score >= lowest}
