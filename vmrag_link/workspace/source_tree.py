"""Files of sources as documents: of the work tree or of a commit.

A source is a rule of the setting `sources:` that makes files documents. There are two ways to read
them. `SourceTree` lists the files and reads texts on demand, without an index, for example for
`vmrag diff`. `SourceStore` is a store like the knowledge base, with an index, for searches in a
repository without a knowledge base and for operations on one collection.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Self, TypeVar

from vmrag_link.errors import IndexFailed
from vmrag_link.git import plumbing
from vmrag_link.models import SOURCE, At, Document, DocumentHeader, format_notes_metadata
from vmrag_link.models import Collection as CollectionRow
from vmrag_link.settings import Config, SourceSettings
from vmrag_link.workspace.local_store import StoreBesideWorkTree
from vmrag_link.workspace.reader import View

if TYPE_CHECKING:
    from vmrag_link.git.submodules import Submodule
    from vmrag_link.paths import Places
    from vmrag_link.sources.listings import SourceListing, TreeFile
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.indexed_rows import IndexedRows
    from vmrag_link.workspace.worktree import OpenSources, WorkTree

Key = tuple[str, str]
"""Collection and id of a document. The id is the file's path in the collection."""


class SourceTree:
    """The files of the sources in the work tree or a commit, without their texts.

    `commit`: the hash of the commit, None for the work tree. `listing`: its files. `unavailable`:
    why collections have no files here, by name. `submodules`: the submodules that have some of
    the files.
    """

    def __init__(
        self,
        places: Places,
        sources: Sequence[SourceSettings],
        listing: SourceListing,
        *,
        commit: str | None,
        unavailable: Mapping[str, str],
        submodules: Sequence[Submodule] = (),
    ) -> None:
        self.places = places
        self.submodules = submodules
        if submodules:
            from vmrag_link.git.submodules import lend_objects

            self.places = lend_objects(places, submodules)
        self._sources = {source.collection: source for source in sources}
        self.listing = listing
        self.commit = commit
        self.unavailable = unavailable
        self.files: Mapping[Key, TreeFile] = {
            (name, file.doc_id): file for name, files in listing.files.items() for file in files
        }

    @property
    def sources(self) -> tuple[SourceSettings, ...]:
        return tuple(self._sources.values())

    def find_source(self, collection: str) -> SourceSettings | None:
        """Return the source of a collection, or None."""
        return self._sources.get(collection)

    def find_note(self, path: str) -> Key | None:
        """Return the note whose file has this path from the top, or None.

        A note is a file of a source with `write`.
        """
        for key, file in self.files.items():
            source = self._sources[key[0]]
            if file.path == path and source.write and path.startswith(f"{source.folder}/"):
                return key
        return None

    def find_submodule(self, path: str) -> Submodule | None:
        """Return the innermost submodule that contains a path, or None."""
        around = [submodule for submodule in self.submodules if path.startswith(f"{submodule.path}/")]
        return max(around, key=lambda submodule: len(submodule.path), default=None)

    def is_code(self, key: Key) -> bool:
        return self._sources[key[0]].kind == "code"

    def get_tag(self, key: Key) -> object:
        """Return a value that is equal for equal documents, or None if the file does not exist."""
        file = self.files.get(key)
        return file and (file.blob, file.handwritten, self._sources[key[0]].kind)

    def read_documents(self, keys: Iterable[Key]) -> dict[Key, Document]:
        """Return the documents of these keys. Files that are not documents are left out.

        All texts are in memory at once. Raises `FileFailed` for a file of the work tree that has
        changed, `GitFailed`, and `LimitExceeded`.
        """
        from vmrag_link.sources import documents
        from vmrag_link.sources.listings import NoDocument

        read_texts = documents.read_texts_at_commit if self.commit else documents.read_texts_in_work_tree
        files_by_collection: dict[str, list[TreeFile]] = defaultdict(list)
        for key in keys:
            if file := self.files.get(key):
                files_by_collection[key[0]].append(file)
        by_key = {}
        for name, files in files_by_collection.items():
            for file, text in read_texts(self.places, files):
                document = documents.build_document(self._sources[name], file, text)
                if not isinstance(document, NoDocument):
                    by_key[document.key] = document
        return by_key


def read_work_tree(ws: Workspace, *, stored: Collection[str] | None = None) -> SourceTree | None:
    """Return the files of the work tree, or None without sources.

    `stored`: names of the collections of the knowledge base, by default those of the index. Sources
    with these names are unavailable. Raises the errors of `work_tree.list_in_work_tree`.
    """
    config = ws.sources.config
    if not config.sources:
        return None
    if stored is None:
        stored = ws.list_stored_collections()
    sources, unavailable = ws.sources.select_available(config, stored)
    listing = ws.sources.list_work_tree(sources)
    submodules = ws.sources.find_submodules(config, None)
    return SourceTree(ws.places, sources, listing, commit=None, unavailable=unavailable, submodules=submodules)


def read_commit(
    ws: Workspace, commit: str, config: Config | None = None, *, stored: Collection[str] | None = None
) -> SourceTree | None:
    """Return the files of a commit, or None without sources.

    `commit`: its full hash. `config`: settings that define the sources, by default those of the
    commit. `stored`: as for `read_work_tree`, by default the collections of the revision that the
    commit pins. Raises the errors of `commit_files.list_at_commit`, and `ConfigInvalid`.
    """
    config = config or ws.sources.read_config_at(commit)
    if not config.sources:
        return None
    if stored is None:
        stored = ws.sources.list_stored_at(commit)
    sources, unavailable = ws.sources.select_available(config, stored)
    listing = ws.sources.list_commit(commit, sources, config)
    submodules = ws.sources.find_submodules(config, commit)
    return SourceTree(ws.places, sources, listing, commit=commit, unavailable=unavailable, submodules=submodules)


class FileNames:
    """The names of the files in some trees, with the methods of an engine for reading rows.

    Texts are read only by `find_document`, from the first tree that has the file. So headers have
    no hash of the text. The arguments `at` are ignored.
    """

    def __init__(self, *trees: SourceTree | None) -> None:
        self._trees = [tree for tree in trees if tree]
        self._ids: dict[str, set[str]] = defaultdict(set)
        for tree in self._trees:
            for collection, doc_id in tree.files:
                self._ids[collection].add(doc_id)

    def select_collections(self, collections: Collection[str]) -> Self:
        """Remove the names of other collections, and return self."""
        for name in self._ids.keys() - {*collections}:
            del self._ids[name]
        return self

    def list_collections(self, _at: At) -> list[CollectionRow]:
        folders = {source.collection: source.folder for tree in self._trees for source in tree.sources if source.write}
        return [
            CollectionRow(name, kind=SOURCE, metadata=format_notes_metadata(folders[name]) if name in folders else "{}")
            for name in sorted(self._ids)
        ]

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        """Yield headers sorted by (collection, doc_id)."""
        del at
        selected = None if ids is None else set(ids)
        for name in sorted(self._ids) if collection is None else [collection]:
            existing = self._ids.get(name, set())
            for path in sorted(existing if selected is None else existing & selected):
                yield build_unread_header(name, path)

    def find_document(self, _at: At, collection: str, doc_id: str) -> Document | None:
        key = (collection, doc_id)
        for tree in self._trees:
            if document := tree.read_documents([key]).get(key):
                return document
        return None


def build_unread_header(collection: str, path: str) -> DocumentHeader:
    """Return the header of a file whose text was not read."""
    return DocumentHeader(collection, path, PurePosixPath(path).stem, "", "{}")


T = TypeVar("T")


class SourceStore(StoreBesideWorkTree):
    """The files of the work tree as a store, like `Workspace` and `LocalStore`.

    It holds an open view, which other processes do not remove. `refresh` and `reader.view` replace
    it with a view of the present files.
    """

    def __init__(self, ws: WorkTree) -> None:
        super().__init__(ws)
        self._held = contextlib.ExitStack()
        self._opened: OpenSources | None = None
        self.notes: tuple[str, ...] = ()
        """Why only files answer although the commit pins documents (`search_scope`)."""
        self.reader = SourceReader(self)

    def close(self) -> None:
        self._held.close()
        self._opened = None

    @property
    def opened(self) -> OpenSources:
        """The view that was opened last. Raises the errors of `SourceIndex.open_work_tree`."""
        return self._opened or self.refresh()

    @property
    def engine(self) -> IndexedRows:
        """The documents of the view, with the methods of an engine for reading rows.

        Raises the errors of `SourceIndex.open_work_tree`.
        """
        from vmrag_link.workspace.indexed_rows import IndexedRows  # a checkout reads no index

        return IndexedRows(self.opened.folder)

    def distrust_view(self) -> None:
        """Verify the view completely when it is next opened."""
        self._ws.source_index.distrust_view()

    def refresh(self) -> OpenSources:
        """Open the view of the present files instead of the last one."""
        self.close()
        stored = self._ws.list_stored_collections()
        opened = self._held.enter_context(self._ws.source_index.open_work_tree(stored=stored))
        assert opened is not None  # noqa: S101  the store is used for a configured collection
        self._opened = opened
        return opened


class SourceReader:
    """Read the index of the present files, with the methods of `Reader`."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store

    def read(self, action: Callable[[View], T], *, files: bool = True) -> T:
        """Return the result of `action` for the view, like `Reader.read`. `files` is ignored."""
        del files
        try:
            with self.view() as view:
                return action(view)
        except IndexFailed as error:
            self._store.close()
            self._store.distrust_view()
            self._store.progress.note(f"{error.message.rstrip('.')}. It is built again.")
        with self.view() as view:
            return action(view)

    @contextlib.contextmanager
    def view(self) -> Iterator[View]:
        """Yield the index of the present files. It does not change in the block."""
        opened = self._store.refresh()
        head = plumbing.read_head(self._store.places).commit
        yield View(opened.folder, "", None, dirty=False, git_head=head, notes=self._store.notes, sources=opened)
