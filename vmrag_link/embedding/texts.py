"""Vectors for texts: from the cache, and from the model only for what was never seen before."""

from __future__ import annotations

import array
import math
from collections.abc import Callable, Mapping

from vmrag_link.embedding.base import Model, Vector
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.errors import EmbeddingFailed
from vmrag_link.models import Record
from vmrag_link.progress import ASKING, EMBEDDING, QUIET, Progress

BATCH = 256


class Counts(Record, frozen=True):
    """Numbers of texts: embedded just now, and taken from the cache."""

    embedded: int
    cached: int


def vectors_for(
    cache: EmbeddingCache,
    model: Model,
    texts: Mapping[str, str],
    progress: Progress = QUIET,
    *,
    elsewhere: Callable[[], bool] | None = None,
) -> tuple[dict[str, Vector], Counts]:
    """The vector of every text, by `models.content_hash`.

    Each batch is stored at once, so a kill loses one. `elsewhere` is called before a service is
    asked; it returns whether it put vectors into the cache. Raises `EmbeddingFailed`.
    """

    def cached(names: list[str]) -> dict[str, Vector]:
        return cache.get(model.fingerprint, names, dimensions=model.dimensions)

    vectors = cached(list(texts))
    missing = [chunk for chunk in texts if chunk not in vectors]
    if missing and elsewhere and not model.local and elsewhere():
        vectors = cached(list(texts))  # all: vectors that were here may have been replaced
        missing = [chunk for chunk in texts if chunk not in vectors]
    counts = Counts(embedded=len(missing), cached=len(vectors))
    if missing:
        with progress.task(EMBEDDING if model.local else ASKING, len(missing)) as task:
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                fresh = dict(zip(batch, model.embed([texts[chunk] for chunk in batch]), strict=True))
                _require_numbers(model, fresh)
                cache.put(model.fingerprint, fresh)
                vectors.update(fresh)
                task.advance(len(batch))
    return vectors, counts


def _require_numbers(model: Model, vectors: Mapping[str, Vector]) -> None:
    """Refuse NaN and infinity, which have no distance to anything, before they are stored."""
    if not all(math.isfinite(sum(array.array("f", vector))) for vector in vectors.values()):
        raise EmbeddingFailed(
            f"The embedding model {model.name!r} answered with a vector whose components are no numbers.",
            hint="Run the command again; if that does not help, the model's files or its service are damaged.",
            model=model.fingerprint,
        )
