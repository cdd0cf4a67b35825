"""A query, its answers, and the vectors that it compares: those of its text, by the models of the
collections that it asks; and, as float32, those of an index's chunks, for tools that show them and
for Chroma's store.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from vmrag_link import models
from vmrag_link.errors import EmbeddingMismatch, IndexFailed
from vmrag_link.index import flat_files
from vmrag_link.index.metadata import PROVENANCE, build_chunk_metadata
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import ContentKind, Distance, DocumentHeader, DocumentTable, Record, content_hash
from vmrag_link.retrieval.narrowing import Narrowing

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model, Vector
    from vmrag_link.embedding.cache import EmbeddingCache

MOST_NEIGHBOURS = 5

LEAST_BUDGET = 100
"""Tokens of a packed answer: a head line, and a few lines."""

MOST_BUDGET = 1_000_000

FIRST_HITS = 3
"""Hits that decide whether an answer is weak, and as many as a weak answer shows."""

MOST_HITS = 200
"""The ranked pieces that are looked at for one, where nobody says how many."""


TITLES: Mapping[ContentKind, str] = {"document": "Documentation", "code": "Code"}
"""Titles of groups of results."""


class Mode(enum.StrEnum):
    """How chunks are ranked: by words (the chunk's own and its document's), by meaning, or by both
    (`fusion`).
    """

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


class Query(Record, frozen=True):
    """`collections`: None for all but those of kind `system`, in which tools write for themselves.

    Filters are as people write them (see `filters`); `narrowing` counts beside them.
    """

    text: str
    collections: tuple[str, ...] | None = None
    k: int = 5
    mode: Mode = Mode.HYBRID
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None
    narrowing: Narrowing | None = None


class Hit(Record, frozen=True):
    """One chunk of an answer; `rank` counts from 1. Its document is in `table`, and has
    `content_hash` and `chunks` chunks.

    A higher `score` is better: nearly the cosine for `vector`; BM25 of the chunk and, weighted, of
    its document for `keyword`; for `hybrid` the weighted share of the best scores of this query by
    words and by meaning, 1 for a chunk that is the best by both. If documents and code answer, each
    kind has scores of its own, and `rank` gives both kinds places.
    """

    rank: int
    collection: str
    doc_id: str
    chunk: int
    chunks: int
    score: float
    text: str
    content_hash: str
    metadata: dict[str, Any]
    table: DocumentTable = "documents"
    kind: ContentKind = "document"
    also_in: tuple[str, ...] = ()
    """Other places of the result: languages of further translations, and paths of the original and
    of copies.

    They have no results of their own.
    """

    @property
    def placed_metadata(self) -> dict[str, Any]:
        """The metadata with the chunk's place in its document, as the index stores it."""
        document = DocumentHeader(self.collection, self.doc_id, "", self.content_hash, "")
        return self.metadata | build_chunk_metadata(document, self.table, self.chunk, self.chunks)

    @property
    def shown_metadata(self) -> dict[str, Any]:
        """The same without what names the document elsewhere in an answer (`PROVENANCE`)."""
        return {key: value for key, value in self.placed_metadata.items() if key not in PROVENANCE}


class HasKind(Protocol):
    """A result with a kind: document or code."""

    @property
    def kind(self) -> ContentKind: ...


K = TypeVar("K", bound=HasKind)


def group_by_kind(results: Sequence[K]) -> list[tuple[str, K]]:
    """Return the results by kind, and begin with the kind of the first result.

    Each result has the title of the group that it begins, or an empty text. If all results have one
    kind, there are no titles.
    """
    groups: dict[ContentKind, list[K]] = {}
    for result in results:
        groups.setdefault(result.kind, []).append(result)
    titles = {kind: TITLES[kind] if len(groups) > 1 else "" for kind in groups}
    return [("" if number else titles[kind], row) for kind, some in groups.items() for number, row in enumerate(some)]


class NearHit(Record, frozen=True):
    """A hit, with the cosine of its vector and the query's."""

    hit: Hit
    cosine: float

    @property
    def similarity(self) -> float:
        return to_similarity(self.cosine)


def to_distance(space: Distance, cosine: float) -> float:
    """As Chroma has it between unit vectors: l2 is squared.

    Never below zero, where rounding might take it.
    """
    return max(0.0, round((2 if space == "l2" else 1) * (1 - cosine), 6))


def to_similarity(cosine: float) -> float:
    """A cosine as people are shown it: 0 to 1; `1 - distance`, in l2 `1 - distance / 2`."""
    return round(min(1.0, max(0.0, cosine)), 4)


class QueryVectors:
    """Embeds the text of the latest query, and those that were prepared, once for each model.

    `unembedded` collections hold stand-ins only.
    """

    def __init__(self, model_for: Callable[[models.Collection], Model], unembedded: Collection[str]) -> None:
        self._model_for = model_for
        self._unembedded = unembedded
        self._known: dict[str, dict[str, bytes]] = {}
        """By text and model."""

    def embed_query(self, held: IndexedCollection, text: str) -> bytes:
        """Raises as `stored_with`."""
        model = self.load_stored_model(held)
        if text not in self._known:
            self._known = {text: {}}
        known = self._known[text]
        if model.fingerprint not in known:
            self._embed(model, [text])
        return known[model.fingerprint]

    def prepare_texts(self, held: IndexedCollection, texts: Collection[str]) -> None:
        """Embed at once texts of which `of` is going to be asked, before any other. Raises the
        same.
        """
        model = self.load_stored_model(held)
        self._embed(
            model, [text for text in dict.fromkeys(texts) if model.fingerprint not in self._known.get(text, {})]
        )

    def _embed(self, model: Model, texts: list[str]) -> None:
        found = model.embed_queries(texts) if texts else []
        for text, vector in zip(texts, found, strict=True):
            self._known.setdefault(text, {})[model.fingerprint] = flat_files.quantise(vector)

    def load_stored_model(self, held: IndexedCollection) -> Model:
        """The model that made the collection's vectors.

        Raises `EmbeddingMismatch`. Where the index holds only stand-ins, the error says why they
        still cannot be made, or is `IndexFailed` where they can by now: an index that is built
        again has them.
        """
        model = self._model(held)
        self._require_stored(held, model)
        return model

    def _require_stored(self, held: IndexedCollection, model: Model) -> None:
        name = held.collection.name
        if name in self._unembedded:
            model.embed([name])
            raise IndexFailed(
                f"The documents of collection {name!r} could not be embedded when the index was made.",
                hint="vmrag sync --rebuild",
                collection_name=name,
            )

    def _model(self, held: IndexedCollection) -> Model:
        model = self._model_for(held.collection)
        if model.fingerprint != held.collection.embedding_model:
            raise EmbeddingMismatch(
                f"Collection {held.collection.name!r} was embedded with {held.collection.embedding_model}, "
                f"but the installed model is {model.fingerprint}.",
                hint="Install the version of vmrag-link that made the collection, or import it again into a new one.",
            )
        return model


def restore_vectors(
    index: IndexReader, held: IndexedCollection, texts: Mapping[int, str], *, model: Model, cache: EmbeddingCache
) -> dict[int, Vector]:
    """The vectors of chunks of one collection, by row; `texts` are these chunks' own.

    The index holds whole numbers, and as float32 only what cannot be made again. All else comes
    from the cache, or from the local model once more. No service is asked. Raises `IndexFailed`
    where a service's vectors are not there, and what the model and the cache raise.
    """
    found = index.read_floats(texts)
    hashes = {row: content_hash(text) for row, text in texts.items() if row not in found}
    if hashes and not model.local:
        raise IndexFailed(
            f"{len(hashes)} vectors of collection {held.collection.name!r}, which the embedding service "
            f"{model.name} made, are not in the index.",
            hint="vmrag sync --rebuild",
            collection_name=held.collection.name,
        )
    if hashes:
        from vmrag_link.embedding.cache import embed_texts  # no query asks for these vectors

        made, _ = embed_texts(cache, model, {name: texts[row] for row, name in hashes.items()})
        found |= {row: made[name] for row, name in hashes.items()}
    return found
