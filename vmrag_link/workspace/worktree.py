"""The part of a workspace that its own parts need, without its whole class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vmrag_link.errors import ServerUnreachable, VmragError
from vmrag_link.index.views import Views
from vmrag_link.paths import Places
from vmrag_link.progress import Progress
from vmrag_link.sync.context import SyncContext
from vmrag_link.sync.target import Target
from vmrag_link.workspace.settings import WorkspaceSettings

if TYPE_CHECKING:
    from vmrag_link.embedding.cache import EmbeddingCache
    from vmrag_link.sync.indexer import Indexer
    from vmrag_link.workspace.models import Models


class WorkTree(Protocol):
    """The contracts are those of `Workspace`."""

    places: Places
    progress: Progress
    settings: WorkspaceSettings
    models: Models
    unreached: VmragError | None
    unbuilt: VmragError | None
    offline: ServerUnreachable | None

    @property
    def views(self) -> Views: ...

    @property
    def sync_context(self) -> SyncContext: ...

    @property
    def standing_revision(self) -> str | None: ...

    @property
    def embedding_cache(self) -> EmbeddingCache: ...

    def indexer(self) -> Indexer: ...

    def target(self) -> Target: ...

    def target_for_reading(self) -> Target: ...

    def revision(self) -> str: ...

    def indexed_revision(self) -> str: ...
