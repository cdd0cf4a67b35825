"""Comparison of Chroma's store with the index that it was made of: its database changes by being
read, so no checksum covers it.

Ids, texts and metadata have to be equal, vectors as near as int8 allows (a 300th of their length).
The database's own structure is checked too, because filters use its indexes: a flipped bit there
finds other rows.
"""

from __future__ import annotations

import array
import contextlib
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path

from vmrag_link.chroma.bindings import DATABASE_FILE, ChromaStore, StoredRow, open_store
from vmrag_link.chroma.open_index import ChunkRow, OpenIndex
from vmrag_link.errors import FilterInvalid, IndexFailed
from vmrag_link.index import vectors
from vmrag_link.index.manifest import IndexedCollection
from vmrag_link.index.metadata import parse_chunk_id

PATIENCE = 30.0
PAGE = 2_000

_CHECK_WORDS = "INSERT INTO embedding_fulltext_search (embedding_fulltext_search) VALUES ('integrity-check')"
"""A command of FTS5: no row is written."""


def difference(
    store: Path,
    index: OpenIndex,
    *,
    with_texts: bool,
    with_vectors: bool = True,
    between: Callable[[], None] = lambda: None,
) -> str:
    """What Chroma's store holds otherwise than the index, as the first that was found; empty if
    nothing.

    `between` is called from time to time; what it raises ends the comparison.
    """
    try:
        found = _structure(store / DATABASE_FILE)
        if found:
            return found
        with contextlib.closing(open_store(store)) as opened:
            return _compare(opened, index, with_texts=with_texts, with_vectors=with_vectors, between=between)
    except sqlite3.Error as error:
        return f"Chroma's database cannot be read ({error})"
    except (IndexFailed, FilterInvalid) as error:
        return error.message.rstrip(".")


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


def _compare(
    store: ChromaStore, index: OpenIndex, *, with_texts: bool, with_vectors: bool, between: Callable[[], None]
) -> str:
    there = store.collections()
    if there.keys() != index.collections.keys():
        return "Chroma holds other collections than the index"
    for name, held in index.collections.items():
        read = 0
        for page in store.pages(there[name], PAGE, with_vectors=with_vectors):
            between()
            expected = _expected(index, held, page)
            read += len(page)
            for row in page:
                wanted = expected.get(row.id)
                if (
                    wanted is None
                    or row.metadata != wanted.metadata
                    or row.text != (wanted.text if with_texts else None)
                ):
                    return f"{row.id!r} of {name!r} in Chroma is not what the index was made of"
            if with_vectors and (found := _other_vector(index, held, page, expected)):
                return f"the vector of {found!r} of {name!r} in Chroma is not that of the index"
        if read != held.slots - held.dead:  # Chroma holds no id twice
            return f"Chroma holds {read} chunks of {name!r}, the index {held.slots - held.dead}"
    return ""


def _expected(index: OpenIndex, held: IndexedCollection, page: list[StoredRow]) -> dict[str, ChunkRow]:
    """The chunks of all documents of which the page has one, by id."""
    names = {parsed[0]: None for row in page if (parsed := parse_chunk_id(row.id))}
    return {row.id: row for row in index.chunks(held, index.find(held, names).values())}


def _other_vector(
    index: OpenIndex, held: IndexedCollection, page: list[StoredRow], expected: dict[str, ChunkRow]
) -> str:
    """The first chunk of the page with another vector than the index; empty if there is none."""
    for row in page:
        whole, floats = index.vector(held, expected[row.id].slot), array.array("f", row.vector)
        if math.isfinite(sum(floats)) and vectors.quantise(floats.tobytes()) == whole:
            continue  # nearly always, and ten times as fast
        if not vectors.near(whole, floats):
            return row.id
    return ""
