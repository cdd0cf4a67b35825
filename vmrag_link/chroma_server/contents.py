"""A collection of a sealed index as it is on a server, what it and its records are called there,
and the vectors of such a collection, as far as they belong to texts that are known here.

vmrag-<owner>-<contents>      sealed: all of its records are there, and nobody changes it
vmrag-<owner>-<contents>-b    somebody is building it
vmrag-<owner>-<contents>-x…   given up; whoever finds it may delete it
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

from vmrag_link.chroma.check import ChunkRow, DocumentRows, OpenIndex, VectorSource
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection, SharedRow, escape_text
from vmrag_link.chroma_server.server import ServerLimits, split_batches
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import Collection, DocumentHeader, Record, content_hash, encode_canonical_json

FORMAT = 1
BUILDING, GIVEN_UP = "-b", "-x"
_NAME = re.compile(r"vmrag-[0-9a-f]{12}-[0-9a-f]{32}(?P<state>-b|-x[0-9a-f]{6})?")
_RECORD_DIGITS = 32


def make_owner_mark(root_revision: str) -> str:
    """The mark of a knowledge base in names of collections; all of its clones have the same."""
    return hashlib.sha256(f"vmrag-owner\0{root_revision}".encode()).hexdigest()[:12]


def fingerprint_contents(collection: Collection, headers: Iterable[DocumentHeader]) -> str:
    """A fingerprint of what a collection holds and what decides its vectors: 32 digits.

    The order of the headers does not matter.
    """
    decisive = [collection.name, collection.embedding_function, collection.embedding_model]
    numbers = [collection.embedding_dimensions, collection.chunking]
    digest = hashlib.sha256(encode_canonical_json(["vmrag-shared", FORMAT, *decisive, *numbers]).encode())
    for row in sorted((header.doc_id, header.title, header.content_hash, header.metadata) for header in headers):
        digest.update(encode_canonical_json(row).encode())
    return digest.hexdigest()[:32]


def collection_name(owner: str, contents: str) -> str:
    return f"vmrag-{owner}-{contents}"


def make_abandoned_name(name: str) -> str:
    """A name that nobody else gives a collection, for one that is to go."""
    return f"{name.removesuffix(BUILDING)}{GIVEN_UP}{os.urandom(3).hex()}"


def belongs_to(name: str, owner: str) -> bool:
    """Whether a collection is one of this knowledge base, in any state."""
    return _NAME.fullmatch(name) is not None and name.split("-")[1] == owner


def is_sealed_name(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and found["state"] is None


def record_id(doc_id: str, number: int, text_hash: str) -> str:
    """The id of a chunk. It proves the chunk's text, also where the server does not hold that."""
    return hashlib.sha256(f"{doc_id}\0{number}\0{text_hash}".encode()).hexdigest()[:_RECORD_DIGITS]


def digest_records(ids: Iterable[str]) -> str:
    """Of all records of a collection, in any order."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def digest_vectors(vectors: Iterable[tuple[str, bytes]]) -> str:
    """Of the float32 vectors of texts, by the texts' hashes, in any order."""
    each = {name: hashlib.sha256(vector).digest() for name, vector in vectors}
    digest = hashlib.sha256()
    for name in sorted(each):
        digest.update(name.encode())
        digest.update(each[name])
    return digest.hexdigest()


class CollectionSeal(Record, frozen=True):
    """What a complete collection says of itself, in its metadata.

    `records`: as `records_digest`; `made`: the seconds since 1970. It is a server's word: a client
    compares it with what its own rows give.
    """

    count: int
    records: str
    made: int
    format: int = FORMAT

    def to_metadata(self, label: str) -> dict[str, Any]:
        """`label`: the collection's name in the knowledge base, for people and other clients."""
        return {"collection": label} | {f"vmrag_{name}": value for name, value in msgspec.to_builtins(self).items()}


def parse_seal(metadata: Mapping[str, Any] | None) -> CollectionSeal | None:
    """The seal of a collection; None if it has none that this version reads."""
    found = {name.removeprefix("vmrag_"): value for name, value in (metadata or {}).items()}
    try:
        seal = msgspec.convert(found, CollectionSeal)
    except msgspec.ValidationError:
        return None
    return seal if seal.format == FORMAT else None


_AT_ONCE = 500
"""Documents whose texts are read together."""


class SharedContents(NamedTuple):
    """A collection of an open index, as it is to be on a server."""

    source: OpenIndex
    held: IndexedCollection
    owner: str
    vectors: VectorSource
    with_texts: bool

    @property
    def label(self) -> str:
        """The collection's name in the knowledge base."""
        return self.held.collection.name

    @property
    def dimensions(self) -> int:
        return self.held.collection.embedding_dimensions

    @property
    def fingerprint(self) -> str:
        """As `contents_of`."""
        return fingerprint_contents(
            self.held.collection, (each.header for each in self.source.list_documents(self.held))
        )

    @property
    def name(self) -> str:
        """The collection's name on a server: equal contents have equal names."""
        return collection_name(self.owner, self.fingerprint)

    def list_hashes(self) -> dict[str, str]:
        """The hash of each record's text, by the record's id."""
        return {_record_id(chunk): content_hash(chunk.text) for chunks in self._chunks() for chunk in chunks}

    def make_seal(self) -> CollectionSeal:
        """What the collection says of itself when it is complete."""
        hashes = self.list_hashes()
        return CollectionSeal(len(hashes), digest_records(hashes), int(time.time()))

    def batch_rows(self, limits: ServerLimits) -> Iterator[list[SharedRow]]:
        """All records, as many in a request as the server takes."""
        return split_batches(self._rows(limits), limits.records)

    def digest_vectors(self) -> str:
        """As `vectors_digest`, of all texts."""
        return digest_vectors((content_hash(chunk.text), vector) for chunk, vector in self._embedded())

    def _rows(self, limits: ServerLimits) -> Iterator[tuple[SharedRow, int]]:
        for chunk, vector in self._embedded():
            length = len(chunk.text.encode())
            fits = limits.text_bytes is None or length <= limits.text_bytes
            text = chunk.text if self.with_texts and fits else None
            metadata = chunk.metadata if limits.metadata else _place_alone(chunk.metadata)
            yield SharedRow(_record_id(chunk), vector, text, metadata), length + len(vector)

    def _embedded(self) -> Iterator[tuple[ChunkRow, bytes]]:
        """All chunks with their vectors, a text always with the same: a service that was asked
        twice may have answered otherwise.
        """
        repeated = {name for name, number in Counter(self.list_hashes().values()).items() if number > 1}
        first: dict[str, bytes] = {}
        for chunks in self._chunks():
            vectors = self.vectors(self.source.reader, self.held, {chunk.row: chunk.text for chunk in chunks})
            for chunk in chunks:
                name, vector = content_hash(chunk.text), vectors[chunk.row]
                yield chunk, first.setdefault(name, vector) if name in repeated else vector

    def _chunks(self) -> Iterator[list[ChunkRow]]:
        batch: list[DocumentRows] = []
        for each in self.source.list_documents(self.held):
            batch.append(each)
            if len(batch) == _AT_ONCE:
                yield self.source.list_chunks(self.held, batch)
                batch = []
        if batch:
            yield self.source.list_chunks(self.held, batch)


def _record_id(chunk: ChunkRow) -> str:
    number = chunk.metadata["chunk_index"]
    return record_id(str(chunk.metadata["source_id"]), int(str(number)), content_hash(chunk.text))


def _place_alone(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key in RESERVED_METADATA}


class ExpectedRecord(NamedTuple):
    """A record that a server has to have: the hash of a chunk's text, and its bytes."""

    hash: str
    length: int


def fetch_vectors(
    client: ChromaClient,
    found: RemoteCollection,
    wanted: Mapping[str, ExpectedRecord],
    *,
    dimensions: int,
    advance: Callable[[int], None],
) -> dict[str, bytes]:
    """The float32 vectors of these records, by the hashes of their texts; `advance` counts records.

    Raises `ChromaServerFailed` where a record is missing, has another text, or one text two
    vectors.
    """
    got: dict[str, bytes] = {}
    sizes = ((name, each.length) for name, each in wanted.items())
    for page in split_batches(sizes, client.limits.records):
        lengths = {name: wanted[name].length for name in page}
        for name, (vector, text) in client.read_records(found, lengths, dimensions=dimensions).items():
            expected = wanted[name]
            if text is not None and content_hash(text) != expected.hash:
                raise client.make_error(f"changed a text in the collection {escape_text(found.name)}")
            if got.setdefault(expected.hash, vector) != vector:
                raise client.make_error(f"has two vectors for one text in the collection {escape_text(found.name)}")
        advance(len(page))
    return got
