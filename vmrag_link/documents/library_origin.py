"""The origin of a library document: the bytes from which it was created.

It is in one reserved key of the metadata. So it is versioned with the document, and every clone
knows which bytes it already has. Clients never see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from vmrag_link.models import Document, DocumentHeader, Record, parse_metadata

KEY = "origin"
"""The reserved key of metadata."""


class Origin(Record, frozen=True, omit_defaults=True, rename={"file_keys": "own"}):
    """The bytes from which a document of a library was created."""

    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the bytes as lower-case hex."""

    etag: str = ""
    """The ETag that the server sent."""

    media_type: str = ""
    """The media type that the server sent."""

    file_keys: tuple[str, ...] = ()
    """Keys of the metadata that the bytes contained, such as front matter. A person gave the other
    keys.
    """


def read_origin(document: Document | DocumentHeader) -> Origin | None:
    """Return the origin of a document; None if it was not created from bytes or has no recorded
    origin.
    """
    return _parse_origin(parse_metadata(document).get(KEY))


def is_origin(text: bytes) -> bool:
    """Return whether a value of metadata, as JSON, is an origin."""
    return _parse_origin(msgspec.json.decode(text)) is not None


def add_origin(metadata: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """Return metadata with an origin."""
    return {**metadata, KEY: msgspec.to_builtins(origin)}


def read_visible_metadata(document: Document | DocumentHeader) -> dict[str, Any]:
    """Return the metadata without the origin, as clients see it."""
    return remove_origin(parse_metadata(document))


def remove_origin(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without an origin. A value of the reserved key that is not an origin
    stays.
    """
    return {key: value for key, value in metadata.items() if key != KEY or _parse_origin(value) is None}


def read_given_metadata(document: Document) -> dict[str, Any]:
    """Return the part of the metadata that a person gave."""
    document_origin = read_origin(document)
    keys_of_bytes = document_origin.file_keys if document_origin else ()
    return {key: value for key, value in read_visible_metadata(document).items() if key not in keys_of_bytes}


def _parse_origin(value: Any) -> Origin | None:
    try:
        return msgspec.convert(value, type=Origin)
    except msgspec.ValidationError:
        return None
