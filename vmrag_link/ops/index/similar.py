"""The chunks nearest to texts, as clients of Chroma ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link.index.metadata import chunk_id
from vmrag_link.models import Collection, Record
from vmrag_link.ops.documents import collections
from vmrag_link.ops.follow.provenance import Standing, viewed
from vmrag_link.ops.index.passages import PassagePlace, file_places
from vmrag_link.ops.index.query import require_query, searching
from vmrag_link.retrieval.query import Mode, Near, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import ReadableStore, View


class SimilarReport(Record, frozen=True):
    """`collections`: those that were asked, by name. `matches` by query text, and `places`: where
    those stand that are of files of sources. `embeddings`, if requested, by collection and chunk
    (`index.metadata.chunk_id`).
    """

    collections: Mapping[str, Collection]
    matches: list[list[Near]]
    places: list[list[PassagePlace | None]]
    embeddings: Mapping[tuple[str, str], list[float]]
    standing: Standing


def similar(
    ws: ReadableStore,
    name: str | None,
    texts: Sequence[str],
    *,
    k: int,
    where: Mapping[str, Any] | None = None,
    where_document: Mapping[str, Any] | None = None,
    embeddings: bool = False,
) -> SimilarReport:
    """The chunks nearest to each text, of a collection or of all that are `searched` (None);
    read at one moment. Those of several collections are ranked by cosine, whatever model and
    distance each has. What was imported from files of sources is left out where these are asked.

    Raises `UsageInvalid` for an empty text, as `collections.find` and `Searcher.search`.
    """
    for text in texts:
        require_query(text)

    def look(searcher: Searcher, view: View) -> SimilarReport:
        if name is None:
            among = [each for each in searcher.collections() if each.searched]
        else:
            among = [searcher.collection(name) or collections.find(ws, view.at, name)]
        asked = Query("", tuple(each.name for each in among), k, Mode.VECTOR, where, where_document)
        matches = [searcher.nearest(msgspec.structs.replace(asked, text=text)) for text in texts]
        places = [
            file_places(ws, searcher, view, text, [each.hit for each in found])
            for text, found in zip(texts, matches, strict=True)
        ]
        stored = _embeddings(ws, searcher, matches) if embeddings else {}
        return SimilarReport({each.name: each for each in among}, matches, places, stored, viewed(ws, view))

    return searching(ws, look, files=name is None)


def _embeddings(ws: ReadableStore, searcher: Searcher, matches: list[list[Near]]) -> dict[tuple[str, str], list[float]]:
    chunks: dict[str, dict[str, None]] = {}
    for hit in (each.hit for found in matches for each in found):
        chunks.setdefault(hit.collection, {})[chunk_id(hit.doc_id, hit.chunk)] = None
    return {
        (name, chunk): vector
        for name, names in chunks.items()
        for chunk, vector in searcher.embeddings(name, [*names], ws.embedding_cache).items()
    }
