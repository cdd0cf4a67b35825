"""The vectors of a query by the model of each collection, and the float32 vectors of chunks.

A search compares the int8 vectors of an index with the vector of the query. The float32 vectors of
chunks are only for tools that show them and for Chroma's stores. Vectors of different models cannot
be compared, so an index is never searched with another model than its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from vmrag_link import models
from vmrag_link.errors import EmbeddingMismatch, IndexFailed
from vmrag_link.index import flat_files
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import content_hash

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model, Vector
    from vmrag_link.embedding.cache import EmbeddingCache


class QueryVectors:
    """Embeds queries, once for each model. It remembers the latest query and the queries that were
    prepared.

    `model_for` returns the model of a collection. `unembedded`: collections that have only
    placeholders for vectors, because their texts could not be embedded.
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
        name = indexed.collection.name
        model = self._model_for(indexed.collection)
        if model.fingerprint != indexed.collection.embedding_model:
            raise EmbeddingMismatch(
                f"collection {name!r} was embedded with {indexed.collection.embedding_model}, "
                f"but the installed model is {model.fingerprint}.",
                hint="install the version of vmrag-link that created the collection, or import it into a new collection",
            )
        if name in self._unembedded:
            model.embed([name])  # this raises the reason if it still applies
            raise IndexFailed(
                f"the documents of collection {name!r} could not be embedded when the index was built.",
                hint="run 'vmrag sync --rebuild' to build the index again",
                collection_name=name,
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
