"""The embedding models of a work tree's collections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmrag_link.models import Collection

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.registry import ModelChoice, Permission
    from vmrag_link.workspace.settings import WorkspaceSettings

# What embeds is imported where it is used: going back to a view that is there takes a tenth of
# a second in all.


class Models:
    """Each is loaded once. `loaded` may be shared by several work trees, one after the other."""

    def __init__(self, settings: WorkspaceSettings, loaded: dict[ModelChoice, Model]) -> None:
        self._settings = settings
        self._loaded = loaded

    def of(self, collection: Collection) -> Model:
        """The model that the collection was made with.

        Raises `UsageInvalid`, `EmbeddingMismatch`.
        """
        from vmrag_link.embedding import registry

        permission = self._permission_for(collection.embedding_function)
        return self._load(registry.choose_for(collection, self._settings.config.embedding, permission))

    def named(self, name: str) -> Model:
        """The model of that name for new collections. Raises `UsageInvalid`."""
        from vmrag_link.embedding import registry

        return self._load(registry.choose(name, self._settings.config.embedding, self._permission_for(name)))

    def _permission_for(self, model: str) -> Permission:
        """A model of this machine needs none, and git need not be asked about it."""
        from vmrag_link.embedding import registry

        return registry.NOTHING if model in registry.LOCAL else self._settings.permission

    def _load(self, choice: ModelChoice) -> Model:
        if choice not in self._loaded:
            self._loaded[choice] = choice.load()
        return self._loaded[choice]
