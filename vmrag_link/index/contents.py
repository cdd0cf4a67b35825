"""Reading what an index holds, by the folder of a view that nobody changes meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link.index import view as views
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import DocumentHeader, Record

if TYPE_CHECKING:
    from vmrag_link.index.reader import IndexReader

# Each raises `IndexFailed` for what is damaged.


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[IndexReader]:
    from vmrag_link.index.reader import IndexReader, damage_errors

    with damage_errors(folder), IndexReader.open(folder) as reader:
        yield reader


class Contents(Record, frozen=True):
    """The contents of an index: collections by name, documents and their chunks by (collection,
    doc_id).

    `unembedded`: as `IndexView.unembedded`.
    """

    collections: Mapping[str, IndexedCollection]
    headers: dict[tuple[str, str], DocumentHeader]
    chunks: dict[tuple[str, str], int]
    unembedded: Mapping[str, str]


def contents(folder: Path) -> Contents:
    with opened(folder) as reader:
        placed = [each for name in reader.collections for each in reader.placed(name)]
        headers = {header.key: header for header, _ in placed}
        chunks = {header.key: len(rows) for header, rows in placed}
        return Contents(reader.collections, headers, chunks, reader.view.unembedded)


def held_collections(folder: Path) -> Mapping[str, IndexedCollection]:
    """The collections that the index holds, by name."""
    return views.read(folder).collections


def chunk_counts(folder: Path) -> dict[tuple[str, str], int]:
    """The number of chunks of each document that the index holds."""
    with opened(folder) as reader:
        return reader.chunk_counts()


def chunks_held(folder: Path, documents: Iterable[tuple[str, str]]) -> int:
    """How many chunks the index holds of these documents together."""
    with opened(folder) as reader:
        return sum(map(len, reader.rows_of(documents).values()))


class HeldRow(Record, frozen=True):
    """A chunk as our own files hold it; `vector` in whole numbers."""

    text: str
    vector: bytes


def rows_of(folder: Path, name: str) -> dict[str, list[HeldRow]]:
    """The chunks of each document of a collection, in their order."""
    with opened(folder) as reader:
        found = {}
        for header, rows in reader.placed(name):
            texts = reader.texts(rows)
            found[header.doc_id] = [HeldRow(texts[row], reader.vector(row)) for row in rows]
        return found


def documents_of(folder: Path, name: str) -> Iterator[tuple[DocumentHeader, list[str]]]:
    """Each document of a collection with the texts of its chunks, in their order."""
    with opened(folder) as reader:
        for header, rows in reader.placed(name):
            yield header, list(reader.texts(rows).values())
