"""`vmrag list` and `vmrag show`: the documents of the workspace, and one of any revision."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from vmrag_link.errors import (
    Busy,
    CollectionMissing,
    DocumentMissing,
    FileSystemError,
    GitReferenceMissing,
    IndexFailed,
    UsageInvalid,
    quoted,
)
from vmrag_link.index.contents import chunk_counts
from vmrag_link.models import At, Record, Working
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history import revparse
from vmrag_link.suggest import nearest, no_collection
from vmrag_link.workspace import Workspace


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


def list_documents(ws: Workspace, collection: str | None) -> ListReport:
    """The documents of the workspace; uncommitted changes are marked, removals among them."""
    move_and_warn(ws)
    at = ws.at()
    if collection is not None and all(each.name != collection for each in ws.engine.collections(at)):
        raise no_collection(collection, [each.name for each in ws.engine.collections(at)])
    changes = {}
    if isinstance(at, Working):
        changes = {change.key: change for change in ws.engine.diff(ws.revision(), at).documents}
    chunks = _chunk_counts(ws, at)
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
            metadata=msgspec.json.decode(each.metadata, type=dict[str, Any]),
            chunks=chunks.get(key),
            uncommitted=changes[key].kind if key in changes else None,
        )
        for key, each in sorted(headers.items())
    ]
    return ListReport(rows)


def _chunk_counts(ws: Workspace, at: At) -> dict[tuple[str, str], int]:
    """Numbers of chunks by document, if an index stands at the place; does not wait for a lock."""
    revision = ws.revision()
    try:
        if isinstance(at, str):
            return {} if ws.snapshots.problem(at) else chunk_counts(ws.snapshots.path(at))
        copy = ws.sync_context._replace(lock_timeout=0).working_copy(at.branch, revision)
        with copy.reading() as problem:
            return {} if problem else chunk_counts(copy.path)
    except (Busy, FileSystemError, IndexFailed):
        return {}


def show(ws: Workspace, name: str) -> ShowReport:
    """The document `[REF:]COLLECTION/DOC`; REF is anything that `revparse.resolve_at` takes.

    Raises `DocumentMissing`, `CollectionMissing`, `UsageInvalid`.
    """
    at: At
    revision, collection, doc_id = _address(ws, name)
    if revision is None:
        move_and_warn(ws)
        revision, at = ws.revision(), ws.at()
    else:
        at = revision
    document = ws.engine.document(at, collection, doc_id)
    if document is None:
        raise no_document(ws, at, collection, doc_id)
    metadata = msgspec.json.decode(document.metadata, type=dict[str, Any])
    return ShowReport(collection, doc_id, document.title, document.content, document.content_hash, metadata, revision)


_ADDRESS = re.compile(r"(?:(?P<ref>.+?):(?=[A-Za-z0-9._-]+/))?(?P<collection>[^/]*)/(?P<doc>.+)", re.DOTALL)


def _address(ws: Workspace, name: str) -> tuple[str | None, str, str]:
    """Revision (None: the workspace), collection and document of `[REF:]COLLECTION/DOC`.

    REF ends at the first colon that a collection's name and a slash can follow. References and
    documents may both have slashes and colons, collections neither: only in `a/b:c/d` the colon may
    belong to the document. It ends REF if there is such a place; `WORKING:a/b:c/d` names the
    document in any case.
    """
    match = _ADDRESS.fullmatch(name)
    if match is None:
        raise UsageInvalid(f"{name!r} is not COLLECTION/DOCUMENT.", hint="vmrag list (shows what there is)")
    reference, collection, doc_id = match.groups()
    if reference is None or reference == revparse.WORKING:
        return None, collection, doc_id
    try:
        return revparse.resolve_rev(ws, reference), collection, doc_id
    except GitReferenceMissing:
        if "/" not in reference:
            raise
    collection, _, doc_id = name.partition("/")
    return None, collection, doc_id


def no_document(ws: Workspace, at: At, collection: str, doc_id: str) -> DocumentMissing | CollectionMissing:
    there = [each.name for each in ws.engine.collections(at)]
    if collection not in there:
        return no_collection(collection, there)
    near = nearest(doc_id, (each.doc_id for each in ws.engine.headers(at, collection=collection)))
    return DocumentMissing(
        f"There is no document {doc_id!r} in collection {collection!r}." + (f" Is it {near!r}?" if near else ""),
        hint=f"vmrag list --collection {quoted(collection)}",
        collection_name=collection,
        doc_id=doc_id,
    )
