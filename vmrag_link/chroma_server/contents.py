"""The contents of a shared collection: its name, its seal, the ids of its records, and its vectors.

The *seal* is metadata that proves that a collection is complete: the number and a digest of its
records. The name of a collection has one of these forms:

vmrag-<owner>-<contents>      sealed: it has all records, and no client changes it
vmrag-<owner>-<contents>-b    a client is building it
vmrag-<owner>-<contents>-x…   abandoned: any client may delete it
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from vmrag_link.chroma.open_index import ChunkRow, DocumentRows, OpenIndex, VectorSource
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection, SharedRow, escape_text
from vmrag_link.chroma_server.server import ServerLimits, split_batches
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import Collection, DocumentHeader, Record, content_hash, encode_canonical_json

FORMAT = 1
BUILDING = "-b"
"""Suffix of a collection that a client is building."""

ABANDONED = "-x"
"""Suffix of a collection that any client may delete."""

_NAME = re.compile(r"vmrag-[0-9a-f]{12}-[0-9a-f]{32}(?P<state>-b|-x[0-9a-f]{6})?")
_RECORD_DIGITS = 32


def make_owner_mark(root_revision: str) -> str:
    """Return the mark of a knowledge base in the names of its collections. All clones have the same
    mark.
    """
    return hashlib.sha256(f"vmrag-owner\0{root_revision}".encode()).hexdigest()[:12]


def fingerprint_contents(collection: Collection, headers: Iterable[DocumentHeader]) -> str:
    """Return a fingerprint of the documents of a collection and of their model, as 32 hex digits.

    The order of the headers does not matter.
    """
    decisive = [
        "vmrag-shared",
        FORMAT,
        collection.name,
        collection.embedding_function,
        collection.embedding_model,
        collection.embedding_dimensions,
        collection.chunking,
    ]
    digest = hashlib.sha256(encode_canonical_json(decisive).encode())
    for row in sorted((header.doc_id, header.title, header.content_hash, header.metadata) for header in headers):
        digest.update(encode_canonical_json(row).encode())
    return digest.hexdigest()[:32]


def collection_name(owner: str, contents: str) -> str:
    return f"vmrag-{owner}-{contents}"


def make_abandoned_name(name: str) -> str:
    """Return a unique name for a collection that will be deleted."""
    return f"{name.removesuffix(BUILDING)}{ABANDONED}{os.urandom(3).hex()}"


def belongs_to(name: str, owner: str) -> bool:
    """Return whether a collection belongs to this knowledge base, in any state."""
    return _NAME.fullmatch(name) is not None and name.split("-")[1] == owner


def is_sealed_name(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and match["state"] is None


def record_id(doc_id: str, number: int, text_hash: str) -> str:
    """Return the id of a chunk's record.

    It proves the text of the chunk, even if the server does not have the text.
    """
    return hashlib.sha256(f"{doc_id}\0{number}\0{text_hash}".encode()).hexdigest()[:_RECORD_DIGITS]


def digest_records(ids: Iterable[str]) -> str:
    """Return a digest of all record ids of a collection. Their order does not matter."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def digest_vectors(vectors: Iterable[tuple[str, bytes]]) -> str:
    """Return a digest of float32 vectors by the hash of their texts. Their order does not
    matter.
    """
    digests = {name: hashlib.sha256(vector).digest() for name, vector in vectors}
    digest = hashlib.sha256()
    for name in sorted(digests):
        digest.update(name.encode())
        digest.update(digests[name])
    return digest.hexdigest()


class CollectionSeal(Record, frozen=True):
    """The seal of a complete collection, in its metadata.

    It comes from a server, so a client compares it with the seal that its own rows give.
    """

    count: int
    records: str
    """See `digest_records`."""

    made: int
    """Seconds since 1970."""

    format: int = FORMAT

    def to_metadata(self, label: str) -> dict[str, Any]:
        """Return the seal as metadata. `label`: the collection's name in the knowledge base, for
        people and other clients.
        """
        return {"collection": label} | {f"vmrag_{name}": value for name, value in msgspec.to_builtins(self).items()}


def parse_seal(metadata: Mapping[str, Any] | None) -> CollectionSeal | None:
    """Return the seal in the metadata of a collection; None if it has none that this version can
    read.
    """
    values = {name.removeprefix("vmrag_"): value for name, value in (metadata or {}).items()}
    try:
        seal = msgspec.convert(values, CollectionSeal)
    except msgspec.ValidationError:
        return None
    return seal if seal.format == FORMAT else None


_BATCH_DOCUMENTS = 500
"""Number of documents whose texts are read together."""


class SharedContents(NamedTuple):
    """A collection of an open index, as it should be on a server."""

    source: OpenIndex
    indexed: IndexedCollection
    owner: str
    vectors: VectorSource
    with_texts: bool

    @property
    def label(self) -> str:
        """The collection's name in the knowledge base."""
        return self.indexed.collection.name

    @property
    def dimensions(self) -> int:
        return self.indexed.collection.embedding_dimensions

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_contents`."""
        return fingerprint_contents(
            self.indexed.collection, (document.header for document in self.source.list_documents(self.indexed))
        )

    @property
    def name(self) -> str:
        """The collection's name on a server. Equal contents have equal names."""
        return collection_name(self.owner, self.fingerprint)

    def list_hashes(self) -> dict[str, str]:
        """Return the hash of each record's text, by the id of the record."""
        return {_make_record_id(chunk): content_hash(chunk.text) for chunks in self._batch_chunks() for chunk in chunks}

    def make_seal(self) -> CollectionSeal:
        """Return the seal of the complete collection."""
        hashes = self.list_hashes()
        return CollectionSeal(len(hashes), digest_records(hashes), int(time.time()))

    def batch_rows(self, limits: ServerLimits) -> Iterator[list[SharedRow]]:
        """Yield all records in batches that the server accepts."""
        return split_batches(self._make_rows(limits), limits.records)

    def digest_vectors(self) -> str:
        """Return the digest of the vectors of all texts (`digest_vectors`)."""
        return digest_vectors((content_hash(chunk.text), vector) for chunk, vector in self._list_embedded())

    def _make_rows(self, limits: ServerLimits) -> Iterator[tuple[SharedRow, int]]:
        for chunk, vector in self._list_embedded():
            length = len(chunk.text.encode())
            fits = limits.text_bytes is None or length <= limits.text_bytes
            text = chunk.text if self.with_texts and fits else None
            metadata = chunk.metadata if limits.metadata else _select_reserved(chunk.metadata)
            yield SharedRow(_make_record_id(chunk), vector, text, metadata), length + len(vector)

    def _list_embedded(self) -> Iterator[tuple[ChunkRow, bytes]]:
        """Yield all chunks with their vectors.

        Equal texts get equal vectors, although a service may have returned different vectors for
        one text.
        """
        counts = Counter(self.list_hashes().values())
        repeated = {text_hash for text_hash, count in counts.items() if count > 1}
        first: dict[str, bytes] = {}
        for chunks in self._batch_chunks():
            vectors = self.vectors(self.source.reader, self.indexed, {chunk.row: chunk.text for chunk in chunks})
            for chunk in chunks:
                text_hash = content_hash(chunk.text)
                vector = vectors[chunk.row]
                yield chunk, first.setdefault(text_hash, vector) if text_hash in repeated else vector

    def _batch_chunks(self) -> Iterator[list[ChunkRow]]:
        batch: list[DocumentRows] = []
        for document in self.source.list_documents(self.indexed):
            batch.append(document)
            if len(batch) == _BATCH_DOCUMENTS:
                yield self.source.list_chunks(self.indexed, batch)
                batch = []
        if batch:
            yield self.source.list_chunks(self.indexed, batch)


def _make_record_id(chunk: ChunkRow) -> str:
    number = chunk.metadata["chunk_index"]
    return record_id(str(chunk.metadata["source_id"]), int(str(number)), content_hash(chunk.text))


def _select_reserved(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key in RESERVED_METADATA}


class ExpectedRecord(NamedTuple):
    """A record that a server should have."""

    hash: str
    """The hash of the chunk's text."""

    length: int
    """The bytes of the chunk's text."""


def fetch_vectors(
    client: ChromaClient,
    collection: RemoteCollection,
    expected_records: Mapping[str, ExpectedRecord],
    *,
    dimensions: int,
    advance: Callable[[int], None],
) -> dict[str, bytes]:
    """Return the float32 vectors of these records, by the hashes of their texts.

    `advance` is called with numbers of records. Raises `ChromaServerFailed` if a record is missing
    or has another text, or if a text has two vectors.
    """
    vectors: dict[str, bytes] = {}
    sizes = ((name, record.length) for name, record in expected_records.items())
    for page in split_batches(sizes, client.limits.records):
        lengths = {name: expected_records[name].length for name in page}
        for name, (vector, text) in client.read_records(collection, lengths, dimensions=dimensions).items():
            record = expected_records[name]
            if text is not None and content_hash(text) != record.hash:
                raise client.make_error(f"changed a text in the collection {escape_text(collection.name)}")
            if vectors.setdefault(record.hash, vector) != vector:
                raise client.make_error(
                    f"has two vectors for one text in the collection {escape_text(collection.name)}"
                )
        advance(len(page))
    return vectors
