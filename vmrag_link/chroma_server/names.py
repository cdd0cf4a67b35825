"""What collections and records are called on a server, and the seal of a collection.

vmrag-<owner>-<contents>      sealed: all of its records are there, and nobody changes it
vmrag-<owner>-<contents>-b    somebody is building it
vmrag-<owner>-<contents>-x…   given up; whoever finds it may delete it
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vmrag_link.models import Collection, DocumentHeader, Record, canonical_json

FORMAT = 1
BUILDING, GIVEN_UP = "-b", "-x"
_NAME = re.compile(r"vmrag-[0-9a-f]{12}-[0-9a-f]{32}(?P<state>-b|-x[0-9a-f]{6})?")
_RECORD_DIGITS = 32


def owner_of(root_revision: str) -> str:
    """The mark of a knowledge base in names of collections; all of its clones have the same."""
    return hashlib.sha256(f"vmrag-owner\0{root_revision}".encode()).hexdigest()[:12]


def contents_of(collection: Collection, headers: Iterable[DocumentHeader]) -> str:
    """A fingerprint of what a collection holds and what decides its vectors: 32 digits.

    The order of the headers does not matter.
    """
    decisive = [collection.name, collection.embedding_function, collection.embedding_model]
    numbers = [collection.embedding_dimensions, collection.chunking]
    digest = hashlib.sha256(canonical_json(["vmrag-shared", FORMAT, *decisive, *numbers]).encode())
    for row in sorted((each.doc_id, each.title, each.content_hash, each.metadata) for each in headers):
        digest.update(canonical_json(row).encode())
    return digest.hexdigest()[:32]


def collection_name(owner: str, contents: str) -> str:
    return f"vmrag-{owner}-{contents}"


def given_up_name(name: str) -> str:
    """A name that nobody else gives a collection, for one that is to go."""
    return f"{name.removesuffix(BUILDING)}{GIVEN_UP}{os.urandom(3).hex()}"


def is_ours(name: str, owner: str) -> bool:
    """Whether a collection is one of this knowledge base, in any state."""
    return _NAME.fullmatch(name) is not None and name.split("-")[1] == owner


def is_sealed_name(name: str) -> bool:
    found = _NAME.fullmatch(name)
    return found is not None and found["state"] is None


def record_id(doc_id: str, number: int, text_hash: str) -> str:
    """The id of a chunk. It proves the chunk's text, also where the server does not hold that."""
    return hashlib.sha256(f"{doc_id}\0{number}\0{text_hash}".encode()).hexdigest()[:_RECORD_DIGITS]


def records_digest(ids: Iterable[str]) -> str:
    """Of all records of a collection, in any order."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def vectors_digest(vectors: Iterable[tuple[str, bytes]]) -> str:
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

    def metadata(self, label: str) -> dict[str, Any]:
        """`label`: the collection's name in the knowledge base, for people and other clients."""
        return {"collection": label} | {f"vmrag_{name}": value for name, value in msgspec.to_builtins(self).items()}


def seal_of(metadata: Mapping[str, Any] | None) -> CollectionSeal | None:
    """The seal of a collection; None if it has none that this version reads."""
    found = {name.removeprefix("vmrag_"): value for name, value in (metadata or {}).items()}
    try:
        seal = msgspec.convert(found, CollectionSeal)
    except msgspec.ValidationError:
        return None
    return seal if seal.format == FORMAT else None
