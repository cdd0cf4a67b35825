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
def open_reader(folder: Path) -> Iterator[IndexReader]:
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


def read_contents(folder: Path) -> Contents:
    with open_reader(folder) as reader:
        placed = [each for name in reader.list_collections for each in reader.list_documents(name)]
        headers = {header.key: header for header, _ in placed}
        chunks = {header.key: len(rows) for header, rows in placed}
        return Contents(reader.list_collections, headers, chunks, reader.view.unembedded)


def read_collections(folder: Path) -> Mapping[str, IndexedCollection]:
    """The collections that the index holds, by name."""
    return views.read_view(folder).collections


def count_chunks_by_document(folder: Path) -> dict[tuple[str, str], int]:
    """The number of chunks of each document that the index holds."""
    with open_reader(folder) as reader:
        return reader.count_chunks_by_document()


def count_chunks(folder: Path, documents: Iterable[tuple[str, str]]) -> int:
    """How many chunks the index holds of these documents together."""
    with open_reader(folder) as reader:
        return sum(map(len, reader.find_rows(documents).values()))


class IndexedRow(Record, frozen=True):
    """A chunk as our own files hold it; `vector` in whole numbers."""

    text: str
    vector: bytes


def read_rows(folder: Path, name: str) -> dict[str, list[IndexedRow]]:
    """The chunks of each document of a collection, in their order."""
    with open_reader(folder) as reader:
        found = {}
        for header, rows in reader.list_documents(name):
            texts = reader.read_texts(rows)
            found[header.doc_id] = [IndexedRow(texts[row], reader.read_vector(row)) for row in rows]
        return found


def read_documents(folder: Path, name: str) -> Iterator[tuple[DocumentHeader, list[str]]]:
    """Each document of a collection with the texts of its chunks, in their order."""
    with open_reader(folder) as reader:
        for header, rows in reader.list_documents(name):
            yield header, list(reader.read_texts(rows).values())
