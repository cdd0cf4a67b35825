"""The documents of sources as a store of their own, for what reads one collection."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from vmrag_link.errors import IndexFailed
from vmrag_link.git import plumbing
from vmrag_link.workspace.local_store import StoreBesideWorkTree
from vmrag_link.workspace.reader import View

if TYPE_CHECKING:
    from vmrag_link.workspace.indexed_rows import IndexedRows
    from vmrag_link.workspace.worktree import OpenSources, WorkTree

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
        from vmrag_link.workspace.indexed_rows import IndexedRows  # a checkout reads no index

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
