"""A sealed index, open: what Chroma's store of it has to hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link.index import seal
from vmrag_link.index.metadata import MetadataValue, chunk_id, document_metadata, place
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import DocumentHeader

Vectors = Callable[[IndexReader, IndexedCollection, Mapping[int, str]], Mapping[int, bytes]]
"""The float32 vectors of chunks of a collection of an index, by row; given are their texts."""


class Placed(NamedTuple):
    """A document and the rows of its chunks."""

    header: DocumentHeader
    rows: range


class ChunkRow(NamedTuple):
    """A chunk as Chroma is to hold it, and its row in the index."""

    id: str
    row: int
    text: str
    metadata: dict[str, MetadataValue]


class OpenIndex:
    """Hold the view's lock while it is opened. It stays readable where it is removed afterwards."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with contextlib.ExitStack() as opened:
            self.reader = opened.enter_context(IndexReader.open(folder))
            self.reader.hold()
            self.collections = self.reader.collections
            self.revision = seal.read(folder).revision
            self.stand_ins = frozenset(self.reader.view.unembedded)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def placed(self, held: IndexedCollection) -> Iterable[Placed]:
        """Every document of a collection."""
        return map(Placed._make, self.reader.placed(held.collection.name))

    def find(self, held: IndexedCollection, doc_ids: Iterable[str]) -> dict[str, Placed]:
        """Those of these documents that the index holds."""
        keys = [(held.collection.name, doc_id) for doc_id in doc_ids]
        headers, rows = self.reader.headers_of(keys), self.reader.rows_of(keys)
        return {key[1]: Placed(header, rows[key]) for key, header in headers.items()}

    def chunks(self, held: IndexedCollection, documents: Iterable[Placed]) -> list[ChunkRow]:
        """The chunks of these documents, in their order."""
        found = []
        for header, rows in documents:
            common = document_metadata(header, held.collection.table)
            texts = self.reader.texts(rows)
            for number, row in enumerate(rows):
                metadata = common | place(header, held.collection.table, number, len(rows))
                found.append(ChunkRow(chunk_id(header.doc_id, number), row, texts[row], metadata))
        return found
