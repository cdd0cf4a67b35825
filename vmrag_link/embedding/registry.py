"""Embedding models by the names that settings and collections give them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vmrag_link.embedding.base import Model
from vmrag_link.embedding.hashing import HashModel
from vmrag_link.embedding.minilm import MiniLmModel
from vmrag_link.embedding.protocols import SERVICES
from vmrag_link.embedding.static import StaticModel
from vmrag_link.errors import EmbeddingMismatch, UsageInvalid
from vmrag_link.models import Collection, Record
from vmrag_link.settings import EmbeddingSettings
from vmrag_link.suggest import nearest

LOCAL = ("default", "hash", "minilm")
NAMES = (*LOCAL, *SERVICES)
_USUAL = EmbeddingSettings()


class Permission(Record, frozen=True):
    """The person's permissions: `services` may be asked; the person named the addresses of
    `addresses`.
    """

    services: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()


NOTHING = Permission()


class ModelChoice(Record, frozen=True):
    """Everything that decides a model. Equal choices give the same model, which is loaded once.

    `folder`: minilm's `model.onnx` and `tokenizer.json`, where they are not installed as packages.
    `dimensions` 0: not known yet. `permitted`: whether the service may be asked; `keyed`: whether a
    key of the environment may go to `url`.
    """

    name: str
    folder: str = ""
    model: str = ""
    url: str = ""
    dimensions: int = 0
    permitted: bool = True
    keyed: bool = False

    def load(self) -> Model:
        """Loads nothing heavy and asks no service before the first `embed`.

        Only the dimensions of a service's new model are asked for.
        """
        match self.name:
            case "default":
                return StaticModel()
            case "hash":
                return HashModel()
            case "minilm":
                return MiniLmModel(Path(self.folder) if self.folder else None)
        from vmrag_link.embedding.services import ServiceModel  # sockets, which a local model does not need

        return ServiceModel(
            self.name, self.model, self.url, self.dimensions, permitted=self.permitted, keyed=self.keyed
        )


def load(name: str, settings: EmbeddingSettings = _USUAL, permission: Permission = NOTHING) -> Model:
    """The model of that name for one new collection. Raises as `choose`."""
    return choose(name, settings, permission).load()


def choose(name: str, settings: EmbeddingSettings, permission: Permission = NOTHING) -> ModelChoice:
    """The model of that name for a new collection. Raises `UsageInvalid` for other names."""
    if name in SERVICES:
        url = getattr(settings, f"{name}_url")
        own = url == getattr(_USUAL, f"{name}_url")
        return ModelChoice(
            name,
            model=getattr(settings, f"{name}_model"),
            url=url,
            permitted=name in permission.services,
            keyed=own or name in permission.addresses,
        )
    if name in LOCAL:
        return ModelChoice(name, folder=settings.model_path if name == "minilm" else "")
    near = nearest(name, NAMES, cutoff=0.5)
    raise UsageInvalid(
        f"There is no embedding model named {name!r}." + (f" Did you mean {near!r}?" if near else ""),
        hint=f"Set embedding.model in .vmrag.yaml to one of: {', '.join(NAMES)}.",
        name=name,
        valid=list(NAMES),
    )


def choose_for(collection: Collection, settings: EmbeddingSettings, permission: Permission = NOTHING) -> ModelChoice:
    """The model that the collection was made with; settings say where it is, not which one.

    Raises as `choose`, and `EmbeddingMismatch`.
    """
    choice = choose(collection.embedding_function, settings, permission)
    if choice.name not in SERVICES:
        return choice
    from vmrag_link.embedding.services import made_with

    made = made_with(choice.name, collection.embedding_model)
    if made is None or made.dimensions != collection.embedding_dimensions:
        raise EmbeddingMismatch(
            f"Collection {collection.name!r} was made with the embedding model {collection.embedding_model!r}, which this version does "
            "not know.",
            hint="pip install --upgrade 'vmrag-link[index]'",
            collection_name=collection.name,
        )
    return msgspec.structs.replace(choice, model=made.model, dimensions=made.dimensions)
