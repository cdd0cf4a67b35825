"""Embedding models by the names that settings and collections give them; and the model `hash`, for
tests: words and their letter triples hashed into 256 dimensions, in Python.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from vmrag_link.embedding.base import SERVICES, Model, Vector, make_uniform_vector, require_unicode
from vmrag_link.embedding.static import MiniLmModel, StaticModel
from vmrag_link.errors import EmbeddingMismatch, UsageInvalid, nearest
from vmrag_link.models import Collection, Record
from vmrag_link.settings import EmbeddingSettings

LOCAL_MODELS = ("default", "hash", "minilm")
MODEL_NAMES = (*LOCAL_MODELS, *SERVICES)
_USUAL = EmbeddingSettings()


class Permission(Record, frozen=True):
    """The person's permissions: `services` may be asked; the person named the addresses of
    `addresses`.
    """

    services: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()


NO_PERMISSION = Permission()


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


def load_model(name: str, settings: EmbeddingSettings = _USUAL, permission: Permission = NO_PERMISSION) -> Model:
    """The model of that name for one new collection. Raises as `choose`."""
    return choose_model(name, settings, permission).load()


def choose_model(name: str, settings: EmbeddingSettings, permission: Permission = NO_PERMISSION) -> ModelChoice:
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
    if name in LOCAL_MODELS:
        return ModelChoice(name, folder=settings.model_path if name == "minilm" else "")
    near = nearest(name, MODEL_NAMES, cutoff=0.5)
    raise UsageInvalid(
        f"There is no embedding model named {name!r}." + (f" Did you mean {near!r}?" if near else ""),
        hint=f"Set embedding.model in .vmrag.yaml to one of: {', '.join(MODEL_NAMES)}.",
        name=name,
        valid=list(MODEL_NAMES),
    )


def choose_stored_model(
    collection: Collection, settings: EmbeddingSettings, permission: Permission = NO_PERMISSION
) -> ModelChoice:
    """The model that the collection was made with; settings say where it is, not which one.

    Raises as `choose`, and `EmbeddingMismatch`.
    """
    choice = choose_model(collection.embedding_function, settings, permission)
    if choice.name not in SERVICES:
        return choice
    from vmrag_link.embedding.services import parse_fingerprint

    made = parse_fingerprint(choice.name, collection.embedding_model)
    if made is None or made.dimensions != collection.embedding_dimensions:
        raise EmbeddingMismatch(
            f"Collection {collection.name!r} was made with the embedding model {collection.embedding_model!r}, which this version does "
            "not know.",
            hint="pip install --upgrade 'vmrag-link[index]'",
            collection_name=collection.name,
        )
    return msgspec.structs.replace(choice, model=made.model, dimensions=made.dimensions)


HASH_DIMENSIONS = 256
WORD_WEIGHT = 2
NGRAM = 3
_WORDS = r"\w+"


class HashModel(Model):
    """Sums whole numbers and takes one square root, so the bytes are the same everywhere."""

    name = "hash"
    dimensions = HASH_DIMENSIONS
    unrelated = 0.35
    window = None
    fingerprint = "hash-words-triples-256 v1"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        require_unicode(texts)
        return [_vector(text) for text in texts]


def _vector(text: str) -> Vector:
    sums = [0] * HASH_DIMENSIONS
    for word in set(re.findall(_WORDS, text.casefold())):  # once each: frequent little words would drown the rest
        for index, weight in _features(word):
            sums[index] += weight
    length = math.sqrt(sum(number * number for number in sums))
    return (
        struct.pack(f"<{HASH_DIMENSIONS}f", *[number / length for number in sums])
        if length
        else make_uniform_vector(HASH_DIMENSIONS)
    )


@lru_cache(maxsize=1 << 16)
def _features(word: str) -> tuple[tuple[int, int], ...]:
    """(dimension, signed weight) of the word and of each of its letter triples, its ends marked."""
    marked = f"<{word}>"
    triples = [marked[start : start + NGRAM] for start in range(len(marked) - NGRAM + 1)]
    return (_feature(word, WORD_WEIGHT), *[_feature(triple, 1) for triple in triples])


def _feature(name: str, weight: int) -> tuple[int, int]:
    number = zlib.crc32(name.encode())
    return number % HASH_DIMENSIONS, weight if number >> 31 else -weight
