"""A git work tree with its settings, its knowledge base, its index and its files.

Each command opens one `Workspace`, and passes it to an operation in `ops`. Its words:

* The *trigger* is HEAD's name and the bytes of the pin. If it changes, the work tree must follow.
* The *target* is what the trigger requests: a revision and a KB branch, or why it is missing.
* The *binding* names the index that answers here. A sync replaces it after the index is built.
* The *view* is an index that never changes, of one revision or of the files of one commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmrag_link.config import LoadedSettings
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine
from vmrag_link.engines.folder import detect_engine
from vmrag_link.engines.migrated import read_pin
from vmrag_link.errors import IndexFailed, NotInitialized, ServerUnreachable, VmragError, file_failures
from vmrag_link.git import plumbing
from vmrag_link.journal import Journal
from vmrag_link.models import At, KbBranch, Record, WorkingSet
from vmrag_link.paths import Places
from vmrag_link.progress import Progress
from vmrag_link.settings import Config
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.binding import Binding, Position
from vmrag_link.sync.target import Target, Trigger, read_trigger, resolve_target
from vmrag_link.workspace import reasons, twins
from vmrag_link.workspace.settings import Models, WorkspaceSettings

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.cache import EmbeddingCache
    from vmrag_link.embedding.registry import ModelChoice
    from vmrag_link.index.reader import IndexReader
    from vmrag_link.index.view import IndexedCollection
    from vmrag_link.index.views import Views
    from vmrag_link.retrieval.ranking import Ranking
    from vmrag_link.sync.apply import SyncReport
    from vmrag_link.sync.context import SyncContext
    from vmrag_link.sync.indexer import Indexer
    from vmrag_link.workspace.chroma import WorkspaceChroma
    from vmrag_link.workspace.local_store import LocalStore
    from vmrag_link.workspace.reader import Reader
    from vmrag_link.workspace.source_index import SourceIndex
    from vmrag_link.workspace.source_tree import SourceStore
    from vmrag_link.workspace.sources import Sources


class Workspace:
    """A git work tree with its parts, each opened on first use. It belongs to one thread at a time.

    The parts record in the attributes `…_error` why an answer is not the pinned one.
    `reasons.explain_difference` adds these reasons to the answer.
    """

    def __init__(
        self,
        places: Places,
        progress: Progress,
        *,
        patience: float | None = None,
        answer_seconds: float = 0.0,
        index_file: Path | None = None,
        models: dict[ModelChoice, Model] | None = None,
    ) -> None:
        self.places = places
        self.progress = progress
        self.index_file = index_file
        self.clone_error: NotInitialized | None = None
        """Why the knowledge base of a fresh clone could not be fetched (`lazy_fetch`)."""
        self.fetch_error: VmragError | None = None
        """Why the pinned revision could not be fetched (`lazy_fetch`)."""
        self.follow_error: VmragError | None = None
        """Why the pin could not be followed, or the index not be built (`follow_pin.follow`)."""
        self.server_error: ServerUnreachable | None = None
        """Why a Dolt server did not answer (`resolve_target_for_reading`)."""
        self._patience = patience
        self._answer_seconds = answer_seconds
        self._loaded_models: dict[ModelChoice, Model] = {} if models is None else models
        self._engine: Engine | None = None
        self.reload_settings()

    @classmethod
    def open(
        cls,
        start: Path,
        progress: Progress,
        *,
        patience: float | None = None,
        answer_seconds: float = 0.0,
        index_file: Path | None = None,
        models: dict[ModelChoice, Model] | None = None,
        repair: bool = True,
    ) -> Workspace:
        """Open the work tree around a directory.

        `patience`: seconds to wait for locks, instead of the setting `lock_timeout_s`.
        `answer_seconds`: time limit of each answer of a Dolt server, 0 for the default.
        `index_file`: git's index file, if this is a hook of the commit that locks it. git waits for
        the hook, so the hook must not wait for this lock. `models`: a cache of loaded models, for
        callers that open several work trees. `repair`: see `plumbing.locate_work_tree`. Raises
        `GitRepositoryMissing`, `GitConfigInvalid`.
        """
        return cls(
            plumbing.locate_work_tree(start, repair=repair),
            progress,
            patience=patience,
            answer_seconds=answer_seconds,
            index_file=index_file,
            models=models,
        )

    def close(self) -> None:
        """Close the knowledge base and the files that are open."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        if "local" in vars(self):  # a part that is not opened yet has nothing to close
            self.local.close()
        if "files" in vars(self):
            self.files.close()

    def release_files(self) -> None:
        """Release the files of sources between two commands of one process, such as a server.

        Then other processes do not wait for them, and the next command reads them again.
        """
        if "files" in vars(self):
            self.files.close()
        for part in ("sources", "source_index"):  # cached properties, which are opened again on next use
            vars(self).pop(part, None)
        self.clone_error = None

    # -- settings ----------------------------------------------------------------------------------

    def reload_settings(self) -> None:
        """Read the settings again on next use, because their file or the user's trust has
        changed.
        """
        self.settings = WorkspaceSettings(self.places, patience=self._patience, answer_seconds=self._answer_seconds)
        self.models = Models(self.settings, self._loaded_models)

    @property
    def config(self) -> Config:
        """The settings. Raises `ConfigInvalid`."""
        return self.settings.config

    def section(self, name: str, kind: type[Record]) -> LoadedSettings[Any]:
        """Return a section of the settings that a toolset defines.

        `name`: the key of the section. `kind`: the record of its settings. Prints a warning for
        ignored settings. Raises `ConfigInvalid`.
        """
        loaded = self.settings.section(name, kind)
        for warning in loaded.warnings:
            self.progress.note(warning)
        return loaded

    @property
    def ranking(self) -> Ranking:
        """The ranking of queries. Raises `ConfigInvalid`."""
        from vmrag_link.retrieval.ranking import read_ranking

        return read_ranking(self.config.retrieval)

    @property
    def lock_timeout(self) -> float:
        """Seconds to wait for a lock."""
        return self.settings.lock_timeout

    # -- parts -------------------------------------------------------------------------------------

    @cached_property
    def reader(self) -> Reader:
        from vmrag_link.workspace.reader import Reader

        return Reader(self)

    @cached_property
    def local(self) -> LocalStore:
        """The documents that stay on this machine."""
        from vmrag_link.workspace.local_store import LocalStore

        return LocalStore(self)

    @cached_property
    def sources(self) -> Sources:
        from vmrag_link.workspace.sources import Sources

        return Sources(self)

    @cached_property
    def source_index(self) -> SourceIndex:
        from vmrag_link.workspace.source_index import SourceIndex

        return SourceIndex(self, self.sources)

    @cached_property
    def files(self) -> SourceStore:
        """The files of sources as documents."""
        from vmrag_link.workspace.source_tree import SourceStore

        return SourceStore(self)

    @property
    def is_initialized(self) -> bool:
        """True if the knowledge base exists in this clone."""
        return opening.engine_exists(self.places.kb)

    @property
    def stores_nothing(self) -> bool:
        """True if the repository has no pin and never had a knowledge base: only files answer."""
        has_store = self.is_initialized or opening.is_lost(self.places.kb)
        return not has_store and plumbing.read_pin_bytes(self.places) is None

    @property
    def engine(self) -> Engine:
        """The knowledge base. Raises `NotInitialized`, and the errors of `opening.open_engine`."""
        if self._engine is None:
            name, settings = detect_engine(self.places.kb), self.settings
            if name is None:
                raise reasons.explain_uninitialized(self)
            access = settings.dolt_access if name == "dolt" else None
            self._engine = opening.open_engine(
                self.places.kb, lock_timeout=settings.lock_timeout, limits=settings.limits, access=access
            )
        return self._engine

    @property
    def views(self) -> Views:
        from vmrag_link.index.views import Views

        return Views(self.places.views)

    @property
    def chroma(self) -> WorkspaceChroma:
        """Chroma's stores on this machine, and the server that shares indexes."""
        from vmrag_link.workspace.chroma import WorkspaceChroma

        return WorkspaceChroma(self.places, self.views, self.settings, lambda: self.engine, self.read_vectors)

    def read_vectors(
        self, index: IndexReader, held: IndexedCollection, texts: Mapping[int, str]
    ) -> Mapping[int, bytes]:
        """Return the vectors of chunks by row. `texts`: the text of each row.

        Vectors that neither index nor cache have are computed with the collection's model.
        """
        from vmrag_link.retrieval.query_vectors import restore_vectors
        from vmrag_link.sync.adding import check_model

        model = check_model(self.models.load_for(held.collection), held.collection)
        return restore_vectors(index, held, texts, model=model, cache=self.embedding_cache)

    @property
    def journal(self) -> Journal:
        return Journal(self.places.journal)

    @property
    def sync_context(self) -> SyncContext:
        from vmrag_link.sync.context import SyncContext

        return SyncContext(
            places=self.places,
            index_file=self.index_file,
            engine=self.engine,
            views=self.views,
            chroma=self.chroma.local,
            keep_bytes=self.config.index.keep_mb * 1_000_000,
            lock_timeout=self.lock_timeout,
            indexer=self.create_indexer,
            progress=self.progress,
            derived=twins.build_derived(self),
        )

    @property
    def embedding_cache(self) -> EmbeddingCache:
        from vmrag_link.embedding.cache import EmbeddingCache  # a checkout rarely needs it

        return EmbeddingCache(self.places.embeddings, progress=self.progress)

    def create_indexer(self) -> Indexer:
        """Return an indexer for the knowledge base, which fetches vectors from the Chroma server if
        there is one.
        """
        from vmrag_link.sync.indexer import Indexer

        cache = self.embedding_cache
        server = self.chroma.server
        shared = None
        if server:
            from vmrag_link.sync.shared_vectors import SharedVectors

            required = self.config.chroma.fallback == "fail"
            shared = SharedVectors(self.engine, server, cache, self.progress, required=required)
        return Indexer(self.engine, cache, self.models.load_for, self.progress, shared)

    # -- position ----------------------------------------------------------------------------------

    @property
    def binding(self) -> Binding | None:
        """The index that answers here."""
        return bindings.read_binding(self.places)

    @property
    def position(self) -> Position:
        """The trigger and the binding now, and the trigger that was followed last."""
        return Position.read(self.places)

    def read_trigger(self) -> Trigger:
        """Return HEAD's name and the pin as they are now."""
        return read_trigger(self.places)

    def resolve_target(self) -> Target:
        """Return what HEAD and the pin request. A pin that cannot be used is not an error."""
        bound = self.binding
        return resolve_target(self.places, self.engine, self.read_trigger(), bound=bound.revision if bound else None)

    def resolve_target_for_reading(self) -> Target:
        """Return the target like `resolve_target`, even if a Dolt server does not answer.

        In that case the index of the pinned revision can still answer if it exists, because
        committed revisions never change. `server_error` is set to the reason, otherwise to None.
        """
        self.server_error = None
        try:
            return self.resolve_target()
        except ServerUnreachable as why:
            position = self.position
            if position.trigger.pin is None or position.find_gap(self.views):
                raise
            self.server_error = why
            return Target(position.trigger, "pinned", read_pin(self.places.kb, position.trigger.pin))

    def find_kb_branch(self) -> KbBranch | None:
        """Return HEAD's KB branch, if it exists and no other work tree writes on it."""
        return self.resolve_target().kb_branch

    @property
    def current_revision(self) -> str | None:
        """The revision at which documents are read. None if the work tree never followed a pin."""
        return bindings.read_current_revision(self.places)

    def require_revision(self) -> str:
        """Return the revision at which documents are read. The index may still be at another one.

        Raises the reason (`reasons.explain_unusable`) if the work tree never followed a pin.
        """
        revision = self.current_revision
        if revision is None:
            raise reasons.explain_unusable(self, self.resolve_target())
        return revision

    def require_stored_revision(self) -> str:
        """Return the revision like `require_revision`, but raise the reason if the knowledge base
        lacks it. The index may still answer.
        """
        revision = self.require_revision()
        if not self.engine.has_revision(revision):
            raise reasons.explain_unusable(self, self.resolve_target())
        return revision

    def require_indexed_revision(self) -> str:
        """Return the revision of the index that answers. Raises the reason if it is missing."""
        bound = self.binding
        if bound is None:
            raise reasons.explain_unusable(self, self.resolve_target())
        return bound.revision

    def locate_documents(self) -> At:
        """Return from where documents are read.

        This is the revision, or the KB branch at this revision if it has uncommitted documents.
        """
        revision = self.require_stored_revision()
        branch = self.find_kb_branch()
        return WorkingSet(branch.name) if branch and branch.dirty and branch.head == revision else revision

    def list_stored_collections(self) -> Collection[str]:
        """Return the names of the collections in the index that answers. Empty without an index."""
        bound = self.binding
        if bound is None:
            return ()
        from vmrag_link.index import view as views

        with contextlib.suppress(IndexFailed):
            return views.read_view(self.views.root / bound.view).collections
        return ()

    # -- following the pin -------------------------------------------------------------------------

    def bring_to_pin(self, *, index: bool = True, rebuild: bool = False) -> SyncReport | None:
        """Bring the documents and, with `index`, the index to the pin.

        Return None if nothing had to be done. `rebuild`: build the index again, even if it is
        current. Notes about documents are printed here, so that no caller can omit them.

        Commands call `follow_pin.follow` instead, which also fetches and recovers.
        """
        if not index:
            self._move_documents()
            return None
        if not rebuild and self.position.find_gap(self.views) is None:
            self.chroma.start_following()
            return None
        from vmrag_link.sync import apply

        with file_failures():  # the index can lack room on the disk
            report = apply.reconcile(self.sync_context, rebuild=rebuild)
        if rebuild and report.state == "pinned":
            self.reader.rebuild_copy()
        self.chroma.start_following()
        for note in report.notes:
            self.progress.note(note)
        return report

    def _move_documents(self) -> None:
        """Bring the documents to the pin, and print notes about them."""
        if self.position.is_followed:
            return
        from vmrag_link.sync import apply

        for note in apply.move_to_pin(self.sync_context):
            self.progress.note(note)
