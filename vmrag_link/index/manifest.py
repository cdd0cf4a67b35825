"""The documents and chunks of an index: the part that can be compared with the knowledge base.

The chunks of a document lie in consecutive slots of its collection's vector file, from `first` on;
`keywords.row_id` names them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from vmrag_link.index.keywords import collection_of, slot_of
from vmrag_link.models import Collection, DocumentHeader, Record

FILE = "manifest.sqlite"

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE collections (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, definition TEXT NOT NULL,
    slots INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0);
CREATE TABLE documents (
    collection_id INTEGER NOT NULL, doc_id TEXT NOT NULL, title TEXT NOT NULL, content_hash TEXT NOT NULL,
    metadata TEXT NOT NULL, first INTEGER NOT NULL, chunks INTEGER NOT NULL, UNIQUE (collection_id, doc_id));
CREATE INDEX documents_by_slot ON documents (collection_id, first);
CREATE TABLE dead (collection_id INTEGER NOT NULL, first INTEGER NOT NULL, chunks INTEGER NOT NULL);
CREATE TABLE touched (collection TEXT NOT NULL, doc_id TEXT NOT NULL, UNIQUE (collection, doc_id));
"""


class IndexedCollection(Record, frozen=True):
    """A collection in the index. Its vector file has `slots` rows, `dead` of which belong to no
    chunk.
    """

    id: int
    collection: Collection
    slots: int
    dead: int


class HeldChunk(NamedTuple):
    """`number` of the `chunks` of a document; the rest is the document's."""

    doc_id: str
    number: int
    chunks: int
    title: str
    content_hash: str
    metadata: str


class HeldColumns(NamedTuple):
    """Documents, column by column: first slot, number of chunks, a chunk's own number (0 for the
    whole document), and the rest of a header.
    """

    first: Sequence[int]
    chunks: Sequence[int]
    number: Sequence[int]
    metadata: Sequence[str]
    title: Sequence[str]
    doc_id: Sequence[str]
    content_hash: Sequence[str]


class Manifest:
    """The open manifest of one index directory.

    Every method is one or a few statements; `with manifest:` is a transaction.
    """

    def __init__(self, folder: Path, *, create: bool = False, frozen: bool = False) -> None:
        """`frozen`: nobody changes the file meanwhile, so neither locks nor a writable directory
        are needed.
        """
        mode = "mode=rwc" if create else "mode=ro&immutable=1" if frozen else "mode=rw"
        self.connection = sqlite3.connect(
            f"{(folder / FILE).absolute().as_uri()}?{mode}", uri=True, isolation_level=None
        )
        try:
            # An index that a kill left half changed is thrown away: no journal has to survive that.
            self.connection.execute("PRAGMA synchronous = OFF")
            self.connection.execute("PRAGMA journal_mode = MEMORY")
            if create:
                self.connection.executescript(SCHEMA)
        except sqlite3.Error:
            self.connection.close()
            raise

    def __enter__(self) -> Self:
        self.connection.execute("BEGIN IMMEDIATE")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.connection.execute("COMMIT")
        elif self.connection.in_transaction:  # a full disk has rolled back already
            self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()

    # -- meta --------------------------------------------------------------------------------------

    def get(self, key: str) -> str | None:
        row = self.connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def set(self, **values: str) -> None:
        self.connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def unembedded(self) -> dict[str, str]:
        """Why collections have only stand-ins for vectors: their service did not answer when they
        were indexed.
        """
        return msgspec.json.decode(self.get("unembedded") or "{}", type=dict[str, str])

    def note_unembedded(self, reasons: Mapping[str, str]) -> None:
        self.set(unembedded=msgspec.json.encode(reasons).decode())

    # -- collections -------------------------------------------------------------------------------

    def collections(self) -> dict[str, IndexedCollection]:
        rows = self.connection.execute("SELECT id, definition, slots, dead FROM collections ORDER BY name")
        held = [IndexedCollection(row[0], msgspec.json.decode(row[1], type=Collection), *row[2:]) for row in rows]
        return {each.collection.name: each for each in held}

    def add_collection(self, collection: Collection) -> None:
        self.connection.execute(
            "INSERT INTO collections (name, definition) VALUES (?, ?)", (collection.name, _definition(collection))
        )

    def redefine_collection(self, collection: Collection) -> None:
        self.connection.execute(
            "UPDATE collections SET definition = ? WHERE name = ?", (_definition(collection), collection.name)
        )

    def drop_collection(self, held: IndexedCollection) -> None:
        self.connection.execute("DELETE FROM dead WHERE collection_id = ?", (held.id,))
        self.connection.execute("DELETE FROM documents WHERE collection_id = ?", (held.id,))
        self.connection.execute("DELETE FROM collections WHERE id = ?", (held.id,))

    # -- documents ---------------------------------------------------------------------------------

    def headers(self) -> dict[tuple[str, str], DocumentHeader]:
        """All documents by (collection, doc_id)."""
        rows = self.connection.execute(
            "SELECT c.name, d.doc_id, d.title, d.content_hash, d.metadata FROM documents d "
            "JOIN collections c ON c.id = d.collection_id"
        )
        return {(row[0], row[1]): DocumentHeader(*row) for row in rows}

    def headers_of(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], DocumentHeader]:
        """Those of the given documents that the index holds."""
        ids: dict[str, list[str]] = {}
        for name, doc_id in keys:
            ids.setdefault(name, []).append(doc_id)
        rows = self.connection.execute(
            "SELECT c.name, d.doc_id, d.title, d.content_hash, d.metadata FROM json_each(?) asked, "
            "json_each(asked.value) wanted JOIN collections c ON c.name = asked.key "
            "JOIN documents d ON d.collection_id = c.id AND d.doc_id = wanted.value",
            (msgspec.json.encode(ids).decode(),),
        )
        return {(row[0], row[1]): DocumentHeader(*row) for row in rows}

    def chunk_counts(self) -> dict[tuple[str, str], int]:
        """Numbers of chunks by document."""
        rows = self.connection.execute(
            "SELECT c.name, d.doc_id, d.chunks FROM documents d JOIN collections c ON c.id = d.collection_id"
        )
        return {(row[0], row[1]): int(row[2]) for row in rows}

    def chunks_of(self, collection: str, doc_ids: Iterable[str]) -> dict[str, int]:
        """Numbers of chunks of those of these documents that the index holds."""
        rows = self.connection.execute(
            "SELECT d.doc_id, d.chunks FROM documents d JOIN collections c ON c.id = d.collection_id "
            "WHERE c.name = ? AND d.doc_id IN (SELECT value FROM json_each(?))",
            (collection, msgspec.json.encode(list(doc_ids)).decode()),
        )
        return dict(rows.fetchall())

    def add_documents(self, held: IndexedCollection, documents: Iterable[tuple[DocumentHeader, range]]) -> None:
        """Documents and the slots of their chunks."""
        self.connection.executemany(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (held.id, header.doc_id, header.title, header.content_hash, header.metadata, slots.start, len(slots))
                for header, slots in documents
            ),
        )

    def grow(self, held: IndexedCollection, slots: int) -> None:
        self.connection.execute("UPDATE collections SET slots = ? WHERE id = ?", (slots, held.id))

    def remove_document(self, held: IndexedCollection, doc_id: str) -> range:
        """Returns the slots of its chunks; they are dead from now on."""
        first, chunks = self.connection.execute(
            "DELETE FROM documents WHERE collection_id = ? AND doc_id = ? RETURNING first, chunks", (held.id, doc_id)
        ).fetchone()
        self.connection.execute("INSERT INTO dead VALUES (?, ?, ?)", (held.id, first, chunks))
        self.connection.execute("UPDATE collections SET dead = dead + ? WHERE id = ?", (chunks, held.id))
        return range(first, first + chunks)

    # -- touched: documents of a working copy that may differ from the revision it is based on -----

    def touch(self, keys: Iterable[tuple[str, str]]) -> None:
        self.connection.executemany("INSERT OR IGNORE INTO touched VALUES (?, ?)", keys)

    def touched(self) -> list[tuple[str, str]]:
        return [(str(row[0]), str(row[1])) for row in self.connection.execute("SELECT * FROM touched")]

    def forget_touched(self) -> None:
        self.connection.execute("DELETE FROM touched")

    # -- chunks ------------------------------------------------------------------------------------

    def counts(self) -> tuple[int, int]:
        """Numbers of documents and of live chunks."""
        documents = self.connection.execute("SELECT count(*) FROM documents").fetchone()[0]
        chunks = self.connection.execute("SELECT coalesce(sum(slots - dead), 0) FROM collections").fetchone()[0]
        return int(documents), int(chunks)

    def live_chunks(self) -> dict[str, int]:
        """Numbers of chunks by collection, counted document by document."""
        # In the order of the table: by an index each row would be looked up.
        rows = self.connection.execute(
            "SELECT name, (SELECT coalesce(sum(chunks), 0) FROM documents NOT INDEXED WHERE collection_id = id) "
            "FROM collections"
        )
        return {str(row[0]): int(row[1]) for row in rows}

    def dead_slots(self, held: IndexedCollection) -> list[int]:
        rows = self.connection.execute("SELECT first, chunks FROM dead WHERE collection_id = ?", (held.id,))
        return [slot for first, chunks in rows for slot in range(first, first + chunks)]

    def chunk(self, row: int) -> HeldChunk:
        """A live chunk by its row (`keywords.row_id`)."""
        slot = slot_of(row)
        found = self.connection.execute(
            "SELECT doc_id, ? - first, chunks, title, content_hash, metadata FROM documents "
            "WHERE collection_id = ? AND first <= ? "
            "ORDER BY first DESC LIMIT 1",
            (slot, collection_of(row), slot),
        ).fetchone()
        return HeldChunk(*found)

    def slots_of(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], range]:
        """Where the chunks of these documents lie (the index must hold them)."""
        asked: dict[str, list[str]] = {}
        for name, doc_id in keys:
            asked.setdefault(name, []).append(doc_id)
        ids = {name: held.id for name, held in self.collections().items()}
        found: dict[tuple[str, str], range] = {}
        for name, doc_ids in asked.items():
            # CROSS: SQLite looks the ids up, and does not walk the documents with all ids for each.
            places = self.connection.execute(
                "SELECT doc_id, first, first + chunks FROM json_each(?) "
                "CROSS JOIN documents ON collection_id = ? AND doc_id = value",
                (msgspec.json.encode(doc_ids).decode(), ids[name]),
            )
            slots = {doc_id: range(first, end) for doc_id, first, end in places}
            found |= {(name, doc_id): slots[doc_id] for doc_id in doc_ids}
        return found

    def placed(self, held: IndexedCollection) -> Iterator[tuple[DocumentHeader, range]]:
        """Every document of a collection, and the slots of its chunks."""
        rows = self.connection.execute(
            "SELECT doc_id, title, content_hash, metadata, first, chunks FROM documents WHERE collection_id = ?",
            (held.id,),
        )
        for row in rows:
            yield DocumentHeader(held.collection.name, *row[:4]), range(row[4], row[4] + row[5])

    def columns(self, held: IndexedCollection, *, header: bool) -> Iterator[HeldColumns]:
        """Every document of a collection, a thousand at a time.

        Without `header`, the columns from `title` on are empty texts: reading them takes half as
        long again.
        """
        rest = "title, doc_id, content_hash" if header else "'', '', ''"
        rows = self.connection.execute(
            f"SELECT first, chunks, 0, metadata, {rest} FROM documents WHERE collection_id = ?",  # noqa: S608  constants
            (held.id,),
        )
        while some := rows.fetchmany(1000):
            yield HeldColumns(*zip(*some, strict=True))


def _definition(collection: Collection) -> str:
    return msgspec.json.encode(collection).decode()
