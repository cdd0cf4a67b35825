"""Read the contents of an index from the folder of its view.

The caller makes sure that the view does not change while it is read. Each function raises
`IndexFailed` for a damaged index.
"""

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


@contextlib.contextmanager
def open_reader(folder: Path) -> Iterator[IndexReader]:
    """Yield a reader of the index in a folder. Raise `IndexFailed` for damage that the block
    finds.
    """
    from vmrag_link.index.reader import IndexReader, damage_errors

    with damage_errors(folder), IndexReader.open(folder) as reader:
        yield reader


class Contents(Record, frozen=True):
    """The contents of an index."""

    collections: Mapping[str, IndexedCollection]
    """Collections by name."""

    headers: dict[tuple[str, str], DocumentHeader]
    """Document headers by (collection, doc_id)."""

    chunks: dict[tuple[str, str], int]
    """Numbers of chunks by (collection, doc_id)."""

    unembedded: Mapping[str, str]
    """See `IndexView.unembedded`."""


def read_contents(folder: Path) -> Contents:
    """Return the collections, headers and chunk counts of an index."""
    with open_reader(folder) as reader:
        documents = [document for name in reader.collections for document in reader.list_documents(name)]
        headers = {header.key: header for header, _ in documents}
        chunks = {header.key: len(rows) for header, rows in documents}
        return Contents(reader.collections, headers, chunks, reader.view.unembedded)


def read_collections(folder: Path) -> Mapping[str, IndexedCollection]:
    """Return the collections of an index by name."""
    return views.read_view(folder).collections


def count_chunks_by_document(folder: Path) -> dict[tuple[str, str], int]:
    """Return the number of chunks of each document in an index."""
    with open_reader(folder) as reader:
        return reader.count_chunks_by_document()


def count_chunks(folder: Path, documents: Iterable[tuple[str, str]]) -> int:
    """Return the number of chunks that an index has of these documents in total."""
    with open_reader(folder) as reader:
        return sum(map(len, reader.find_rows(documents).values()))


class IndexedRow(Record, frozen=True):
    """A chunk in the files of an index."""

    text: str
    vector: bytes
    """The vector as one int8 for each dimension."""


def read_rows(folder: Path, name: str) -> dict[str, list[IndexedRow]]:
    """Return the chunks of each document of a collection, in their order, by document id."""
    with open_reader(folder) as reader:
        rows_by_document = {}
        for header, rows in reader.list_documents(name):
            texts = reader.read_texts(rows)
            rows_by_document[header.doc_id] = [IndexedRow(texts[row], reader.read_vector(row)) for row in rows]
        return rows_by_document
