"""The metadata of collections and chunks in Chroma, for filters and for outside clients."""

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

_CHUNK = r"(?s)(?P<doc>.+)_chunk_(?P<number>0|[1-9][0-9]{0,8})"


class HnswSetting(Record, frozen=True):
    """A setting of an HNSW index: its name in Chroma's configuration, default and limits."""

    chroma: str
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
"""By the keys of a collection's metadata that clients use. The limits keep a stranger's values from
filling the memory.
"""


SHORTEST_NAME = 3
"""Characters of a collection's name in Chroma, which takes no shorter one."""


def make_chroma_name(collection: str) -> str:
    """A collection's name in Chroma: its own, with a hash behind one that is too short there."""
    if len(collection) >= SHORTEST_NAME:
        return collection
    return f"{collection}-{content_hash(collection)[:8]}"


def chunk_id(doc_id: str, number: int) -> str:
    """The name of a chunk in Chroma."""
    return f"{doc_id}_chunk_{number}"


def parse_chunk_id(name: str) -> tuple[str, int] | None:
    """The document and number of the chunk with this name; None if no chunk can have it."""
    found = re.fullmatch(_CHUNK, name)
    return (found["doc"], int(found["number"])) if found else None


def build_document_metadata(document: DocumentHeader, table: DocumentTable) -> dict[str, MetadataValue]:
    """The document's metadata for filters, the same for each of its chunks. `table`: where it is.

    None and keys reserved by Chroma are left out; answers take a document's metadata from the
    manifest.
    """
    given = msgspec.json.decode(document.metadata)
    kept = {key: to_chroma_value(value) for key, value in given.items() if value is not None and is_chroma_key(key)}
    if document.title:
        kept.setdefault("title", document.title)
    return kept | _origin(document, table)


PROVENANCE = frozenset({"content_hash", "source_table", "collection"})
"""Names of `place` by which a document is told from others; answers have them on request."""


def build_chunk_metadata(
    document: DocumentHeader, table: DocumentTable, number: int, total: int
) -> dict[str, MetadataValue]:
    """The chunk's place in its document, under the index's own names (`RESERVED_METADATA`)."""
    return _origin(document, table) | {"chunk_index": number, "total_chunks": total}


def _origin(document: DocumentHeader, table: DocumentTable) -> dict[str, MetadataValue]:
    return {
        "source_id": document.doc_id,
        "content_hash": document.content_hash,
        "source_table": table,
        "collection": document.collection,
    }


def build_collection_metadata(collection: Collection) -> dict[str, MetadataValue]:
    """The Chroma collection's own metadata, for outside clients."""
    given = parse_metadata(collection)
    kept = {key: value for key, value in given.items() if _scalar(value) and is_chroma_key(key)}
    return {key: value for key, value in kept.items() if not key.startswith(HNSW_PREFIX)} | {
        "embedding_function": collection.embedding_function,
        "embedding_model": collection.embedding_model,
    }


def read_chroma_hnsw(collection: Collection) -> dict[str, int]:
    """What Chroma's HNSW index of the collection is made with, by Chroma's names."""
    return {HNSW_SETTINGS[key].chroma: value for key, value in read_hnsw(collection).items()}


def read_hnsw(collection: Collection) -> dict[str, int]:
    """What Chroma's HNSW index of the collection is made with, by the keys of metadata.

    Values that are not given, or not possible, are the usual ones. Only outside clients search
    there: our own answers are exact.
    """
    given = parse_metadata(collection)
    found = ((key, each, given.get(key)) for key, each in HNSW_SETTINGS.items())
    return {key: value if each.allows(value) else each.default for key, each, value in found}


def is_chroma_key(key: str) -> bool:
    return key != "" and not key.startswith(("$", "#", "chroma:"))


def to_chroma_value(value: Any) -> MetadataValue:
    """Chroma takes scalars and non-empty lists of one type. Everything else becomes JSON text."""
    if _scalar(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, list) and all(map(_scalar, value)) and len({type(each) for each in value}) == 1:
        return value
    return encode_canonical_json(value)


def _scalar(value: Any) -> bool:
    return isinstance(value, bool | str | float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
