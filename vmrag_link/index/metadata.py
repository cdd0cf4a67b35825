"""The metadata of collections and chunks in Chroma, for filters and for other Chroma clients."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

import msgspec

from vmrag_link.models import (
    Collection,
    DocumentHeader,
    DocumentTable,
    Record,
    content_hash,
    encode_canonical_json,
    parse_metadata,
)

MetadataValue = str | int | float | bool | list[str] | list[int] | list[float] | list[bool]

RESERVED_METADATA = frozenset(
    {"source_id", "chunk_index", "total_chunks", "content_hash", "source_table", "collection"}
)

HNSW_PREFIX = "hnsw:"

_CHUNK_ID = r"(?s)(?P<doc>.+)_chunk_(?P<number>0|[1-9][0-9]{0,8})"


class HnswSetting(Record, frozen=True):
    """A setting of an HNSW index."""

    chroma: str
    """The name of the setting in Chroma's configuration."""

    default: int
    low: int
    high: int

    def allows(self, value: object) -> TypeGuard[int]:
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high


HNSW_SETTINGS = {
    "hnsw:M": HnswSetting("max_neighbors", 16, 2, 512),
    "hnsw:construction_ef": HnswSetting("ef_construction", 100, 1, 10_000),
    "hnsw:search_ef": HnswSetting("ef_search", 100, 1, 10_000),
}
"""Settings by the key that clients write into the metadata of a collection.

The limits keep values in fetched knowledge from filling the memory.
"""


SHORTEST_NAME = 3
"""Minimum number of characters of a collection's name in Chroma."""


def make_chroma_name(collection: str) -> str:
    """Return the name of a collection in Chroma. A name that is too short for Chroma gets a hash
    appended.
    """
    if len(collection) >= SHORTEST_NAME:
        return collection
    return f"{collection}-{content_hash(collection)[:8]}"


def chunk_id(doc_id: str, number: int) -> str:
    """Return the id of a chunk in Chroma."""
    return f"{doc_id}_chunk_{number}"


def parse_chunk_id(name: str) -> tuple[str, int] | None:
    """Return the document and the number of the chunk with this id; None if it is not the id of a
    chunk.
    """
    match = re.fullmatch(_CHUNK_ID, name)
    return (match["doc"], int(match["number"])) if match else None


def build_document_metadata(document: DocumentHeader, table: DocumentTable) -> dict[str, MetadataValue]:
    """Return the metadata of a document for filters. It is the same for each of its chunks.

    `table`: the table of the document. Keys with the value None and keys that Chroma reserves are
    left out. Answers do not use this: they read the metadata of a document from the manifest.
    """
    metadata = msgspec.json.decode(document.metadata)
    kept = {key: to_chroma_value(value) for key, value in metadata.items() if value is not None and is_chroma_key(key)}
    if document.title:
        kept.setdefault("title", document.title)
    return kept | _build_origin(document, table)


PROVENANCE = frozenset({"content_hash", "source_table", "collection"})
"""Keys of `build_chunk_metadata` that identify the document. Answers include them on request."""


def build_chunk_metadata(
    document: DocumentHeader, table: DocumentTable, number: int, total: int
) -> dict[str, MetadataValue]:
    """Return the position of a chunk in its document, under the keys of the index
    (`RESERVED_METADATA`).
    """
    return _build_origin(document, table) | {"chunk_index": number, "total_chunks": total}


def _build_origin(document: DocumentHeader, table: DocumentTable) -> dict[str, MetadataValue]:
    return {
        "source_id": document.doc_id,
        "content_hash": document.content_hash,
        "source_table": table,
        "collection": document.collection,
    }


def build_collection_metadata(collection: Collection) -> dict[str, MetadataValue]:
    """Return the metadata of a collection in Chroma, for other clients."""
    metadata = parse_metadata(collection)
    kept = {key: value for key, value in metadata.items() if _is_scalar(value) and is_chroma_key(key)}
    return {key: value for key, value in kept.items() if not key.startswith(HNSW_PREFIX)} | {
        "embedding_function": collection.embedding_function,
        "embedding_model": collection.embedding_model,
    }


def read_chroma_hnsw(collection: Collection) -> dict[str, int]:
    """Return the HNSW settings of a collection by Chroma's names."""
    return {HNSW_SETTINGS[key].chroma: value for key, value in read_hnsw(collection).items()}


def read_hnsw(collection: Collection) -> dict[str, int]:
    """Return the HNSW settings of a collection by the keys of its metadata.

    A missing or invalid value is replaced by the default. Only other clients search Chroma's HNSW
    index: vmrag computes exact answers.
    """
    metadata = parse_metadata(collection)
    settings = ((key, setting, metadata.get(key)) for key, setting in HNSW_SETTINGS.items())
    return {key: value if setting.allows(value) else setting.default for key, setting, value in settings}


def is_chroma_key(key: str) -> bool:
    return key != "" and not key.startswith(("$", "#", "chroma:"))


def to_chroma_value(value: Any) -> MetadataValue:
    """Return a value that Chroma accepts: a scalar, a non-empty list of one type, or else JSON
    text.
    """
    if _is_scalar(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, list) and all(map(_is_scalar, value)) and len({type(item) for item in value}) == 1:
        return value
    return encode_canonical_json(value)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | str | float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
