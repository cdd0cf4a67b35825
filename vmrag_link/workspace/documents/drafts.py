"""Build documents from the texts, ids and metadata that a client passes, and check them.

Ids must be valid and unique, metadata must be storable as JSON without keys that the index
reserves, and a title is derived if the metadata has none.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link.conversion.reading import find_text_title
from vmrag_link.documents.importing import ImportedDocument
from vmrag_link.errors import ContentRefused, DocumentExists
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.models import Document, Record, content_hash, encode_canonical_json, parse_metadata, parse_user_json
from vmrag_link.workspace.documents import collections


class NewDocument(Record, frozen=True):
    """A document to add."""

    text: str
    doc_id: str | None = None
    """None for a new UUID."""
    metadata: Mapping[str, Any] = {}


def text_document(doc_id: str, text: str, *, title: str, metadata: str) -> ImportedDocument:
    """Return a document without a file. `metadata`: canonical JSON. Raises `NameInvalid`."""
    collections.require_document_id(doc_id)
    return msgspec.structs.replace(unnamed_document(text, title=title, metadata=metadata), doc_id=doc_id)


def unnamed_document(text: str, *, title: str, metadata: str) -> ImportedDocument:
    """Return a document without an id. `metadata`: canonical JSON."""
    return ImportedDocument(
        doc_id="",
        title=title,
        content=text,
        content_hash=content_hash(text),
        file_type="text",
        metadata=metadata,
        source="",
        last_modified="",
    )


def new_documents(new: Sequence[NewDocument]) -> list[ImportedDocument]:
    """Return the new documents after a check, in the given order.

    Raises `NameInvalid`, `ContentRefused`, and `DocumentExists` if an id occurs twice.
    """
    ids = [str(uuid.uuid4()) if document.doc_id is None else document.doc_id for document in new]
    for doc_id in ids:
        collections.require_document_id(doc_id)
    if repeated := [doc_id for doc_id, times in Counter(ids).items() if times > 1]:
        raise refused_ids(repeated, "occur more than once")
    return [
        text_document(
            doc_id,
            document.text,
            title=title_of(document.text, document.metadata),
            metadata=checked_metadata(document.metadata, doc_id),
        )
        for doc_id, document in zip(ids, new, strict=True)
    ]


def title_of(text: str, metadata: Mapping[str, Any]) -> str:
    """Return the title in the metadata, or else the first Markdown heading or line of the text."""
    return stated_title(metadata) or find_text_title(text)


def title_after_edit(document: Document, text: str) -> str:
    """Return the title for a new text of a document. A title that the user gave stays."""
    metadata = parse_metadata(document)
    is_derived = document.title == title_of(document.content, metadata)
    return title_of(text, metadata) if is_derived else document.title


def stated_title(metadata: Mapping[str, Any]) -> str:
    """Return the title in the metadata on one line, or ""."""
    title = metadata.get("title")
    return " ".join(title.split()) if isinstance(title, str) else ""


def refuse_reserved(metadata: Mapping[str, Any], doc_id: str) -> None:
    """Raise `ContentRefused` if metadata has a key that the index reserves."""
    for key in metadata:
        if key in RESERVED_METADATA:
            raise ContentRefused(
                f"the metadata of {doc_id!r} has the reserved key {key!r}.",
                hint=f"use another key than the reserved ones: {', '.join(sorted(RESERVED_METADATA))}",
                doc_id=doc_id,
                key=key,
            )


def storable_metadata(metadata: Mapping[str, Any], doc_id: str) -> dict[str, Any]:
    """Return metadata that can be stored exactly. It may have lists and objects.

    Raises `ContentRefused`.
    """
    refuse_reserved(metadata, doc_id)
    try:
        storable: dict[str, Any] = parse_user_json(json.dumps(metadata))
    except ValueError as error:
        raise ContentRefused(
            f"the metadata of {doc_id!r} {error}.", hint="use values that JSON allows", doc_id=doc_id
        ) from None
    return storable


def checked_metadata(metadata: Mapping[str, Any], doc_id: str) -> str:
    """Return a document's metadata as it is stored. Raises `ContentRefused`."""
    for key, value in metadata.items():
        if isinstance(value, dict | list):
            raise ContentRefused(
                f"{key!r} in the metadata of {doc_id!r} is not a text, a number, true, false or null.",
                hint="write it as one text, for example as JSON",
                doc_id=doc_id,
                key=key,
            )
    return encode_canonical_json(storable_metadata(metadata, doc_id))


def refused_ids(ids: Iterable[str], reason: str) -> DocumentExists:
    """Return the error for ids that cannot be added. `reason`: the end of the sentence."""
    repeated = list(ids)
    shown = ", ".join(map(repr, repeated[:3])) + (" …" if repeated[3:] else "")
    return DocumentExists(f"document ids {reason}: {shown}. Nothing was added.", ids=repeated)
