"""Reading the contents of an index directory that nobody changes meanwhile."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.errors import IndexFailed
from vmrag_link.index import keywords, vectors
from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.index.verify import unusable
from vmrag_link.models import DocumentHeader

# Each raises `IndexFailed` for a damaged manifest.


class Contents(NamedTuple):
    """The contents of an index: collections by name, documents and their chunks by (collection,
    doc_id).

    `unembedded`: as `Manifest.unembedded`.
    """

    collections: dict[str, IndexedCollection]
    headers: dict[tuple[str, str], DocumentHeader]
    chunks: dict[tuple[str, str], int]
    unembedded: dict[str, str]


def contents(folder: Path) -> Contents:
    with _manifest(folder) as manifest:
        return Contents(manifest.collections(), manifest.headers(), manifest.chunk_counts(), manifest.unembedded())


class IndexSize(NamedTuple):
    """Numbers of documents, live and dead chunks, and documents that may differ from the revision
    that the index stands at.
    """

    documents: int
    live: int
    dead: int
    touched: int


def size(folder: Path) -> IndexSize:
    with _manifest(folder) as manifest:
        dead = sum(held.dead for held in manifest.collections().values())
        return IndexSize(*manifest.counts(), dead, len(manifest.touched()))


def held_collections(folder: Path) -> dict[str, IndexedCollection]:
    """The collections that the index holds, by name."""
    with _manifest(folder) as manifest:
        return manifest.collections()


def unembedded(folder: Path) -> dict[str, str]:
    """As `Manifest.unembedded`."""
    with _manifest(folder) as manifest:
        return manifest.unembedded()


def chunk_counts(folder: Path) -> dict[tuple[str, str], int]:
    """The number of chunks of each document that the index holds."""
    with _manifest(folder) as manifest:
        return manifest.chunk_counts()


def chunks_held(folder: Path, documents: Iterable[tuple[str, str]]) -> int:
    """How many chunks the index holds of these documents together."""
    asked: dict[str, list[str]] = {}
    for collection, doc_id in documents:
        asked.setdefault(collection, []).append(doc_id)
    with _manifest(folder) as manifest:
        return sum(sum(manifest.chunks_of(name, ids).values()) for name, ids in asked.items())


class HeldRow(NamedTuple):
    """A chunk as our own files hold it; `vector` in whole numbers."""

    text: str
    vector: bytes


def rows_of(folder: Path, name: str) -> dict[str, list[HeldRow]]:
    """The chunks of each document of a collection, in their order."""
    with _manifest(folder) as manifest, contextlib.closing(keywords.connect(folder, frozen=True)) as words:
        held = manifest.collections()[name]
        whole = (folder / vectors.file_name(held.id)).read_bytes() if held.slots else b""
        size = held.collection.embedding_dimensions
        found = {}
        for header, slots in manifest.placed(held):
            texts = keywords.texts(words, [keywords.row_id(held.id, slot) for slot in slots])
            found[header.doc_id] = [
                HeldRow(texts[keywords.row_id(held.id, slot)], whole[slot * size : (slot + 1) * size]) for slot in slots
            ]
        return found


def documents_of(folder: Path, name: str) -> Iterator[tuple[DocumentHeader, list[str]]]:
    """Each document of a collection with the texts of its chunks, in their order."""
    with _manifest(folder) as manifest, contextlib.closing(keywords.connect(folder, frozen=True)) as words:
        held = manifest.collections()[name]
        for header, slots in manifest.placed(held):
            rows = [keywords.row_id(held.id, slot) for slot in slots]
            texts = keywords.texts(words, rows)
            yield header, [texts[row] for row in rows]


def has_given_vectors(folder: Path) -> bool:
    """Whether an index exists and holds vectors that cannot be made again from its texts."""
    if not folder.is_dir():
        return False
    try:
        with _manifest(folder) as manifest:
            return manifest.get("given_vectors") is not None
    except IndexFailed:
        return False  # it will be made again, from texts


def given_before(folder: Path) -> str | None:
    """The revision of a working copy of format 1 with vectors that clients gave, which nothing
    reads any more; None for any other index.
    """
    with contextlib.suppress(IndexFailed), _manifest(folder) as manifest:
        if manifest.get("format") == "1" and manifest.get("given_vectors"):
            return manifest.get("revision")
    return None


@contextlib.contextmanager
def _manifest(folder: Path) -> Iterator[Manifest]:
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            yield manifest
    except (sqlite3.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise unusable(folder, str(error)) from error
