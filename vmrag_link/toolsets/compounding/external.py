"""Search the external documentation of a project: files of the work tree that are indexed and
never stored in the knowledge base.

.git/vmrag/external/<path hash>/views/<contents>-<format>/, segments/

The name of an index is derived from its contents, so an existing index need not be read. It is
derived data, and belongs to this work tree alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link import permissions
from vmrag_link.engines.logical import collection_name
from vmrag_link.errors import DocumentMissing, ExternalDocsMissing, FileFailed, IndexFailed, MassDeletion
from vmrag_link.git.listing import Repositories
from vmrag_link.index import view as index_view
from vmrag_link.index.draft import Draft
from vmrag_link.index.view import find_damaged_segments
from vmrag_link.index.views import Views
from vmrag_link.models import (
    EXTERNAL,
    At,
    Collection,
    Difference,
    Document,
    DocumentHeader,
    encode_canonical_json,
)
from vmrag_link.retrieval.search import Searcher
from vmrag_link.retrieval.thresholds import SearchPurpose
from vmrag_link.sync.indexer import Indexer
from vmrag_link.toolsets.compounding import documents, folder, search
from vmrag_link.toolsets.compounding.folder import Patterns, SkippedDoc
from vmrag_link.toolsets.compounding.mirror import CHUNKING, ActiveProject, IndexedFile
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.toolsets.compounding.search import NearDocument, SearchResult, Threshold, shown_path
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import require_query
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.follow.provenance import find_origin

FOLDER = "external"


class ExternalDocs(NamedTuple):
    """The current files as rows for an index."""

    ws: Workspace
    project: DocsProject
    collection: Collection
    headers: dict[str, DocumentHeader]
    skipped: tuple[SkippedDoc, ...]

    @property
    def contents(self) -> str:
        """A hash that is equal for equal documents with equal index settings."""
        what = encode_canonical_json([self.collection, [*self.headers.values()]])
        return hashlib.sha256(what.encode()).hexdigest()[:40]

    def list_collections(self, _at: At) -> list[Collection]:
        return [self.collection]

    def read_headers(
        self, _at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        yield from self.headers.values() if collection in (None, self.collection.name) and ids is None else ()

    def read_documents(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Iterator[Document]:
        names = [header.doc_id for header in self.read_headers(at, collection=collection, ids=ids)]
        return (document for doc_id in names if (document := self.find_document(at, self.collection.name, doc_id)))

    def find_document(self, _at: At, _collection: str, doc_id: str) -> Document | None:
        """Return a document. Raises `FileFailed` if the file has changed since it was listed."""
        read = _read_document(self.ws, self.project, self.collection.name, doc_id)
        if read.header != self.headers[doc_id]:
            raise FileFailed(f"{doc_id} changed while it was read.", hint="call again", path=doc_id)
        return read

    def count_documents(self, _at: At, *, collection: str | None = None) -> int:
        return len(self.headers) if collection in (None, self.collection.name) else 0

    def diff(self, old: At, new: At) -> Difference:
        raise NotImplementedError  # an index of files is compared with all of them


def find_nearest(
    ws: Workspace,
    active: ActiveProject,
    project: DocsProject,
    query: str,
    *,
    use: SearchPurpose,
    min_score: float | None,
    limit: int,
) -> SearchResult:
    """Return the external documents nearest to a query.

    Raises `ExternalDocsMissing`, `UsageInvalid`, `FileFailed` and `EmbeddingError`.
    """
    require_query(query)
    threshold = Threshold(use, min_score, project.config.semantic_search.min_relevance_score)
    for last in (False, True):
        docs = ensure_index(ws, active, project)
        views = _open_views(ws, project)
        path = views.view_path(docs.contents)
        try:
            with (
                views.lock_for_reading(path),
                contextlib.closing(Searcher(path, ws.models.load_for, ws.ranking)) as searcher,
            ):
                matches = search.find_nearest(searcher, docs.collection.name, query, threshold)
        except IndexFailed:
            if last or not views.remove_if_unused(path):
                raise
            continue
        near = [
            NearDocument(
                shown_path(project.external, match.doc_id),
                _read_document(ws, project, docs.collection.name, match.doc_id),
                match,
            )
            for match in matches.ranked[:limit]
        ]
        return SearchResult(
            collection=docs.collection,
            documents=tuple(near),
            total=len(matches.ranked),
            best=matches.best,
            min_score=matches.min_score,
            origin=find_origin(ws),
        )
    raise AssertionError  # the second attempt returns or raises


def ensure_index(ws: Workspace, active: ActiveProject, project: DocsProject) -> ExternalDocs:
    """Build the index of the current files if it is missing.

    Raises `ExternalDocsMissing`, `FileFailed` and `EmbeddingError`.
    """
    require_configured(project)
    with active.lock:
        docs = _list_documents(ws, active, project)
        views = _open_views(ws, project)
        if views.find_problem(docs.contents):
            _build_index(ws, docs, views)
        return docs


def require_configured(project: DocsProject) -> None:
    """Raise `ExternalDocsMissing`, or `FileFailed` if the folder is missing."""
    if not project.external:
        raise ExternalDocsMissing(
            f"the project {project.name!r} has no external documentation.",
            hint=f'add \'"external_docs": {{"path": "./docs"}}\' to {project.config_path}',
            config_path=project.config_path,
        )
    if not project.external_folder.is_dir():
        raise FileFailed(
            f"no such folder: {project.external_folder}",
            hint=f"correct external_docs.path in {project.config_path}, or create the folder",
            path=str(project.external_folder),
        )


def _list_documents(ws: Workspace, active: ActiveProject, project: DocsProject) -> ExternalDocs:
    settings = project.config.external_docs
    assert settings is not None  # noqa: S101  see `require_configured`
    files = folder.scan_folder(
        project.external_folder,
        Patterns(settings.include_patterns, settings.exclude_patterns),
        Repositories(ws.places).find_hidden,
    )
    model = ws.models.load_named(ws.config.embedding.model)
    name = collection_name(EXTERNAL, project.name)
    collection = msgspec.structs.replace(
        collections.make_collection(name, model, CHUNKING, kind=EXTERNAL), created_at=""
    )
    headers, skipped = active.external.read_headers(
        project, files, lambda doc_id: _read_document(ws, project, name, doc_id)
    )
    return ExternalDocs(ws, project, collection, headers, tuple(skipped))


def _read_document(ws: Workspace, project: DocsProject, collection: str, doc_id: str) -> Document:
    return documents.external_document(collection, doc_id, documents.read_source(ws, project.external_folder, doc_id))


def index_file(ws: Workspace, active: ActiveProject, project: DocsProject, doc_id: str) -> IndexedFile:
    """Read one file again, and rebuild the index if the file has changed.

    Raises the errors of `ensure_index`, and `DocumentMissing` for a file outside the project's
    patterns.
    """
    before = active.external.find_header(doc_id)
    active.external.forget_file(doc_id)
    docs = ensure_index(ws, active, project)
    if doc_id not in docs.headers:
        why = next((skipped.reason for skipped in docs.skipped if skipped.path == doc_id), "the patterns leave it out")
        raise DocumentMissing(
            f"{doc_id} is not part of the external documentation: {why}.",
            hint="correct external_docs.include_patterns in the project's configuration",
            path=doc_id,
        )
    document = _read_document(ws, project, docs.collection.name, doc_id)
    chunks = len(chunks_of(ws, docs.collection, document))
    return IndexedFile(document, docs.collection, chunks, changed=before != document.header)


def _open_views(ws: Workspace, project: DocsProject) -> Views:
    root = ws.places.work_tree_folder / FOLDER / project.path_hash / "views"
    permissions.make_folder(root)
    return Views(root)


def _build_index(ws: Workspace, docs: ExternalDocs, views: Views) -> None:
    """Build from the newest index if little has changed, and then delete that index."""
    views.remove_unfinished()
    indexer = Indexer(docs, ws.embedding_cache, ws.models.load_for, ws.progress)
    with views.segments.pause_collection(), views.temporary_folder() as building:
        for base in views.list_views()[:1]:
            with contextlib.suppress(IndexFailed, MassDeletion), views.lock_for_reading(base.path):
                _update_index(building, docs, indexer, views, base.path)
                break
        else:
            _update_index(building, docs, indexer, views, None)
        path = views.publish(building, docs.contents)
    for view in views.list_newest_first():
        if view != path:
            views.remove_if_unused(view)
    views.segments.remove_unfinished()
    views.segments.collect_garbage([views.root])


def _update_index(building: Path, docs: ExternalDocs, indexer: Indexer, store: Views, base: Path | None) -> None:
    before = index_view.read_view(base) if base else None
    damaged = find_damaged_segments(base) if base else {}
    with Draft(store.segments.root, before, without=damaged.keys()) as draft:
        indexer.update_index(draft, docs.contents, base=None)
        draft.clear_touched()
        draft.publish(building, revision=docs.contents)
