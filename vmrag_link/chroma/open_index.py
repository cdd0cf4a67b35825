"""A sealed index, open: what Chroma's store of it has to hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link.index import flat, keywords, seal, vectors
from vmrag_link.index.manifest import FILE, IndexedCollection, Manifest
from vmrag_link.index.metadata import MetadataValue, chunk_id, document_metadata, place
from vmrag_link.models import DocumentHeader

Vectors = Callable[[Path, IndexedCollection, Mapping[int, str]], Mapping[int, bytes]]
"""The float32 vectors of chunks of a collection of the index in a folder, by slot; given are their
texts.
"""


class Placed(NamedTuple):
    """A document and the slots of its chunks."""

    header: DocumentHeader
    slots: range


class ChunkRow(NamedTuple):
    """A chunk as Chroma is to hold it, and where its vector lies in the index."""

    id: str
    slot: int
    text: str
    metadata: dict[str, MetadataValue]


class OpenIndex:
    """Hold the index's lock while it is opened. It stays readable where it is removed afterwards,
    except for float vectors, which `Vectors` looks up by name; `in_place` tells.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._identity = _identity(folder)
        with contextlib.ExitStack() as opened:
            self.manifest = opened.enter_context(contextlib.closing(Manifest(folder, frozen=True)))
            self._words = opened.enter_context(contextlib.closing(keywords.connect(folder, frozen=True)))
            keywords.count(self._words)  # SQLite opens a file with the first statement
            self.collections = self.manifest.collections()
            self.revision = seal.read(folder).revision
            self.stand_ins = frozenset(self.manifest.unembedded())
            self._vectors = {
                held.id: flat.mapped(folder / vectors.file_name(held.id))
                for held in self.collections.values()
                if held.slots
            }
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    @property
    def in_place(self) -> bool:
        """Whether the folder still holds the index that was opened."""
        return _identity(self.folder) == self._identity

    def placed(self, held: IndexedCollection) -> Iterable[Placed]:
        """Every document of a collection."""
        return map(Placed._make, self.manifest.placed(held))

    def find(self, held: IndexedCollection, doc_ids: Iterable[str]) -> dict[str, Placed]:
        """Those of these documents that the index holds."""
        name = held.collection.name
        headers = self.manifest.headers_of((name, doc_id) for doc_id in doc_ids)
        slots = self.manifest.slots_of(headers)
        return {doc_id: Placed(header, slots[name, doc_id]) for (_, doc_id), header in headers.items()}

    def chunks(self, held: IndexedCollection, documents: Iterable[Placed]) -> list[ChunkRow]:
        """The chunks of these documents, in their order."""
        found = []
        for header, slots in documents:
            common = document_metadata(header, held.collection.table)
            texts = keywords.texts(self._words, [keywords.row_id(held.id, slot) for slot in slots])
            for number, slot in enumerate(slots):
                metadata = common | place(header, held.collection.table, number, len(slots))
                text = texts[keywords.row_id(held.id, slot)]
                found.append(ChunkRow(chunk_id(header.doc_id, number), slot, text, metadata))
        return found

    def vector(self, held: IndexedCollection, slot: int) -> bytes:
        """The vector of a slot, in whole numbers."""
        size = held.collection.embedding_dimensions
        return self._vectors[held.id][slot * size : (slot + 1) * size]


def _identity(folder: Path) -> tuple[int, ...] | None:
    try:
        found = (folder / FILE).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
