"""System collections: ordinary ones, of kind `system`, which are made when they are first needed,
and the documents in them: a text, and metadata that programs read again.

Any tool may read and change them; so what stands in one may be something else than what is expected
there, and readers leave that out. A query that names no collection asks that of learnings only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link import clock
from vmrag_link.engines.base import Write
from vmrag_link.errors import JsonInvalid, UsageInvalid
from vmrag_link.models import (
    LEARNINGS,
    SYSTEM,
    At,
    Chunking,
    Collection,
    Document,
    Record,
    canonical_json,
    content_hash,
    json_from_user,
    metadata_of,
)
from vmrag_link.ops.documents import collections
from vmrag_link.workspace import DocumentStore

CODEBASE = "codebase_v1"
CHATS = "chat_history_v1"
THOUGHTS = "thinking_sessions_v1"
EVIDENCE = "validation_evidence_v1"
TEST_RESULTS = "test_results_v1"

SYSTEM_COLLECTIONS = (CODEBASE, CHATS, LEARNINGS, THOUGHTS, EVIDENCE, TEST_RESULTS)

WHOLE = Chunking(size=100_000, overlap=0)
"""A document is one chunk, as long as no embedding model can make sense of it anyway."""


def ordinary_chunking(ws: DocumentStore) -> Chunking:
    """As the settings say: for code, whose documents are files."""
    return Chunking(size=ws.config.chunking.size, overlap=ws.config.chunking.overlap)


class Put(Record, frozen=True):
    """Documents to store in a collection, which is `new` or there already."""

    collection: Collection
    new: bool
    documents: Sequence[Document]


def find_or_new(ws: DocumentStore, at: At, name: str, *, chunking: Chunking = WHOLE) -> tuple[Collection, bool]:
    """The collection of exactly this name, or one to be made, and whether it is that.

    `chunking` counts for one to be made.

    Raises `NameInvalid`, and `UsageInvalid` for one whose documents come from elsewhere.
    """
    found = collections.exact(ws, at, name)
    if found is None:
        collections.require_name(name)
        model = ws.models.named(ws.config.embedding.model)
        return collections.empty(name, model, chunking, kind=SYSTEM), True
    if found.kind not in (SYSTEM, "chroma"):
        raise UsageInvalid(
            f"The documents of collection {name!r}, of kind {found.kind}, come from elsewhere.",
            hint="Leave collection_name out, or name another collection.",
            parameter="collection_name",
            value=name,
        )
    return found, False


def prepared(ws: DocumentStore, puts: Sequence[Put]) -> Write:
    """All of it in one write; nothing that cannot be embedded. Raises `Embedding` errors."""
    for each in puts:
        ws.indexer().prepare(each.collection, each.documents)
    return Write(
        put_collections=[each.collection for each in puts if each.new],
        put_documents=[document for each in puts for document in each.documents],
    )


def entry(
    collection: str, doc_id: str, text: str, metadata: Mapping[str, Any], *, before: Document | None = None
) -> Document:
    """A row to store, in the place of `before`. The first line of the text is its title; metadata
    may hold lists and objects.

    Raises `JsonInvalid` for metadata that cannot be stored exactly.
    """
    from vmrag_link.ops.documents.drafts import title_of

    now = clock.now()
    try:
        stored = canonical_json(json_from_user(json.dumps(metadata)))
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


def with_metadata(document: Document, **changes: Any) -> Document:
    """The document with some keys of its metadata changed."""
    stored = canonical_json(metadata_of(document) | changes)
    return msgspec.structs.replace(document, metadata=stored, updated_at=clock.now())
