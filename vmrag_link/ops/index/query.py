"""Search by meaning and by words, in the knowledge of HEAD or of another git ref."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from vmrag_link.errors import EmbeddingFailed, IndexFailed, UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.index.metadata import chunk_id
from vmrag_link.models import Collection, Record
from vmrag_link.ops.documents import collections
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import KbBlock, Standing, viewed
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.query import Hit, Mode, Near, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.settings import RetrievalSettings
from vmrag_link.sync import eviction
from vmrag_link.trust import settings as trusted
from vmrag_link.workspace import DocumentStore, View, Workspace

T = TypeVar("T")


class QueryReport(Record, frozen=True):
    """`notes`: why the answer is not from the pinned revision, if so."""

    results: list[Hit]
    kb: KbBlock
    notes: tuple[str, ...] = ()


class SimilarReport(Record, frozen=True):
    """`collections`: those that were asked, by name. `matches` by query text; `embeddings`, if
    requested, by collection and chunk (`index.metadata.chunk_id`).
    """

    collections: Mapping[str, Collection]
    matches: list[list[Near]]
    embeddings: Mapping[tuple[str, str], list[float]]
    standing: Standing


class RankedRevision(Record, frozen=True):
    """Where is asked, if not where the work tree stands: a revision, and the settings that rank."""

    revision: str
    retrieval: RetrievalSettings


def require_query(text: str) -> None:
    """Raises `UsageInvalid` for one without a character."""
    if not text.strip():
        raise UsageInvalid("The query is empty.", hint="Say what is sought.", parameter="query")


def ranked_at(ws: Workspace, ref: str) -> RankedRevision:
    """What a git ref pins, asked as its own settings say. Raises as `lazy_fetch.pinned_at`, and
    `ConfigInvalid`.
    """
    return RankedRevision(lazy_fetch.pinned_at(ws, ref), trusted.load_at(ws.places, ref).config.retrieval)


def query(ws: DocumentStore, asked: Query, *, at: RankedRevision | None = None) -> QueryReport:
    """The best chunks.

    A pin that moved is followed first; one that cannot be followed leaves the bound revision
    answering. `at`: answer from there, without touching the workspace. Raises `UsageInvalid` for an
    empty query.
    """
    require_query(asked.text)
    return searching(ws, lambda searcher, view: answer(ws, searcher, view, asked), at=at)


def answer(ws: DocumentStore, searcher: Searcher, view: View, asked: Query) -> QueryReport:
    """The best chunks of an index that is open."""
    try:
        results = searcher.search(asked)
    except EmbeddingFailed as error:
        error.hint += "   (or, by words alone: vmrag query --mode keyword)"
        raise
    return QueryReport(results, viewed(ws, view).kb, view.notes)


def searching(ws: DocumentStore, look: Callable[[Searcher, View], T], *, at: RankedRevision | None = None) -> T:
    """What `look` returns for an index that stays open and unchanged until then. It may be called
    again, where the pin moves meanwhile, or where the index proves damaged and is built again.

    What is not versioned has no revision to be asked `at`.
    """

    def open_searcher(view: View) -> T:
        ranking = fusion.ranking(at.retrieval) if at else ws.ranking
        with contextlib.closing(Searcher(view.folder, ws.models.of, ranking)) as searcher:
            return look(searcher, view)

    if at is None or not isinstance(ws, Workspace):
        return read_consistently(ws, lambda: ws.reader.read(open_searcher))
    for last in (False, True):
        try:
            with ws.reader.index_of(at.revision) as path:
                head = plumbing.head(ws.places).commit
                return open_searcher(View(path, at.revision, None, dirty=False, git_head=head))
        except IndexFailed:
            if last:
                raise
            eviction.distrust(ws.sync_context, at.revision)
    raise AssertionError  # the second attempt returns or raises


def similar(
    ws: DocumentStore,
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
    distance each has.

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
        stored = _embeddings(ws, searcher, matches) if embeddings else {}
        return SimilarReport({each.name: each for each in among}, matches, stored, viewed(ws, view))

    return searching(ws, look)


def _embeddings(ws: DocumentStore, searcher: Searcher, matches: list[list[Near]]) -> dict[tuple[str, str], list[float]]:
    chunks: dict[str, dict[str, None]] = {}
    for hit in (each.hit for found in matches for each in found):
        chunks.setdefault(hit.collection, {})[chunk_id(hit.doc_id, hit.chunk)] = None
    return {
        (name, chunk): vector
        for name, names in chunks.items()
        for chunk, vector in searcher.embeddings(name, [*names], ws.embedding_cache).items()
    }
