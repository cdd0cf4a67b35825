"""`vmrag list` and `vmrag show`: the documents of the workspace, and one of any revision."""

from __future__ import annotations

from typing import Any, Literal

from vmrag_link.errors import Busy, FileSystemError, IndexFailed
from vmrag_link.index.contents import chunk_counts
from vmrag_link.models import At, Record, Working, metadata_of
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history import document_names
from vmrag_link.ops.history.document_names import DocumentName, DocumentPlace
from vmrag_link.suggest import no_collection
from vmrag_link.workspace import DocumentStore, Workspace, local_store


class DocumentRow(Record, frozen=True):
    """`chunks` is None unless an index that stands at what is listed holds the document."""

    collection: str
    doc_id: str
    title: str
    content_hash: str
    metadata: dict[str, Any]
    chunks: int | None
    uncommitted: Literal["added", "modified", "removed"] | None


class ListReport(Record, frozen=True):
    documents: list[DocumentRow]


class ShowReport(Record, frozen=True):
    collection: str
    doc_id: str
    title: str
    content: str
    content_hash: str
    metadata: dict[str, Any]
    revision: str


def list_documents(ws: DocumentStore, collection: str | None) -> ListReport:
    """The documents of the workspace; uncommitted changes are marked, removals among them."""
    at = _place(ws)
    if collection is not None and all(each.name != collection for each in ws.engine.collections(at)):
        raise no_collection(collection, [each.name for each in ws.engine.collections(at)])
    changes = {}
    if isinstance(at, Working) and isinstance(ws, Workspace):
        changes = {change.key: change for change in ws.engine.diff(ws.revision(), at).documents}
    chunks = _chunk_counts(ws, at) if isinstance(ws, Workspace) else {}
    headers = {each.key: each for each in ws.engine.headers(at, collection=collection)}
    for key, change in changes.items():
        if change.before and change.kind == "removed" and collection in (None, key[0]):
            headers[key] = change.before
    rows = [
        DocumentRow(
            collection=each.collection,
            doc_id=each.doc_id,
            title=each.title,
            content_hash=each.content_hash,
            metadata=metadata_of(each),
            chunks=chunks.get(key),
            uncommitted=changes[key].kind if key in changes else None,
        )
        for key, each in sorted(headers.items())
    ]
    return ListReport(rows)


def _place(ws: DocumentStore) -> At:
    """Where documents are read, once the pin was followed."""
    if not isinstance(ws, Workspace):
        return local_store.AT
    move_and_warn(ws)
    return ws.at()


def _chunk_counts(ws: Workspace, at: At) -> dict[tuple[str, str], int]:
    """Numbers of chunks by document, if an index stands at the place; does not wait for a lock."""
    revision = ws.revision()
    try:
        if isinstance(at, str):
            return {} if ws.views.problem(at) else chunk_counts(ws.views.path(at))
        copy = ws.sync_context._replace(lock_timeout=0).working_copy(at.branch, revision)
        with copy.reading() as problem:
            return {} if problem else chunk_counts(copy.path)
    except (Busy, FileSystemError, IndexFailed):
        return {}


def show(ws: DocumentStore, name: str) -> ShowReport:
    """The document `[REF:]NAME`, as `document_names.find_at` takes it and raises."""
    return shown(ws, *document_names.find_at(ws, name))


def shown(ws: DocumentStore, place: DocumentPlace, name: DocumentName) -> ShowReport:
    """Raises `DocumentMissing`, `CollectionMissing`."""
    document = ws.engine.document(place.at, *name.key)
    if document is None:  # removed since it was looked up
        raise document_names.no_document(ws.engine, place.at, *name.key)
    metadata = metadata_of(document)
    return ShowReport(*name.key, document.title, document.content, document.content_hash, metadata, place.revision)
