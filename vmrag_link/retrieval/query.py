"""A query, its hits, and the vectors that a search compares.

These are the vectors of the query's text, by the model of each collection. The float32 vectors of
an index's chunks are for tools that show them and for Chroma's store.
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
"""Minimum number of tokens of a packed answer: a head line and a few other lines."""

MOST_BUDGET = 1_000_000

FIRST_HITS = 3
"""Number of hits that decide whether an answer is weak, and that a weak answer shows."""

MOST_HITS = 200
"""Default number of ranked pieces that a packed answer considers."""


TITLES: Mapping[ContentKind, str] = {"document": "Documentation", "code": "Code"}
"""Titles of groups of results."""


class Mode(enum.StrEnum):
    """How chunks are ranked: by words (of the chunk and its document), by meaning, or by both
    (`fusion`).
    """

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


class Query(Record, frozen=True):
    """A query."""

    text: str
    collections: tuple[str, ...] | None = None
    """Names of collections. None means all except those of kind `system`, which tools use for their
    own data.
    """

    k: int = 5
    mode: Mode = Mode.HYBRID
    where: Mapping[str, Any] | None = None
    """A filter over metadata as people write it (see `filters`)."""

    where_document: Mapping[str, Any] | None = None
    """A filter over texts as people write it."""

    narrowing: Narrowing | None = None
    """Applies in addition to the filters."""


class Hit(Record, frozen=True):
    """One chunk of an answer."""

    rank: int
    """The rank, from 1."""

    collection: str
    doc_id: str
    chunk: int
    """The number of the chunk in its document."""

    chunks: int
    """The number of chunks of the document."""

    score: float
    """Higher is better. For `vector`, this is nearly the cosine. For `keyword`, it is the BM25
    score of the chunk and, weighted, of its document. For `hybrid`, it is the weighted share of the
    best scores of this query by words and by meaning, and 1 for a chunk that is the best by both.

    If both documents and code answer, each kind has its own scores, and `rank` combines both kinds.
    """

    text: str
    content_hash: str
    """The hash of the document."""

    metadata: dict[str, Any]
    table: DocumentTable = "documents"
    """The table of the document."""

    kind: ContentKind = "document"
    also_in: tuple[str, ...] = ()
    """Other places of the result: languages of further translations, and paths of the original and
    of copies.

    They are not separate results.
    """

    @property
    def placed_metadata(self) -> dict[str, Any]:
        """The metadata with the position of the chunk in its document, like the index stores it."""
        document = DocumentHeader(self.collection, self.doc_id, "", self.content_hash, "")
        return self.metadata | build_chunk_metadata(document, self.table, self.chunk, self.chunks)

    @property
    def shown_metadata(self) -> dict[str, Any]:
        """`placed_metadata` without the keys that identify the document (`PROVENANCE`)."""
        return {key: value for key, value in self.placed_metadata.items() if key not in PROVENANCE}


class HasKind(Protocol):
    """A result with a kind: document or code."""

    @property
    def kind(self) -> ContentKind: ...


K = TypeVar("K", bound=HasKind)


def group_by_kind(results: Sequence[K]) -> list[tuple[str, K]]:
    """Return the results by kind, beginning with the kind of the first result.

    The first result of each group has the title of the group, and the others have an empty text. If
    all results have one kind, there are no titles.
    """
    groups: dict[ContentKind, list[K]] = {}
    for result in results:
        groups.setdefault(result.kind, []).append(result)
    titles = {kind: TITLES[kind] if len(groups) > 1 else "" for kind in groups}
    return [("" if number else titles[kind], row) for kind, group in groups.items() for number, row in enumerate(group)]


class NearHit(Record, frozen=True):
    """A hit, with the cosine of its vector and the query's vector."""

    hit: Hit
    cosine: float

    @property
    def similarity(self) -> float:
        return to_similarity(self.cosine)


def to_distance(space: Distance, cosine: float) -> float:
    """Return Chroma's distance between unit vectors. For l2 it is squared.

    It is never negative, although rounding might make it so.
    """
    return max(0.0, round((2 if space == "l2" else 1) * (1 - cosine), 6))


def to_similarity(cosine: float) -> float:
    """Return the similarity that people see: 0 to 1.

    It is `1 - distance`, or for l2 `1 - distance / 2`.
    """
    return round(min(1.0, max(0.0, cosine)), 4)


class QueryVectors:
    """Embeds queries, once for each model. It remembers the latest query and the queries that were
    prepared.

    `unembedded`: collections that have only placeholders for vectors.
    """

    def __init__(self, model_for: Callable[[models.Collection], Model], unembedded: Collection[str]) -> None:
        self._model_for = model_for
        self._unembedded = unembedded
        self._embedded: dict[str, dict[str, bytes]] = {}
        """Vectors by text and model."""

    def embed_query(self, indexed: IndexedCollection, text: str) -> bytes:
        """Return the vector of a query for a collection. The errors are those of
        `load_stored_model`.
        """
        model = self.load_stored_model(indexed)
        if text not in self._embedded:
            self._embedded = {text: {}}
        vectors = self._embedded[text]
        if model.fingerprint not in vectors:
            self._embed_texts(model, [text])
        return vectors[model.fingerprint]

    def prepare_texts(self, indexed: IndexedCollection, texts: Collection[str]) -> None:
        """Embed several texts at once. Call it before `embed_query` for these texts.

        The errors are those of `load_stored_model`.
        """
        model = self.load_stored_model(indexed)
        self._embed_texts(
            model, [text for text in dict.fromkeys(texts) if model.fingerprint not in self._embedded.get(text, {})]
        )

    def _embed_texts(self, model: Model, texts: list[str]) -> None:
        vectors = model.embed_queries(texts) if texts else []
        for text, vector in zip(texts, vectors, strict=True):
            self._embedded.setdefault(text, {})[model.fingerprint] = flat_files.quantise(vector)

    def load_stored_model(self, indexed: IndexedCollection) -> Model:
        """Return the model that computed the collection's vectors.

        Raises `EmbeddingMismatch` for another model. If the index has only placeholders, it raises
        the reason why the vectors still cannot be computed, or `IndexFailed` if they can: the index
        has to be built again.
        """
        model = self._load_model(indexed)
        self._require_stored(indexed, model)
        return model

    def _require_stored(self, indexed: IndexedCollection, model: Model) -> None:
        name = indexed.collection.name
        if name in self._unembedded:
            model.embed([name])
            raise IndexFailed(
                f"the documents of collection {name!r} could not be embedded when the index was built.",
                hint="run 'vmrag sync --rebuild' to build the index again",
                collection_name=name,
            )

    def _load_model(self, indexed: IndexedCollection) -> Model:
        model = self._model_for(indexed.collection)
        if model.fingerprint != indexed.collection.embedding_model:
            raise EmbeddingMismatch(
                f"collection {indexed.collection.name!r} was embedded with {indexed.collection.embedding_model}, "
                f"but the installed model is {model.fingerprint}.",
                hint="install the version of vmrag-link that created the collection, or import it into a new collection",
            )
        return model


def restore_vectors(
    index: IndexReader, indexed: IndexedCollection, texts: Mapping[int, str], *, model: Model, cache: EmbeddingCache
) -> dict[int, Vector]:
    """Return the float32 vectors of chunks of one collection, by row. `texts`: the texts of the
    chunks.

    The index has int8 vectors, and float32 only for vectors that cannot be computed again. All
    other vectors come from the cache or the local model, and never from a service. Raises
    `IndexFailed` if a service's vectors are missing, and the errors of the model and the cache.
    """
    vectors = index.read_floats(texts)
    hashes = {row: content_hash(text) for row, text in texts.items() if row not in vectors}
    if hashes and not model.local:
        raise IndexFailed(
            f"the index lacks {len(hashes)} vectors of collection {indexed.collection.name!r} that the embedding service "
            f"{model.name} computed.",
            hint="run 'vmrag sync --rebuild' to build the index again",
            collection_name=indexed.collection.name,
        )
    if hashes:
        from vmrag_link.embedding.cache import embed_texts  # queries do not need these vectors

        computed, _ = embed_texts(cache, model, {name: texts[row] for row, name in hashes.items()})
        vectors |= {row: computed[name] for row, name in hashes.items()}
    return vectors
