"""Documents that are known by their keys, (collection, doc_id), out of several collections."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.engines.base import RowSource
from vmrag_link.models import At, Document

Key = tuple[str, str]


def documents_by_key(rows: RowSource, at: At, keys: Iterable[Key]) -> dict[Key, Document]:
    """Those that are there, with one look-up a collection. All of them are in memory."""
    ids: dict[str, list[str]] = {}
    for collection, doc_id in keys:
        ids.setdefault(collection, []).append(doc_id)
    return {
        document.key: document
        for collection, some in ids.items()
        for document in rows.documents(at, collection=collection, ids=some)
    }
