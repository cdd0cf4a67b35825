"""A store for documents that stay on this machine, shared by all work trees and all checkouts.

Tools keep documents here if the setting `system.versioned` is false. No pin names them, and they
are never pushed. The rows are the uncommitted documents of one KB branch, on an empty revision.

    <git common dir>/vmrag/local/kb/      their rows, on one branch without commits
    <git common dir>/vmrag/local/index/   a view of them, updated when it is next read
    <git common dir>/vmrag/local/segments/
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vmrag_link import hints
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import (
    AlreadyInitialized,
    BranchExists,
    Busy,
    EngineFailed,
    EngineUnwritable,
    IndexFailed,
    MassDeletion,
    file_failures,
    set_aside,
)
from vmrag_link.git import plumbing
from vmrag_link.index import view as views
from vmrag_link.index.view import IndexView, segments_folder
from vmrag_link.index.views import Segments
from vmrag_link.index.working import WorkingCopy
from vmrag_link.models import WorkingSet
from vmrag_link.workspace.reader import ATTEMPTS, View

if TYPE_CHECKING:
    from vmrag_link.embedding.cache import EmbeddingCache
    from vmrag_link.paths import Places
    from vmrag_link.progress import Progress
    from vmrag_link.retrieval.ranking import Ranking
    from vmrag_link.settings import Config
    from vmrag_link.sync.indexer import Indexer
    from vmrag_link.workspace.settings import Models
    from vmrag_link.workspace.worktree import WorkTree


class StoreBesideWorkTree:
    """Base class of stores that use the settings and models of a work tree."""

    def __init__(self, ws: WorkTree) -> None:
        self._ws = ws

    @property
    def places(self) -> Places:
        return self._ws.places

    @property
    def progress(self) -> Progress:
        return self._ws.progress

    @property
    def models(self) -> Models:
        return self._ws.models

    @property
    def config(self) -> Config:
        return self._ws.settings.config

    @property
    def ranking(self) -> Ranking:
        from vmrag_link.retrieval.ranking import read_ranking

        return read_ranking(self.config.retrieval)

    @property
    def lock_timeout(self) -> float:
        return self._ws.settings.lock_timeout

    @property
    def embedding_cache(self) -> EmbeddingCache:
        return self._ws.embedding_cache


BRANCH = "local"
AT = WorkingSet(BRANCH)
"""From where all rows are read."""

_AUTHOR = "vmrag-link <vmrag-link@localhost>"

T = TypeVar("T")


class LocalStore(StoreBesideWorkTree):
    """Documents that tools keep on this machine. It has the methods of `Workspace` for reading."""

    def __init__(self, ws: WorkTree) -> None:
        super().__init__(ws)
        self._engine: Engine | None = None
        self.reader = LocalReader(self)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None
            self.__dict__.pop("base", None)  # another store may exist when it is opened again

    def create_indexer(self) -> Indexer:
        """Return an indexer for the rows of this store."""
        from vmrag_link.sync.indexer import Indexer

        return Indexer(self.engine, self.embedding_cache, self.models.load_for, self.progress)

    # -- rows --------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """True if documents were ever kept here."""
        folder = self.places.local_kb
        return opening.engine_exists(folder) or opening.is_lost(folder)

    @property
    def remedy(self) -> str:
        """The hint for damaged rows: move them aside, and start with an empty store."""
        return hints.suggest_command(set_aside(self.places.local_kb), "start without these documents")

    @property
    def engine(self) -> Engine:
        """The embedded engine, independent of the knowledge base's engine. It is created on first
        use.

        Raises the errors of `opening.open_engine`.
        """
        if self._engine is None:
            self._engine = self._open_engine()
        return self._engine

    @cached_property
    def base(self) -> str:
        """The empty revision on which the rows are uncommitted."""
        return read_root(self.engine)

    def _open_engine(self) -> Engine:
        """Open the engine, and create files and branch if they do not exist yet."""
        folder = self.places.local_kb
        if opening.is_lost(folder):
            raise EngineFailed(
                f"the file of the documents that stay on this machine is missing: {folder}",
                hint=hints.join_alternatives("restore the file from a backup", self.remedy),
                path=str(folder),
            )
        if not self.exists:
            from vmrag_link import clock
            from vmrag_link.git import folder_modes

            folder_modes.prepare_folders(self.places)
            with contextlib.suppress(AlreadyInitialized):  # created by another process just now
                opening.create_engine("doltlite", folder, author=_AUTHOR, date=clock.now()).close()
        try:
            engine = opening.open_engine(folder, lock_timeout=self.lock_timeout, limits=self._ws.settings.limits)
        except EngineUnwritable:
            raise
        except EngineFailed as error:
            # No remote has a copy. The hint for a truncated file recovers the remaining documents.
            recovery = hints.list_alternatives(error.hint)[-1] if "expected" in error.details else ""
            error.hint = hints.join_alternatives(recovery, self.remedy)
            raise
        try:
            if engine.find_branch(BRANCH) is None:
                with contextlib.suppress(BranchExists):
                    engine.create_branch(BRANCH, read_root(engine))
        except BaseException:
            engine.close()
            raise
        return engine

    # -- index -------------------------------------------------------------------------------------

    def get_index(self) -> WorkingCopy:
        """Return the index of the documents. It may not exist yet."""
        return WorkingCopy(self.places.local_index, kb_branch=BRANCH, base=self.base, timeout=self.lock_timeout)


class LocalReader:
    """Read the index of a `LocalStore`, with the methods of `Reader`. It is updated first."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def read(self, action: Callable[[View], T], *, files: bool = True) -> T:
        """Return the result of `action` for the view, like `Reader.read`. `files` is ignored."""
        del files
        try:
            with self.view() as view:
                return action(view)
        except IndexFailed as error:
            index = self._store.get_index()
            with index.lock_for_writing():
                index.remove_copy()
            self._store.progress.note(f"{error.message.rstrip('.')}. It is built again.")
        with self.view() as view:
            return action(view)

    @contextlib.contextmanager
    def view(self) -> Iterator[View]:
        """Yield the index with all documents that were stored before. It does not change in the
        block.

        Raises `FileFailed` if it cannot be updated, and the models' errors.
        """
        store = self._store
        index = store.get_index()
        is_updated = False
        for _ in range(ATTEMPTS):
            with index.lock_for_reading() as problem:
                # After an update, do not wait for documents that were stored in the meantime.
                if not (index.find_damage() if is_updated else problem):
                    head = plumbing.read_head(store.places).commit
                    yield View(index.path, store.base, BRANCH, dirty=True, git_head=head)
                    return
            with file_failures(), index.lock_for_writing() as state, store.engine.write_lock("index documents"):
                self._update_index_to_rows(index.path, whole=state != "gone")
            is_updated = True
        raise Busy(
            f"cannot read the index: other processes damaged or removed it {ATTEMPTS} times.",
            hint="run the command again when they have finished",
        )

    def _update_index_to_rows(self, folder: Path, *, whole: bool) -> None:
        """Update the index to the present rows. The caller holds its lock and the write lock.

        `whole`: False to build the index instead of updating it. All rows are compared, because a
        killed writer may not have recorded which rows it changed.
        """
        before = views.read_view(folder) if whole else IndexView()
        # Build the index again if an embedding service failed, because it may answer now.
        if before.collections and not before.unembedded:
            with contextlib.suppress(IndexFailed, MassDeletion):  # if most of it was removed, building is cheaper
                self._write_index(folder, before)
                return
        self._write_index(folder, None)
        Segments(segments_folder(folder)).collect_garbage([folder.parent])

    def _write_index(self, folder: Path, base: IndexView | None) -> None:
        """Write the index, derived from `base` if it is given."""
        from vmrag_link.index.draft import Draft

        with Draft(segments_folder(folder), base) as draft:
            self._store.create_indexer().update_index(draft, AT, base=None)
            draft.clear_touched()  # the rows are never committed
            draft.publish(folder, revision=self._store.base, durable=False)
