"""Comparison of Chroma's store with the rest of an index: reading changes its database, so it has
no seal.

Ids, texts and metadata have to be equal, vectors as near as int8 allows (a 300th of their length).
The database's own structure is checked too, because filters use its indexes: a flipped bit there
finds other rows.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vmrag_link.chroma.bindings import DATABASE_FILE, ChromaStore, open_store
from vmrag_link.errors import FilterInvalid, IndexFailed
from vmrag_link.index import keywords, seal, vectors
from vmrag_link.index.contents import unusable
from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.index.metadata import chunk_id, document_metadata, place

PATIENCE = 30.0
BATCH = 1_000

_CHECK_WORDS = "INSERT INTO embedding_fulltext_search (embedding_fulltext_search) VALUES ('integrity-check')"
"""A command of FTS5: no row is written."""


class _Expected(NamedTuple):
    text: str | None
    metadata: dict[str, Any]


def require_proven(folder: Path) -> None:
    """Compare once after each start of the machine, before Chroma is used. Raises `IndexFailed`."""
    if not seal.chroma_is_proven(folder) and (found := problem(folder)):
        raise unusable(folder, found)


def contents_problem(folder: Path) -> str:
    """The first problem of anything in an index, with every byte and vector read; empty if there is
    none.
    """
    return seal.mismatch(folder) or problem(folder, with_vectors=True)


def problem(folder: Path, *, with_vectors: bool = False) -> str:
    """The first problem of Chroma's store in an index whose other files are sound; empty if there
    is none.
    """
    try:
        found = _structure(folder / "chroma" / DATABASE_FILE) or _differences(folder, with_vectors=with_vectors)
    except sqlite3.Error as error:
        found = f"Chroma's database cannot be read ({error})"
    except (IndexFailed, FilterInvalid) as error:
        found = error.message.rstrip(".")
    if found:
        seal.distrust(folder)
    else:
        seal.note_chroma(folder)
    return found


def _structure(database: Path) -> str:
    location = f"{database.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(location, uri=True, timeout=PATIENCE)) as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            return f"Chroma's database is damaged ({found})"
        if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'embedding_fulltext_search'").fetchone()[
            0
        ]:
            connection.execute(_CHECK_WORDS)
            connection.rollback()
    return ""


def _differences(folder: Path, *, with_vectors: bool) -> str:
    with (
        contextlib.closing(Manifest(folder, frozen=True)) as manifest,
        contextlib.closing(keywords.connect(folder, frozen=True)) as words,
        contextlib.closing(open_store(folder / "chroma")) as store,
    ):
        held = manifest.collections()
        if store.collections() != {name: each.chroma_id for name, each in held.items()}:
            return "Chroma holds other collections than the manifest"
        with_texts = manifest.get("store_documents") != "false"
        for name, each in held.items():
            expected = _expected(manifest, words, each, with_texts=with_texts)
            if found := _rows(store, each, expected):
                return f"{found} of {name!r} in Chroma is not what the index was made of"
            if with_vectors and (found := _vectors(folder, manifest, store, each)):
                return f"the vector of {found} of {name!r} in Chroma is not that of the index"
    return ""


def _expected(
    manifest: Manifest, words: sqlite3.Connection, held: IndexedCollection, *, with_texts: bool
) -> dict[str, _Expected]:
    texts = dict(words.execute("SELECT rowid, text FROM keywords").fetchall()) if with_texts else {}
    expected = {}
    for header, slots in manifest.placed(held):
        common = document_metadata(header)
        for number, slot in enumerate(slots):
            text = texts.get(keywords.row_id(held.id, slot))
            expected[chunk_id(header.doc_id, number)] = _Expected(text, common | place(header, number, len(slots)))
    return expected


def _rows(store: ChromaStore, held: IndexedCollection, expected: dict[str, _Expected]) -> str:
    """The first row that is another one, or is missing."""
    unseen = dict(expected)
    for name, text, metadata in store.texts(held.chroma_id):
        wanted = unseen.pop(name, None)
        if wanted is None or text != wanted.text or metadata != wanted.metadata:
            return repr(name)
    return repr(min(unseen)) if unseen else ""


def _vectors(folder: Path, manifest: Manifest, store: ChromaStore, held: IndexedCollection) -> str:
    dimensions = held.collection.embedding_dimensions
    if not held.slots:
        return ""
    whole = (folder / vectors.file_name(held.id)).read_bytes()
    slots = {
        chunk_id(header.doc_id, number): slot
        for header, span in manifest.placed(held)
        for number, slot in enumerate(span)
    }
    for names in _batches(list(slots)):
        for name, numbers in store.embeddings(held.chroma_id, names).items():
            at = slots[name] * dimensions
            if not vectors.near(whole[at : at + dimensions], numbers):
                return repr(name)
    return ""


def _batches(names: list[str]) -> Iterator[list[str]]:
    return (names[at : at + BATCH] for at in range(0, len(names), BATCH))
