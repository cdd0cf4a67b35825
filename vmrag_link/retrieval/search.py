"""Answers from one index directory."""

from __future__ import annotations

import contextlib
import enum
import heapq
import sqlite3
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vmrag_link.embedding.base import Model
from vmrag_link.errors import EmbeddingMismatch, FilterInvalid, UsageInvalid
from vmrag_link.index import keywords, vectors
from vmrag_link.index.chroma import ChromaStore, open_store
from vmrag_link.index.manifest import Held, Manifest
from vmrag_link.index.store import unusable
from vmrag_link.models import Collection, Record
from vmrag_link.nearest import no_collection
from vmrag_link.retrieval import filters, fusion

if TYPE_CHECKING:
    from vmrag_link.retrieval.exact import ExactVectors


class Mode(enum.StrEnum):
    """How chunks are ranked: by words, by meaning, or by both (reciprocal rank fusion)."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


DEPTH = 100
"""How many chunks of each ranking take part in the fusion."""

UNIT = vectors.SCALE**2
"""The score of two equal unit vectors, before rounding."""


class Query(Record, frozen=True):
    """`collections` None = all of them; filters as people write them (`filters`)."""

    text: str
    collections: tuple[str, ...] | None = None
    k: int = 5
    mode: Mode = Mode.HYBRID
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None


class Hit(Record, frozen=True):
    """One chunk of an answer; `rank` counts from 1.

    `score` is about the cosine for `vector`, BM25 for `keyword`, the sum of reciprocal ranks for `hybrid`; higher is better.
    """

    rank: int
    collection: str
    doc_id: str
    chunk: int
    score: float
    text: str
    metadata: dict[str, Any]


class _Candidate(NamedTuple):
    """Sorts by score (negated), then collection, doc_id, chunk: the same on every machine, whatever the slots are."""

    negative: float
    collection: str
    doc_id: str
    number: int
    row: int


Scored = list[tuple[int, float]]
"""Rows (`keywords.row_id`) and their scores."""


class Searcher:
    """One index directory, open for reading; nobody changes it meanwhile. `model_for` gives a collection's model.

    What a query needs is loaded once and kept, so a long-lived searcher answers faster than a new one.
    """

    def __init__(self, folder: Path, model_for: Callable[[Collection], Model]) -> None:
        self._folder = folder
        self._model_for = model_for
        with contextlib.ExitStack() as opened:
            try:
                self._manifest = opened.enter_context(contextlib.closing(Manifest(folder, frozen=True)))
                self._words = opened.enter_context(contextlib.closing(keywords.connect(folder, frozen=True)))
                self._held = self._manifest.collections()
            except sqlite3.Error as error:
                raise unusable(folder, str(error)) from error
            self._opened = opened.pop_all()
        self._names = {held.id: name for name, held in self._held.items()}
        self._vectors: dict[int, ExactVectors] = {}
        self._first_slots: dict[int, dict[str, int]] = {}

    def close(self) -> None:
        self._vectors.clear()
        self._opened.close()

    def search(self, query: Query) -> list[Hit]:
        """The best `k` chunks. Raises `CollectionMissing`, `FilterInvalid`, `EmbeddingMismatch`, `UsageInvalid`, `IndexFailed`."""
        try:
            return self._search(query)
        except sqlite3.Error as error:  # of the right size, but damaged
            raise unusable(self._folder, str(error)) from error

    def _search(self, query: Query) -> list[Hit]:
        if query.k < 1:
            raise UsageInvalid(f"A query asks for at least one result, not {query.k}.", hint="vmrag query TEXT -k 5")
        among = self._filtered(query)
        if query.mode == Mode.VECTOR:
            return self._answer(self._by_vector(query, query.k, among), digits=6, unit=UNIT)
        if query.mode == Mode.KEYWORD:
            return self._answer(self._by_keyword(query, query.k, among), digits=keywords.DIGITS)
        depth = max(DEPTH, query.k)
        rankings = [self._by_vector(query, depth, among), self._by_keyword(query, depth, among)]
        return self._answer(_fused(rankings)[: query.k], digits=keywords.DIGITS)

    # -- rankings -----------------------------------------------------------------------------------------------------

    def _by_vector(self, query: Query, depth: int, among: dict[int, list[int]] | None) -> list[_Candidate]:
        embedded: dict[str, bytes] = {}
        found: Scored = []
        for held in self._asked(query):
            model = self._model(held)
            if model.fingerprint not in embedded:
                embedded[model.fingerprint] = vectors.quantise(model.embed([query.text])[0])
            slots = None if among is None else among[held.id]
            best = self._exact(held).best(embedded[model.fingerprint], depth, among=slots)
            found += [(keywords.row_id(held.id, slot), score) for slot, score in best]
        return self._ordered(found, depth)

    def _by_keyword(self, query: Query, depth: int, among: dict[int, list[int]] | None) -> list[_Candidate]:
        found: Scored = []
        for held in self._asked(query):
            if among is None:
                found += keywords.search(self._words, query.text, held.id, depth)
            else:  # a filter may take away any of the best ones, so all matches are ranked
                allowed = {keywords.row_id(held.id, slot) for slot in among[held.id]}
                hits = keywords.search(self._words, query.text, held.id, max(1, held.slots)) if allowed else []
                found += [hit for hit in hits if hit[0] in allowed]
        return self._ordered(found, depth)

    def _ordered(self, found: Scored, depth: int) -> list[_Candidate]:
        """The best `depth`, ties decided. Only what can be among them is looked up."""
        if len(found) > depth:
            lowest = heapq.nlargest(depth, (score for _, score in found))[-1]
            found = [hit for hit in found if hit[1] >= lowest]
        candidates = []
        for row, score in found:
            chunk = self._manifest.chunk(row)
            collection = self._names[keywords.collection_of(row)]
            candidates.append(_Candidate(-score, collection, chunk.doc_id, chunk.number, row))
        return sorted(candidates)[:depth]

    # -- parts --------------------------------------------------------------------------------------------------------

    def _asked(self, query: Query) -> list[Held]:
        if query.collections is None:
            return list(self._held.values())
        for name in query.collections:
            if name not in self._held:
                raise no_collection(name, sorted(self._held))
        return [self._held[name] for name in dict.fromkeys(query.collections)]

    def _model(self, held: Held) -> Model:
        model = self._model_for(held.collection)
        if model.fingerprint != held.collection.embedding_model:
            raise EmbeddingMismatch(
                f"Collection {held.collection.name!r} was embedded with {held.collection.embedding_model}, "
                f"but the installed model is {model.fingerprint}.",
                hint="Install the version of vmrag-link that made the collection, or import it again into a new one.",
            )
        return model

    def _exact(self, held: Held) -> ExactVectors:
        if held.id not in self._vectors:
            from vmrag_link.retrieval.exact import ExactVectors  # numpy: 0.1 s that keyword queries do not need

            self._vectors[held.id] = ExactVectors(
                self._folder / vectors.file_name(held.id),
                slots=held.slots,
                dimensions=held.collection.embedding_dimensions,
                dead=self._manifest.dead_slots(held),
            )
        return self._vectors[held.id]

    def _filtered(self, query: Query) -> dict[int, list[int]] | None:
        """The slots that pass the filters, by collection; None without filters. Chroma evaluates them."""
        where, where_document = filters.where(query.where), filters.where_document(query.where_document)
        if where is None and where_document is None:
            return None
        if where_document is not None and self._manifest.get("store_documents") == "false":
            raise FilterInvalid(
                "Filters on the text of chunks need the texts in Chroma, and this index was made without them.",
                hint="Set index.store_documents to true in .vmrag.yaml, then: vmrag sync",
            )
        return {
            held.id: self._slots(held, self._chroma.ids(held.chroma_id, where=where, where_document=where_document))
            for held in self._asked(query)
        }

    @cached_property
    def _chroma(self) -> ChromaStore:
        return self._opened.enter_context(contextlib.closing(open_store(self._folder / "chroma")))

    def _slots(self, held: Held, chunk_ids: list[str]) -> list[int]:
        """The slots of chunks named `<doc_id>_chunk_<n>`."""
        if held.id not in self._first_slots:
            self._first_slots[held.id] = self._manifest.first_slots(held)
        first = self._first_slots[held.id]
        parted = (chunk_id.rpartition("_chunk_") for chunk_id in chunk_ids)
        return [first[doc_id] + int(number) for doc_id, _, number in parted]

    def _answer(self, ranked: list[_Candidate], *, digits: int, unit: float = 1.0) -> list[Hit]:
        texts = keywords.texts(self._words, [each.row for each in ranked])
        hits = []
        for rank, each in enumerate(ranked, start=1):
            chunk = self._manifest.chunk(each.row)
            metadata = msgspec.json.decode(chunk.metadata, type=dict[str, Any])
            if chunk.title:
                metadata.setdefault("title", chunk.title)
            score = round(-each.negative / unit, digits)
            hits.append(Hit(rank, each.collection, each.doc_id, each.number, score, texts[each.row], metadata))
        return hits


def _fused(rankings: list[list[_Candidate]]) -> list[_Candidate]:
    """Reciprocal ranks summed; ties by collection, doc_id, chunk."""
    scores = fusion.fuse([[each[1:] for each in ranking] for ranking in rankings])
    return sorted(_Candidate(-score, *place) for place, score in scores.items())
