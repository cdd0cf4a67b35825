"""Search by meaning and by words, in the knowledge of HEAD or of another git ref."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from vmrag_link.errors import EmbeddingFailed, IndexFailed
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
from vmrag_link.trust import settings as trusted
from vmrag_link.workspace import View, Workspace

T = TypeVar("T")


class QueryReport(Record, frozen=True):
    """`notes`: why the answer is not from the pinned revision, if so."""

    results: list[Hit]
    kb: KbBlock
    notes: tuple[str, ...] = ()


class SimilarReport(Record, frozen=True):
    """`matches` by query text; `embeddings`, if requested, by chunk (`index.store.chunk_id`)."""

    collection: Collection
    matches: list[list[Near]]
    embeddings: Mapping[str, list[float]]
    standing: Standing


class RankedRevision(Record, frozen=True):
    """Where is asked, if not where the work tree stands: a revision, and the settings that rank."""

    revision: str
    retrieval: RetrievalSettings


def ranked_at(ws: Workspace, ref: str) -> RankedRevision:
    """What a git ref pins, asked as its own settings say. Raises as `lazy_fetch.pinned_at`, and
    `ConfigInvalid`.
    """
    return RankedRevision(lazy_fetch.pinned_at(ws, ref), trusted.load_at(ws.places, ref).config.retrieval)


def query(ws: Workspace, asked: Query, *, at: RankedRevision | None = None) -> QueryReport:
    """The best chunks.

    A pin that moved is followed first; one that cannot be followed leaves the bound revision
    answering. `at`: answer from there, without touching the workspace.
    """

    def answer(searcher: Searcher, view: View) -> QueryReport:
        try:
            results = searcher.search(asked)
        except EmbeddingFailed as error:
            error.hint += "   (or, by words alone: vmrag query --mode keyword)"
            raise
        return QueryReport(results, viewed(ws, view).kb, view.notes)

    return searching(ws, answer, at=at)


def searching(ws: Workspace, look: Callable[[Searcher, View], T], *, at: RankedRevision | None = None) -> T:
    """What `look` returns for an index that stays open and unchanged until then. It may be called
    again, where the pin moves meanwhile, or where the index proves damaged and is built again.
    """

    def open_searcher(view: View) -> T:
        ranking = fusion.ranking(at.retrieval) if at else ws.ranking
        with contextlib.closing(Searcher(view.folder, ws.models.of, ranking)) as searcher:
            return look(searcher, view)

    if at is None:
        return read_consistently(ws, lambda: ws.reader.read(open_searcher))
    for last in (False, True):
        try:
            with ws.reader.snapshot(at.revision) as path:
                head = plumbing.head(ws.places).commit
                return open_searcher(View(path, at.revision, None, dirty=False, git_head=head))
        except IndexFailed:
            if last or not ws.snapshots.discard(ws.snapshots.path(at.revision)):
                raise
    raise AssertionError  # the second attempt returns or raises


def similar(
    ws: Workspace,
    name: str,
    texts: Sequence[str],
    *,
    k: int,
    where: Mapping[str, Any] | None = None,
    where_document: Mapping[str, Any] | None = None,
    embeddings: bool = False,
) -> SimilarReport:
    """The chunks of one collection nearest to each text; all read at one moment.

    Raises as `collections.find` and `Searcher.search`.
    """

    def answer(searcher: Searcher, view: View) -> SimilarReport:
        collection = searcher.collection(name) or collections.find(ws, view.at, name)
        asked = Query("", (collection.name,), k, Mode.VECTOR, where, where_document)
        matches = [searcher.nearest(msgspec.structs.replace(asked, text=text)) for text in texts]
        names = {chunk_id(each.hit.doc_id, each.hit.chunk): None for found in matches for each in found}
        stored = searcher.embeddings(collection.name, [*names], ws.embedding_cache) if embeddings else {}
        return SimilarReport(collection, matches, stored, viewed(ws, view))

    return searching(ws, answer)
