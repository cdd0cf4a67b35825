"""Choose an embedding model by its name in settings or in a collection, and load it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vmrag_link.embedding.base import SERVICES, Model
from vmrag_link.embedding.static import StaticModel
from vmrag_link.errors import EmbeddingMismatch, UsageInvalid, nearest
from vmrag_link.models import Collection, Record
from vmrag_link.settings import EmbeddingSettings

LOCAL_MODELS = ("default", "hash", "minilm")
MODEL_NAMES = (*LOCAL_MODELS, *SERVICES)
_DEFAULTS = EmbeddingSettings()


class Permission(Record, frozen=True):
    """The permissions of the user of this machine."""

    services: frozenset[str] = frozenset()
    """Services to which texts may be sent."""

    addresses: frozenset[str] = frozenset()
    """Services whose address the user has set."""


NO_PERMISSION = Permission()


class ModelChoice(Record, frozen=True):
    """Everything that determines a model. Equal choices have the same model, which is loaded
    once.
    """

    name: str
    folder: str = ""
    """The folder of minilm's `model.onnx` and `tokenizer.json`, if they are not installed as
    packages.
    """

    model: str = ""
    url: str = ""
    dimensions: int = 0
    """0 if they are not known yet."""

    permitted: bool = True
    """True if texts may be sent to the service."""

    keyed: bool = False
    """True if a key in the environment may be sent to `url`."""

    def load(self) -> Model:
        """Return the model. It loads nothing large, and sends no request to a service, before the
        first `Model.embed`.

        Exception: it requests the dimensions of a new model from the service.
        """
        match self.name:
            case "default":
                return StaticModel()
            case "hash":
                from vmrag_link.embedding.hash_model import HashModel  # only for tests

                return HashModel()
            case "minilm":
                from vmrag_link.embedding.minilm import MiniLmModel  # few projects use it

                return MiniLmModel(Path(self.folder) if self.folder else None)
        from vmrag_link.embedding.services import ServiceModel  # it imports sockets, which a local model does not need

        return ServiceModel(
            self.name, self.model, self.url, self.dimensions, permitted=self.permitted, keyed=self.keyed
        )


def load_model(name: str, settings: EmbeddingSettings = _DEFAULTS, permission: Permission = NO_PERMISSION) -> Model:
    """Return the model with this name for a new collection. Raises `UsageInvalid` for unknown
    names.
    """
    return choose_model(name, settings, permission).load()


def choose_model(name: str, settings: EmbeddingSettings, permission: Permission = NO_PERMISSION) -> ModelChoice:
    """Return the choice of the model with this name for a new collection.

    Raises `UsageInvalid` for unknown names.
    """
    if name in SERVICES:
        url = getattr(settings, f"{name}_url")
        is_default_url = url == getattr(_DEFAULTS, f"{name}_url")
        return ModelChoice(
            name,
            model=getattr(settings, f"{name}_model"),
            url=url,
            permitted=name in permission.services,
            keyed=is_default_url or name in permission.addresses,
        )
    if name in LOCAL_MODELS:
        return ModelChoice(name, folder=settings.model_path if name == "minilm" else "")
    near = nearest(name, MODEL_NAMES, cutoff=0.5)
    raise UsageInvalid(
        f"unknown embedding model {name!r}." + (f" Did you mean {near!r}?" if near else ""),
        hint=f"set embedding.model in .vmrag.yaml to one of: {', '.join(MODEL_NAMES)}",
        name=name,
        valid=list(MODEL_NAMES),
    )


def choose_stored_model(
    collection: Collection, settings: EmbeddingSettings, permission: Permission = NO_PERMISSION
) -> ModelChoice:
    """Return the choice of the model with which a collection was created.

    Settings determine where the model is, not which model it is. Raises `UsageInvalid` for an
    unknown model, and `EmbeddingMismatch` for a model of another version.
    """
    choice = choose_model(collection.embedding_function, settings, permission)
    if choice.name not in SERVICES:
        return choice
    from vmrag_link.embedding.services import parse_fingerprint

    stored = parse_fingerprint(choice.name, collection.embedding_model)
    if stored is None or stored.dimensions != collection.embedding_dimensions:
        raise EmbeddingMismatch(
            f"this version does not support the embedding model {collection.embedding_model!r} of collection "
            f"{collection.name!r}.",
            hint="run 'pip install --upgrade \"vmrag-link[index]\"' to upgrade vmrag-link",
            collection_name=collection.name,
        )
    return msgspec.structs.replace(choice, model=stored.model, dimensions=stored.dimensions)
