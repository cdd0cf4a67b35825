"""Search an index: rank its chunks for a query, and return the best as hits.

`workspace.answers` opens a `Searcher` for the view of a revision, together with the view of the
files of sources. A *view* is a folder that lists the documents of an index, and a *row* is the
integer that identifies a chunk in a view. Hits name chunks by document and number, because rows
differ between machines.
"""

from __future__ import annotations

import array
import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vmrag_link.errors import UsageInvalid, no_collection, unusable
from vmrag_link.index import keywords, view
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.index.reader import IndexedChunk, IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import PIECES, Collection, DocumentHeader, IndexedPiece, encode_canonical_json
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.distinct import EXTRA_CANDIDATES, MAX_CANDIDATES, DistinctResults
from vmrag_link.retrieval.query import FIRST_HITS, Hit, Mode, NearHit, Query, to_similarity
from vmrag_link.retrieval.query_vectors import QueryVectors, restore_vectors
from vmrag_link.retrieval.ranker import Ranked, Ranker, RankingRequest
from vmrag_link.retrieval.ranking import DEFAULT_RANKING, Ranking

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.cache import EmbeddingCache


DIGITS = {Mode.HYBRID: 6, Mode.VECTOR: 6, Mode.KEYWORD: 9}
"""Digits of displayed scores. If all chunks contain a word, BM25 scores differ only in the seventh
digit.
"""


class _Candidate(NamedTuple):
    """A ranked chunk. Candidates sort by their fields in this order, so their order is the same on
    every machine: no two candidates have the same document and number.
    """

    negated_score: int
    collection: str
    doc_id: str
    number: int
    row: int
    chunk: IndexedChunk
    also_in: tuple[str, ...] = ()
    """See `Hit.also_in`."""


class _CandidateRanking(NamedTuple):
    """The candidates of some collections, the best first, with the scores that ranked them."""

    request: RankingRequest
    ranked: Ranked
    candidates: list[_Candidate]


class Searcher:
    """Searches the index of a view. The caller makes sure that the view does not change.

    `model_for` returns the model of a collection. `more`: views that are searched together with the
    first one. Queries to one searcher share vectors, models and the rows that pass a filter.
    """

    def __init__(
        self,
        folder: Path,
        model_for: Callable[[Collection], Model],
        ranking: Ranking = DEFAULT_RANKING,
        *,
        more: Sequence[Path] = (),
    ) -> None:
        self._folders = (folder, *more)
        self._ranking = ranking
        with contextlib.ExitStack() as stack:
            with self._damage_errors():
                self._index = stack.enter_context(IndexReader.open(*self._folders))
                self._indexed = self._index.collections
                self._query_vectors = QueryVectors(model_for, self._index.view.unembedded)
                ranker = Ranker(self._index, self._query_vectors, ranking)
                self._ranker = stack.enter_context(contextlib.closing(ranker))
            self._opened = stack.pop_all()
        self._default_collections = [
            name for name, indexed in self._indexed.items() if indexed.collection.is_searched_by_default
        ]
        self._distinct = DistinctResults(self._index)
        self._row_cache: dict[str, dict[str, list[int]]] = {}
        """Rows that pass filters, by filters and collection."""

    def close(self) -> None:
        self._opened.close()

    def search(self, query: Query) -> list[Hit]:
        """Return the best `k` chunks.

        Raises `CollectionMissing`, `FilterInvalid`, `EmbeddingMismatch`, `EmbeddingFailed`,
        `UsageInvalid` and `IndexFailed`.
        """
        with self._damage_errors():
            return self._search_chunks(query, self._ranking.per_document, diverse=True)

    def prepare_queries(self, queries: Iterable[Query]) -> None:
        """Embed the texts of all these queries at once, before they are searched one by one.

        Invalid queries are ignored, because `search` reports them. Raises `EmbeddingMismatch`,
        `EmbeddingFailed` and `IndexFailed`.
        """
        texts: dict[str, list[str]] = {}
        for query in queries:
            if query.mode != Mode.KEYWORD:
                for name in self._default_collections if query.collections is None else query.collections:
                    texts.setdefault(name, []).append(query.text)
        for name, collection_texts in texts.items():
            if name in self._indexed:
                self._query_vectors.prepare_texts(self._indexed[name], collection_texts)

    def find_nearest(self, query: Query, *, per_document: int = 0) -> list[NearHit]:
        """Search by vectors, and rank the hits by exact cosines.

        `per_document`: the maximum number of chunks of one document; 0 for any number. The errors
        are those of `search`.
        """
        with self._damage_errors():
            hits = self._search_chunks(msgspec.structs.replace(query, mode=Mode.VECTOR), per_document, diverse=False)
            return self._rank_by_cosine(query, hits) if hits else []

    def rank_groups(
        self, collection: str, text: str, group_of: Callable[[DocumentHeader], str | None]
    ) -> dict[str, float]:
        """Return groups of a collection's documents with their similarities to a text, the nearest
        first.

        `group_of` returns the group of a document, or None to leave it out. The vector of a group
        is the mean of the vectors of its documents. Raises `EmbeddingMismatch`, `EmbeddingFailed`
        and `IndexFailed`.
        """
        with self._damage_errors():
            groups: dict[str, list[int]] = {}
            indexed = self._indexed.get(collection)
            for header, rows in self._index.list_documents(collection):
                group = group_of(header)
                if group is not None:
                    groups.setdefault(group, []).extend(rows)
            if indexed is None or not groups:
                return {}
            vectors = self._ranker.open_vectors(indexed)
            query_vector = self._query_vectors.embed_query(indexed, text)
            similarities = {
                group: to_similarity(vectors.compute_mean_cosine(query_vector, rows)) for group, rows in groups.items()
            }
        return dict(sorted(similarities.items(), key=lambda item: (-item[1], item[0])))

    def compute_cosines(self, text: str, hits: Sequence[Hit]) -> list[float]:
        """Return the exact cosine of each hit's vector and the text's vector. The errors are those
        of `search`.
        """
        with self._damage_errors():
            return self._compute_cosines(text, hits)

    def _compute_cosines(self, text: str, hits: Sequence[Hit]) -> list[float]:
        document_rows = self._index.find_rows({(hit.collection, hit.doc_id): None for hit in hits})
        by_position: dict[int, float] = {}
        for name in {hit.collection for hit in hits}:
            indexed = self._indexed[name]
            positions = [position for position, hit in enumerate(hits) if hit.collection == name]
            rows = [document_rows[name, hits[position].doc_id][hits[position].chunk] for position in positions]
            cosines = self._ranker.open_vectors(indexed).compute_cosines(
                self._query_vectors.embed_query(indexed, text), rows
            )
            by_position |= zip(positions, cosines, strict=True)
        return [round(by_position[position], DIGITS[Mode.VECTOR]) for position in range(len(hits))]

    def is_weak(self, query: Query, hits: Sequence[Hit]) -> bool:
        """Return whether these hits are a weak answer (`retrieval.weakness`).

        An answer by vectors of a model without a measured limit is never weak. The errors are those
        of `search`.
        """
        if not hits:
            return False
        with self._damage_errors():
            first = hits[:FIRST_HITS]
            if query.mode != Mode.KEYWORD and self._is_near(query.text, first):
                return False
            from vmrag_link.retrieval import weakness  # most answers are not weak

            collections = self._select_collections(query)
            names = [indexed.collection.name for indexed in collections]
            text_counts = {
                tuple(term): len(self._index.find_rows_with_word(term, names))
                for term in keywords.find_query_terms(query.text)
            }
            texts = sum(indexed.chunks for indexed in collections)
            if query.mode == Mode.KEYWORD:
                return not any(weakness.covers_question(hit, text_counts, texts) for hit in first)
            return not weakness.shares_rare_word(hits[0], text_counts, texts)

    def _is_near(self, text: str, hits: Sequence[Hit]) -> bool:
        """Return whether a cosine reaches the limit of unrelated texts, or a model has no limit."""
        limits = [self._query_vectors.load_stored_model(self._indexed[hit.collection]).unrelated for hit in hits]
        cosines = self._compute_cosines(text, hits)
        return any(limit is None or cosine >= limit for limit, cosine in zip(limits, cosines, strict=True))

    def list_collections(self) -> list[Collection]:
        """Return the definitions with which the index was built, by name."""
        return [self._indexed[name].collection for name in sorted(self._indexed)]

    def find_collection(self, name: str) -> Collection | None:
        """Return the definition with which the index was built; None for an unknown name."""
        indexed = self._indexed.get(name)
        return indexed.collection if indexed else None

    def count_chunks(self, collection: str, doc_ids: Sequence[str]) -> dict[str, int]:
        """Return the number of chunks of each of these documents that the index has. Raises
        `IndexFailed`.
        """
        with self._damage_errors():
            return self._index.count_chunks(collection, doc_ids)

    def read_embeddings(
        self, collection: str, chunk_ids: Sequence[str], cache: EmbeddingCache
    ) -> dict[str, list[float]]:
        """Return the float32 vectors of the chunks that exist, by `index.metadata.chunk_id`.

        Raises `IndexFailed`, also if the index has only placeholders for vectors, and the errors of
        the model and the cache.
        """
        if not chunk_ids:
            return {}
        indexed = self._indexed[collection]
        with self._damage_errors():
            rows = self._find_chunk_rows(collection, chunk_ids)
            texts = self._index.read_texts(rows.values())
        model = self._query_vectors.load_stored_model(indexed)
        vectors = restore_vectors(self._index, indexed, texts, model=model, cache=cache)
        return {name: array.array("f", vectors[row]).tolist() for name, row in rows.items()}

    def _find_chunk_rows(self, collection: str, chunk_ids: Sequence[str]) -> dict[str, int]:
        """Return the rows of the chunks that exist, by their ids."""
        parsed = {chunk_id: position for chunk_id in chunk_ids if (position := parse_chunk_id(chunk_id))}
        document_rows = self._index.find_rows({(collection, doc_id): None for doc_id, _ in parsed.values()})
        return {
            chunk_id: document_rows[collection, doc_id][number]
            for chunk_id, (doc_id, number) in parsed.items()
            if number < len(document_rows.get((collection, doc_id), ()))
        }

    def _search_chunks(self, query: Query, per_document: int, *, diverse: bool) -> list[Hit]:
        """Return the best `k` chunks.

        `diverse`: rank documents and code separately, and show the translations and copies of a
        page as one result.
        """
        if query.k < 1:
            raise UsageInvalid(
                f"the number of results must be at least 1, not {query.k}.", hint="run 'vmrag query TEXT -k 5'"
            )
        collections = self._select_collections(query)
        documents = [indexed for indexed in collections if not indexed.collection.is_code]
        code = [indexed for indexed in collections if indexed.collection.is_code]
        groups = [documents, code] if diverse and documents and code else [collections]
        rankings = [self._rank_collections(query, group, per_document, diverse=diverse) for group in groups]
        if len(rankings) > 1 and all(ranking.candidates for ranking in rankings):
            candidates = self._merge_kinds(query.text, *rankings)
        else:
            candidates = [candidate for ranking in rankings for candidate in ranking.candidates]
        return self._make_hits(candidates[: query.k], unit=rankings[0].ranked.unit, digits=DIGITS[query.mode])

    def _select_collections(self, query: Query) -> list[IndexedCollection]:
        if query.collections is None:
            return [self._indexed[name] for name in self._default_collections]
        for name in query.collections:
            if name not in self._indexed:
                raise no_collection(name, sorted(self._indexed))
        return [self._indexed[name] for name in dict.fromkeys(query.collections)]

    def _rank_collections(
        self, query: Query, collections: list[IndexedCollection], per_document: int, *, diverse: bool
    ) -> _CandidateRanking:
        request = RankingRequest(
            query.text,
            collections,
            among=self._filter_rows(query),
            of_paths=bool(query.narrowing and query.narrowing.paths),
        )
        if diverse:
            return self._rank_distinct(request, query, per_document)
        ranked = self._ranker.rank_best(request, query.mode, query.k, per_document=per_document)
        return _CandidateRanking(request, ranked, self._order_candidates(ranked.scores)[: query.k])

    def _filter_rows(self, query: Query) -> dict[str, list[int]] | None:
        """Return the rows that pass the filters, by collection; None without filters."""
        if query.where is None and query.where_document is None and query.narrowing is None:
            return None
        from vmrag_link.retrieval import filters

        where = filters.normalize_where(query.where)
        where_document = filters.normalize_where_document(query.where_document)
        if where is None and where_document is None and query.narrowing is None:
            return None
        from vmrag_link.retrieval.chunk_filter import ChunkFilter
        from vmrag_link.retrieval.narrowing_filter import NarrowingFilter

        key = encode_canonical_json((query.collections, where, where_document, query.narrowing))
        if key not in self._row_cache:
            row_filters: list[NarrowingFilter | ChunkFilter] = []
            if query.narrowing:
                row_filters.append(NarrowingFilter(query.narrowing))
            if where is not None or where_document is not None:
                row_filters.append(ChunkFilter(where, where_document))
            rows: dict[str, list[int]] = {}
            for indexed in self._select_collections(query):
                name = indexed.collection.name
                passing = [row_filter.list_rows(self._index, name) for row_filter in row_filters]
                rows[name] = sorted(set(passing[0]).intersection(*passing[1:]))
            self._row_cache[key] = rows
        return self._row_cache[key]

    def _rank_distinct(self, request: RankingRequest, query: Query, per_document: int) -> _CandidateRanking:
        """Return the best `k` chunks, without translations and copies of each other."""
        depth = query.k + EXTRA_CANDIDATES
        while True:
            ranked = self._ranker.rank_best(request, query.mode, depth, per_document=per_document)
            candidates = self._order_candidates(ranked.scores)[:depth]
            if query.mode == Mode.HYBRID and not request.of_paths:
                candidates = self._lower_data(candidates, query.text)
            results = self._distinct.choose_results(candidates, query.text, query.k)
            if len(results) == query.k or len(candidates) < depth or depth >= MAX_CANDIDATES:
                break
            depth *= 4  # translations and copies fill the ranking
        chosen = [
            candidates[result.position]._replace(negated_score=result.negated_score, also_in=result.also_in)
            for result in results
        ]
        return _CandidateRanking(request, ranked, chosen)

    def _lower_data(self, candidates: Iterable[_Candidate], question: str) -> list[_Candidate]:
        """Return candidates with lower scores for data, so that similar text is first.

        The ranking of code has already lowered data.
        """
        from vmrag_link.retrieval import prose  # only a hybrid ranking lowers data

        lowered: list[_Candidate] = []
        for candidate in candidates:
            is_code = self._indexed[candidate.collection].collection.is_code
            factor = prose.FULL_FACTOR if is_code else prose.compute_factor(self._index.read_text(candidate.row))
            is_data = factor < prose.FULL_FACTOR and candidate.negated_score < 0
            if is_data and not prose.names_file(question, candidate.doc_id):
                score = -candidate.negated_score * factor // prose.FULL_FACTOR
                lowered.append(candidate._replace(negated_score=-score))
            else:
                lowered.append(candidate)
        return sorted(lowered)

    def _order_candidates(self, scores: Mapping[int, int]) -> list[_Candidate]:
        """Return the chunks with these scores, the best first."""
        candidates = []
        for row, score in scores.items():
            chunk = self._index.read_chunk(row)
            candidates.append(
                _Candidate(
                    negated_score=-score,
                    collection=self._index.find_collection(row),
                    doc_id=chunk.doc_id,
                    number=chunk.number,
                    row=row,
                    chunk=chunk,
                )
            )
        return sorted(candidates)

    def _merge_kinds(self, text: str, documents: _CandidateRanking, code: _CandidateRanking) -> list[_Candidate]:
        """Return documents and code as one ranked list."""
        from vmrag_link.retrieval import kinds  # many repositories have one kind

        vector_weight = round(fusion.FULL_WEIGHT * self._ranking.vector_weight)
        weights = fusion.weigh_nearness([documents.ranked.nearness, code.ranked.nearness], vector_weight)
        document_weight, code_weight = (weight.numerator for weight in weights)  # their denominators are equal
        if self._ranker.is_definition(code.request, code.candidates[0].row) or kinds.prefers_code(
            text, document_weight, code_weight
        ):
            return kinds.alternate_kinds(code.candidates, documents.candidates)
        return kinds.alternate_kinds(documents.candidates, code.candidates)

    def _make_hits(self, candidates: list[_Candidate], *, unit: float, digits: int) -> list[Hit]:
        texts = self._index.read_texts(candidate.row for candidate in candidates)
        hits = []
        for rank, candidate in enumerate(candidates, start=1):
            chunk = candidate.chunk
            metadata = msgspec.json.decode(chunk.metadata, type=dict[str, Any])
            collection = self._indexed[candidate.collection].collection
            if collection.is_code:
                pieces = metadata.pop(PIECES)  # already decoded; `parse_pieces` would decode them again
                metadata |= _describe_code(msgspec.convert(pieces[chunk.number], IndexedPiece), texts[candidate.row])
            if chunk.title:
                metadata.setdefault("title", chunk.title)
            hits.append(
                Hit(
                    rank=rank,
                    collection=candidate.collection,
                    doc_id=candidate.doc_id,
                    chunk=candidate.number,
                    chunks=chunk.chunks,
                    score=round(-candidate.negated_score / unit, digits),
                    text=texts[candidate.row],
                    content_hash=chunk.content_hash,
                    metadata=metadata,
                    table=collection.table,
                    kind=collection.content_kind,
                    also_in=candidate.also_in,
                )
            )
        return hits

    def _rank_by_cosine(self, query: Query, hits: list[Hit]) -> list[NearHit]:
        near_hits = [
            NearHit(hit, cosine) for hit, cosine in zip(hits, self._compute_cosines(query.text, hits), strict=True)
        ]
        near_hits.sort(
            key=lambda near_hit: (-near_hit.cosine, near_hit.hit.collection, near_hit.hit.doc_id, near_hit.hit.chunk)
        )
        return [
            NearHit(msgspec.structs.replace(near_hit.hit, rank=rank), near_hit.cosine)
            for rank, near_hit in enumerate(near_hits, start=1)
        ]

    @contextlib.contextmanager
    def _damage_errors(self) -> Iterator[None]:
        """Replace an error inside the block by `IndexFailed` if the files of a view are damaged.

        Other errors are bugs and pass through.
        """
        try:
            yield
        except sqlite3.Error as error:
            for folder in self._folders:
                view.require_verification(folder)
            raise unusable(self._folders[0], str(error)) from error
        except (ArithmeticError, LookupError, TypeError, ValueError, msgspec.DecodeError) as error:
            for folder in self._folders:
                if problem := view.find_mismatch(folder):
                    raise unusable(folder, problem) from error
            raise


def _describe_code(piece: IndexedPiece, text: str) -> dict[str, Any]:
    """Return the metadata of a piece of code. Its first and last line count from 1."""
    kind = piece.kind if piece.symbol else ""  # a text without symbols may have one (`languages.BY_LINES`)
    fields = {"symbol": piece.symbol, "symbol_kind": kind, "signature": piece.signature}
    last = piece.line + text.rstrip("\n").count("\n")
    return {"line": piece.line, "last_line": last} | {key: value for key, value in fields.items() if value}
