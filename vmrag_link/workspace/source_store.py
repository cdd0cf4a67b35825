"""The documents of sources as a store of their own, for what reads one collection. Whole documents
are put together from what the index holds of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vmrag_link.conversion import formats
from vmrag_link.documents import chunking
from vmrag_link.errors import IndexFailed
from vmrag_link.git import plumbing
from vmrag_link.index import contents
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import SOURCE, At, Collection, Document, DocumentHeader, content_hash
from vmrag_link.workspace.local_store import StoreBesideWorkTree
from vmrag_link.workspace.reader import View

if TYPE_CHECKING:
    from vmrag_link.workspace.worktree import OpenSources, WorkTree


class IndexedRows:
    """The documents of an index that nobody changes meanwhile; it is of one place, whatever `at`
    says.

    Raises `IndexFailed` for a text that is not the document's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        held = contents.held_collections(folder)
        self._held = {name: each.collection for name, each in held.items()}
        self._counts = {name: each.documents for name, each in held.items()}

    def collections(self, _at: At) -> list[Collection]:
        return [self._held[name] for name in sorted(self._held)]

    def count(self, _at: At, *, collection: str | None = None) -> int:
        return sum(self._counts.values()) if collection is None else self._counts.get(collection, 0)

    def headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        """Sorted by (collection, doc_id)."""
        del at
        for name in self._names(collection):
            with contents.opened(self._folder) as reader:
                found = [header for header, _ in _locate_documents(reader, name, ids)]
            yield from sorted(found, key=lambda each: each.doc_id)

    def documents(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[Document, None, None]:
        """Sorted by (collection, doc_id)."""
        del at
        for name in self._names(collection):
            with contents.opened(self._folder) as reader:
                for header, rows in sorted(_locate_documents(reader, name, ids), key=lambda each: each[0].doc_id):
                    yield self._document(header, list(reader.texts(rows).values()))

    def document(self, at: At, collection: str, doc_id: str) -> Document | None:
        return next(iter(self.documents(at, collection=collection, ids=[doc_id])), None)

    def sources(self, at: At, collection: str) -> list[tuple[str, str]]:
        """(id, path) of each document that is a file."""
        found = self.headers(at, collection=collection) if self._is_source(collection) else ()
        return [(each.doc_id, each.doc_id) for each in found]

    def ids(self, at: At, collection: str, *, prefix: str) -> list[str]:
        found = (each.doc_id for each in self.headers(at, collection=collection))
        return sorted((each for each in found if each.startswith(prefix)), key=str.encode)

    def _names(self, collection: str | None) -> list[str]:
        return sorted(self._held) if collection is None else [collection] if collection in self._held else []

    def _is_source(self, collection: str) -> bool:
        return collection in self._held and self._held[collection].kind == SOURCE

    def _document(self, header: DocumentHeader, texts: list[str]) -> Document:
        name = header.collection
        text = chunking.joined(texts, self._held[name].chunking)
        if content_hash(text) != header.content_hash:
            raise IndexFailed(f"The index does not hold the text of {name}/{header.doc_id}.")
        if not self._is_source(name):
            return Document(name, header.doc_id, header.title, text, header.content_hash, header.metadata)
        known = formats.by_suffix(header.doc_id)
        return Document(
            *(name, header.doc_id, header.title, text, header.content_hash, header.metadata),
            source=header.doc_id,
            file_type=known.file_type if known else "",
        )


def _locate_documents(
    reader: IndexReader, name: str, ids: Iterable[str] | None
) -> Iterator[tuple[DocumentHeader, range]]:
    if ids is None:
        yield from reader.placed(name)
        return
    keys = [(name, doc_id) for doc_id in ids]
    headers, rows = reader.headers_of(keys), reader.rows_of(keys)
    yield from ((header, rows[key]) for key, header in headers.items())


T = TypeVar("T")


class SourceStore(StoreBesideWorkTree):
    """The files of the work tree. What answers is looked at again with each `refreshed` or `view`,
    and stays until then.
    """

    def __init__(self, ws: WorkTree) -> None:
        super().__init__(ws)
        self._held = contextlib.ExitStack()
        self._opened: OpenSources | None = None
        self.reader = SourceReader(self)

    def close(self) -> None:
        self._held.close()
        self._opened = None

    @property
    def opened(self) -> OpenSources:
        """What answers. Raises as `Sources.here`."""
        return self._opened or self.refreshed()

    @property
    def engine(self) -> IndexedRows:
        """The documents, at whatever place is asked for. Raises as `Sources.here`."""
        return IndexedRows(self.opened.folder)

    def distrust(self) -> None:
        self._ws.sources.distrust()

    def refreshed(self) -> OpenSources:
        """Look at the files again."""
        self.close()
        found = self._held.enter_context(self._ws.sources.here(stored=self._ws.stored_collections()))
        assert found is not None  # noqa: S101  the store is asked for a collection that is configured
        self._opened = found
        return found


class SourceReader:
    """Reads the index of the files as they are."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store

    def read(self, action: Callable[[View], T], *, files: bool = True) -> T:
        """As `Reader.read`; nothing answers beside it, whatever `files` says."""
        del files
        try:
            with self.view() as view:
                return action(view)
        except IndexFailed as error:
            self._store.close()
            self._store.distrust()
            self._store.progress.note(f"{error.message.rstrip('.')}. It is built again.")
        with self.view() as view:
            return action(view)

    @contextlib.contextmanager
    def view(self) -> Iterator[View]:
        store = self._store
        opened, head = store.refreshed(), plumbing.head(store.places).commit
        yield View(opened.folder, "", None, dirty=False, git_head=head, sources=opened)
