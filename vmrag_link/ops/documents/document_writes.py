"""Documents that clients add, change and delete one by one: each call all or nothing."""

from __future__ import annotations

import json
import math
import struct
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents.reading import markdown_title
from vmrag_link.engines.base import Write
from vmrag_link.errors import ContentRefused, DocumentExists, NothingSelected, UsageInvalid
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.index.store import IndexStore
from vmrag_link.models import At, Collection, Document, Record, canonical_json, content_hash, json_from_user
from vmrag_link.ops.documents import collections, names, writing
from vmrag_link.ops.documents.document_selection import Selection, chunked, select
from vmrag_link.ops.documents.documents import no_document
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.workspace import Workspace

TITLE = 80
"""Characters of a text that stand for its title where it has none."""


class New(Record, frozen=True):
    """A document to add; without an id it gets one."""

    text: str
    doc_id: str | None = None
    metadata: Mapping[str, Any] = {}


class DocumentUpdate(Record, frozen=True):
    """What becomes of a document; None leaves that part alone. `name`: its id, or that of a chunk of it."""

    name: str
    text: str | None = None
    metadata: Mapping[str, Any] | None = None
    embedding: Sequence[float] | None = None


class AddReport(Record, frozen=True):
    """`chunks`: how many the index holds of them; `pending`: why it did not follow yet, if so."""

    collection: str
    ids: list[str]
    chunks: int
    pending: str = ""


class UpdateReport(Record, frozen=True):
    """Ids of documents; `unchanged` got what they had."""

    collection: str
    ids: list[str]
    unchanged: list[str]
    pending: str = ""


class DeleteReport(Record, frozen=True):
    """`ids` of documents; `missing` were asked for, and name neither a document nor a chunk."""

    collection: str
    ids: list[str]
    missing: list[str]
    pending: str = ""


def add(ws: Workspace, name: str, new: Sequence[New], *, follow: bool = True) -> AddReport:
    """Add documents to a collection that exists. Without `follow` the index is left to whoever needs it next.

    Raises `CollectionMissing`, `DocumentExists`, `NameInvalid`, `ContentRefused`, `Embedding` errors for what cannot be embedded, and as
    `writing.write`; then nothing is written.
    """
    ids = [str(uuid.uuid4()) if each.doc_id is None else each.doc_id for each in new]
    for doc_id in ids:
        names.check_document(doc_id)
    if repeated := [doc_id for doc_id, times in Counter(ids).items() if times > 1]:
        raise _exists(repeated, "stand in the call more than once")
    now = clock.now()
    metadatas = [checked_metadata(each.metadata, doc_id) for doc_id, each in zip(ids, new, strict=True)]

    def rows(at: At, collection: Collection) -> Write:
        there = ws.engine.headers(at, collection=collection.name, ids=ids)
        if present := [each.doc_id for each in there]:
            raise _exists(present, f"are in collection {collection.name!r} already")
        documents = [
            Document(
                collection=collection.name,
                doc_id=doc_id,
                title=title_of(each.text, each.metadata),
                content=each.text,
                content_hash=content_hash(each.text),
                metadata=metadata,
                file_type="text",
                created_at=now,
                updated_at=now,
            )
            for doc_id, each, metadata in zip(ids, new, metadatas, strict=True)
        ]
        if follow:
            ws.indexer().prepare(collection, documents)
        return Write(put_documents=documents)

    collection, landed = _write(ws, name, rows, "add documents to", follow=follow)
    assert landed is not None  # noqa: S101  there is always something to add
    return AddReport(collection, ids, landed.chunks, landed.pending)


def update(ws: Workspace, name: str, changes: Sequence[DocumentUpdate]) -> UpdateReport:
    """Change texts and metadata, in the order of `changes`. Raises as `add`, but `DocumentMissing` for what is not there.

    Embeddings are the index's of this machine alone, until it is built again; raises `UsageInvalid` for one that cannot be.
    """
    given = [each.metadata if each.metadata is None else checked_metadata(each.metadata, each.name) for each in changes]
    now = clock.now()
    unchanged: list[str] = []
    vectors: dict[str, bytes] = {}
    meant = name

    def rows(at: At, collection: Collection) -> Write | None:
        found = select(ws, at, collection, Selection([each.name for each in changes]))
        if found.missing:
            error = no_document(ws, at, collection.name, found.missing[0])
            error.details["ids"] = found.missing
            raise error
        ids = {named.name: named.doc_id for named in found.named}
        before = {each.doc_id: each for each in ws.engine.documents(at, collection=collection.name, ids=ids.values())}
        after = dict(before)
        for each, metadata in zip(changes, given, strict=True):
            after[ids[each.name]] = _changed(after[ids[each.name]], each.text, metadata)
        documents = [
            msgspec.structs.replace(each, updated_at=now) for each in after.values() if each != before[each.doc_id]
        ]
        vectors.clear()
        for each in changes:
            if each.embedding is not None:
                vectors[ids[each.name]] = _vector(ws, collection, after[ids[each.name]], each.embedding)
        nonlocal meant
        meant = collection.name
        untouched = {doc_id for doc_id in after if after[doc_id] == before[doc_id] and doc_id not in vectors}
        unchanged[:] = [doc_id for doc_id in dict.fromkeys(ids.values()) if doc_id in untouched]
        changed[:] = [doc_id for doc_id in dict.fromkeys(ids.values()) if doc_id not in untouched]
        ws.indexer().prepare(collection, documents)
        return Write(put_documents=documents) if documents or vectors else None

    def alter(store: IndexStore) -> None:
        if vectors:
            store.embed(meant, vectors)

    changed: list[str] = []
    collection, landed = _write(ws, name, rows, "update documents of", alter=alter)
    return UpdateReport(collection, changed, unchanged, landed.pending if landed else "")


def delete(ws: Workspace, name: str, selection: Selection) -> DeleteReport:
    """Delete documents; the id of a chunk means its document. Raises `NothingSelected`, `CollectionMissing`, `FilterInvalid`, and as
    `writing.write`.
    """
    if not selection.ids and not selection.filtered:
        raise NothingSelected(
            "Nothing says which documents are meant.", hint="Name ids, or give a filter that is not empty."
        )
    gone: list[str] = []
    missing: list[str] = []

    def rows(at: At, collection: Collection) -> Write | None:
        found = select(ws, at, collection, selection)
        gone[:] = dict.fromkeys(named.doc_id for named in found.named)
        missing[:] = found.missing
        return Write(remove_documents=[(collection.name, doc_id) for doc_id in gone]) if gone else None

    collection, landed = _write(ws, name, rows, "delete documents of")
    return DeleteReport(collection, gone, missing, landed.pending if landed else "")


def _write(
    ws: Workspace,
    name: str,
    rows: Callable[[At, Collection], Write | None],
    purpose: str,
    *,
    follow: bool = True,
    alter: Callable[[IndexStore], None] = lambda _: None,
) -> tuple[str, Landed | None]:
    """The name of the collection that was meant, and where the rows landed."""
    meant = name

    def plan(at: At) -> Write | None:
        nonlocal meant
        collection = collections.find(ws, at, name)
        meant = collection.name
        return rows(at, collection)

    landed = writing.write(ws, plan, f"{purpose} {name}", follow=follow, alter=alter)
    return meant, landed


def _vector(ws: Workspace, collection: Collection, document: Document, given: Sequence[float]) -> bytes:
    """What the index takes for an embedding: of unit length. Raises `UsageInvalid`."""
    if len(given) != collection.embedding_dimensions:
        raise UsageInvalid(
            f"An embedding in {collection.name!r} has {collection.embedding_dimensions} numbers, "
            f"that of {document.doc_id!r} has {len(given)}.",
            parameter="embeddings",
        )
    chunks = len(chunked(ws, collection, document))
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


def _changed(document: Document, text: str | None, metadata: str | None) -> Document:
    """With a new text, new metadata (canonical JSON) or both; a title that came from what is replaced is made again."""
    old = msgspec.json.decode(document.metadata, type=dict[str, Any])
    new = old if metadata is None else msgspec.json.decode(metadata, type=dict[str, Any])
    content = document.content if text is None else text
    derived = _stated(new) or document.title == title_of(document.content, old)
    return msgspec.structs.replace(
        document,
        title=title_of(content, new) if derived else document.title,
        content=content,
        content_hash=document.content_hash if text is None else content_hash(text),
        metadata=document.metadata if metadata is None else metadata,
    )


def title_of(text: str, metadata: Mapping[str, Any]) -> str:
    """What the metadata says, else the first Markdown heading, else how the text begins."""
    return _stated(metadata) or markdown_title(text) or " ".join(text[: 4 * TITLE].split())[:TITLE]


def _stated(metadata: Mapping[str, Any]) -> str:
    title = metadata.get("title")
    return " ".join(title.split()) if isinstance(title, str) else ""


def checked_metadata(metadata: Mapping[str, Any], doc_id: str) -> str:
    """A document's metadata as it is stored. Raises `ContentRefused`."""
    for key, value in metadata.items():
        if key in RESERVED_METADATA:
            raise ContentRefused(
                f"The metadata of {doc_id!r} uses {key!r}, which the index needs for itself.",
                hint=f"Use another key than {', '.join(sorted(RESERVED_METADATA))}.",
                doc_id=doc_id,
                key=key,
            )
        if isinstance(value, dict | list):
            raise ContentRefused(
                f"{key!r} in the metadata of {doc_id!r} is no text, number, true, false or null.",
                hint="Put it into one text, for example as JSON.",
                doc_id=doc_id,
                key=key,
            )
    try:
        return canonical_json(json_from_user(json.dumps(metadata)))
    except ValueError as error:
        raise ContentRefused(f"The metadata of {doc_id!r} {error}.", doc_id=doc_id) from None


def _exists(ids: Iterable[str], what: str) -> DocumentExists:
    found = list(ids)
    shown = ", ".join(map(repr, found[:3])) + (" …" if found[3:] else "")
    return DocumentExists(f"Document ids {what}: {shown}. Nothing was added.", ids=found)
