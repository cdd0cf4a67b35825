"""How each embedding service is asked, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from vmrag_link import env
from vmrag_link.models import Record


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
