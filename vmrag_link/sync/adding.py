"""Add documents to an index: cut into chunks, with their vectors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, MutableMapping

from vmrag_link.documents.chunking import split_document
from vmrag_link.embedding.base import Model, Vector, limit_chunking, make_uniform_vector
from vmrag_link.embedding.cache import EmbeddingCache, EmbeddingCounts, embed_texts
from vmrag_link.errors import EmbeddingError, EmbeddingMismatch, IndexExtraMissing, UsageInvalid
from vmrag_link.index.draft import ChunkedDocument, Draft
from vmrag_link.models import Chunk, ChunkCounts, Chunking, Collection, Document, content_hash
from vmrag_link.progress import Progress, Task
from vmrag_link.sync.plan import use_present_model

BATCH_CHUNKS = 1_000

Elsewhere = Callable[[Collection, Model, Chunking], bool]
"""Put vectors that others computed into the cache, and return whether it has all of them now."""


class DocumentIndexer:
    """Add documents to drafts. `model_for` returns a collection's embedding model."""

    def __init__(self, cache: EmbeddingCache, model_for: Callable[[Collection], Model], progress: Progress) -> None:
        self._cache = cache
        self._model_for = model_for
        self._progress = progress

    def embed_documents(self, collection: Collection, documents: Iterable[Document]) -> None:
        """Embed documents that will be stored, so that a failure shows before they are stored.

        Raises `EmbeddingMismatch` and the model's errors.
        """
        model = check_model(self._model_for(collection), collection)
        for batch in _split_batches(documents, limit_chunking(collection.chunking, model)):
            self._embed_batch(model, batch)

    def add_documents(
        self,
        draft: Draft,
        documents: Iterable[tuple[str, Iterable[Document]]],
        task: Task,
        *,
        lacking: MutableMapping[str, str],
        shared: Elsewhere | None = None,
    ) -> ChunkCounts:
        """Add documents by collection. `lacking` gets the reason why a collection has no vectors.

        `shared` is tried before an embedding service.
        """
        total = ChunkCounts()
        for name, collection_documents in documents:
            collection = draft.list_collections()[name]
            with _name_collection(name):
                model = check_model(self._model_for(collection), collection)
            chunking = limit_chunking(collection.chunking, model)
            elsewhere = None
            if shared and not model.local:
                elsewhere = functools.partial(shared, collection, model, chunking)
            for batch in _split_batches(collection_documents, chunking):
                with _name_collection(name):
                    ready, counts = self._prepare_batch(model, name, batch, lacking, elsewhere)
                added = draft.add_documents(name, ready, keep_floats=not model.local)
                total = ChunkCounts(
                    total.added + added, 0, total.embedded + counts.embedded, total.cached + counts.cached
                )
                task.advance(len(batch))
        draft.note_unembedded(lacking)
        return total

    def _prepare_batch(
        self,
        model: Model,
        name: str,
        batch: list[tuple[Document, list[Chunk]]],
        lacking: MutableMapping[str, str],
        elsewhere: Callable[[], bool] | None,
    ) -> tuple[list[ChunkedDocument], EmbeddingCounts]:
        """Return the batch with its vectors, or with zero vectors if its collection is in
        `lacking`.
        """
        if name not in lacking:
            try:
                return self._embed_batch(model, batch, elsewhere)
            except EmbeddingError as error:
                if model.local:
                    raise
                lacking[name] = error.message
                self._progress.note(f"{error.message} Until this is fixed, {name!r} is searched by words only.")
        vector = make_uniform_vector(model.dimensions)
        ready = [ChunkedDocument(document, tuple(cut), (vector,) * len(cut)) for document, cut in batch]
        return ready, EmbeddingCounts(embedded=0, cached=0)

    def _embed_batch(
        self,
        model: Model,
        batch: list[tuple[Document, list[Chunk]]],
        elsewhere: Callable[[], bool] | None = None,
    ) -> tuple[list[ChunkedDocument], EmbeddingCounts]:
        hashes = [[content_hash(chunk.text) for chunk in cut] for _, cut in batch]
        texts = {
            name: chunk.text
            for names, (_, cut) in zip(hashes, batch, strict=True)
            for name, chunk in zip(names, cut, strict=True)
        }
        vectors: dict[str, Vector]
        vectors, counts = embed_texts(self._cache, model, texts, self._progress, elsewhere=elsewhere)
        ready = [
            ChunkedDocument(document, tuple(cut), tuple(vectors[name] for name in names))
            for names, (document, cut) in zip(hashes, batch, strict=True)
        ]
        return ready, counts


@contextlib.contextmanager
def _name_collection(collection: str) -> Iterator[None]:
    """Name the collection in the errors of its model."""
    try:
        yield
    except (EmbeddingError, IndexExtraMissing, UsageInvalid) as error:
        error.details.setdefault("collection_name", collection)
        raise


def check_model(model: Model, collection: Collection) -> Model:
    """Return the model if the collection was made with it or with a former default that it
    replaces.

    Raises `EmbeddingMismatch`.
    """
    if model.fingerprint != use_present_model(collection).embedding_model:
        raise EmbeddingMismatch(
            f"collection {collection.name!r} was made with the embedding model {collection.embedding_model}, "
            f"but the one installed here is {model.fingerprint}: their vectors cannot be compared.",
            hint="run 'pip install --upgrade \"vmrag-link[index]\"' to upgrade vmrag-link",
            collection_name=collection.name,
        )
    return model


def _split_batches(documents: Iterable[Document], chunking: Chunking) -> Iterator[list[tuple[Document, list[Chunk]]]]:
    """Yield documents with their chunks, about `BATCH_CHUNKS` chunks at a time."""
    batch: list[tuple[Document, list[Chunk]]] = []
    size = 0
    for document in documents:
        batch.append((document, split_document(document, chunking)))
        size += len(batch[-1][1])
        if size >= BATCH_CHUNKS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
