"""Compute the scores of an index's chunks for a query.

`search` asks for the best `k` chunks. In a hybrid ranking, words and vectors each select the best
chunks of every collection. Each selected chunk gets both scores, which `fusion` combines.
"""

from __future__ import annotations

import functools
import heapq
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from vmrag_link.index import flat_files, keywords
from vmrag_link.index.postings import WordOccurrences
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import IndexedPiece, parse_pieces
from vmrag_link.retrieval import bm25, fusion
from vmrag_link.retrieval.bm25 import WordScores
from vmrag_link.retrieval.fusion import CollectionScores, Nearness
from vmrag_link.retrieval.query import Mode
from vmrag_link.retrieval.query_vectors import QueryVectors
from vmrag_link.retrieval.ranking import Ranking

if TYPE_CHECKING:
    from vmrag_link.retrieval.code_ranking import CodeQuestion, RankedPiece
    from vmrag_link.retrieval.records import RecordFinder
    from vmrag_link.retrieval.vectors import ExactVectors

MIN_RANKED_CHUNKS = 100
"""Minimum number of chunks that words and vectors each select in a collection."""

MAX_EXTENDED_WORDS = 50
"""Maximum number of words of a query for which compounds are searched. Longer queries have enough
words.
"""

MAX_RECORDS = 20
"""Number of records that words and vectors each select in a collection, in addition to the best
chunks.
"""

MAX_NAMED_PIECES = 1_000
"""Maximum number of pieces of code with a name that are searched for its declaration."""

CODE_VECTORS = 750
"""Weight of vectors for code, in thousandths of their weight for documents."""

VECTOR_UNIT = flat_files.SCALE**2
"""The score of two equal unit vectors."""

NUMPY_POSTINGS = 100_000
"""Number of postings that take as long without numpy as importing numpy takes. A posting is a chunk
that contains a word.
"""

Rows = Mapping[str, Sequence[int]]
"""Rows by collection."""

Scores = dict[int, int]
"""Scores by row."""


class Ranked(NamedTuple):
    """Scores of chunks in their `unit`, and the nearness of the best ones."""

    scores: Scores
    unit: float
    nearness: Nearness


class RankingRequest:
    """A question, and the chunks to rank: those of `collections`, or only the rows `among`.

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
        """Return the rows of a collection that may be in the answer; None for all."""
        return None if self.among is None else self.among[indexed.collection.name]


class Ranker:
    """Ranks the chunks of an open index.

    Scores depend on contents only. To order chunks with equal scores, use their documents and
    numbers, never their rows.
    """

    scored_postings: ClassVar[int] = 0
    """Number of postings that all queries of this process have scored."""

    def __init__(self, index: IndexReader, query_vectors: QueryVectors, ranking: Ranking) -> None:
        self._index = index
        self._query_vectors = query_vectors
        self._ranking = ranking
        self._vectors: dict[str, ExactVectors] = {}
        self._lengths: dict[int, Sequence[int]] = {}
        self._loaded: set[str] = set()
        """Names of the collections whose lengths are in `_lengths`."""
        self._code: dict[int, tuple[str, Sequence[IndexedPiece]]] = {}
        """Path and pieces of files of code, by the row of the first piece."""

    def close(self) -> None:
        self._vectors.clear()
        self._code.clear()
        self._lengths.clear()

    def rank_best(self, request: RankingRequest, mode: Mode, k: int, *, per_document: int = 0) -> Ranked:
        """Return the best `k` chunks and all ties with the last.

        `per_document`: the maximum number of chunks of one document; 0 for any number.
        """
        depth = max(MIN_RANKED_CHUNKS, k)
        word_scores = {} if mode == Mode.VECTOR else self._score_words(request)
        while True:
            ranked = self._score_chunks(request, mode, word_scores, depth)
            scores = self._limit_per_document(per_document, ranked.scores) if per_document else ranked.scores
            if len(scores) >= k or len(ranked.scores) < depth:
                return ranked._replace(scores=_select_best(scores, k))
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

    def is_definition(self, request: RankingRequest, row: int) -> bool:
        """Return whether the question is a name that this piece of code declares."""
        return request.code_question.is_name and request.code_question.score_declaration(self._read_piece(row)) > 0

    def _score_words(self, request: RankingRequest) -> dict[str, WordScores]:
        """Return the scores by words of each collection's chunks."""
        by_name = {indexed.collection.name: indexed for indexed in request.collections}
        code = {name for name, indexed in by_name.items() if indexed.collection.is_code}
        documents = by_name.keys() - code
        words: dict[str, list[Sequence[WordOccurrences]]] = {name: [] for name in by_name}
        if documents:
            self._find_words(self._list_document_terms(request.text, documents), documents, words)
        if code:
            self._find_words(request.code_question.list_terms(request.text), code, words)
            for term in request.code_question.list_joined_terms(request.text):
                for name, occurrences in self._index.find_occurrences(term, code).items():
                    if any(True for occurrence in occurrences for _ in occurrence.alive_pairs()):
                        words[name].append(occurrences)  # a joined word that no code contains is ignored
        self._load_lengths(by_name)
        Ranker.scored_postings += sum(
            len(occurrence.slots) for lists in words.values() for occurrences in lists for occurrence in occurrences
        )
        scores_class = _choose_scores(Ranker.scored_postings)
        return {
            name: bm25.score_collection(
                by_name[name], lists, self._lengths, document_weight=self._ranking.document_weight, by=scores_class
            )
            for name, lists in words.items()
        }

    def _find_words(
        self, terms: Sequence[list[str]], names: Collection[str], words: Mapping[str, list[Sequence[WordOccurrences]]]
    ) -> None:
        """Append the chunks of these collections that contain each term to `words`."""
        for term in terms:
            for name, occurrences in self._index.find_occurrences(term, names).items():
                if len(terms) <= MAX_EXTENDED_WORDS:
                    words[name].append(self._index.add_compounds(term, name, occurrences, alone=len(terms) == 1))
                else:
                    words[name].append(occurrences)

    def _list_document_terms(self, text: str, collections: Iterable[str]) -> list[list[str]]:
        """Return the terms of a question for documents. Each term is a list of words in a row.

        A version that the documents contain, such as `3.1`, is one term instead of two.
        """
        terms = keywords.find_query_terms(text)
        versions = [
            term for term in keywords.find_version_terms(text) if self._index.find_rows_with_word(term, collections)
        ]
        numbers = {(number,) for term in versions for number in term}
        return [*(term for term in terms if tuple(term) not in numbers), *versions]

    def _score_chunks(
        self, request: RankingRequest, mode: Mode, word_scores: Mapping[str, WordScores], depth: int
    ) -> Ranked:
        """Return at least the best `depth` chunks, or all if there are fewer.

        `word_scores`: the result of `_score_words`; empty for vectors.
        """
        if mode == Mode.VECTOR:
            return self._rank_by_vectors(request, depth)
        if mode == Mode.KEYWORD:
            return self._rank_by_words(request, word_scores, depth)
        return self._rank_by_both(request, word_scores, depth)

    def _rank_by_vectors(self, request: RankingRequest, depth: int) -> Ranked:
        scores: Scores = {}
        for indexed in request.collections:
            scores |= self._select_by_vector(request, indexed, depth)
        nearest = _select_best(scores, depth)
        return Ranked(nearest, VECTOR_UNIT, Nearness(max(0, *nearest.values()) if nearest else 0, 0))

    def _rank_by_words(self, request: RankingRequest, word_scores: Mapping[str, WordScores], depth: int) -> Ranked:
        rankings: list[tuple[Scores, int]] = []
        for indexed in request.collections:
            words = word_scores[indexed.collection.name]
            rankings.append((words.select_best(depth, request.list_chosen_rows(indexed)), words.max_score))
        nearness = fusion.combine_nearness(
            fusion.measure_nearness(CollectionScores({}, scores, max_score)) for scores, max_score in rankings
        )
        return Ranked(_select_best(fusion.normalize_scores(rankings), depth), bm25.BILLION, nearness)

    def _rank_by_both(self, request: RankingRequest, word_scores: Mapping[str, WordScores], depth: int) -> Ranked:
        parts = [
            self._score_collection(request, indexed, word_scores[indexed.collection.name], depth)
            for indexed in request.collections
        ]
        scores = fusion.fuse_scores(parts, self._vector_weight(request))
        highest = max(scores.values(), default=0)
        document_scores: dict[str, Scores] = {}
        for indexed, part in zip(request.collections, parts, strict=True):
            collection_scores = {row: scores[row] for row in part.words}
            if not indexed.collection.is_code:
                document_scores[indexed.collection.name] = collection_scores
                continue
            from vmrag_link.retrieval import code_ranking

            scores |= code_ranking.rank_pieces(
                collection_scores, request.code_question, self._read_piece, self._index.read_texts, highest
            )
        if document_scores:
            scores |= self._record_finder.promote_records(request.text, document_scores, request.among)
        return Ranked(scores, fusion.UNIT, fusion.combine_nearness(map(fusion.measure_nearness, parts)))

    def _score_collection(
        self, request: RankingRequest, indexed: IndexedCollection, words: WordScores, depth: int
    ) -> CollectionScores:
        """Return both scores of the chunks that words or vectors select."""
        chosen = request.list_chosen_rows(indexed)
        query_vector = self._query_vectors.embed_query(indexed, request.text)
        vectors = self.open_vectors(indexed)
        by_vector = vectors.select_best(query_vector, depth, among=chosen)
        by_words = words.select_best(depth, chosen)
        if indexed.collection.is_code:
            by_words |= self._score_declarations(request, indexed, words)
        else:
            records = self._record_finder.find_rows(indexed.collection.name, chosen)
            if records:
                by_vector |= vectors.select_best(query_vector, MAX_RECORDS, among=records)
                by_words |= words.select_best(MAX_RECORDS, records)
        without_vector = list(by_words.keys() - by_vector.keys())
        by_vector |= zip(without_vector, vectors.score_rows(query_vector, without_vector), strict=True)
        by_words |= {row: words.score_row(row) for row in by_vector.keys() - by_words.keys()}
        vector_share = CODE_VECTORS if indexed.collection.is_code else fusion.FULL_WEIGHT
        return CollectionScores(by_vector, by_words, words.max_score, vector_share)

    def _select_by_vector(self, request: RankingRequest, indexed: IndexedCollection, depth: int) -> Scores:
        """Return the best `depth` chunks of a collection by vectors, and all ties with the last."""
        return self.open_vectors(indexed).select_best(
            self._query_vectors.embed_query(indexed, request.text), depth, among=request.list_chosen_rows(indexed)
        )

    def _score_declarations(self, request: RankingRequest, indexed: IndexedCollection, words: WordScores) -> Scores:
        """Return the scores by words of the pieces that declare a name of the question."""
        name = indexed.collection.name
        chosen = request.list_chosen_rows(indexed)
        rows: set[int] = set()
        for term in keywords.list_terms(parts[-1] for parts in request.code_question.names):
            rows |= self._index.find_rows_with_word(term, [name], names=True)
        scores = words.select_best(MAX_NAMED_PIECES, list(rows if chosen is None else rows.intersection(chosen)))
        return {
            row: score
            for row, score in scores.items()
            if request.code_question.score_declaration(self._read_piece(row))
        }

    def _vector_weight(self, request: RankingRequest) -> float:
        """Return the share of the vectors. It is half for languages that the models do not know."""
        weight = self._ranking.vector_weight
        if keywords.is_english(request.text):
            return weight
        is_english = all(self._query_vectors.load_stored_model(indexed).english for indexed in request.collections)
        return weight / 2 if is_english else weight

    @functools.cached_property
    def _record_finder(self) -> RecordFinder:
        from vmrag_link.retrieval.records import RecordFinder  # only a hybrid ranking promotes records

        return RecordFinder(self._index)

    def _read_piece(self, row: int) -> RankedPiece:
        """Return a piece of code, with the path of its file."""
        from vmrag_link.retrieval.code_ranking import RankedPiece

        first = flat_files.find_first_row(self._lengths, row)
        if first not in self._code:
            chunk = self._index.read_chunk(first)
            self._code[first] = chunk.doc_id, parse_pieces(chunk)
        path, pieces = self._code[first]
        return RankedPiece(path, row - first, pieces[row - first])

    def _limit_per_document(self, number: int, scores: Scores) -> Scores:
        """Return the best `number` chunks of each document."""
        self._load_lengths({self._index.find_collection(row) for row in scores})
        best: Scores = {}
        counts: Counter[int] = Counter()
        for row in sorted(scores, key=lambda row: (-scores[row], row)):  # the rows of a document are in its order
            document = flat_files.find_first_row(self._lengths, row)
            if counts[document] < number:
                counts[document] += 1
                best[row] = scores[row]
        return best

    def _load_lengths(self, collections: Iterable[str]) -> None:
        """Load the lengths of these collections' chunks."""
        for name in set(collections) - self._loaded:
            self._lengths |= self._index.read_lengths(name)
            self._loaded.add(name)


def _choose_scores(postings: int) -> type[WordScores]:
    """Return the class that scores this number of postings in the least time."""
    if "numpy" not in sys.modules and postings < NUMPY_POSTINGS:
        return WordScores
    try:
        from vmrag_link.retrieval.array_scores import ArrayScores
    except ImportError:
        return WordScores
    return ArrayScores


def _select_best(scores: Scores, k: int) -> Scores:
    """Return the best `k` scores and all ties with the last."""
    if len(scores) <= k:
        return scores
    lowest = heapq.nlargest(k, scores.values())[-1]
    return {row: score for row, score in scores.items() if score >= lowest}
