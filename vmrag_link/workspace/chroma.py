"""The stores of Chroma on this machine, and the server through which a team shares indexes."""

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
    from vmrag_link.chroma.check import VectorSource
    from vmrag_link.chroma_server.server import ServerAddress
    from vmrag_link.engines.base import Engine
    from vmrag_link.sync.chroma_sharing import Publisher, Sharing


class WorkspaceChroma(NamedTuple):
    """The parts are built from the settings on access, which raises `ConfigInvalid` for invalid
    settings.
    """

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
        """A text that differs if other files of a commit are in a store. It is empty if no files
        are.
        """
        config, places = self.settings.config, self.places
        is_proposed = not (places.config.exists() or places.pin.exists())
        if config.chroma.sources == "off" or not (config.sources or is_proposed):
            return ""
        named = msgspec.to_builtins(config.sources) if "sources" in self.settings.loaded.machine else []
        writable = [source.collection for source in config.sources if source.write]
        decisive = [config.chroma.sources, config.embedding.model, config.sources_max_bytes, writable, named]
        decisive += [True] if config.sources_submodules else []
        return encode_canonical_json([__version__, FORMAT, *decisive])

    @property
    def server(self) -> ServerAddress | None:
        """The Chroma server that shares indexes, or None."""
        if self.settings.config.chroma.mode == "embedded":
            return None
        return trusted.choose_server(self.settings.loaded)

    @property
    def sharing(self) -> Sharing:
        """The bound views and the server."""
        from vmrag_link.sync.chroma_sharing import Sharing

        return Sharing(self.places, self.views, self.server, self.settings.config.chroma.share)

    @property
    def publisher(self) -> Publisher:
        """The data for putting indexes on the server."""
        from vmrag_link.sync.chroma_sharing import Publisher

        settings = self.settings
        return Publisher(self.engine(), self.vectors, settings.config.index.store_documents, settings.lock_timeout)

    def start_following(self) -> None:
        """Let the stores, on this machine and on the server, follow the bound index."""
        self.local.start_following()
        if self.settings.config.chroma.mode != "embedded":
            self.sharing.start_sharing(self.local.start_builder)
