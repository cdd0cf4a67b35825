"""The float32 vectors of an index's chunks: for tools that show them, and for Chroma's store."""

from __future__ import annotations

from collections.abc import Mapping

from vmrag_link.embedding.base import Model, Vector
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.embedding.texts import vectors_for
from vmrag_link.errors import IndexFailed
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import content_hash


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
