"""What a document of a library was made of: one reserved key of its metadata.

It is versioned with the document, so that every clone knows which bytes it holds already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from vmrag_link.models import Document, DocumentHeader, Record, metadata_of

KEY = "origin"
"""The reserved key."""


class Origin(Record, frozen=True, omit_defaults=True):
    """`hash`: SHA-256 of the bytes, lower-case hex. `etag`, `media_type`: as a server said them.

    `own`: the keys of the metadata that the bytes themselves had, such as front matter; the others
    were given by a person.
    """

    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    etag: str = ""
    media_type: str = ""
    own: tuple[str, ...] = ()


def origin_of(document: Document | DocumentHeader) -> Origin | None:
    """None for a document that was not made of bytes, or of which nobody knows that any more."""
    return _parse(_values(document).get(KEY))


def is_origin(text: bytes) -> bool:
    """Whether a value of metadata, as JSON, is an origin."""
    return _parse(msgspec.json.decode(text)) is not None


def with_origin(metadata: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    return {**metadata, KEY: msgspec.to_builtins(origin)}


def shown_metadata(document: Document | DocumentHeader) -> dict[str, Any]:
    """The metadata without the origin: what clients see."""
    return without_origin(_values(document))


def without_origin(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without an origin; a value of that name that is none stays."""
    return {key: value for key, value in metadata.items() if key != KEY or _parse(value) is None}


def given_metadata(document: Document) -> dict[str, Any]:
    """The part of the metadata that a person gave."""
    found = origin_of(document)
    own = found.own if found else ()
    return {key: value for key, value in shown_metadata(document).items() if key not in own}


def _values(document: Document | DocumentHeader) -> dict[str, Any]:
    return metadata_of(document)


def _parse(value: Any) -> Origin | None:
    try:
        return msgspec.convert(value, type=Origin)
    except msgspec.ValidationError:
        return None
