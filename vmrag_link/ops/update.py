"""Change documents that are there: texts, metadata, embeddings; all of a call or nothing."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents.import_base import add_origin, read_origin
from vmrag_link.engines.base import Write
from vmrag_link.errors import UsageInvalid
from vmrag_link.index.draft import Draft
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import At, Collection, Document, Record, content_hash, encode_canonical_json, parse_metadata
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.documents.document_selection import Selection, chunks_of, select_documents
from vmrag_link.workspace.documents.drafts import checked_metadata, stated_title, title_of
from vmrag_link.workspace.documents.writing import Planned, WriteResult
from vmrag_link.workspace.history.document_names import no_document


class DocumentUpdate(Record, frozen=True):
    """What becomes of a document; None leaves that part alone.

    `name`: its id, or that of a chunk of it.
    """

    name: str
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    embedding: Sequence[float] | None = None


class UpdateCounts(Record, frozen=True):
    """Ids of documents; `unchanged` got what they had. `vectors`: the given embeddings."""

    collection: str
    ids: list[str]
    unchanged: list[str]
    vectors: dict[str, bytes]


def update_documents(ws: Workspace, name: str, changes: Sequence[DocumentUpdate]) -> WriteResult[UpdateCounts]:
    """Change texts and metadata, in the order of `changes`.

    Embeddings are the index's of this machine alone, until it is built again. Raises
    `CollectionMissing`, `DocumentMissing`, `ContentRefused`, `Embedding` errors for what cannot be
    embedded, `UsageInvalid` for an embedding that cannot be, and as `writing.write`.
    """
    given = [
        change.metadata if change.metadata is None else checked_metadata(change.metadata, change.name)
        for change in changes
    ]
    if source := ws.sources.find_writable(name):
        return _update_notes(ws, source, changes)
    now = clock.now()

    def plan(at: At) -> Planned[UpdateCounts]:
        collection = collections.find_collection(ws, at, name)
        collections.require_plain(collection)
        ids = _document_ids(ws, at, collection, changes)
        before = {
            document.doc_id: document
            for document in ws.engine.read_documents(at, collection=collection.name, ids=ids.values())
        }
        after = dict(before)
        for change, metadata in zip(changes, given, strict=True):
            doc_id = ids[change.name]
            after[doc_id] = _new_version(after[doc_id], change.text, metadata)
        vectors = {
            ids[change.name]: _vector(ws, collection, after[ids[change.name]], change.embedding)
            for change in changes
            if change.embedding is not None
        }
        new = [msgspec.structs.replace(each, updated_at=now) for each in after.values() if each != before[each.doc_id]]
        touched = {each.doc_id for each in new} | vectors.keys()
        ws.create_indexer().embed_documents(collection, new)
        counts = UpdateCounts(
            collection.name,
            [doc_id for doc_id in dict.fromkeys(ids.values()) if doc_id in touched],
            [doc_id for doc_id in dict.fromkeys(ids.values()) if doc_id not in touched],
            vectors,
        )
        return Planned(Write(put_documents=new) if touched else None, counts)

    return writing.write_rows(ws, plan, f"update documents of {name}", alter=_embed)


def _update_notes(
    ws: Workspace, source: SourceSettings, changes: Sequence[DocumentUpdate]
) -> WriteResult[UpdateCounts]:
    from vmrag_link.workspace.documents.note_writes import NoteUpdate, update_notes

    if any(change.embedding is not None for change in changes):
        raise UsageInvalid(
            f"the collection {source.collection!r} has files, which cannot hold embeddings.",
            hint="Leave embeddings out, or use a stored collection",
            parameter="embeddings",
        )
    ids = _note_ids(ws, source, changes)
    updates = [NoteUpdate(ids.get(change.name, change.name), change.text, change.metadata) for change in changes]
    updated = update_notes(ws, source, updates)
    counts = UpdateCounts(source.collection, updated.changed, updated.unchanged, {})
    return WriteResult(counts, None, updated.written.pending, notes=updated.written)


def _note_ids(ws: Workspace, source: SourceSettings, changes: Sequence[DocumentUpdate]) -> dict[str, str]:
    """Return the notes that names of chunks mean. Names that cannot be chunks need no index."""
    names = [change.name for change in changes if parse_chunk_id(change.name)]
    if not names:
        return {}
    ws.files.refresh()
    collection = collections.find_collection(ws.files, "", source.collection)
    return {named.name: named.doc_id for named in select_documents(ws.files, "", collection, Selection(names)).named}


def _document_ids(ws: Workspace, at: At, collection: Collection, changes: Sequence[DocumentUpdate]) -> dict[str, str]:
    """The document that each change names. Raises `DocumentMissing`."""
    found = select_documents(ws, at, collection, Selection([change.name for change in changes]))
    if found.missing:
        error = no_document(ws.engine, at, collection.name, found.missing[0])
        error.details["ids"] = found.missing
        raise error
    return {named.name: named.doc_id for named in found.named}


def _embed(draft: Draft, counts: UpdateCounts) -> None:
    if counts.vectors:
        draft.replace_vectors(counts.collection, counts.vectors)


def _vector(ws: Workspace, collection: Collection, document: Document, given: Sequence[float]) -> bytes:
    """The embedding as the index takes it: of unit length. Raises `UsageInvalid`."""
    if len(given) != collection.embedding_dimensions:
        raise UsageInvalid(
            f"An embedding in {collection.name!r} has {collection.embedding_dimensions} numbers, "
            f"that of {document.doc_id!r} has {len(given)}.",
            parameter="embeddings",
        )
    chunks = len(chunks_of(ws, collection, document))
    if chunks > 1:
        raise UsageInvalid(
            f"{document.doc_id!r} has {chunks} chunks, and an embedding is for a document of one.",
            hint="Give embeddings for short documents only; the others are embedded chunk by chunk.",
            parameter="embeddings",
        )
    try:
        length = math.sqrt(sum(float(each) ** 2 for each in given))
    except OverflowError:
        length = math.inf
    if not 0 < length < math.inf:
        raise UsageInvalid(f"The embedding of {document.doc_id!r} has no direction.", parameter="embeddings")
    return struct.pack(f"<{len(given)}f", *(each / length for each in given))


def _new_version(document: Document, text: str | None, metadata: str | None) -> Document:
    """The document with a new text, new metadata (canonical JSON) or both.

    A title that was derived from the replaced text is derived again.
    """
    old = parse_metadata(document)
    new = old if metadata is None else msgspec.json.decode(metadata, type=dict[str, Any])
    content = document.content if text is None else text
    derived = stated_title(new) or document.title == title_of(document.content, old)
    return msgspec.structs.replace(
        document,
        title=title_of(content, new) if derived else document.title,
        content=content,
        content_hash=document.content_hash if text is None else content_hash(text),
        metadata=document.metadata if metadata is None else _with_origin_kept(document, new),
    )


def _with_origin_kept(document: Document, metadata: Mapping[str, Any]) -> str:
    """What a library's document was made of is no metadata of the client's, whatever it gives."""
    made_of = read_origin(document)
    return encode_canonical_json(add_origin(metadata, made_of) if made_of else metadata)
