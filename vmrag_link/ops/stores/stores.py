"""Store and read system collections.

These are ordinary collections of the kind `system`, which are created on first use. Their documents
have a text, and metadata that programs read again. They are in the knowledge base or, if
`system.versioned` is false, only on this machine.

The code index is always part of the knowledge base, because it is about the checked-out commit. Any
tool may read and change system collections, so a document may have unexpected contents, which
readers must skip. A search without a collection searches only the learnings among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents.import_base import escapes_folder
from vmrag_link.engines.base import Write
from vmrag_link.errors import JsonInvalid, UsageInvalid, enumerated
from vmrag_link.models import (
    CODEBASE,
    SYSTEM,
    SYSTEM_COLLECTIONS,
    At,
    Chunking,
    Collection,
    Document,
    Record,
    content_hash,
    encode_canonical_json,
    parse_metadata,
    parse_user_json,
)
from vmrag_link.workspace import Workspace, local_store, reasons
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.documents.collections import find_exact, list_possible_names, source_read_only
from vmrag_link.workspace.documents.misplaced import PRIVATE_COLLECTIONS
from vmrag_link.workspace.follow.follow_pin import follow

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore, ReadableStore

_, CHATS, LEARNINGS, THOUGHTS, EVIDENCE, TEST_RESULTS = SYSTEM_COLLECTIONS

WHOLE_TEXT = Chunking(size=100_000, overlap=0)
"""Chunking that makes a document one chunk, up to a length that no embedding model can use anyway.
"""


def read_chunking(ws: DocumentStore) -> Chunking:
    """Return the chunking of the settings, for code, whose documents are files."""
    return Chunking(size=ws.config.chunking.size, overlap=ws.config.chunking.overlap)


class CollectionPut(Record, frozen=True):
    """Documents to store in a collection."""

    collection: Collection
    new: bool
    """True if the collection does not exist yet."""
    documents: Sequence[Document]


def find_or_define(ws: DocumentStore, at: At, name: str, *, chunking: Chunking = WHOLE_TEXT) -> tuple[Collection, bool]:
    """Return the collection with exactly this name, or a new one, and whether it is new.

    `chunking` is that of a new collection. Raises `NameInvalid`, and `UsageInvalid` for a
    collection whose documents come from elsewhere.
    """
    collection = collections.find_exact(ws, at, name)
    if collection is None:
        collections.require_name(name)
        model = ws.models.load_named(ws.config.embedding.model)
        return collections.make_collection(name, model, chunking, kind=SYSTEM), True
    if collection.kind not in (SYSTEM, "chroma"):
        raise UsageInvalid(
            f"the collection {name!r} is of the kind {collection.kind}, so you cannot store documents in it.",
            hint="omit collection_name, or name another collection",
            parameter="collection_name",
            value=name,
        )
    return collection, False


def prepare_write(ws: DocumentStore, puts: Sequence[CollectionPut]) -> Write:
    """Return one write for all documents, after embedding them. Raises `EmbeddingError`."""
    for put in puts:
        ws.create_indexer().embed_documents(put.collection, put.documents)
    return Write(
        put_collections=[put.collection for put in puts if put.new],
        put_documents=[document for put in puts for document in put.documents],
    )


def build_document(
    collection: str, doc_id: str, text: str, metadata: Mapping[str, Any], *, before: Document | None = None
) -> Document:
    """Build a document to store, which replaces `before`.

    The first line of the text becomes its title. Metadata may contain lists and objects. Raises
    `JsonInvalid` for metadata that cannot be stored exactly.
    """
    from vmrag_link.workspace.documents.drafts import title_of

    now = clock.now()
    try:
        stored = encode_canonical_json(parse_user_json(json.dumps(metadata)))
    except ValueError as error:
        raise JsonInvalid(f"the metadata of {doc_id!r} {error}.") from None
    return Document(
        collection=collection,
        doc_id=doc_id,
        title=title_of(next(iter(text.strip().splitlines()), ""), {}),
        content=text,
        content_hash=content_hash(text),
        metadata=stored,
        file_type="text",
        created_at=before.created_at if before else now,
        updated_at=now,
    )


def update_metadata(document: Document, **changes: Any) -> Document:
    """Return the document with some changed keys of its metadata."""
    stored = encode_canonical_json(parse_metadata(document) | changes)
    return msgspec.structs.replace(document, metadata=stored, updated_at=clock.now())


def find_tools_store(ws: Workspace, *names: str) -> DocumentStore:
    """Return the store in which the tools of `thinking` and `learning` read and write these
    collections.

    Raises `NotInitialized`, `SourceReadOnly`, and `UsageInvalid` for a collection in the knowledge
    base if only this machine is allowed.
    """
    for name in names:
        require_stored(ws, name)
    if ws.config.system.versioned:
        return ws
    if not ws.is_initialized:
        raise reasons.explain_uninitialized(ws)
    at = find_knowledge(ws) if any(name not in PRIVATE_COLLECTIONS for name in names) else None
    for name in names:
        if name == CODEBASE or (at is not None and name not in PRIVATE_COLLECTIONS and find_exact(ws, at, name)):
            raise UsageInvalid(
                f"the collection {name!r} is in the knowledge base, but system.versioned is false, so this cannot be "
                "stored in it.",
                hint="omit collection_name, or choose a new name",
                parameter="collection_name",
                value=name,
            )
    return ws.local


def find_store(ws: Workspace, name: str) -> DocumentStore:
    """Return the store that has a collection."""
    if ws.config.system.versioned:
        return ws
    is_local = name in PRIVATE_COLLECTIONS or (ws.local.exists and find_exact(ws.local, local_store.AT, name))
    return ws.local if is_local else ws


def find_readable(ws: Workspace, name: str) -> ReadableStore:
    """Return the store from which a collection is read: files of the tree if they are its
    documents, or else `find_store`.
    """
    if not is_made_of_files(ws, name):
        return find_store(ws, name)
    ws.files.notes = ()
    return ws.files


def is_made_of_files(ws: Workspace, name: str) -> bool:
    """Return whether a collection is that of a source, and not also stored in the
    knowledge base.
    """
    derived = {source.collection for source in ws.sources.configured}
    names = derived.intersection(list_possible_names(ws, name)) if derived else ()
    if any(ws.sources.find_writable(name) for name in names):
        return True  # notes hide a stored collection
    return bool(names) and {name, *names}.isdisjoint(ws.list_stored_collections())


def find_common_store(ws: Workspace, names: Sequence[str]) -> DocumentStore:
    """Return the store of the collections that one command names; the knowledge base if there are
    none.

    Raises `UsageInvalid` if they are in different stores.
    """
    stores = {name: find_store(ws, name) for name in names}
    local_names = [name for name, store in stores.items() if store is not ws]
    if not local_names:
        return ws
    if len(local_names) == len(stores):
        return ws.local
    raise UsageInvalid(
        f"{enumerated(local_names)} exist only on this machine, so you cannot name them together with versioned collections.",
        hint="name them in a separate command",
        parameter="collection",
    )


def require_stored(ws: Workspace, name: str, ids: Sequence[str] = ()) -> None:
    """Raise `SourceReadOnly` for a collection that is made of files.

    The error contains the path of the first of these documents or chunks that is a file.
    """
    from vmrag_link.index.metadata import parse_chunk_id

    if is_made_of_files(ws, name):
        paths: list[str] = []
        for identifier in ids:
            chunk = parse_chunk_id(identifier)
            paths += [identifier, chunk[0] if chunk else identifier]
        raise source_read_only(name, next((path for path in paths if _is_file(ws, path)), ""))


def _is_file(ws: Workspace, path: str) -> bool:
    try:
        return not escapes_folder(path) and (ws.places.top / path).is_file()
    except (OSError, ValueError):  # not a valid file name
        return False


def require_versioned(ws: Workspace, name: str, ids: Sequence[str] = ()) -> None:
    """Raise `UsageInvalid` for a collection that only its own tools write, on this machine, and
    `SourceReadOnly` for one that is made of files.

    In the knowledge base, the documents of such a collection would be pushed.
    """
    require_stored(ws, name, ids)
    if find_store(ws, name) is not ws:
        raise UsageInvalid(
            f"the collection {name!r} stays on this machine (system.versioned is false), and only the tools for thoughts, "
            "chats and evidence can write it.",
            hint="name another collection",
            parameter="collection_name",
            value=name,
        )


def find_knowledge(ws: Workspace) -> At | None:
    """Return the position at which the knowledge base is read; None if this code pins none."""
    follow(ws, index=False, tolerate="failures")
    return ws.locate_documents() if ws.current_revision else None
