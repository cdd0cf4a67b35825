"""The effective settings of a work tree, and values derived from them.

`WorkspaceSettings` has the settings of `.vmrag.yaml`, git's configuration and the environment, as
far as the user trusts them, and limits and permissions. `Models` loads embedding models.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link import env
from vmrag_link import trust as trusted
from vmrag_link.config import LoadedSettings
from vmrag_link.engines.limits import MEGABYTE, Limits
from vmrag_link.errors import ConfigInvalid
from vmrag_link.models import Collection, Record
from vmrag_link.paths import Places
from vmrag_link.settings import Config
from vmrag_link.settings import keys as settings_keys

if TYPE_CHECKING:
    from vmrag_link.embedding.base import Model
    from vmrag_link.embedding.registry import ModelChoice, Permission
    from vmrag_link.engines.dolt.access import DoltAccess


MAX_DOCUMENTS = 10_000_000
"""Maximum number of documents in a fetched revision: ten times the largest tested number."""


class WorkspaceSettings:
    """The settings, read once on first access.

    After their file or the user's trust has changed, `Workspace.reload_settings` replaces this
    object. `patience`, `answer_seconds`: as for `Workspace.open`.
    """

    def __init__(self, places: Places, *, patience: float | None, answer_seconds: float = 0.0) -> None:
        self._places = places
        self._patience = patience
        self._answer_seconds = answer_seconds

    @cached_property
    def loaded(self) -> LoadedSettings[Config]:
        """The settings with their sources. Raises `ConfigInvalid`."""
        return trusted.load_settings(self._places)

    def replace_invalid(self) -> ConfigInvalid | None:
        """If the settings are invalid, use them without `.vmrag.yaml`, or else the defaults.

        Return the error, or None if they are valid. This is for commands that must always work.
        """
        try:
            _ = self.loaded
        except ConfigInvalid as error:
            try:
                self.loaded = trusted.load_without_file(self._places)
            except ConfigInvalid:  # in git's configuration, or in trusted settings
                self.loaded = LoadedSettings(Config(), [])
            return error
        return None

    @property
    def config(self) -> Config:
        """The values alone. Raises `ConfigInvalid`."""
        return self.loaded.config

    def section(self, name: str, kind: type[Record]) -> LoadedSettings[Any]:
        """Return a section of the settings like `Workspace.section`, without printing warnings."""
        return trusted.load_sections(self._places, settings_keys.build_schema({name: kind}))

    @property
    def lock_timeout(self) -> float:
        """Seconds to wait for a lock."""
        return self.config.lock_timeout_s if self._patience is None else self._patience

    @property
    def limits(self) -> Limits:
        """Limits for fetched content."""
        given = self.config.limits
        return Limits(
            file_bytes=given.knowledge_mb * MEGABYTE, documents=MAX_DOCUMENTS, text_bytes=given.document_mb * MEGABYTE
        )

    @property
    def dolt_access(self) -> DoltAccess:
        """Settings of this machine for Dolt."""
        from vmrag_link.engines.dolt.access import DoltAccess  # only an engine needs them

        given = self.config.dolt
        return DoltAccess(
            **msgspec.structs.asdict(given),
            password=env.dolt_password(),
            named_by_user="dolt.server" in self.loaded.machine,
            answer_seconds=self._answer_seconds,
        )

    def read_accepted_remote(self) -> str:
        """Return the setting `remote` if this user trusts it. Callers pass this method on, so that
        the settings are read only if they are needed.
        """
        return self.config.remote

    @cached_property
    def permission(self) -> Permission:
        """The embedding services that may be contacted."""
        from vmrag_link import trust

        return trust.permit_services(self._places, self.loaded)


# Embedding modules are imported on use, because returning to an existing view takes only a tenth
# of a second in total.


class Models:
    """Embedding models, each loaded once. Several work trees may use `loaded`, one after the
    other.
    """

    def __init__(self, settings: WorkspaceSettings, loaded: dict[ModelChoice, Model]) -> None:
        self._settings = settings
        self._loaded = loaded

    def load_for(self, collection: Collection) -> Model:
        """Return the model with which the collection was made.

        Raises `UsageInvalid`, `EmbeddingMismatch`.
        """
        from vmrag_link.embedding import registry

        permission = self._read_permission(collection.embedding_function)
        return self._load_model(registry.choose_stored_model(collection, self._settings.config.embedding, permission))

    def load_named(self, name: str) -> Model:
        """Return the model of that name for new collections. Raises `UsageInvalid`."""
        from vmrag_link.embedding import registry

        return self._load_model(
            registry.choose_model(name, self._settings.config.embedding, self._read_permission(name))
        )

    def _read_permission(self, model: str) -> Permission:
        """Return the permission for a model. A local model needs none, so git is not called for
        it.
        """
        from vmrag_link.embedding import registry

        return registry.NO_PERMISSION if model in registry.LOCAL_MODELS else self._settings.permission

    def _load_model(self, choice: ModelChoice) -> Model:
        if choice not in self._loaded:
            self._loaded[choice] = choice.load()
        return self._loaded[choice]
