"""Protocols for the parts of a `Workspace` that its own parts need, such as `Reader`.

The parts import these protocols instead of the class, which imports them. So imports have no cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vmrag_link.errors import ServerUnreachable, VmragError
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.progress import Progress
from vmrag_link.settings import SourceSettings

if TYPE_CHECKING:
    from vmrag_link.embedding.cache import EmbeddingCache
    from vmrag_link.engines.base import Engine
    from vmrag_link.index.views import Views
    from vmrag_link.sync.context import SyncContext
    from vmrag_link.sync.indexer import Indexer
    from vmrag_link.sync.target import Target
    from vmrag_link.workspace.settings import Models, WorkspaceSettings


STORED = "the knowledge base stores a collection of that name"
"""Reason for a source that is unavailable on every machine."""


class OpenSources(Record, frozen=True):
    """An open index of the files of sources. No other process removes it while it is open."""

    folder: Path
    """The directory of the index."""
    collections: tuple[str, ...]
    commit: str | None
    """The commit of the files, or HEAD's commit for the work tree. None before the first commit."""
    uncommitted: Mapping[str, Mapping[str, str]] = {}
    """How files of the work tree differ from the commit, by collection and path."""
    removed: tuple[str, ...] = ()
    """Files that are missing in the work tree."""
    untracked: int = 0
    """Number of files that would be documents if git tracked them."""
    missing: tuple[str, ...] = ()
    """Paths whose blobs are missing in this clone."""
    objects: tuple[Path, ...] = ()
    """The folders with objects of submodules that the sources read at a commit."""
    unavailable: Mapping[str, str] = {}
    """Why collections cannot be searched here, by name."""
    failed: tuple[str, ...] = ()
    """Files that could not be cut into chunks on this machine."""
    indexed: int = 100
    """Percentage of the files that are indexed. The next query continues indexing."""

    @property
    def is_complete(self) -> bool:
        """True if all files are indexed."""
        return self.indexed == 100  # noqa: PLR2004  percent


class TreeSources(Protocol):
    """The methods of `Sources` that `Reader` uses."""

    @property
    def configured(self) -> tuple[SourceSettings, ...]: ...


class TreeIndex(Protocol):
    """The methods of `SourceIndex` that `Reader` uses."""

    def open_work_tree(self, *, stored: Collection[str] = ()) -> AbstractContextManager[OpenSources | None]: ...

    def distrust_view(self) -> None: ...


class WorkTree(Protocol):
    """The methods of `Workspace` that its own parts use."""

    places: Places
    progress: Progress
    settings: WorkspaceSettings
    models: Models
    fetch_error: VmragError | None
    follow_error: VmragError | None
    server_error: ServerUnreachable | None

    @property
    def sources(self) -> TreeSources: ...

    @property
    def source_index(self) -> TreeIndex: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def views(self) -> Views: ...

    @property
    def sync_context(self) -> SyncContext: ...

    @property
    def current_revision(self) -> str | None: ...

    @property
    def embedding_cache(self) -> EmbeddingCache: ...

    def create_indexer(self) -> Indexer: ...

    def list_stored_collections(self) -> Collection[str]: ...

    def resolve_target(self) -> Target: ...

    def resolve_target_for_reading(self) -> Target: ...

    def require_revision(self) -> str: ...

    def require_indexed_revision(self) -> str: ...
