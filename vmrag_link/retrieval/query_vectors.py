"""The vectors that a query compares: those of its text, by the models of the collections that it
asks; and, as float32, those of an index's chunks, for tools that show them and for Chroma's
store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from vmrag_link import models
from vmrag_link.embedding.base import Model, Vector
from vmrag_link.embedding.cache import EmbeddingCache, vectors_for
from vmrag_link.errors import EmbeddingMismatch, IndexFailed
from vmrag_link.index import flat_files
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import content_hash


class QueryVectors:
    """Embeds the text of the latest query, and those that were prepared, once for each model.

    `unembedded` collections hold stand-ins only.
    """

    def __init__(self, model_for: Callable[[models.Collection], Model], unembedded: Collection[str]) -> None:
        self._model_for = model_for
        self._unembedded = unembedded
        self._known: dict[str, dict[str, bytes]] = {}
        """By text and model."""

    def of(self, held: IndexedCollection, text: str) -> bytes:
        """Raises as `stored_with`."""
        model = self.stored_with(held)
        if text not in self._known:
            self._known = {text: {}}
        known = self._known[text]
        if model.fingerprint not in known:
            self._embed(model, [text])
        return known[model.fingerprint]

    def prepare(self, held: IndexedCollection, texts: Collection[str]) -> None:
        """Embed at once texts of which `of` is going to be asked, before any other. Raises the
        same.
        """
        model = self.stored_with(held)
        self._embed(
            model, [text for text in dict.fromkeys(texts) if model.fingerprint not in self._known.get(text, {})]
        )

    def _embed(self, model: Model, texts: list[str]) -> None:
        found = model.embed_queries(texts) if texts else []
        for text, vector in zip(texts, found, strict=True):
            self._known.setdefault(text, {})[model.fingerprint] = flat_files.quantise(vector)

    def stored_with(self, held: IndexedCollection) -> Model:
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


def stored_vectors(
    index: IndexReader, held: IndexedCollection, texts: Mapping[int, str], *, model: Model, cache: EmbeddingCache
) -> dict[int, Vector]:
    """The vectors of chunks of one collection, by row; `texts` are these chunks' own.

    The index holds whole numbers, and as float32 only what cannot be made again. All else comes
    from the cache, or from the local model once more. No service is asked. Raises `IndexFailed`
    where a service's vectors are not there, and what the model and the cache raise.
    """
    found = index.floats(texts)
    hashes = {row: content_hash(text) for row, text in texts.items() if row not in found}
    if hashes and not model.local:
        raise IndexFailed(
            f"{len(hashes)} vectors of collection {held.collection.name!r}, which the embedding service "
            f"{model.name} made, are not in the index.",
            hint="vmrag sync --rebuild",
            collection_name=held.collection.name,
        )
    if hashes:
        made, _ = vectors_for(cache, model, {name: texts[row] for row, name in hashes.items()})
        found |= {row: made[name] for row, name in hashes.items()}
    return found
