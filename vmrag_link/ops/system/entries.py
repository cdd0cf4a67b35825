"""Documents of system collections: a text, and metadata that programs read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from vmrag_link import clock
from vmrag_link.errors import JsonInvalid
from vmrag_link.models import Document, canonical_json, content_hash, json_from_user, metadata_of
from vmrag_link.ops.documents.drafts import title_of


def entry(
    collection: str, doc_id: str, text: str, metadata: Mapping[str, Any], *, before: Document | None = None
) -> Document:
    """A row to store, in the place of `before`. The first line of the text is its title; metadata
    may hold lists and objects.

    Raises `JsonInvalid` for metadata that cannot be stored exactly.
    """
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
