"""An open index as Chroma should have it: documents, chunks and metadata of one or several views.

A *view* is a folder that lists the documents of an index at one revision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link.chroma.stores import REVISION_SEPARATOR
from vmrag_link.index import seal, view
from vmrag_link.index.metadata import MetadataValue, build_chunk_metadata, build_document_metadata, chunk_id
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection, IndexView
from vmrag_link.models import DocumentHeader

VectorSource = Callable[[IndexReader, IndexedCollection, Mapping[int, str]], Mapping[int, bytes]]
"""A function that returns the float32 vectors of chunks of a collection, by row. Its last argument
has the texts of the chunks by row.
"""


class DocumentRows(NamedTuple):
    """A document and the rows of its chunks."""

    header: DocumentHeader
    rows: range


class ChunkRow(NamedTuple):
    """A chunk as it should be in Chroma, and its row in the index."""

    id: str
    row: int
    text: str
    metadata: dict[str, MetadataValue]


class OpenIndex:
    """Several views as one index. They stay readable if they are removed afterwards.

    The caller holds the locks of the views while they are opened. As in a query, a stored
    collection hides files of the same name, except notes, which hide the stored collection.
    `leave_out`: names of collections to leave out.
    """

    def __init__(self, folder: Path, *more: Path, leave_out: frozenset[str] = frozenset()) -> None:
        self.folder = folder
        views: list[IndexView] = []
        for path in (folder, *more):
            opened_view = view.read_view(path)
            derived = {name for name, indexed in opened_view.collections.items() if not indexed.collection.has_notes}
            hidden = derived.intersection([name for earlier in views for name in earlier.collections])
            views.append(view.drop_collections(opened_view, leave_out | hidden))
        revisions = [seal.read_seal(path).revision for path in (folder, *more)]
        """The revision of the view of each collection."""

        self.revision = REVISION_SEPARATOR.join(revisions)
        self.revisions = {
            name: revision for opened, revision in zip(views, revisions, strict=True) for name in opened.collections
        }
        """The revision of the view that a collection is from."""
        with contextlib.ExitStack() as opened:
            self.reader = opened.enter_context(IndexReader(view.join_views(views), view.segments_folder(folder)))
            self.reader.open_files()
            self.collections = self.reader.collections
            self.stand_ins = frozenset(self.reader.view.unembedded)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def list_documents(self, indexed: IndexedCollection) -> Iterable[DocumentRows]:
        """Return every document of a collection."""
        return map(DocumentRows._make, self.reader.list_documents(indexed.collection.name))

    def find_documents(self, indexed: IndexedCollection, doc_ids: Iterable[str]) -> dict[str, DocumentRows]:
        """Return those of these documents that the index has."""
        keys = [(indexed.collection.name, doc_id) for doc_id in doc_ids]
        headers = self.reader.find_headers(keys)
        rows = self.reader.find_rows(keys)
        return {key[1]: DocumentRows(header, rows[key]) for key, header in headers.items()}

    def list_chunks(self, indexed: IndexedCollection, documents: Iterable[DocumentRows]) -> list[ChunkRow]:
        """Return the chunks of these documents, in their order."""
        chunks = []
        for header, rows in documents:
            common = build_document_metadata(header, indexed.collection.table)
            texts = self.reader.read_texts(rows)
            for number, row in enumerate(rows):
                metadata = common | build_chunk_metadata(header, indexed.collection.table, number, len(rows))
                chunks.append(ChunkRow(chunk_id(header.doc_id, number), row, texts[row], metadata))
        return chunks
