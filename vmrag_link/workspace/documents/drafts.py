"""Documents as clients give them: ids, metadata and titles are checked or made here."""

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
    """A document to add; without an id it gets one."""

    text: str
    doc_id: str | None = None
    metadata: Mapping[str, Any] = {}


def text_document(doc_id: str, text: str, *, title: str, metadata: str) -> ImportedDocument:
    """A document that came from no file; `metadata` is canonical JSON. Raises `NameInvalid`."""
    collections.require_document_id(doc_id)
    return msgspec.structs.replace(unnamed_document(text, title=title, metadata=metadata), doc_id=doc_id)


def unnamed_document(text: str, *, title: str, metadata: str) -> ImportedDocument:
    """A document without an id; `metadata` is canonical JSON."""
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
    """Check new documents; in the order given.

    Raises `NameInvalid`, `ContentRefused`, and `DocumentExists` for an id that is given twice.
    """
    ids = [str(uuid.uuid4()) if each.doc_id is None else each.doc_id for each in new]
    for doc_id in ids:
        collections.require_document_id(doc_id)
    if repeated := [doc_id for doc_id, times in Counter(ids).items() if times > 1]:
        raise refused_ids(repeated, "stand in the call more than once")
    return [
        text_document(
            doc_id,
            each.text,
            title=title_of(each.text, each.metadata),
            metadata=checked_metadata(each.metadata, doc_id),
        )
        for doc_id, each in zip(ids, new, strict=True)
    ]


def title_of(text: str, metadata: Mapping[str, Any]) -> str:
    """The title of the metadata, else the first Markdown heading, else the text's beginning."""
    return stated_title(metadata) or find_text_title(text)


def title_after_edit(document: Document, text: str) -> str:
    """Return the title of a document with another text, derived again if the old text gave it."""
    metadata = parse_metadata(document)
    derived = document.title == title_of(document.content, metadata)
    return title_of(text, metadata) if derived else document.title


def stated_title(metadata: Mapping[str, Any]) -> str:
    title = metadata.get("title")
    return " ".join(title.split()) if isinstance(title, str) else ""


def refuse_reserved(metadata: Mapping[str, Any], doc_id: str) -> None:
    """Raise `ContentRefused` for a key that the index needs for itself."""
    for key in metadata:
        if key in RESERVED_METADATA:
            raise ContentRefused(
                f"The metadata of {doc_id!r} uses {key!r}, which the index needs for itself.",
                hint=f"Use another key than {', '.join(sorted(RESERVED_METADATA))}.",
                doc_id=doc_id,
                key=key,
            )


def storable_metadata(metadata: Mapping[str, Any], doc_id: str) -> dict[str, Any]:
    """Metadata that may hold lists and objects, if it can be stored exactly.

    Raises `ContentRefused`.
    """
    refuse_reserved(metadata, doc_id)
    try:
        found: dict[str, Any] = parse_user_json(json.dumps(metadata))
    except ValueError as error:
        raise ContentRefused(
            f"The metadata of {doc_id!r} {error}.", hint="Use what JSON can say.", doc_id=doc_id
        ) from None
    return found


def checked_metadata(metadata: Mapping[str, Any], doc_id: str) -> str:
    """A document's metadata as it is stored. Raises `ContentRefused`."""
    for key, value in metadata.items():
        if isinstance(value, dict | list):
            raise ContentRefused(
                f"{key!r} in the metadata of {doc_id!r} is no text, number, true, false or null.",
                hint="Put it into one text, for example as JSON.",
                doc_id=doc_id,
                key=key,
            )
    return encode_canonical_json(storable_metadata(metadata, doc_id))


def refused_ids(ids: Iterable[str], what: str) -> DocumentExists:
    found = list(ids)
    shown = ", ".join(map(repr, found[:3])) + (" …" if found[3:] else "")
    return DocumentExists(f"Document ids {what}: {shown}. Nothing was added.", ids=found)
