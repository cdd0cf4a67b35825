"""Models that a service computes: any server with OpenAI's `/embeddings`, Cohere, Hugging Face,
Ollama.

Texts go to the address of the settings, whose `embedding.*_url` no stranger can set, and only to a
service that this machine's person agreed to. A key of the environment goes to the service's own
address, or to one that the environment or git config names, and never unencrypted beyond this
machine. A collection remembers service, model and dimensions: every reader uses that model,
whatever new collections get here.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from vmrag_link import endpoint, env
from vmrag_link.embedding.base import SERVICES, Model, Vector, make_missing_extra, make_uniform_vector, require_unicode
from vmrag_link.errors import EmbeddingFailed, EmbeddingMismatch, ServiceNotTrusted, quoted
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import EmbeddingSettings
from vmrag_link.settings.flaws import SERVICE_MODEL

WINDOW = 4000
"""Characters that every usual model takes: 8,000 tokens, where a character can be two tokens."""

MOST_CHARACTERS = 100_000
"""In one request: OpenAI takes 300,000 tokens."""

MOST_DIMENSIONS = 16_384
PROBE = "dimensions"
NO_SUCH = 404
_FINGERPRINT = rf"(?P<service>[a-z]+) (?P<model>{SERVICE_MODEL}) (?P<dimensions>[1-9][0-9]{{0,4}}) unit v1"


class StoredModel(NamedTuple):
    """What a collection remembers of the model that it was made with."""

    model: str
    dimensions: int


def parse_fingerprint(name: str, fingerprint: str) -> StoredModel | None:
    """The model of a fingerprint of this service; None for a fingerprint of another version."""
    found = re.fullmatch(_FINGERPRINT, fingerprint)
    if found is None or found["service"] != name or int(found["dimensions"]) > MOST_DIMENSIONS:
        return None
    return StoredModel(found["model"], int(found["dimensions"]))


class ServiceModel(Model):
    """`dimensions` 0: the service is asked for them, with one text, when they are needed.

    `permitted`: without it the service is never asked. `keyed`: whether a key of the environment
    may go to this address.
    """

    local = False
    window = WINDOW

    def __init__(
        self, name: str, model: str, url: str, dimensions: int = 0, *, permitted: bool = False, keyed: bool = False
    ) -> None:
        self._name, self._model = name, model
        self._service = SERVICES[name]
        self._own = url == getattr(EmbeddingSettings(), f"{name}_url")
        self._base = url
        self._url = url.rstrip("/") + self._service.path.format(model=model)
        self._dimensions = dimensions
        self._permitted = permitted
        self._keyed = keyed and endpoint.is_private(url)

    @property
    def name(self) -> str:
        return self._name

    @property
    def fingerprint(self) -> str:
        return f"{self._name} {self._model} {self.dimensions} unit v1"

    @property
    def dimensions(self) -> int:
        if not self._dimensions:
            self._request([PROBE], query=False)
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._embed(texts, query=False)

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return self._embed(texts, query=True)

    def _embed(self, texts: Sequence[str], *, query: bool) -> list[Vector]:
        """Embed texts, longer ones than the window in pieces, uncut.

        No service takes an empty text.
        """
        require_unicode(texts)
        cut = [
            [piece for at in range(0, len(text), WINDOW) if (piece := text[at : at + WINDOW]).strip()] for text in texts
        ]
        numbers = iter(self._request([piece for pieces in cut for piece in pieces], query=query))
        return [self._vector([next(numbers) for _ in pieces]) for pieces in cut]

    def _vector(self, pieces: list[list[float]]) -> Vector:
        if not pieces:
            return make_uniform_vector(self.dimensions)
        total = [sum(numbers) for numbers in zip(*pieces, strict=True)] if len(pieces) > 1 else pieces[0]
        length = math.hypot(*total)
        if not math.isfinite(length):
            raise self._failure("answered with numbers that are none")
        if not length:
            return make_uniform_vector(self.dimensions)
        return struct.pack(f"<{len(total)}f", *[number / length for number in total])

    # -- asking ------------------------------------------------------------------------------------

    def _request(self, texts: Sequence[str], *, query: bool) -> list[list[float]]:
        return [
            numbers for batch in _batches(texts, self._service.batch) for numbers in self._answer(batch, query=query)
        ]

    def _answer(self, texts: list[str], *, query: bool) -> list[list[float]]:
        self._require_permission()
        key = self._key()
        try:
            answer = endpoint.post_json(self._url, self._service.body(self._model, texts, query), key=key)
            vectors = self._service.vectors(answer)
        except ModuleNotFoundError as error:
            raise make_missing_extra("httpx", extra="web") from error
        except endpoint.NoAnswer as error:
            raise self._refusal(error, key) from error
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise self._failure(f"answered with something else than one vector for each text ({error})") from error
        if len(vectors) != len(texts):
            raise self._failure(f"answered with {len(vectors)} vectors for {len(texts)} texts")
        lengths = {len(numbers) for numbers in vectors}
        if len(lengths) > 1 or not 0 < max(lengths) <= MOST_DIMENSIONS:
            raise self._failure(f"answered with vectors of {' and '.join(map(str, sorted(lengths)))} dimensions")
        self._agree(max(lengths))
        return vectors

    def _agree(self, dimensions: int) -> None:
        self._dimensions = self._dimensions or dimensions
        if dimensions != self._dimensions:
            raise EmbeddingMismatch(
                f"{self._title} computes vectors of {dimensions} dimensions; those that are there have {self._dimensions}: it is "
                "another model with the same name.",
                hint=f"Let {self._setting('url')} name a server that has the model of before.",
                **self._details,
            )

    def _require_permission(self) -> None:
        """Raises `ServiceNotTrusted`."""
        if not self._permitted:
            raise ServiceNotTrusted(
                f"{self._title} was not asked: nobody here has agreed that it gets texts of this repository"
                + (f", and is paid by the key in {self._service.key}." if self._service.key else "."),
                hint=f"vmrag trust --service {self._name}",
                **self._details,
            )

    def _key(self) -> str | None:
        """The key to send, if it may be sent there.

        Raises `EmbeddingFailed` where the service requires one.
        """
        variable = self._service.key
        if not self._keyed:
            return None
        key = (env.read_variable(variable) or "").strip() if variable else ""
        if variable and not key and self._own:
            raise self._failure(
                f"wants a key, and {variable} is not set", hint=_export_hint(variable), variable=variable
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise self._failure(
                f"cannot be asked: what {variable} holds is no key", hint=_export_hint(str(variable)), variable=variable
            )
        return key or None

    def _refusal(self, error: endpoint.NoAnswer, key: str | None) -> EmbeddingFailed:
        variable = self._service.key
        if error.status in endpoint.REFUSALS and variable:
            if not self._keyed and env.read_variable(variable):
                return self._key_kept_back(variable, error.status)
            reason = f"refuses the key in {variable}" if key else f"wants a key, and {variable} is not set"
            return self._failure(reason, hint=_export_hint(variable), variable=variable, status=error.status)
        if error.status == NO_SUCH and self._name == "ollama":
            reason, hint = f"does not have the model {self._model}", f"ollama pull {self._model}"
        elif error.status and error.status < endpoint.SERVER_ERRORS and error.status != endpoint.TOO_MANY:
            reason = error.reason
            hint = f"See whether it has the model {self._model}; another one, for new collections: {self._setting('model')}"
        else:
            reason, hint = error.reason, "Run the command again later."
            if self._name == "ollama":
                hint = "See whether it runs: ollama serve"
        return self._failure(reason, hint=hint, status=error.status)

    def _key_kept_back(self, variable: str, status: int | None) -> EmbeddingFailed:
        if not endpoint.is_private(self._url):
            reason = f"wants a key, and {variable} was not sent: everybody on the way could read it"
            hint = f"{self._setting('url')} https://…"
        else:
            reason = f"wants a key, and {variable} was not sent, because only {CONFIG_NAME} names this address"
            hint = f"{self._setting('url')} {quoted(self._base)}"
        return self._failure(reason, hint=hint, variable=variable, status=status)

    def _failure(self, reason: str, *, hint: str = "", **details: Any) -> EmbeddingFailed:
        return EmbeddingFailed(
            f"{self._title} {reason.rstrip('.')}.",
            hint=hint or f"See what {self._setting('url')} names: it does not speak as {self._name} does.",
            **self._details,
            **{name: value for name, value in details.items() if value is not None},
        )

    @property
    def _title(self) -> str:
        return f"The embedding service {self._name} ({urlsplit(self._url).netloc})"

    @property
    def _details(self) -> dict[str, Any]:
        return {"embedding_function": self._name, "model": self._model, "url": self._url}

    def _setting(self, what: str) -> str:
        return f"git config vmrag.embedding.{self._name}-{what}"


def _export_hint(variable: str) -> str:
    return f"Set it for whoever runs this: export {variable}=KEY"


def _batches(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """`most` texts and `MOST_CHARACTERS` characters in each, at most."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == most or size + len(text) > MOST_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
