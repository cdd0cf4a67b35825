"""Search by meaning and by words, in the knowledge of HEAD or of another git ref."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link.errors import EmbeddingFailed, IndexFailed
from vmrag_link.git import plumbing
from vmrag_link.index.metadata import chunk_id
from vmrag_link.models import Collection, Record
from vmrag_link.ops.documents import collections
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import KbBlock, Standing, viewed
from vmrag_link.retrieval.query import Hit, Mode, Near, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import View, Workspace


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


def query(ws: Workspace, asked: Query, *, ref: str | None = None) -> QueryReport:
    """The best chunks.

    A pin that moved is followed first; one that cannot be followed leaves the bound revision
    answering. `ref`: answer from the revision that this git ref pins, without touching the
    workspace.
    """
    if ref is not None:
        return _at(ws, asked, ref)
    return read_consistently(ws, lambda: ws.reader.read(lambda view: _answer(ws, asked, view)))


def _at(ws: Workspace, asked: Query, ref: str) -> QueryReport:
    revision = lazy_fetch.pinned_at(ws, ref)
    for last in (False, True):
        try:
            with ws.reader.snapshot(revision) as path:
                view = View(path, revision, None, dirty=False, git_head=plumbing.head(ws.places).commit)
                return _answer(ws, asked, view)
        except IndexFailed:
            if last or not ws.snapshots.discard(ws.snapshots.path(revision)):
                raise
    raise AssertionError  # the second attempt returns or raises


def _answer(ws: Workspace, asked: Query, view: View) -> QueryReport:
    with contextlib.closing(Searcher(view.folder, ws.models.of, ws.ranking)) as searcher:
        try:
            results = searcher.search(asked)
        except EmbeddingFailed as error:
            error.hint += "   (or, by words alone: vmrag query --mode keyword)"
            raise
        return QueryReport(results, viewed(ws, view).kb, view.notes)


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

    def answer(view: View) -> SimilarReport:
        with contextlib.closing(Searcher(view.folder, ws.models.of, ws.ranking)) as searcher:
            collection = searcher.collection(name) or collections.find(ws, view.at, name)
            asked = Query("", (collection.name,), k, Mode.VECTOR, where, where_document)
            matches = [searcher.nearest(msgspec.structs.replace(asked, text=text)) for text in texts]
            names = {chunk_id(each.hit.doc_id, each.hit.chunk): None for found in matches for each in found}
            stored = searcher.embeddings(collection.name, [*names], ws.embedding_cache) if embeddings else {}
            return SimilarReport(collection, matches, stored, viewed(ws, view))

    return read_consistently(ws, lambda: ws.reader.read(answer))
