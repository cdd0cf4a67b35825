"""Reading the contents of an index directory that nobody changes meanwhile, and whether to trust
it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.chroma.bindings import DATABASE_FILE
from vmrag_link.errors import IndexFailed
from vmrag_link.index import keywords, seal, vectors
from vmrag_link.index.manifest import FILE, IndexedCollection, Manifest
from vmrag_link.models import DocumentHeader

FORMAT = "1"
"""Rises with every change of what lies in an index directory or of how texts are cut.

Where answers change with it, `retrieval.fusion.VERSION` rises, too.
"""

HNSW_WRITTEN_OUT = "index_metadata.pickle"
"""The file beside an HNSW index that holds something."""


# -- verifying -------------------------------------------------------------------------------------


def unusable(folder: Path, problem: str) -> IndexFailed:
    return IndexFailed(
        f"The index {folder.name} does not verify: {problem}.",
        hint="It is derived; 'vmrag sync --rebuild' builds it again.",
        folder=str(folder),
    )


def problem_of(folder: Path, *, revision: str, settings: str) -> str:
    """Why a sealed index must not be served; empty if it verifies.

    Reads the manifest and file sizes in about a millisecond, and the contents of files where `seal`
    says that this is due.
    """
    if not folder.is_dir():
        return "it is not there"
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            found = {key: manifest.get(key) for key in ("format", "revision", "settings")}
            sealed, given = manifest.get("files"), manifest.get("given_vectors")
        if found != {"format": FORMAT, "revision": revision, "settings": settings}:
            return f"its manifest describes {found}"
        if sealed is None:
            return "it was never finished"
        damage = _damage(msgspec.json.decode(sealed, type=dict[str, int]), sizes(folder))
        if given and not damage and not (folder / seal.SEAL).exists():
            seal_contents(folder, chroma=False)  # from before there were seals, and nobody can make its vectors again
        return damage or seal.problem(folder)
    except (sqlite3.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
        return f"its manifest cannot be read ({error})"
    except FileNotFoundError:
        return "it is being removed"


def _damage(expected: Mapping[str, int], actual: Mapping[str, int]) -> str:
    for name, size in expected.items():
        grown = name == f"chroma/{DATABASE_FILE}" and actual.get(name, -1) > size  # Chroma writes a row when it reads
        if actual.get(name) != size and not grown:
            return f"{name} has {actual.get(name, 'no')} bytes instead of {size}"
    return ""


def seal_contents(folder: Path, *, chroma: bool) -> None:
    """Write down what the files of a finished index hold; `chroma` as `seal.write` has it."""
    names = (FILE, *(name for name in sizes(folder) if name != f"chroma/{DATABASE_FILE}"))
    seal.write(folder, names, chroma=chroma)


def sizes(folder: Path) -> dict[str, int]:
    """Names and sizes in bytes of the files that a reader needs, except the manifest, which holds
    them.

    Chroma writes an HNSW index to disk after 1,000 changes. Until then its vectors are in the
    database's log, and everything that opens the collection writes those files again, so they may
    be empty at any moment.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    written_out = {path.parent for path in files if path.name == HNSW_WRITTEN_OUT}
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in files
        if path.name not in (FILE, seal.SEAL, seal.PROVEN)
        and not path.name.endswith(("-journal", ".tmp"))
        and (path.parent in written_out or path.parent.parent != folder / "chroma")
    }


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


@contextlib.contextmanager
def _manifest(folder: Path) -> Iterator[Manifest]:
    try:
        with contextlib.closing(Manifest(folder, frozen=True)) as manifest:
            yield manifest
    except (sqlite3.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise unusable(folder, str(error)) from error
