"""The documents of one segment: the part that can be compared with the knowledge base.

The chunks of a document lie in consecutive slots of its collection's files, from `first` on. A
segment may hold several states of a document; views tell which of them counts.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link.models import DocumentHeader

FILE = "manifest.sqlite"

SCHEMA = """
CREATE TABLE documents (
    collection_id INTEGER NOT NULL, doc_id TEXT NOT NULL, title TEXT NOT NULL, content_hash TEXT NOT NULL,
    metadata TEXT NOT NULL, first INTEGER NOT NULL, chunks INTEGER NOT NULL,
    PRIMARY KEY (collection_id, first)) WITHOUT ROWID;
CREATE INDEX documents_by_id ON documents (collection_id, doc_id);
"""

PAGE_SIZE = 1024
"""Bytes. A segment of a few documents takes half the space that it would with SQLite's 4,096."""


class PlacedDocument(NamedTuple):
    """A document of a collection, and the slots of its chunks."""

    doc_id: str
    title: str
    content_hash: str
    metadata: str
    first: int
    chunks: int


class Manifest:
    """The open manifest of a segment: one that is being made, or that nobody changes any more."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        # What is finished needs neither locks nor a writable directory.
        mode = "mode=rwc" if create else "mode=ro&immutable=1"
        self.connection = sqlite3.connect(
            f"{(folder / FILE).absolute().as_uri()}?{mode}", uri=True, isolation_level=None
        )
        try:
            if create:
                self.connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
                # What a kill left half made is thrown away: no journal has to survive that.
                self.connection.execute("PRAGMA synchronous = OFF")
                self.connection.execute("PRAGMA journal_mode = MEMORY")
                self.connection.executescript(SCHEMA)
        except sqlite3.Error:
            self.connection.close()
            raise

    def close(self) -> None:
        self.connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection:
            self.connection.execute("BEGIN")
            yield

    # -- making ------------------------------------------------------------------------------------

    def add_documents(self, number: int, documents: Iterable[tuple[DocumentHeader, range]]) -> None:
        """Documents and the slots of their chunks."""
        self.connection.executemany(
            "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (number, header.doc_id, header.title, header.content_hash, header.metadata, slots.start, len(slots))
                for header, slots in documents
            ),
        )

    # -- reading -----------------------------------------------------------------------------------

    def chunks(self) -> dict[int, int]:
        """Numbers of chunks by collection."""
        rows = self.connection.execute("SELECT collection_id, sum(chunks) FROM documents GROUP BY collection_id")
        return {int(row[0]): int(row[1]) for row in rows}

    def at(self, number: int, slot: int) -> PlacedDocument:
        """The document that a slot belongs to."""
        found = self.connection.execute(
            "SELECT doc_id, title, content_hash, metadata, first, chunks FROM documents "
            "WHERE collection_id = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            (number, slot),
        ).fetchone()
        return PlacedDocument(*found)

    def find(self, number: int, doc_ids: Iterable[str]) -> Iterator[PlacedDocument]:
        """All states of these documents."""
        # CROSS: SQLite looks the ids up, and does not walk the documents with all ids for each.
        rows = self.connection.execute(
            "SELECT doc_id, title, content_hash, metadata, first, chunks FROM json_each(?) "
            "CROSS JOIN documents INDEXED BY documents_by_id ON collection_id = ? AND doc_id = value",
            (msgspec.json.encode([*doc_ids]).decode(), number),
        )
        return map(PlacedDocument._make, rows)

    def documents(self, number: int, *, header: bool = True) -> Iterator[PlacedDocument]:
        """Every document of a collection. Without `header` all but the metadata are empty texts:
        reading them takes half as long again.
        """
        rest = "doc_id, title, content_hash" if header else "'', '', ''"
        rows = self.connection.execute(
            f"SELECT {rest}, metadata, first, chunks FROM documents WHERE collection_id = ? ORDER BY first",  # noqa: S608  constants
            (number,),
        )
        return map(PlacedDocument._make, rows)
