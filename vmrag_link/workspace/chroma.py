"""Build the objects for Chroma from the settings of a work tree.

Chroma has two uses: a store on this machine, which Chroma's own clients can search, and a server
through which a team shares indexes. Queries of vmrag use neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vmrag_link import __version__
from vmrag_link import trust as trusted
from vmrag_link.chroma.stores import Stores
from vmrag_link.index.view import FORMAT
from vmrag_link.index.views import Views
from vmrag_link.models import encode_canonical_json
from vmrag_link.paths import Places
from vmrag_link.sync.chroma_state import ChromaStores
from vmrag_link.workspace.settings import WorkspaceSettings

if TYPE_CHECKING:
    from vmrag_link.chroma.open_index import VectorSource
    from vmrag_link.chroma_server.server import ServerAddress
    from vmrag_link.engines.base import Engine
    from vmrag_link.sync.chroma_sharing import Publisher, Sharing


class WorkspaceChroma(NamedTuple):
    """The objects for Chroma, built on each access. Access raises `ConfigInvalid`."""

    places: Places
    views: Views
    settings: WorkspaceSettings
    engine: Callable[[], Engine]
    vectors: VectorSource

    @property
    def local(self) -> ChromaStores:
        """Chroma's stores on this machine, for Chroma's own clients."""
        index = self.settings.config.index
        stores = Stores(self.places.chroma, store_documents=index.store_documents)
        return ChromaStores(self.places, self.views, stores, index.chroma, self._rules)

    @property
    def _rules(self) -> str:
        """All values that decide which files of a commit are in a store, as one text.

        Empty if no files are in it.
        """
        config = self.settings.config
        is_proposed = not (self.places.config.exists() or self.places.pin.exists())
        if config.chroma.sources == "off" or not (config.sources or is_proposed):
            return ""
        # The sources of a commit are part of the commit, but not those of this machine's settings.
        machine_sources = msgspec.to_builtins(config.sources) if "sources" in self.settings.loaded.machine else []
        writable = [source.collection for source in config.sources if source.write]
        values = [config.chroma.sources, config.embedding.model, config.sources_max_bytes, writable, machine_sources]
        values += [True] if config.sources_submodules else []
        return encode_canonical_json([__version__, FORMAT, *values])

    @property
    def server(self) -> ServerAddress | None:
        """The Chroma server that shares indexes, or None."""
        if self.settings.config.chroma.mode == "embedded":
            return None
        return trusted.choose_server(self.settings.loaded)

    @property
    def sharing(self) -> Sharing:
        """The state of sharing the indexes of work trees with the server."""
        from vmrag_link.sync.chroma_sharing import Sharing

        return Sharing(self.places, self.views, self.server, self.settings.config.chroma.share)

    @property
    def publisher(self) -> Publisher:
        """The object that puts indexes on the server."""
        from vmrag_link.sync.chroma_sharing import Publisher

        settings = self.settings
        return Publisher(self.engine(), self.vectors, settings.config.index.store_documents, settings.lock_timeout)

    def start_following(self) -> None:
        """Start background processes that bring store and server to the index of this work tree."""
        self.local.start_following()
        if self.settings.config.chroma.mode != "embedded":
            self.sharing.start_sharing(self.local.start_builder)
