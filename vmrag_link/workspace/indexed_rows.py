"""Read whole documents from an index, without the knowledge base.

The documents are reconstructed from their chunks. This is for files of sources, which are only in
an index, and for a knowledge base on a server that does not answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path

from vmrag_link.conversion import formats
from vmrag_link.documents import chunking
from vmrag_link.errors import IndexFailed
from vmrag_link.index import contents
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import (
    SOURCE,
    At,
    Collection,
    Document,
    DocumentHeader,
    content_hash,
)


class IndexedRows:
    """The documents of an open index, with the methods of an engine for reading rows.

    The arguments `at` are ignored. Methods raise `IndexFailed` if a text has another hash than its
    document.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        indexed = contents.read_collections(folder)
        self._collections = {name: row.collection for name, row in indexed.items()}
        self._counts = {name: row.documents for name, row in indexed.items()}
        self._paths: Mapping[str, Mapping[str, str]] | None = None
        """Paths of notes by collection and id, read on first use."""

    def list_collections(self, _at: At) -> list[Collection]:
        return [self._collections[name] for name in sorted(self._collections)]

    def count_documents(self, _at: At, *, collection: str | None = None) -> int:
        return sum(self._counts.values()) if collection is None else self._counts.get(collection, 0)

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        """Yield headers sorted by (collection, doc_id)."""
        del at
        for name in self._select_names(collection):
            with contents.open_reader(self._folder) as reader:
                headers = [header for header, _ in _locate_documents(reader, name, ids)]
            yield from sorted(headers, key=lambda header: header.doc_id)

    def read_documents(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[Document, None, None]:
        """Yield documents sorted by (collection, doc_id)."""
        del at
        for name in self._select_names(collection):
            with contents.open_reader(self._folder) as reader:
                located = sorted(_locate_documents(reader, name, ids), key=lambda pair: pair[0].doc_id)
                for header, rows in located:
                    yield self._build_document(header, list(reader.read_texts(rows).values()))

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None:
        return next(iter(self.read_documents(at, collection=collection, ids=[doc_id])), None)

    def list_sources(self, at: At, collection: str) -> list[tuple[str, str]]:
        """Return (id, path) of each document that is a file."""
        headers = self.read_headers(at, collection=collection) if self._is_source(collection) else ()
        return [(header.doc_id, self._find_path(header)) for header in headers]

    def list_ids(self, at: At, collection: str, *, prefix: str) -> list[str]:
        ids = (header.doc_id for header in self.read_headers(at, collection=collection))
        return sorted((doc_id for doc_id in ids if doc_id.startswith(prefix)), key=str.encode)

    def _find_path(self, header: DocumentHeader) -> str:
        """Return the path of a document that is a file."""
        if not self._collections[header.collection].has_notes:
            return header.doc_id
        if self._paths is None:
            from vmrag_link.sync import source_views

            self._paths = source_views.read_contents(self._folder).paths
        return self._paths.get(header.collection, {}).get(header.doc_id, header.doc_id)

    def _select_names(self, collection: str | None) -> list[str]:
        """Return the names of all collections, or of the given one if it exists."""
        return [name for name in sorted(self._collections) if collection in (None, name)]

    def _is_source(self, collection: str) -> bool:
        return collection in self._collections and self._collections[collection].kind == SOURCE

    def _build_document(self, header: DocumentHeader, texts: list[str]) -> Document:
        """Return the document that consists of these chunks. Raises `IndexFailed`."""
        name = header.collection
        text = chunking.join_chunks(texts, self._collections[name].chunking)
        if content_hash(text) != header.content_hash:
            raise IndexFailed(f"the index does not hold the text of {name}/{header.doc_id}.")
        if not self._is_source(name):
            return Document(
                collection=name,
                doc_id=header.doc_id,
                title=header.title,
                content=text,
                content_hash=header.content_hash,
                metadata=header.metadata,
            )
        path = self._find_path(header)
        file_format = formats.find_built_in(path)
        return Document(
            *(name, header.doc_id, header.title, text, header.content_hash, header.metadata),
            source=path,
            file_type=file_format.file_type if file_format else "",
        )


def _locate_documents(
    reader: IndexReader, name: str, ids: Iterable[str] | None
) -> Iterator[tuple[DocumentHeader, range]]:
    """Yield the headers of all documents, or of those with these ids, each with its rows."""
    if ids is None:
        yield from reader.list_documents(name)
        return
    keys = [(name, doc_id) for doc_id in ids]
    rows = reader.find_rows(keys)
    yield from ((header, rows[key]) for key, header in reader.find_headers(keys).items())
