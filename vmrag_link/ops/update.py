"""Change texts, metadata and embeddings of existing documents, for Chroma's clients and the tools.

A call makes all its changes or none. The documents of a source for notes are files, which are
rewritten.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents.library_origin import add_origin, read_origin
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
    """The new parts of a document; None leaves a part unchanged."""

    name: str
    """The id of the document or of one of its chunks."""
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    embedding: Sequence[float] | None = None


class UpdateCounts(Record, frozen=True):
    """Ids of updated documents."""

    collection: str
    ids: list[str]
    unchanged: list[str]
    """Ids of documents that had the given values already."""
    vectors: dict[str, bytes]
    """The given embeddings, by id."""


def update_documents(ws: Workspace, name: str, changes: Sequence[DocumentUpdate]) -> WriteResult[UpdateCounts]:
    """Change texts and metadata, in the order of `changes`.

    Embeddings change only this machine's index, until it is rebuilt. Raises `CollectionMissing`,
    `DocumentMissing`, `ContentRefused`, `EmbeddingError` if a text cannot be embedded,
    `UsageInvalid` for an invalid embedding, and the errors of `writing.write_rows`.
    """
    new_metadata = [
        None if change.metadata is None else checked_metadata(change.metadata, change.name) for change in changes
    ]
    source = ws.sources.find_writable(name)
    if source:
        return _update_notes(ws, source, changes)
    now = clock.now()

    def plan_update(at: At) -> Planned[UpdateCounts]:
        collection = collections.find_collection(ws, at, name)
        collections.require_plain(collection)
        ids = _find_document_ids(ws, at, collection, changes)
        before = {
            document.doc_id: document
            for document in ws.engine.read_documents(at, collection=collection.name, ids=ids.values())
        }
        after = dict(before)
        for change, metadata in zip(changes, new_metadata, strict=True):
            doc_id = ids[change.name]
            after[doc_id] = _form_new_version(after[doc_id], change.text, metadata)
        vectors = {
            ids[change.name]: _normalize_vector(ws, collection, after[ids[change.name]], change.embedding)
            for change in changes
            if change.embedding is not None
        }
        new = [
            msgspec.structs.replace(document, updated_at=now)
            for document in after.values()
            if document != before[document.doc_id]
        ]
        touched = {document.doc_id for document in new} | vectors.keys()
        ws.create_indexer().embed_documents(collection, new)
        counts = UpdateCounts(
            collection=collection.name,
            ids=[doc_id for doc_id in dict.fromkeys(ids.values()) if doc_id in touched],
            unchanged=[doc_id for doc_id in dict.fromkeys(ids.values()) if doc_id not in touched],
            vectors=vectors,
        )
        return Planned(Write(put_documents=new) if touched else None, counts)

    return writing.write_rows(ws, plan_update, f"update documents of {name}", alter=_add_vectors)


def _update_notes(
    ws: Workspace, source: SourceSettings, changes: Sequence[DocumentUpdate]
) -> WriteResult[UpdateCounts]:
    from vmrag_link.workspace.documents.note_writes import NoteUpdate, update_notes

    if any(change.embedding is not None for change in changes):
        raise UsageInvalid(
            f"the collection {source.collection!r} has files, which cannot hold embeddings.",
            hint="leave embeddings out, or use a stored collection",
            parameter="embeddings",
        )
    ids = _find_note_ids(ws, source, changes)
    updates = [NoteUpdate(ids.get(change.name, change.name), change.text, change.metadata) for change in changes]
    updated = update_notes(ws, source, updates)
    counts = UpdateCounts(source.collection, updated.changed, updated.unchanged, {})
    return WriteResult(counts, None, updated.written.pending, notes=updated.written)


def _find_note_ids(ws: Workspace, source: SourceSettings, changes: Sequence[DocumentUpdate]) -> dict[str, str]:
    """Return the ids of notes by the names of their chunks. Other names need no index."""
    names = [change.name for change in changes if parse_chunk_id(change.name)]
    if not names:
        return {}
    ws.files.refresh()
    collection = collections.find_collection(ws.files, "", source.collection)
    return {named.name: named.doc_id for named in select_documents(ws.files, "", collection, Selection(names)).named}


def _find_document_ids(
    ws: Workspace, at: At, collection: Collection, changes: Sequence[DocumentUpdate]
) -> dict[str, str]:
    """Return the document that each change names. Raises `DocumentMissing`."""
    selected = select_documents(ws, at, collection, Selection([change.name for change in changes]))
    if selected.missing:
        error = no_document(ws.engine, at, collection.name, selected.missing[0])
        error.details["ids"] = selected.missing
        raise error
    return {named.name: named.doc_id for named in selected.named}


def _add_vectors(draft: Draft, counts: UpdateCounts) -> None:
    if counts.vectors:
        draft.replace_vectors(counts.collection, counts.vectors)


def _normalize_vector(ws: Workspace, collection: Collection, document: Document, given: Sequence[float]) -> bytes:
    """Return an embedding as the index stores it: floats of 32 bits, with unit length.

    Raises `UsageInvalid`.
    """
    if len(given) != collection.embedding_dimensions:
        raise UsageInvalid(
            f"an embedding in {collection.name!r} must have {collection.embedding_dimensions} numbers, "
            f"but the one for {document.doc_id!r} has {len(given)}.",
            parameter="embeddings",
        )
    chunks = len(chunks_of(ws, collection, document))
    if chunks > 1:
        raise UsageInvalid(
            f"{document.doc_id!r} has {chunks} chunks, but an embedding is for a document of one chunk.",
            hint="pass embeddings only for short documents, because vmrag embeds each chunk of the others",
            parameter="embeddings",
        )
    try:
        length = math.sqrt(sum(float(value) ** 2 for value in given))
    except OverflowError:
        length = math.inf
    if not 0 < length < math.inf:
        raise UsageInvalid(f"the embedding of {document.doc_id!r} has no direction.", parameter="embeddings")
    return struct.pack(f"<{len(given)}f", *(value / length for value in given))


def _form_new_version(document: Document, text: str | None, metadata: str | None) -> Document:
    """Return the document with a new text, new metadata (canonical JSON) or both.

    A title that was derived from the old text is derived again.
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
        metadata=document.metadata if metadata is None else _keep_origin(document, new),
    )


def _keep_origin(document: Document, metadata: Mapping[str, Any]) -> str:
    """Return the metadata with the recorded origin of a library's document: the file or URL from
    which it was read. Clients cannot change it.
    """
    origin = read_origin(document)
    return encode_canonical_json(add_origin(metadata, origin) if origin else metadata)
