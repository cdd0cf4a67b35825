"""System collections: ordinary ones, of kind `system`, which are made when they are first needed,
with documents of a text and of metadata that programs read again; and where they are kept: in the
knowledge base, or, where `system.versioned` is false, on this machine alone.

The code index is always part of the knowledge base: it is about the commit that is checked out. Any
tool may read and change system collections; so what stands in one may be something else than what
is expected there, and readers leave that out. A query that names no collection asks that of
learnings only.
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
"""A document is one chunk, as long as no embedding model can make sense of it anyway."""


def read_chunking(ws: DocumentStore) -> Chunking:
    """As the settings say: for code, whose documents are files."""
    return Chunking(size=ws.config.chunking.size, overlap=ws.config.chunking.overlap)


class CollectionPut(Record, frozen=True):
    """Documents to store in a collection, which is `new` or there already."""

    collection: Collection
    new: bool
    documents: Sequence[Document]


def find_or_define(ws: DocumentStore, at: At, name: str, *, chunking: Chunking = WHOLE_TEXT) -> tuple[Collection, bool]:
    """The collection of exactly this name, or one to be made, and whether it is that.

    `chunking` counts for one to be made.

    Raises `NameInvalid`, and `UsageInvalid` for one whose documents come from elsewhere.
    """
    found = collections.find_exact(ws, at, name)
    if found is None:
        collections.require_name(name)
        model = ws.models.load_named(ws.config.embedding.model)
        return collections.make_collection(name, model, chunking, kind=SYSTEM), True
    if found.kind not in (SYSTEM, "chroma"):
        raise UsageInvalid(
            f"The documents of collection {name!r}, of kind {found.kind}, come from elsewhere.",
            hint="Leave collection_name out, or name another collection.",
            parameter="collection_name",
            value=name,
        )
    return found, False


def prepare_write(ws: DocumentStore, puts: Sequence[CollectionPut]) -> Write:
    """All of it in one write; nothing that cannot be embedded. Raises `Embedding` errors."""
    for put in puts:
        ws.create_indexer().embed_documents(put.collection, put.documents)
    return Write(
        put_collections=[put.collection for put in puts if put.new],
        put_documents=[document for put in puts for document in put.documents],
    )


def build_document(
    collection: str, doc_id: str, text: str, metadata: Mapping[str, Any], *, before: Document | None = None
) -> Document:
    """A row to store, in the place of `before`. The first line of the text is its title; metadata
    may hold lists and objects.

    Raises `JsonInvalid` for metadata that cannot be stored exactly.
    """
    from vmrag_link.workspace.documents.drafts import title_of

    now = clock.now()
    try:
        stored = encode_canonical_json(parse_user_json(json.dumps(metadata)))
    except ValueError as error:
        raise JsonInvalid(f"The metadata of {doc_id!r} {error}.") from None
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
    """The document with some keys of its metadata changed."""
    stored = encode_canonical_json(parse_metadata(document) | changes)
    return msgspec.structs.replace(document, metadata=stored, updated_at=clock.now())


def find_tools_store(ws: Workspace, *names: str) -> DocumentStore:
    """Where the tools of `thinking` and `learning` read and write the collections of these names.

    Raises `NotInitialized`, `SourceReadOnly`, and `UsageInvalid` for one that is in the knowledge
    base, where only this machine is allowed.
    """
    for name in names:
        require_stored(ws, name)
    if ws.config.system.versioned:
        return ws
    if not ws.is_initialized:
        raise reasons.explain_uninitialized(ws)
    at = find_knowledge(ws) if any(each not in PRIVATE_COLLECTIONS for each in names) else None
    for name in names:
        if name == CODEBASE or (at is not None and name not in PRIVATE_COLLECTIONS and find_exact(ws, at, name)):
            raise UsageInvalid(
                f"Collection {name!r} is part of the knowledge base, and system.versioned is false: nothing of this "
                "may be stored there.",
                hint="Leave collection_name out, or take a name of its own.",
                parameter="collection_name",
                value=name,
            )
    return ws.local


def find_store(ws: Workspace, name: str) -> DocumentStore:
    """Where a collection is that somebody names."""
    if ws.config.system.versioned:
        return ws
    kept = name in PRIVATE_COLLECTIONS or (ws.local.exists and find_exact(ws.local, local_store.AT, name))
    return ws.local if kept else ws


def find_readable(ws: Workspace, name: str) -> ReadableStore:
    """Where a collection is read that somebody names: in files of the tree, if it is made of them,
    else as `store_of`.
    """
    if not is_made_of_files(ws, name):
        return find_store(ws, name)
    ws.files.notes = ()
    return ws.files


def is_made_of_files(ws: Workspace, name: str) -> bool:
    """Whether a collection is a source's. One that the knowledge base stores, too, is not."""
    derived = {each.collection for each in ws.sources.configured}
    names = derived.intersection(list_possible_names(ws, name)) if derived else ()
    if any(ws.sources.find_writable(name) for name in names):
        return True  # notes hide a stored collection
    return bool(names) and {name, *names}.isdisjoint(ws.list_stored_collections())


def find_common_store(ws: Workspace, names: Sequence[str]) -> DocumentStore:
    """As `store_of`, for those that one command names; the knowledge base if there are none.

    Raises `UsageInvalid` for some of here and some of there.
    """
    found = {name: find_store(ws, name) for name in names}
    if len(here := [name for name, store in found.items() if store is not ws]) in (0, len(found)):
        return ws.local if here else ws
    raise UsageInvalid(
        f"{enumerated(here)} of this machine alone cannot be named together with what is versioned.",
        hint="Name them in a command of their own.",
        parameter="collection",
    )


def require_stored(ws: Workspace, name: str, ids: Sequence[str] = ()) -> None:
    """Raises `SourceReadOnly` for a collection that is made of files, with the path of the first of
    these documents or chunks that is one.
    """
    from vmrag_link.index.metadata import parse_chunk_id

    if is_made_of_files(ws, name):
        documents = [found[0] if (found := parse_chunk_id(identifier)) else identifier for identifier in ids]
        paths = (each for pair in zip(ids, documents, strict=True) for each in pair)
        raise source_read_only(name, next((path for path in paths if _is_file(ws, path)), ""))


def _is_file(ws: Workspace, path: str) -> bool:
    try:
        return not escapes_folder(path) and (ws.places.top / path).is_file()
    except (OSError, ValueError):  # no name that a file could have
        return False


def require_versioned(ws: Workspace, name: str, ids: Sequence[str] = ()) -> None:
    """As `require_stored`. Raises `UsageInvalid` for a collection that its own tools write, on this
    machine alone: from the knowledge base it would be pushed.
    """
    require_stored(ws, name, ids)
    if find_store(ws, name) is not ws:
        raise UsageInvalid(
            f"Collection {name!r} stays on this machine (system.versioned is false), and only the tools for thoughts, "
            "chats and evidence write it.",
            hint="Name another collection.",
            parameter="collection_name",
            value=name,
        )


def find_knowledge(ws: Workspace) -> At | None:
    """Where the knowledge base is read; None where this code pins none."""
    follow(ws, index=False, tolerate="failures")
    return ws.locate_documents() if ws.current_revision else None
