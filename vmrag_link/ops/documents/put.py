"""Put documents into a collection, new ones and replacements; all of them or none."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from vmrag_link import clock
from vmrag_link.documents.importing import ImportedDocument, Skipped
from vmrag_link.engines.base import Write
from vmrag_link.models import At, ChangeCounts, Chunking, Collection, Document, DocumentHeader, Record
from vmrag_link.ops.documents import collections, names, writing
from vmrag_link.ops.documents.drafts import refuse_reserved, refused_ids
from vmrag_link.ops.documents.overwriting import Overwritten, comes_from_another_file, overwriting_refusal
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.workspace import Workspace

Existing = Literal["refuse", "replace", "replace_same_file"]
"""What becomes of a document whose id is taken.

`replace_same_file` refuses one that came from another file.
"""


class PutRequest(Record, frozen=True):
    """`documents` for a collection: what `collections.find` finds, or, with `create`, a new one.

    `prune`: remove the documents of the collection whose file in one of these folders is gone; not
    those that are `skipped`. Without `follow` the index is left to its next reader; with
    `embed_first` nothing is stored that cannot be embedded.
    """

    collection: str
    documents: Sequence[ImportedDocument]
    existing: Existing = "refuse"
    create: bool = False
    skipped: Sequence[Skipped] = ()
    prune: Sequence[Path] = ()
    follow: bool = True
    embed_first: bool = False


class PutCounts(Record, frozen=True):
    """Numbers of documents; `created`: whether the collection is new."""

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int


def put(ws: Workspace, request: PutRequest) -> Landed[PutCounts]:
    """Store documents; those whose text, title and metadata are stored already are left alone.

    Raises `NameInvalid`, `CollectionMissing`, `DocumentExists`, `ContentRefused`, with
    `embed_first` `Embedding` errors, and as `writing.write`; then nothing is stored.
    """
    if request.create:
        names.check(request.collection)
    plan = functools.partial(_plan, ws, request)
    return writing.write(ws, plan, f"write to {request.collection}", follow=request.follow)


def _plan(ws: Workspace, request: PutRequest, at: At) -> Planned[PutCounts]:
    collection, new = _collection(ws, at, request)
    documents, name = request.documents, collection.name
    present = {
        each.doc_id: each
        for each in ws.engine.headers(at, collection=name, ids=[document.doc_id for document in documents])
    }
    if present and request.existing == "refuse":
        raise refused_ids(present, f"are in collection {name!r} already")
    changed = [each for each in documents if not _is_same(present.get(each.doc_id), each)]
    gone = sorted(_prunable(ws, at, name, request)) if request.prune else []
    added = sum(each.doc_id not in present for each in changed)
    changes = ChangeCounts(added=added, modified=len(changed) - added, removed=len(gone))
    counts = PutCounts(name, new, changes, len(documents) - len(changed))
    if not changed and not gone and not (new and not request.skipped):
        return Planned(None, msgspec.structs.replace(counts, created=False))
    rows = _rows(ws, at, name, changed, present, replace=request.existing == "replace")
    if request.embed_first:
        ws.indexer().prepare(collection, rows)
    write = Write(
        put_collections=[collection] if new else [],
        put_documents=rows,
        remove_documents=[(name, doc_id) for doc_id in gone],
    )
    return Planned(write, counts)


def _collection(ws: Workspace, at: At, request: PutRequest) -> tuple[Collection, bool]:
    """The collection that is meant, and whether it is new."""
    if not request.create:
        return collections.find(ws, at, request.collection), False
    for each in ws.engine.collections(at):
        if each.name == request.collection:
            return each, False
    chunking = Chunking(size=ws.config.chunking.size, overlap=ws.config.chunking.overlap)
    return collections.empty(request.collection, ws.models.named(ws.config.embedding.model), chunking), True


def _prunable(ws: Workspace, at: At, name: str, request: PutRequest) -> Iterator[str]:
    """Documents whose file in one of the folders is gone."""
    kept = {each.doc_id for each in request.documents} | {each.name for each in request.skipped}
    for document in ws.engine.documents(at, collection=name):
        if document.doc_id in kept or not document.source:
            continue  # imported just now; or it never had a file
        path = ws.places.top / document.source  # an absolute source stays as it is
        if any(path.is_relative_to(folder) for folder in request.prune) and not path.exists():
            yield document.doc_id


def _is_same(present: DocumentHeader | None, new: ImportedDocument) -> bool:
    if present is None:
        return False
    return (present.title, present.content_hash, present.metadata) == (new.title, new.content_hash, new.metadata)


def _rows(
    ws: Workspace, at: At, name: str, changed: list[ImportedDocument], present: Container[str], *, replace: bool
) -> list[Document]:
    """Raises `DocumentExists` for those that came from another file, unless `replace`."""
    now = clock.now()
    rows: list[Document] = []
    overwritten: list[Overwritten] = []
    for each in changed:
        before = ws.engine.document(at, name, each.doc_id) if each.doc_id in present else None
        if before and not replace and comes_from_another_file(ws.places.top, before.source, each.source):
            overwritten.append(Overwritten(each.doc_id, before.source, each.source))
        rows.append(_row(name, each, now, before))
    if overwritten:
        raise overwriting_refusal(name, overwritten)
    return rows


def _row(name: str, new: ImportedDocument, now: str, before: Document | None) -> Document:
    refuse_reserved(msgspec.json.decode(new.metadata, type=dict[str, Any]), new.doc_id)
    return Document(
        collection=name,
        doc_id=new.doc_id,
        title=new.title,
        content=new.content,
        content_hash=new.content_hash,
        metadata=new.metadata,
        source=new.source,
        source_key=new.source,
        file_type=new.file_type,
        last_modified=new.last_modified,
        created_at=before.created_at if before else now,
        updated_at=now,
    )
