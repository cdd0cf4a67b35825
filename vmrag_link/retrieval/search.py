"""Answers from one index."""

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
from vmrag_link.retrieval.distinct import MORE, MOST, DistinctResults
from vmrag_link.retrieval.fusion import DEFAULT_RANKING, Ranking
from vmrag_link.retrieval.query import FIRST_HITS, Hit, Mode, NearHit, Query, QueryVectors, to_similarity
from vmrag_link.retrieval.ranker import Ranked, Ranker, RankingRequest

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.cache import EmbeddingCache
    from vmrag_link.retrieval.narrowed import RowFilter


DIGITS = {Mode.HYBRID: 6, Mode.VECTOR: 6, Mode.KEYWORD: 9}
"""Of scores that are shown. Where all chunks hold a word, BM25 differs in the seventh only."""


class _Candidate(NamedTuple):
    """Sorts by score (negated), collection, doc_id, chunk: the same on every machine, whatever the
    rows.
    """

    negative: int
    collection: str
    doc_id: str
    number: int
    row: int
    chunk: IndexedChunk


class _Ranking(NamedTuple):
    """Chunks of some collections, the best first."""

    asked: RankingRequest
    ranked: Ranked
    candidates: list[_Candidate]
    also_in: Mapping[int, tuple[str, ...]]
    """Translations and copies of a chunk, by row."""


class Searcher:
    """The index of a view, open for reading; nobody changes it meanwhile. `model_for` gives a
    collection's model.

    `more`: views that are asked together with it. Several queries to one searcher share vectors,
    models and filters.
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
        with contextlib.ExitStack() as opened:
            with self._damage_errors():
                self._index = opened.enter_context(IndexReader.open(*self._folders))
                self._held = self._index.list_collections
                self._query_vectors = QueryVectors(model_for, self._index.view.unembedded)
                ranker = Ranker(self._index, self._query_vectors, ranking)
                self._ranker = opened.enter_context(contextlib.closing(ranker))
            self._opened = opened.pop_all()
        self._unnamed = [name for name, held in self._held.items() if held.collection.is_searched_by_default]
        self._distinct = DistinctResults(self._index)
        self._passing: dict[str, dict[str, list[int]]] = {}

    def close(self) -> None:
        self._opened.close()

    def search(self, query: Query) -> list[Hit]:
        """The best `k` chunks.

        Raises `CollectionMissing`, `FilterInvalid`, `EmbeddingMismatch`, `UsageInvalid`,
        `IndexFailed`.
        """
        with self._damage_errors():
            return self._search(query, self._ranking.per_document, diverse=True)

    def prepare_queries(self, queries: Iterable[Query]) -> None:
        """Embed the texts of all these queries at once, before they are asked one by one. What
        cannot be asked is left to `search`.

        Raises `EmbeddingMismatch`, `EmbeddingFailed`, `IndexFailed`.
        """
        texts: dict[str, list[str]] = {}
        for query in queries:
            if query.mode != Mode.KEYWORD:
                for name in self._unnamed if query.collections is None else query.collections:
                    texts.setdefault(name, []).append(query.text)
        for name, text in texts.items():
            if name in self._held:
                self._query_vectors.prepare_texts(self._held[name], text)

    def find_nearest(self, query: Query, *, per_document: int = 0) -> list[NearHit]:
        """Search by vectors, and rank the hits again by exact cosines: of each document at
        most `per_document` chunks; 0: any number.

        Raises as `search`.
        """
        with self._damage_errors():
            hits = self._search(msgspec.structs.replace(query, mode=Mode.VECTOR), per_document, diverse=False)
            return self._by_cosine(query, hits) if hits else []

    def rank_groups(
        self, collection: str, text: str, group_of: Callable[[DocumentHeader], str | None]
    ) -> dict[str, float]:
        """Groups of a collection's documents with their similarities to a text, the nearest first.

        A group's vector is the mean of its documents'. A document of no group is left out. Raises
        `EmbeddingMismatch`, `EmbeddingFailed`, `IndexFailed`.
        """
        with self._damage_errors():
            groups: dict[str, list[int]] = {}
            held = self._held.get(collection)
            for header, rows in self._index.list_documents(collection):
                if (group := group_of(header)) is not None:
                    groups.setdefault(group, []).extend(rows)
            if held is None or not groups:
                return {}
            exact, asked = self._ranker.open_vectors(held), self._query_vectors.embed_query(held, text)
            near = {group: to_similarity(exact.compute_mean_cosine(asked, rows)) for group, rows in groups.items()}
        return dict(sorted(near.items(), key=lambda each: (-each[1], each[0])))

    def _by_cosine(self, query: Query, hits: list[Hit]) -> list[NearHit]:
        near = [NearHit(hit, cosine) for hit, cosine in zip(hits, self._cosines(query.text, hits), strict=True)]
        near.sort(key=lambda each: (-each.cosine, each.hit.collection, each.hit.doc_id, each.hit.chunk))
        return [
            NearHit(msgspec.structs.replace(each.hit, rank=rank), each.cosine)
            for rank, each in enumerate(near, start=1)
        ]

    def compute_cosines(self, text: str, hits: Sequence[Hit]) -> list[float]:
        """The exact cosine of each hit's vector and the text's. Raises as `search`."""
        with self._damage_errors():
            return self._cosines(text, hits)

    def _cosines(self, text: str, hits: Sequence[Hit]) -> list[float]:
        places = self._index.find_rows({(hit.collection, hit.doc_id): None for hit in hits})
        found: dict[int, float] = {}
        for name in {hit.collection for hit in hits}:
            held, numbers = self._held[name], [at for at, hit in enumerate(hits) if hit.collection == name]
            rows = [places[name, hits[at].doc_id][hits[at].chunk] for at in numbers]
            cosines = self._ranker.open_vectors(held).compute_cosines(self._query_vectors.embed_query(held, text), rows)
            found |= zip(numbers, cosines, strict=True)
        return [round(found[at], DIGITS[Mode.VECTOR]) for at in range(len(hits))]

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

            asked = self._collections(query)
            names = [held.collection.name for held in asked]
            holding = {
                tuple(term): len(self._index.find_rows_with_word(term, names))
                for term in keywords.find_query_terms(query.text)
            }
            texts = sum(held.chunks for held in asked)
            if query.mode == Mode.KEYWORD:
                return not any(weakness.covers_question(hit, holding, texts) for hit in first)
            return not weakness.shares_rare_word(hits[0], holding, texts)

    def _is_near(self, text: str, hits: Sequence[Hit]) -> bool:
        """Return whether a cosine reaches the limit of unrelated texts, or there is no limit."""
        limits = [self._query_vectors.load_stored_model(self._held[hit.collection]).unrelated for hit in hits]
        cosines = self._cosines(text, hits)
        return any(limit is None or cosine >= limit for limit, cosine in zip(limits, cosines, strict=True))

    def list_collections(self) -> list[Collection]:
        """The definitions with which the index was made, by name."""
        return [self._held[name].collection for name in sorted(self._held)]

    def find_collection(self, name: str) -> Collection | None:
        """The definition with which the index was made."""
        held = self._held.get(name)
        return held.collection if held else None

    def count_chunks(self, collection: str, doc_ids: Sequence[str]) -> dict[str, int]:
        """The number of chunks of each of these documents that the index holds.

        Raises `IndexFailed`.
        """
        with self._damage_errors():
            return self._index.count_chunks(collection, doc_ids)

    @contextlib.contextmanager
    def _damage_errors(self) -> Iterator[None]:
        """Raise `IndexFailed` for an error that damaged files explain. Any other error is a bug."""
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

    def read_embeddings(
        self, collection: str, chunk_ids: Sequence[str], cache: EmbeddingCache
    ) -> dict[str, list[float]]:
        """The vectors of those of these chunks that are there, by `index.metadata.chunk_id`.

        Raises `IndexFailed`, why a collection has nothing but stand-ins, and as `stored_vectors`.
        """
        from vmrag_link.retrieval.query import restore_vectors

        if not chunk_ids:
            return {}
        held = self._held[collection]
        with self._damage_errors():
            rows = self._rows_of(collection, chunk_ids)
            texts = self._index.read_texts(rows.values())
        model = self._query_vectors.load_stored_model(held)
        found = restore_vectors(self._index, held, texts, model=model, cache=cache)
        return {name: array.array("f", found[row]).tolist() for name, row in rows.items()}

    def _rows_of(self, collection: str, chunk_ids: Sequence[str]) -> dict[str, int]:
        """The rows of those of these chunks that are there."""
        parsed = {name: place for name in chunk_ids if (place := parse_chunk_id(name))}
        there = self._index.find_rows((collection, doc_id) for doc_id in {doc_id for doc_id, _ in parsed.values()})
        return {
            name: there[collection, doc_id][number]
            for name, (doc_id, number) in parsed.items()
            if number < len(there.get((collection, doc_id), ()))
        }

    def _search(self, query: Query, per_document: int, *, diverse: bool) -> list[Hit]:
        """Return the best `k` chunks.

        `diverse`: rank documents and code apart, and show the translations and copies of a page as
        one result.
        """
        if query.k < 1:
            raise UsageInvalid(f"A query asks for at least one result, not {query.k}.", hint="vmrag query TEXT -k 5")
        collections = self._collections(query)
        documents = [held for held in collections if not held.collection.is_code]
        code = [held for held in collections if held.collection.is_code]
        parts = [documents, code] if diverse and documents and code else [collections]
        rankings = [self._rank_collections(query, part, per_document, diverse=diverse) for part in parts]
        if len(rankings) > 1 and all(ranking.candidates for ranking in rankings):
            candidates = self._merge_kinds(query.text, *rankings)
        else:
            candidates = [candidate for ranking in rankings for candidate in ranking.candidates]
        chosen = candidates[: query.k]
        hits = self._answer(chosen, unit=rankings[0].ranked.unit, digits=DIGITS[query.mode])
        also_in = {row: others for ranking in rankings for row, others in ranking.also_in.items()}
        if not also_in:
            return hits
        pairs = zip(hits, chosen, strict=True)
        return [msgspec.structs.replace(hit, also_in=also_in.get(candidate.row, ())) for hit, candidate in pairs]

    def _rank_collections(
        self, query: Query, collections: list[IndexedCollection], per_document: int, *, diverse: bool
    ) -> _Ranking:
        among = self._filtered_rows(query)
        of_paths = bool(query.narrowing and query.narrowing.paths)
        asked = RankingRequest(query.text, collections, among, of_paths=of_paths)
        if diverse:
            return self._rank_distinct(asked, query, per_document)
        ranked = self._ranker.rank_best(asked, query.mode, query.k, per_document=per_document)
        return _Ranking(asked, ranked, self._ordered(ranked.scores)[: query.k], {})

    def _merge_kinds(self, text: str, documents: _Ranking, code: _Ranking) -> list[_Candidate]:
        """Return documents and code as one ranked list."""
        from vmrag_link.retrieval import kinds  # many repositories have one kind

        by_vector = round(fusion.FULL_WEIGHT * self._ranking.vector_weight)
        of_documents, of_code = fusion.weigh_nearness([documents.ranked.nearness, code.ranked.nearness], by_vector)
        defines = self._ranker.is_definition(code.asked, code.candidates[0].row)
        if defines or kinds.prefers_code(text, of_documents[0], of_code[0]):
            return kinds.alternate_kinds(code.candidates, documents.candidates)
        return kinds.alternate_kinds(documents.candidates, code.candidates)

    def _rank_distinct(self, asked: RankingRequest, query: Query, per_document: int) -> _Ranking:
        """Return the best `k` chunks, without translations and copies of each other."""
        depth = query.k + MORE
        while True:
            ranked = self._ranker.rank_best(asked, query.mode, depth, per_document=per_document)
            candidates = self._ordered(ranked.scores)[:depth]
            if query.mode == Mode.HYBRID and not asked.of_paths:
                candidates = self._lower_data(candidates, query.text)
            results = self._distinct.choose_results(candidates, query.text, query.k)
            if len(results) == query.k or len(candidates) < depth or depth >= MOST:
                break
            depth *= 4  # translations and copies fill the ranking
        chosen = [candidates[result.position]._replace(negative=result.negative) for result in results]
        also_in = {candidates[result.position].row: result.also_in for result in results if result.also_in}
        return _Ranking(asked, ranked, chosen, also_in)

    def _lower_data(self, ranked: Iterable[_Candidate], question: str) -> list[_Candidate]:
        """Return ranked passages, with data after text of about the same score.

        The ranking of code has lowered data already.
        """
        from vmrag_link.retrieval import prose  # a ranking by words or vectors alone has no such signals

        lowered: list[_Candidate] = []
        for candidate in ranked:
            is_code = self._held[candidate.collection].collection.is_code
            factor = prose.FULL_FACTOR if is_code else prose.compute_factor(self._index.read_text(candidate.row))
            is_data = factor < prose.FULL_FACTOR and candidate.negative < 0
            if is_data and not prose.names_file(question, candidate.doc_id):
                score = -candidate.negative * factor // prose.FULL_FACTOR
                lowered.append(candidate._replace(negative=-score))
            else:
                lowered.append(candidate)
        return sorted(lowered)

    def _ordered(self, scores: Mapping[int, int]) -> list[_Candidate]:
        """The best first, ties broken."""
        candidates = []
        for row, score in scores.items():
            chunk = self._index.read_chunk(row)
            candidates.append(
                _Candidate(-score, self._index.find_collection(row), chunk.doc_id, chunk.number, row, chunk)
            )
        return sorted(candidates)

    # -- parts -------------------------------------------------------------------------------------

    def _collections(self, query: Query) -> list[IndexedCollection]:
        if query.collections is None:
            return [self._held[name] for name in self._unnamed]
        for name in query.collections:
            if name not in self._held:
                raise no_collection(name, sorted(self._held))
        return [self._held[name] for name in dict.fromkeys(query.collections)]

    def _filtered_rows(self, query: Query) -> dict[str, list[int]] | None:
        """The rows that pass the filters, by collection; None without filters."""
        if query.where is None and query.where_document is None and query.narrowing is None:
            return None
        from vmrag_link.retrieval import filters

        where, where_document = (
            filters.normalize_where(query.where),
            filters.normalize_where_document(query.where_document),
        )
        if where is None and where_document is None and query.narrowing is None:
            return None
        from vmrag_link.retrieval.narrowed import ChunkFilter, NarrowingFilter, intersect_rows

        key = encode_canonical_json((query.collections, where, where_document, query.narrowing))
        if key not in self._passing:
            passing: list[RowFilter] = [NarrowingFilter(query.narrowing)] if query.narrowing else []
            if where is not None or where_document is not None:
                passing.append(ChunkFilter(where, where_document))
            names = [held.collection.name for held in self._collections(query)]
            self._passing[key] = {name: intersect_rows(passing, self._index, name) for name in names}
        return self._passing[key]

    def _answer(self, ranked: list[_Candidate], *, unit: float, digits: int) -> list[Hit]:
        texts = self._index.read_texts(each.row for each in ranked)
        hits = []
        for rank, each in enumerate(ranked, start=1):
            chunk = each.chunk
            metadata = msgspec.json.decode(chunk.metadata, type=dict[str, Any])
            held = self._held[each.collection].collection
            if held.is_code:
                pieces = metadata.pop(PIECES)  # decoded with the rest: `pieces_of` would do it again for each hit
                metadata |= _of_code(msgspec.convert(pieces[chunk.number], IndexedPiece), texts[each.row])
            if chunk.title:
                metadata.setdefault("title", chunk.title)
            score = round(-each.negative / unit, digits)
            hits.append(
                Hit(
                    rank=rank,
                    collection=each.collection,
                    doc_id=each.doc_id,
                    chunk=each.number,
                    chunks=chunk.chunks,
                    score=score,
                    text=texts[each.row],
                    content_hash=chunk.content_hash,
                    metadata=metadata,
                    table=held.table,
                    kind=held.content_kind,
                )
            )
        return hits


def _of_code(piece: IndexedPiece, text: str) -> dict[str, Any]:
    """What the metadata of a piece of code says of it: its first and last line count from 1."""
    kind = piece.kind if piece.symbol else ""  # a text without symbols may have one (`languages.BY_LINES`)
    named = {"symbol": piece.symbol, "symbol_kind": kind, "signature": piece.signature}
    last = piece.line + text.rstrip("\n").count("\n")
    return {"line": piece.line, "last_line": last} | {key: value for key, value in named.items() if value}
