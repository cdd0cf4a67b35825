"""Find the chunks that answer texts best, as clients of Chroma request them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link.index.metadata import chunk_id
from vmrag_link.models import SOURCE, Collection, Record
from vmrag_link.ops.query.packed_answer import HitPacker, PackRequest
from vmrag_link.retrieval.narrowing import Narrowing
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.answers.packing import Packed
from vmrag_link.workspace.answers.passages import PassagePlace, file_places
from vmrag_link.workspace.answers.query import require_query, search_index
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View


class SimilarRequest(Record, frozen=True):
    """A request for similar chunks of each text."""

    k: int
    """Number of chunks."""
    mode: Mode | None = None
    """None for the mode of the settings. For a named stored collection None means vectors, as in
    Chroma.
    """
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None
    narrowing: Narrowing | None = None
    embeddings: bool = False
    """True to also return the vectors."""
    pack: PackRequest | None = None
    """Return packed passages for all texts together instead."""
    files: bool = True
    """False to search only stored documents if no collection is named."""


class SimilarReport(Record, frozen=True):
    """The chunks for all texts, from one state of the index."""

    collections: Mapping[str, Collection]
    """The searched collections, by name."""
    mode: Mode
    matches: list[list[Hit]]
    """The hits of each text."""
    cosines: list[list[float]] | None
    """Cosines between the vectors of matches and text; None if words alone were searched, because
    nothing is embedded then.
    """
    places: list[list[PassagePlace | None]]
    """The places of matches in files of sources."""
    embeddings: Mapping[tuple[str, str], list[float]]
    """The vectors by collection and chunk (`index.metadata.chunk_id`), if they were requested."""
    packed: Packed | None
    """The packed passages if they were requested, instead of places and cosines."""
    origin: AnswerOrigin
    weak: Sequence[bool] = ()
    """True for each text with a weak answer (`retrieval.weakness`)."""


def find_similar(ws: ReadableStore, name: str | None, texts: Sequence[str], request: SimilarRequest) -> SimilarReport:
    """Return the chunks that answer each text best, of a collection or of all collections (None).

    All collections are those that are searched by default. All are read in one state. Vectors of
    several collections are ranked by cosine, whatever model and distance each collection has. If
    files of sources are searched, documents that were imported from them are left out.

    Raises `UsageInvalid` for an empty text, and the errors of `collections.find_collection` and
    `Searcher.search`.
    """
    for text in texts:
        require_query(text)

    def find_matches(searcher: Searcher, view: View) -> SimilarReport:
        if name is None:
            among = [collection for collection in searcher.list_collections() if collection.is_searched_by_default]
        else:
            among = [searcher.find_collection(name) or collections.find_collection(ws, view.at, name)]
        stored = name is not None and among[0].kind != SOURCE
        mode = request.mode or (Mode.VECTOR if stored else Mode(ws.config.retrieval.mode))
        query = Query(
            text="",
            collections=tuple(collection.name for collection in among),
            k=request.k,
            mode=mode,
            where=request.where,
            where_document=request.where_document,
            narrowing=request.narrowing,
        )
        matches, cosines = _rank_texts(searcher, query, texts, cosines=request.pack is None)
        weak = [
            searcher.is_weak(msgspec.structs.replace(query, text=text), match)
            for text, match in zip(texts, matches, strict=True)
        ]
        packed = None
        places: list[list[PassagePlace | None]] = []
        if request.pack:
            hits, chosen = request.pack.select_hits(_take_turns(matches), mode, weak=all(weak))
            packed = HitPacker(ws, searcher, view, hits).pack_hits(chosen)
        else:
            places = [file_places(ws, searcher, view, *pair) for pair in zip(texts, matches, strict=True)]
        return SimilarReport(
            collections={collection.name: collection for collection in among},
            mode=mode,
            matches=matches,
            cosines=cosines,
            places=places,
            embeddings=_read_embeddings(ws, searcher, matches) if request.embeddings else {},
            packed=packed,
            origin=find_view_origin(ws, view),
            weak=weak,
        )

    return search_index(ws, find_matches, files=name is None and request.files)


def _rank_texts(
    searcher: Searcher, query: Query, texts: Sequence[str], *, cosines: bool
) -> tuple[list[list[Hit]], list[list[float]] | None]:
    """Return the matches of each text, with their cosines if requested."""
    queries = [msgspec.structs.replace(query, text=text) for text in texts]
    if query.mode == Mode.VECTOR:
        nearest = [searcher.find_nearest(query) for query in queries]
        hits = [[row.hit for row in rows] for rows in nearest]
        return hits, [[row.cosine for row in rows] for rows in nearest]
    matches = [searcher.search(query) for query in queries]
    if query.mode == Mode.KEYWORD or not cosines:
        return matches, None
    return matches, [searcher.compute_cosines(text, match) for text, match in zip(texts, matches, strict=True)]


def _take_turns(matches: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Return the best hit of each text, then the second of each, and so on; each chunk once."""
    hits = (hit for some in zip_longest(*matches) for hit in some if hit)
    return list({(hit.collection, hit.doc_id, hit.chunk): hit for hit in hits}.values())


def _read_embeddings(
    ws: ReadableStore, searcher: Searcher, matches: list[list[Hit]]
) -> dict[tuple[str, str], list[float]]:
    chunks: dict[str, dict[str, None]] = {}
    for hit in chain.from_iterable(matches):
        chunks.setdefault(hit.collection, {})[chunk_id(hit.doc_id, hit.chunk)] = None
    return {
        (name, chunk): vector
        for name, names in chunks.items()
        for chunk, vector in searcher.read_embeddings(name, [*names], ws.embedding_cache).items()
    }
