"""The version, the settings and the fingerprint of the ranking.

Equal fingerprints mean that equal queries get equal answers on every machine. So the fingerprint
covers everything that decides answers: contents, models, settings, and `VERSION`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from vmrag_link.models import Collection, DocumentHeader, Record, encode_canonical_json
from vmrag_link.settings import RetrievalSettings

VERSION = 7
"""Increase it with every change that ranks equal contents and settings differently: in how texts
are cut and split into words, how vectors are rounded, and how scores are computed and ordered.
"""

_DEFAULTS = RetrievalSettings()


class Ranking(Record, frozen=True):
    """How chunks are ranked: settings of the section `retrieval`."""

    version: int = VERSION
    vector_weight: float = _DEFAULTS.vector_weight
    """The share of the vectors in a hybrid score. The words have the rest. For questions in
    languages other than English, an English model has half of this share.
    """

    document_weight: float = _DEFAULTS.document_weight
    """The weight of the BM25 score of a chunk's document, compared with the chunk's own score."""

    per_document: int = _DEFAULTS.per_document
    """Maximum number of chunks of one document in an answer; 0 for any number."""


DEFAULT_RANKING = Ranking()
"""The ranking without settings."""


def read_ranking(settings: RetrievalSettings) -> Ranking:
    """Return the ranking with these settings."""
    return Ranking(
        vector_weight=settings.vector_weight,
        document_weight=settings.document_weight,
        per_document=settings.per_document,
    )


def hash_contents(
    ranking: Ranking, collections: Iterable[Collection], headers: Iterable[DocumentHeader], *, files: str = ""
) -> str:
    """Return the fingerprint: a SHA-256 over the documents, their models and the ranking, in hex.

    `files` identifies the documents of sources; empty without sources. The order of the inputs
    does not matter. Titles are included, because filters use them. The format of the index is not
    included.
    """
    digest = hashlib.sha256(encode_canonical_json(["vmrag-fingerprint", 2, ranking]).encode())
    for collection in sorted(collections, key=lambda row: row.name):
        decisive = [
            collection.name,
            collection.embedding_function,
            collection.embedding_model,
            collection.embedding_dimensions,
            collection.distance,
        ]
        digest.update(encode_canonical_json([*decisive, collection.chunking]).encode())
    rows = (
        (header.collection, header.doc_id, header.title, header.content_hash, header.metadata) for header in headers
    )
    for row in sorted(rows):
        digest.update(encode_canonical_json(row).encode())
    if files:
        digest.update(encode_canonical_json(["files", files]).encode())
    return digest.hexdigest()
