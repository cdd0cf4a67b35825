"""Answers from one index directory."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vmrag_link.embedding.base import Model
from vmrag_link.errors import CollectionMissing, EmbeddingMismatch
from vmrag_link.index import keywords, vectors
from vmrag_link.index.chroma import open_store
from vmrag_link.index.manifest import Held, HeldChunk, Manifest
from vmrag_link.index.store import unusable
from vmrag_link.models import Collection, Record
from vmrag_link.retrieval import filters, fusion


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


class Searcher:
    """One index directory, open for reading; nobody changes it meanwhile. `model_for` gives a collection's model."""

    def __init__(self, folder: Path, model_for: Callable[[Collection], Model]) -> None:
        self._folder = folder
        self._model_for = model_for
        try:
            self._manifest = Manifest(folder, frozen=True)
            self._words = keywords.connect(folder, frozen=True)
            self._held = self._manifest.collections()
        except sqlite3.Error as error:
            raise unusable(folder, str(error)) from error
        self._vectors: dict[int, Any] = {}

    def close(self) -> None:
        self._vectors.clear()
        self._words.close()
        self._manifest.close()

    def search(self, query: Query) -> list[Hit]:
        """The best `k` chunks. Raises `CollectionMissing`, `FilterInvalid`, `EmbeddingMismatch`."""
        among = self._filtered(query)
        depth = query.k if query.mode is not Mode.HYBRID else max(DEPTH, query.k)
        rankings = []
        if query.mode is not Mode.KEYWORD:
            rankings.append(self._by_vector(query, depth, among))
        if query.mode is not Mode.VECTOR:
            rankings.append(self._by_keyword(query, depth, among))
        if query.mode is Mode.HYBRID:
            return self._answer(_fused(rankings)[: query.k], digits=keywords.DIGITS)
        digits = 6 if query.mode is Mode.VECTOR else keywords.DIGITS
        return self._answer(rankings[0][: query.k], digits=digits, unit=UNIT if query.mode is Mode.VECTOR else 1.0)

    # -- rankings -----------------------------------------------------------------------------------------------------

    def _by_vector(self, query: Query, depth: int, among: dict[int, list[int]] | None) -> list[_Candidate]:
        embedded: dict[str, bytes] = {}
        found: list[tuple[Held, int, float]] = []
        for held in self._asked(query):
            model = self._model(held)
            if model.fingerprint not in embedded:
                embedded[model.fingerprint] = vectors.quantise(model.embed([query.text])[0])
            slots = None if among is None else [keywords.slot_of(row) for row in among[held.id]]
            best = self._exact(held).best(embedded[model.fingerprint], depth, among=slots)
            found += [(held, keywords.row_id(held.id, slot), score) for slot, score in best]
        return self._ordered(found)[:depth]

    def _by_keyword(self, query: Query, depth: int, among: dict[int, list[int]] | None) -> list[_Candidate]:
        found: list[tuple[Held, int, float]] = []
        for held in self._asked(query):
            allowed = None if among is None else frozenset(among[held.id])
            # A filter may take away any of the best ones, so with one all matches are ranked.
            hits = keywords.search(self._words, query.text, held.id, depth if allowed is None else max(1, held.slots))
            found += [(held, row, score) for row, score in hits if allowed is None or row in allowed]
        return self._ordered(found)[:depth]

    def _ordered(self, found: list[tuple[Held, int, float]]) -> list[_Candidate]:
        chunks = ((held, self._manifest.chunk(row), score) for held, row, score in found)
        return sorted(
            _Candidate(-score, held.collection.name, chunk.doc_id, chunk.number, chunk.row)
            for held, chunk, score in chunks
        )

    # -- parts --------------------------------------------------------------------------------------------------------

    def _asked(self, query: Query) -> list[Held]:
        if query.collections is None:
            return list(self._held.values())
        for name in query.collections:
            if name not in self._held:
                raise CollectionMissing(
                    f"There is no collection named {name!r} in this knowledge.",
                    hint="'vmrag list' shows what there is.",
                    collection_name=name,
                    collections=sorted(self._held),
                )
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

    def _exact(self, held: Held) -> Any:
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
        """The rows that pass the filters, by collection; None without filters. Chroma evaluates them."""
        where, where_document = filters.where(query.where), filters.where_document(query.where_document)
        if where is None and where_document is None:
            return None
        chroma = open_store(self._folder / "chroma")
        try:
            return {
                held.id: list(
                    self._manifest.rows_of(held, chroma.ids(held.chroma_id, where=where, where_document=where_document))
                )
                for held in self._asked(query)
            }
        finally:
            chroma.close()

    def _answer(self, ranked: list[_Candidate], *, digits: int, unit: float = 1.0) -> list[Hit]:
        texts = keywords.texts(self._words, [each.row for each in ranked])
        hits = []
        for rank, each in enumerate(ranked, start=1):
            chunk: HeldChunk = self._manifest.chunk(each.row)
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
