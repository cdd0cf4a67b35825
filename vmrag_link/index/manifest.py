"""What an index holds, document by document and chunk by chunk: the part of it that can be compared with the knowledge base.

A row of `chunks` has the same `row` as the chunk's words (`keywords.row_id`): collection and slot in the vector file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from vmrag_link.index.keywords import row_id
from vmrag_link.models import Collection, DocumentHeader, Record

FILE = "manifest.sqlite"

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS collections (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL, chroma_id TEXT NOT NULL,
    slots INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, collection_id INTEGER NOT NULL, doc_id TEXT NOT NULL, title TEXT NOT NULL,
    content_hash TEXT NOT NULL, metadata TEXT NOT NULL, chunks INTEGER NOT NULL, UNIQUE (collection_id, doc_id));
CREATE TABLE IF NOT EXISTS chunks (row INTEGER PRIMARY KEY, document_id INTEGER NOT NULL, number INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS chunks_of_document ON chunks (document_id);
CREATE TABLE IF NOT EXISTS dead (row INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS touched (collection TEXT NOT NULL, doc_id TEXT NOT NULL, UNIQUE (collection, doc_id));
"""


class Held(Record, frozen=True):
    """A collection as the index holds it. `slots` rows lie in its vector file, `dead` of them belong to no chunk any more."""

    id: int
    collection: Collection
    chroma_id: str
    slots: int
    dead: int


class HeldChunk(Record, frozen=True):
    row: int
    doc_id: str
    number: int
    title: str
    metadata: str


class Manifest:
    """The manifest of one index directory, open. Every method is one or a few statements; `with manifest:` is a transaction."""

    def __init__(self, folder: Path, *, create: bool = False, frozen: bool = False) -> None:
        """`frozen`: nobody changes the file while it is open, so it needs no locks (and no writable directory)."""
        mode = "mode=rwc" if create else "immutable=1" if frozen else "mode=rw"
        self.connection = sqlite3.connect(f"{(folder / FILE).as_uri()}?{mode}", uri=True, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = OFF")  # the index is derived: speed before durability
        if create:
            self.connection.executescript(SCHEMA)

    def __enter__(self) -> Self:
        self.connection.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.connection.execute("COMMIT" if kind is None else "ROLLBACK")

    def close(self) -> None:
        self.connection.close()

    # -- meta ---------------------------------------------------------------------------------------------------------

    def get(self, key: str) -> str | None:
        row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set(self, **values: str) -> None:
        self.connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def unset(self, key: str) -> None:
        self.connection.execute("DELETE FROM meta WHERE key = ?", (key,))

    # -- collections --------------------------------------------------------------------------------------------------

    def collections(self) -> dict[str, Held]:
        rows = self.connection.execute("SELECT id, definition, chroma_id, slots, dead FROM collections ORDER BY name")
        held = [Held(row[0], msgspec.json.decode(row[1], type=Collection), *row[2:]) for row in rows]
        return {each.collection.name: each for each in held}

    def add_collection(self, collection: Collection, chroma_id: str) -> None:
        self.connection.execute(
            "INSERT INTO collections (name, definition, chroma_id) VALUES (?, ?, ?)",
            (collection.name, _definition(collection), chroma_id),
        )

    def redefine_collection(self, collection: Collection) -> None:
        self.connection.execute(
            "UPDATE collections SET definition = ? WHERE name = ?", (_definition(collection), collection.name)
        )

    def drop_collection(self, held: Held) -> None:
        low, high = row_id(held.id, 0), row_id(held.id + 1, 0) - 1
        self.connection.execute("DELETE FROM chunks WHERE row BETWEEN ? AND ?", (low, high))
        self.connection.execute("DELETE FROM dead WHERE row BETWEEN ? AND ?", (low, high))
        self.connection.execute("DELETE FROM documents WHERE collection_id = ?", (held.id,))
        self.connection.execute("DELETE FROM collections WHERE id = ?", (held.id,))

    # -- documents ----------------------------------------------------------------------------------------------------

    def headers(self) -> dict[tuple[str, str], DocumentHeader]:
        """All documents by (collection, doc_id)."""
        rows = self.connection.execute(
            "SELECT c.name, d.doc_id, d.title, d.content_hash, d.metadata FROM documents d "
            "JOIN collections c ON c.id = d.collection_id"
        )
        return {(row[0], row[1]): DocumentHeader(*row) for row in rows}

    def headers_of(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], DocumentHeader]:
        """Those of the given documents that the index holds."""
        ids = {name: held.id for name, held in self.collections().items()}
        found = {}
        for name, doc_id in keys:
            row = self.connection.execute(
                "SELECT title, content_hash, metadata FROM documents WHERE collection_id = ? AND doc_id = ?",
                (ids.get(name), doc_id),
            ).fetchone()
            if row:
                found[name, doc_id] = DocumentHeader(name, doc_id, *row)
        return found

    def chunk_counts(self, keys: Iterable[tuple[str, str]] | None = None) -> dict[tuple[str, str], int]:
        """Numbers of chunks by document: of all documents, or of the given ones (which the index must hold)."""
        ids = {name: held.id for name, held in self.collections().items()}
        if keys is None:
            names = {number: name for name, number in ids.items()}
            rows = self.connection.execute("SELECT collection_id, doc_id, chunks FROM documents")
            return {(names[row[0]], row[1]): int(row[2]) for row in rows}
        one = "SELECT chunks FROM documents WHERE collection_id = ? AND doc_id = ?"
        return {
            (name, doc_id): int(self.connection.execute(one, (ids[name], doc_id)).fetchone()[0])
            for name, doc_id in keys
        }

    def add_document(self, held: Held, header: DocumentHeader, slots: Sequence[int]) -> None:
        made = self.connection.execute(
            "INSERT INTO documents (collection_id, doc_id, title, content_hash, metadata, chunks) VALUES (?, ?, ?, ?, ?, ?)",
            (held.id, header.doc_id, header.title, header.content_hash, header.metadata, len(slots)),
        ).lastrowid
        self.connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?)",
            ((row_id(held.id, slot), made, number) for number, slot in enumerate(slots)),
        )

    def grow(self, held: Held, slots: int) -> None:
        self.connection.execute("UPDATE collections SET slots = ? WHERE id = ?", (slots, held.id))

    def remove_document(self, held: Held, doc_id: str) -> list[int]:
        """Returns the rows of its chunks in the order of their numbers; they are dead from now on."""
        document = self.connection.execute(
            "SELECT id FROM documents WHERE collection_id = ? AND doc_id = ?", (held.id, doc_id)
        ).fetchone()[0]
        found = self.connection.execute("SELECT row FROM chunks WHERE document_id = ? ORDER BY number", (document,))
        rows = [int(row[0]) for row in found]
        self.connection.execute("DELETE FROM chunks WHERE document_id = ?", (document,))
        self.connection.execute("DELETE FROM documents WHERE id = ?", (document,))
        self.connection.executemany("INSERT INTO dead VALUES (?)", ((row,) for row in rows))
        self.connection.execute("UPDATE collections SET dead = dead + ? WHERE id = ?", (len(rows), held.id))
        return rows

    # -- touched: documents of a working copy that may differ from the revision it is based on ------------------------

    def touch(self, keys: Iterable[tuple[str, str]]) -> None:
        self.connection.executemany("INSERT OR IGNORE INTO touched VALUES (?, ?)", keys)

    def touched(self) -> list[tuple[str, str]]:
        return [(str(row[0]), str(row[1])) for row in self.connection.execute("SELECT * FROM touched")]

    def forget_touched(self) -> None:
        self.connection.execute("DELETE FROM touched")

    # -- chunks -------------------------------------------------------------------------------------------------------

    def counts(self) -> tuple[int, int]:
        """Numbers of documents and of live chunks."""
        documents = self.connection.execute("SELECT count(*) FROM documents").fetchone()[0]
        chunks = self.connection.execute("SELECT coalesce(sum(slots - dead), 0) FROM collections").fetchone()[0]
        return int(documents), int(chunks)

    def dead_slots(self, held: Held) -> list[int]:
        low, high = row_id(held.id, 0), row_id(held.id + 1, 0) - 1
        rows = self.connection.execute("SELECT row - ? FROM dead WHERE row BETWEEN ? AND ?", (low, low, high))
        return [int(row[0]) for row in rows]

    def chunk(self, row: int) -> HeldChunk:
        found = self.connection.execute(
            "SELECT c.row, d.doc_id, c.number, d.title, d.metadata FROM chunks c JOIN documents d ON d.id = c.document_id "
            "WHERE c.row = ?",
            (row,),
        ).fetchone()
        return HeldChunk(*found)

    def rows_of(self, held: Held, chunk_ids: Iterable[str]) -> Iterator[int]:
        """The rows of chunks named `<doc_id>_chunk_<n>`."""
        for chunk_id in chunk_ids:
            doc_id, _, number = chunk_id.rpartition("_chunk_")
            yield int(
                self.connection.execute(
                    "SELECT c.row FROM documents d JOIN chunks c ON c.document_id = d.id "
                    "WHERE d.collection_id = ? AND d.doc_id = ? AND c.number = ?",
                    (held.id, doc_id, int(number)),
                ).fetchone()[0]
            )


def _definition(collection: Collection) -> str:
    return msgspec.json.encode(collection).decode()
