"""The fingerprint: equal fingerprints rank equally."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from vmrag_link.models import Collection, DocumentHeader, canonical_json
from vmrag_link.retrieval.fusion import Ranking


def fingerprint(
    ranking: Ranking, collections: Iterable[Collection], headers: Iterable[DocumentHeader], *, files: str = ""
) -> str:
    """SHA-256 over the documents, what decides their vectors, and how they are ranked, as 64 hex
    digits.

    `files` names the documents of sources; empty: there are none. The order of the inputs does not
    matter. Titles count, because filters use them. What an index
    looks like on the disk does not count.
    """
    digest = hashlib.sha256(canonical_json(["vmrag-fingerprint", 2, ranking]).encode())
    for each in sorted(collections, key=lambda row: row.name):
        decisive = [each.name, each.embedding_function, each.embedding_model, each.embedding_dimensions, each.distance]
        digest.update(canonical_json([*decisive, each.chunking]).encode())
    rows = ((each.collection, each.doc_id, each.title, each.content_hash, each.metadata) for each in headers)
    for row in sorted(rows):
        digest.update(canonical_json(row).encode())
    if files:
        digest.update(canonical_json(["files", files]).encode())
    return digest.hexdigest()
