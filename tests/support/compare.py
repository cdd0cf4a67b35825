"""Is what a workspace answers from exactly what an index holds that is built from nothing,
elsewhere, of the same documents?
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.terminal import Project
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.index.draft import Draft
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import segments_folder
from vmrag_link.models import At, format_json
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.sync.indexer import Indexer
from vmrag_link.workspace import Workspace

QUERIES = ("garden kettle", "lantern 300-4", "rest and sleep")


class Contents(NamedTuple):
    """All that an index directory holds, by the names of chunks: no row numbers, no slots, no
    UUIDs.
    """

    headers: dict[Any, Any]
    collections: dict[str, Any]
    chunk_counts: dict[Any, int]
    words: dict[Any, str]
    vectors: dict[Any, bytes]
    answers: list[Any]


def assert_whole(project: Project, scratch: Path, *, built: dict[Any, Contents] | None = None) -> set[tuple[str, str]]:
    """Check that the workspace is at its pin, and that its index equals a new one; return the
    documents.

    `scratch` is a new directory. Commands that only read rows leave the index behind: it is updated
    first. `built` keeps new indexes by documents, for the next call.
    """
    built = {} if built is None else built
    workspace = Workspace.open(project.top, QUIET)
    try:
        target = workspace.resolve_target()
        assert target.state == "pinned"
        assert workspace.position.applied == target.trigger
        workspace.bring_to_pin()
        bound = workspace.binding
        assert bound is not None
        assert bound.revision == target.revision
        at = workspace.locate_documents()
        documents = {document.key: document for document in workspace.engine.read_documents(at)}
        with workspace.reader.view() as view:
            held = contents(workspace, view.folder)
        expected = (*(document.header for document in documents.values()), *workspace.engine.list_collections(at))
        if expected not in built:
            built[expected] = _fresh(workspace, at, target.revision, scratch)
        fresh = built[expected]
    finally:
        workspace.close()
    assert held.headers == {key: document.header for key, document in documents.items()}
    for name in Contents._fields:
        assert getattr(held, name) == getattr(fresh, name), name
    return set(documents)


def _fresh(workspace: Workspace, at: At, revision: str, scratch: Path) -> Contents:
    indexer = Indexer(workspace.engine, EmbeddingCache(scratch / "embeddings.sqlite"), workspace.models.load_for, QUIET)
    folder = scratch / "views" / "fresh"
    with Draft(segments_folder(folder)) as draft:
        indexer.update_index(draft, at, base=None)
        draft.clear_touched()
        draft.publish(folder, revision=revision)
    return contents(workspace, folder)


def contents(workspace: Workspace, folder: Path) -> Contents:
    with IndexReader.open(folder) as reader:
        collections, headers, counts = reader.collections, reader.read_headers(), reader.count_chunks_by_document()
        texts, rows = {}, {}
        for (name, doc_id), places in reader.find_rows(headers).items():
            named = reader.read_texts(places)
            for number, row in enumerate(places):
                texts[name, doc_id, number] = named[row]
                rows[name, doc_id, number] = reader.read_vector(row)
    searcher = Searcher(folder, workspace.models.load_for)
    try:
        answers = [
            json.loads(format_json(searcher.search(Query(text, k=8, mode=mode)))) for text in QUERIES for mode in Mode
        ]
    finally:
        searcher.close()
    described = dict(collections)
    return Contents(headers, described, counts, texts, rows, answers)
