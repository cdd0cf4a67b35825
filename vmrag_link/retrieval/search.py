"""Answers from one index directory."""

from __future__ import annotations

import array
import contextlib
import heapq
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vmrag_link.embedding.base import Model
from vmrag_link.errors import UsageInvalid
from vmrag_link.index import keywords, seal, vectors
from vmrag_link.index.contents import unusable
from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import Collection, canonical_json
from vmrag_link.retrieval import filters, fusion
from vmrag_link.retrieval.filtered import ChunkFilter
from vmrag_link.retrieval.query import Hit, Mode, Near, Query
from vmrag_link.retrieval.query_vectors import QueryVectors
from vmrag_link.retrieval.stored_vectors import stored_vectors
from vmrag_link.suggest import no_collection

if TYPE_CHECKING:
    from vmrag_link.embedding.cache import EmbeddingCache
    from vmrag_link.retrieval.exact import ExactVectors


DEPTH = 100
"""How many chunks of each ranking take part in the fusion."""

DIGITS = 6
"""Of scores by vectors."""

UNIT = vectors.SCALE**2
"""The score of two equal unit vectors, before rounding."""


class _Candidate(NamedTuple):
    """Sorts by score (negated), collection, doc_id, chunk: the same on every machine, whatever the
    slots.
    """

    negative: float
    collection: str
    doc_id: str
    number: int
    row: int


Scored = list[tuple[int, float]]
"""Rows (`keywords.row_id`) and their scores."""


class Searcher:
    """One index directory, open for reading; nobody changes it meanwhile. `model_for` gives a
    collection's model.

    Several queries to one searcher share vectors, models and filters.
    """

    def __init__(self, folder: Path, model_for: Callable[[Collection], Model]) -> None:
        self._folder = folder
        with contextlib.ExitStack() as opened:
            with self._damage_errors():
                self._manifest = opened.enter_context(contextlib.closing(Manifest(folder, frozen=True)))
                self._words = opened.enter_context(contextlib.closing(keywords.connect(folder, frozen=True)))
                self._held = self._manifest.collections()
                self._query_vectors = QueryVectors(model_for, self._manifest.unembedded())
            self._opened = opened.pop_all()
        self._names = {held.id: name for name, held in self._held.items()}
        self._vectors: dict[int, ExactVectors] = {}
        self._passing: dict[str, dict[int, list[int]]] = {}

    def close(self) -> None:
        self._vectors.clear()
        self._opened.close()

    def search(self, query: Query) -> list[Hit]:
        """The best `k` chunks.

        Raises `CollectionMissing`, `FilterInvalid`, `EmbeddingMismatch`, `UsageInvalid`,
        `IndexFailed`.
        """
        with self._damage_errors():
            return self._search(query)

    def nearest(self, query: Query) -> list[Near]:
        """As `search` by vectors of one collection, ranked again by exact cosines.

        Raises the same.
        """
        hits = self.search(msgspec.structs.replace(query, mode=Mode.VECTOR))
        with self._damage_errors():
            return self._by_cosine(query, hits) if hits else []

    def _by_cosine(self, query: Query, hits: list[Hit]) -> list[Near]:
        [held] = self._collections(query)
        places = self._manifest.slots_of({(hit.collection, hit.doc_id): None for hit in hits})
        slots = [places[hit.collection, hit.doc_id][hit.chunk] for hit in hits]
        cosines = self._exact(held).cosines(self._query_vectors.of(held, query.text), slots)
        near = [Near(hit, round(cosine, DIGITS)) for hit, cosine in zip(hits, cosines, strict=True)]
        near.sort(key=lambda each: (-each.cosine, each.hit.doc_id, each.hit.chunk))
        return [
            Near(msgspec.structs.replace(each.hit, rank=rank), each.cosine) for rank, each in enumerate(near, start=1)
        ]

    def collection(self, name: str) -> Collection | None:
        """The definition with which the index was made."""
        held = self._held.get(name)
        return held.collection if held else None

    def chunks_of(self, collection: str, doc_ids: Sequence[str]) -> dict[str, int]:
        """The number of chunks of each of these documents that the index holds.

        Raises `IndexFailed`.
        """
        with self._damage_errors():
            return self._manifest.chunks_of(collection, doc_ids)

    @contextlib.contextmanager
    def _damage_errors(self) -> Iterator[None]:
        """Raise `IndexFailed` for an error that damaged files explain. Any other error is a bug."""
        try:
            yield
        except sqlite3.Error as error:
            seal.distrust(self._folder)
            raise unusable(self._folder, str(error)) from error
        except (ArithmeticError, LookupError, TypeError, ValueError, msgspec.DecodeError) as error:
            if problem := seal.mismatch(self._folder):
                raise unusable(self._folder, problem) from error
            raise

    def embeddings(self, collection: str, chunk_ids: Sequence[str], cache: EmbeddingCache) -> dict[str, list[float]]:
        """The vectors of those of these chunks that are there, by `index.metadata.chunk_id`.

        Raises `IndexFailed`, why a collection has nothing but stand-ins, and as `stored_vectors`.
        """
        if not chunk_ids:
            return {}
        held = self._held[collection]
        with self._damage_errors():
            slots = self._slots_of(collection, chunk_ids)
            texts = keywords.texts(self._words, [keywords.row_id(held.id, slot) for slot in slots.values()])
        model = self._query_vectors.stored_with(held)
        by_slot = {keywords.slot_of(row): text for row, text in texts.items()}
        found = stored_vectors(self._folder, held, by_slot, model=model, cache=cache)
        return {name: array.array("f", found[slot]).tolist() for name, slot in slots.items()}

    def _slots_of(self, collection: str, chunk_ids: Sequence[str]) -> dict[str, int]:
        """The slots of those of these chunks that are there."""
        parsed = {name: place for name in chunk_ids if (place := parse_chunk_id(name))}
        there = self._manifest.chunks_of(collection, {doc_id for doc_id, _ in parsed.values()})
        spans = self._manifest.slots_of((collection, doc_id) for doc_id in there)
        return {
            name: spans[collection, doc_id][number]
            for name, (doc_id, number) in parsed.items()
            if number < there.get(doc_id, 0)
        }

    def _search(self, query: Query) -> list[Hit]:
        if query.k < 1:
            raise UsageInvalid(f"A query asks for at least one result, not {query.k}.", hint="vmrag query TEXT -k 5")
        among = self._filtered_slots(query)
        if query.mode == Mode.VECTOR:
            return self._answer(self._by_vector(query, query.k, among), digits=DIGITS, unit=UNIT)
        if query.mode == Mode.KEYWORD:
            return self._answer(self._by_keyword(query, query.k, among), digits=keywords.DIGITS)
        depth = max(DEPTH, query.k)
        rankings = [self._by_vector(query, depth, among), self._by_keyword(query, depth, among)]
        return self._answer(_fuse(rankings)[: query.k], digits=keywords.DIGITS)

    # -- rankings ----------------------------------------------------------------------------------

    def _by_vector(self, query: Query, depth: int, among: dict[int, list[int]] | None) -> list[_Candidate]:
        found: Scored = []
        for held in self._collections(query):
            slots = None if among is None else among[held.id]
            best = self._exact(held).best(self._query_vectors.of(held, query.text), depth, among=slots)
            found += [(keywords.row_id(held.id, slot), score) for slot, score in best]
        return self._ordered(found, depth)

    def _by_keyword(self, query: Query, depth: int, among: dict[int, list[int]] | None) -> list[_Candidate]:
        found: Scored = []
        for held in self._collections(query):
            if among is None:
                found += keywords.search(self._words, query.text, held.id, depth)
            else:  # a filter may exclude any of the best ones, so all matches are ranked
                allowed = {keywords.row_id(held.id, slot) for slot in among[held.id]}
                hits = keywords.search(self._words, query.text, held.id, max(1, held.slots)) if allowed else []
                found += [hit for hit in hits if hit[0] in allowed]
        return self._ordered(found, depth)

    def _ordered(self, found: Scored, depth: int) -> list[_Candidate]:
        """The best `depth`, ties broken. Only possible ones are looked up."""
        if len(found) > depth:
            lowest = heapq.nlargest(depth, (score for _, score in found))[-1]
            found = [hit for hit in found if hit[1] >= lowest]
        candidates = []
        for row, score in found:
            chunk = self._manifest.chunk(row)
            collection = self._names[keywords.collection_of(row)]
            candidates.append(_Candidate(-score, collection, chunk.doc_id, chunk.number, row))
        return sorted(candidates)[:depth]

    # -- parts -------------------------------------------------------------------------------------

    def _collections(self, query: Query) -> list[IndexedCollection]:
        if query.collections is None:
            return list(self._held.values())
        for name in query.collections:
            if name not in self._held:
                raise no_collection(name, sorted(self._held))
        return [self._held[name] for name in dict.fromkeys(query.collections)]

    def _exact(self, held: IndexedCollection) -> ExactVectors:
        if held.id not in self._vectors:
            from vmrag_link.retrieval.exact import ExactVectors  # numpy: 0.1 s that keyword queries do not need

            self._vectors[held.id] = ExactVectors(
                self._folder / vectors.file_name(held.id),
                slots=held.slots,
                dimensions=held.collection.embedding_dimensions,
                dead=self._manifest.dead_slots(held),
            )
        return self._vectors[held.id]

    def _filtered_slots(self, query: Query) -> dict[int, list[int]] | None:
        """The slots that pass the filters, by collection id; None without filters."""
        where, where_document = filters.where(query.where), filters.where_document(query.where_document)
        if where is None and where_document is None:
            return None
        key = canonical_json((query.collections, where, where_document))
        if key not in self._passing:
            passing, texts = ChunkFilter(where, where_document), partial(keywords.scan, self._words)
            self._passing[key] = {
                held.id: passing.slots(held, self._manifest, texts) for held in self._collections(query)
            }
        return self._passing[key]

    def _answer(self, ranked: list[_Candidate], *, digits: int, unit: float = 1.0) -> list[Hit]:
        texts = keywords.texts(self._words, [each.row for each in ranked])
        hits = []
        for rank, each in enumerate(ranked, start=1):
            chunk = self._manifest.chunk(each.row)
            metadata = msgspec.json.decode(chunk.metadata, type=dict[str, Any])
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
                )
            )
        return hits


def _fuse(rankings: list[list[_Candidate]]) -> list[_Candidate]:
    """Reciprocal ranks summed; ties by collection, doc_id, chunk."""
    scores = fusion.fuse([[each[1:] for each in ranking] for ranking in rankings])
    return sorted(_Candidate(-score, *place) for place, score in scores.items())
