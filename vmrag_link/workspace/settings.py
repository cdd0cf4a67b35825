"""The settings that count in a work tree, and what follows from them: its limits, its permissions,
and the embedding models of its collections.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link import env
from vmrag_link import trust as trusted
from vmrag_link.config import LoadedSettings
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.limits import MEGABYTE, Limits
from vmrag_link.errors import ConfigInvalid
from vmrag_link.models import Collection, Record
from vmrag_link.paths import Places
from vmrag_link.settings import Config
from vmrag_link.settings import keys as settings_keys

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.registry import ModelChoice, Permission


MOST_DOCUMENTS = 10_000_000
"""In one revision that others pushed: ten times what was tried."""


class WorkspaceSettings:
    """Read once, when they are first asked for.

    When their file or an agreement has changed, a new object takes its place.
    """

    def __init__(self, places: Places, *, patience: float | None, answer_seconds: float = 0.0) -> None:
        self._places = places
        self._patience = patience
        self._answer_seconds = answer_seconds

    @cached_property
    def loaded(self) -> LoadedSettings[Config]:
        """The settings with where they come from. Raises `ConfigInvalid`."""
        return trusted.load_settings(self._places)

    def replace_invalid(self) -> ConfigInvalid | None:
        """Use the settings without `.vmrag.yaml`, or the defaults, if the settings are invalid.

        Return the error. For commands that must work in any state.
        """
        try:
            _ = self.loaded
        except ConfigInvalid as error:
            try:
                self.loaded = trusted.load_without_file(self._places)
            except ConfigInvalid:  # git's configuration, or what the user agreed to
                self.loaded = LoadedSettings(Config(), [])
            return error
        return None

    @property
    def config(self) -> Config:
        """The values alone. Raises `ConfigInvalid`."""
        return self.loaded.config

    def section(self, name: str, kind: type[Record]) -> LoadedSettings[Any]:
        """As `Workspace.section`, in silence."""
        return trusted.load_sections(self._places, settings_keys.build_schema({name: kind}))

    @property
    def lock_timeout(self) -> float:
        """Seconds to wait for a lock."""
        return self.config.lock_timeout_s if self._patience is None else self._patience

    @property
    def limits(self) -> Limits:
        """How much is taken of what others pushed."""
        given = self.config.limits
        return Limits(
            file_bytes=given.knowledge_mb * MEGABYTE, documents=MOST_DOCUMENTS, text_bytes=given.document_mb * MEGABYTE
        )

    @property
    def dolt_access(self) -> DoltAccess:
        """How this machine gets at Dolt."""
        given = self.config.dolt
        named = "dolt.server" in self.loaded.machine
        return DoltAccess(
            **msgspec.structs.asdict(given),
            password=env.dolt_password(),
            named_by_user=named,
            answer_seconds=self._answer_seconds,
        )

    def read_accepted_remote(self) -> str:
        """`remote`, as far as this person agreed to it.

        A method, because git is asked only where it matters.
        """
        return self.config.remote

    @cached_property
    def permission(self) -> Permission:
        """Which embedding services may be asked."""
        from vmrag_link import trust as agreements

        return agreements.permit_services(self._places, self.loaded)


# What embeds is imported where it is used: going back to a view that is there takes a tenth of
# a second in all.


class Models:
    """Each is loaded once. `loaded` may be shared by several work trees, one after the other."""

    def __init__(self, settings: WorkspaceSettings, loaded: dict[ModelChoice, Model]) -> None:
        self._settings = settings
        self._loaded = loaded

    def load_for(self, collection: Collection) -> Model:
        """The model that the collection was made with.

        Raises `UsageInvalid`, `EmbeddingMismatch`.
        """
        from vmrag_link.embedding import registry

        permission = self._permission_for(collection.embedding_function)
        return self._load(registry.choose_stored_model(collection, self._settings.config.embedding, permission))

    def load_named(self, name: str) -> Model:
        """The model of that name for new collections. Raises `UsageInvalid`."""
        from vmrag_link.embedding import registry

        return self._load(registry.choose_model(name, self._settings.config.embedding, self._permission_for(name)))

    def _permission_for(self, model: str) -> Permission:
        """A model of this machine needs none, and git need not be asked about it."""
        from vmrag_link.embedding import registry

        return registry.NO_PERMISSION if model in registry.LOCAL_MODELS else self._settings.permission

    def _load(self, choice: ModelChoice) -> Model:
        if choice not in self._loaded:
            self._loaded[choice] = choice.load()
        return self._loaded[choice]
