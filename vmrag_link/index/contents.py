"""Reading the contents of an index directory that nobody changes meanwhile, and whether to trust
it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.errors import IndexFailed
from vmrag_link.index import keywords, seal, vectors
from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.models import DocumentHeader, canonical_json

FORMAT = "2"
"""Rises with every change of what lies in an index directory or of how texts are cut.

Where answers change with it, `retrieval.fusion.VERSION` rises, too.
"""


def directory_suffix(**decisive: object) -> str:
    """Eight hex digits of what decides a directory besides a revision's own rows: the format, and
    `decisive` values.

    The rows name models, chunking and distances. A checksum suffices for the few possible values,
    and saves every checkout from loading cryptography.
    """
    return f"{zlib.crc32(canonical_json({'format': FORMAT, **decisive}).encode()):08x}"


SUFFIX = directory_suffix()
"""Of the directories of indexes."""


# -- verifying -------------------------------------------------------------------------------------


def unusable(folder: Path, problem: str) -> IndexFailed:
    return IndexFailed(
        f"The index {folder.name} does not verify: {problem}.",
        hint="It is derived; 'vmrag sync --rebuild' builds it again.",
        folder=str(folder),
    )


def problem_of(folder: Path, *, revision: str) -> str:
    """Why a sealed index must not be served; empty if it verifies.

    Reads two small files, and the contents of the others where `seal` says that this is due.
    """
    if not folder.is_dir():
        return "it is not there"
    try:
        found = seal.read(folder)
    except FileNotFoundError:
        return "it was never finished" if folder.is_dir() else "it is being removed"
    except (IsADirectoryError, UnicodeDecodeError, msgspec.DecodeError) as error:
        return f"{seal.SEAL} cannot be read ({error})"
    if (found.format, found.revision) != (FORMAT, revision):
        return f"it was sealed as revision {found.revision} in format {found.format}"
    return seal.problem(folder)


# -- reading ---------------------------------------------------------------------------------------
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
