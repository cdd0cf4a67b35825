"""The chunks that answer texts best, as clients of Chroma ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
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
    """What to find for each text: `k` chunks. `mode` None: what the settings say, but by vectors in
    a collection that is named and stored, as Chroma has it. `embeddings`: the vectors, too. `pack`:
    passages instead, of all texts together.
    """

    k: int
    mode: Mode | None = None
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None
    narrowing: Narrowing | None = None
    embeddings: bool = False
    pack: PackRequest | None = None
    files: bool = True
    """False to ask stored documents alone if all collections are asked."""


class SimilarReport(Record, frozen=True):
    """`collections`: those that were asked, by name. `matches` by query text, and `places`: where
    those stand that are of files of sources. `cosines`: those of the matches' vectors and the
    text's; None by words alone, for which nothing is embedded. `embeddings`, if requested, by
    collection and chunk (`index.metadata.chunk_id`). `packed`: what is asked for then, without
    places and cosines.
    """

    collections: Mapping[str, Collection]
    mode: Mode
    matches: list[list[Hit]]
    cosines: list[list[float]] | None
    places: list[list[PassagePlace | None]]
    embeddings: Mapping[tuple[str, str], list[float]]
    packed: Packed | None
    origin: AnswerOrigin
    weak: Sequence[bool] = ()
    """True for each text with a weak answer (`retrieval.weakness`)."""


def find_similar(ws: ReadableStore, name: str | None, texts: Sequence[str], request: SimilarRequest) -> SimilarReport:
    """The chunks that answer each text best, of a collection or of all that are `searched` (None);
    read at one moment. By vectors those of several collections are ranked by cosine, whatever model
    and distance each has. What was imported from files of sources is left out where these are
    asked.

    Raises `UsageInvalid` for an empty text, as `collections.find` and `Searcher.search`.
    """
    for text in texts:
        require_query(text)

    def look(searcher: Searcher, view: View) -> SimilarReport:
        if name is None:
            among = [collection for collection in searcher.list_collections() if collection.is_searched_by_default]
        else:
            among = [searcher.find_collection(name) or collections.find_collection(ws, view.at, name)]
        stored = name is not None and among[0].kind != SOURCE
        mode = request.mode or (Mode.VECTOR if stored else Mode(ws.config.retrieval.mode))
        asked = Query(
            text="",
            collections=tuple(each.name for each in among),
            k=request.k,
            mode=mode,
            where=request.where,
            where_document=request.where_document,
            narrowing=request.narrowing,
        )
        matches, cosines = _rank(searcher, asked, texts, cosines=request.pack is None)
        weak = [
            searcher.is_weak(msgspec.structs.replace(asked, text=text), match)
            for text, match in zip(texts, matches, strict=True)
        ]
        packed = None
        places: list[list[PassagePlace | None]] = []
        if request.pack:
            hits, chosen = request.pack.select_hits(_by_turns(matches), mode, weak=all(weak))
            packed = HitPacker(ws, searcher, view).pack_hits(hits, chosen)
        else:
            places = [file_places(ws, searcher, view, *each) for each in zip(texts, matches, strict=True)]
        return SimilarReport(
            collections={each.name: each for each in among},
            mode=mode,
            matches=matches,
            cosines=cosines,
            places=places,
            embeddings=_embeddings(ws, searcher, matches) if request.embeddings else {},
            packed=packed,
            origin=find_view_origin(ws, view),
            weak=weak,
        )

    return search_index(ws, look, files=name is None and request.files)


def _rank(
    searcher: Searcher, asked: Query, texts: Sequence[str], *, cosines: bool
) -> tuple[list[list[Hit]], list[list[float]] | None]:
    """The matches of each text, with their cosines if wanted."""
    queries = [msgspec.structs.replace(asked, text=text) for text in texts]
    if asked.mode == Mode.VECTOR:
        near = [searcher.find_nearest(query) for query in queries]
        return [[each.hit for each in found] for found in near], [[each.cosine for each in found] for found in near]
    matches = [searcher.search(query) for query in queries]
    if asked.mode == Mode.KEYWORD or not cosines:
        return matches, None
    return matches, [searcher.compute_cosines(text, match) for text, match in zip(texts, matches, strict=True)]


def _by_turns(matches: Sequence[Sequence[Hit]]) -> list[Hit]:
    """The best of each text, then the second of each, and so on; each chunk once."""
    found = (each for some in zip_longest(*matches) for each in some if each)
    return list({(each.collection, each.doc_id, each.chunk): each for each in found}.values())


def _embeddings(ws: ReadableStore, searcher: Searcher, matches: list[list[Hit]]) -> dict[tuple[str, str], list[float]]:
    chunks: dict[str, dict[str, None]] = {}
    for hit in (each for match in matches for each in match):
        chunks.setdefault(hit.collection, {})[chunk_id(hit.doc_id, hit.chunk)] = None
    return {
        (name, chunk): vector
        for name, names in chunks.items()
        for chunk, vector in searcher.read_embeddings(name, [*names], ws.embedding_cache).items()
    }
