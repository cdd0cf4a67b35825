"""Models of services: any server with OpenAI's `/embeddings`, Cohere, Hugging Face and Ollama.

Texts are sent to the address in the settings, and only if the user of this machine trusts the
service. A clone cannot set `embedding.*_url`. A key in the environment is sent to the service's
default address, or to an address from the environment or git config, and never unencrypted to
another machine. A collection stores service, model and dimensions, so every reader uses the same
model, independent of the model for new collections.
"""

from __future__ import annotations

import itertools
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
"""Number of characters that every usual model accepts: 8,000 tokens, if a character is two tokens.
"""

MAX_REQUEST_CHARS = 100_000
"""Maximum number of characters in one request. OpenAI accepts 300,000 tokens."""

MAX_DIMENSIONS = 16_384
PROBE = "dimensions"
"""A text that is embedded to find the number of dimensions."""

NOT_FOUND = 404
_FINGERPRINT = rf"(?P<service>[a-z]+) (?P<model>{SERVICE_MODEL}) (?P<dimensions>[1-9][0-9]{{0,4}}) unit v1"


class StoredModel(NamedTuple):
    """The model of a collection, without the service."""

    model: str
    dimensions: int


def parse_fingerprint(name: str, fingerprint: str) -> StoredModel | None:
    """Return the model in a fingerprint of this service; None for a fingerprint of another
    version.
    """
    match = re.fullmatch(_FINGERPRINT, fingerprint)
    if match is None or match["service"] != name or int(match["dimensions"]) > MAX_DIMENSIONS:
        return None
    return StoredModel(match["model"], int(match["dimensions"]))


class ServiceModel(Model):
    """A model of a service.

    `dimensions` 0: a request with one text finds them when they are needed. `permitted`: whether
    texts may be sent to the service. `keyed`: whether a key in the environment may be sent to this
    address.
    """

    local = False
    window = WINDOW

    def __init__(
        self, name: str, model: str, url: str, dimensions: int = 0, *, permitted: bool = False, keyed: bool = False
    ) -> None:
        self._name = name
        self._model = model
        self._service = SERVICES[name]
        self._is_default_url = url == getattr(EmbeddingSettings(), f"{name}_url")
        self._configured_url = url
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
            self._request_vectors([PROBE], query=False)
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._embed_texts(texts, query=False)

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        return self._embed_texts(texts, query=True)

    def _embed_texts(self, texts: Sequence[str], *, query: bool) -> list[Vector]:
        """Return one vector for each text. A text that is longer than the window is embedded in
        pieces.

        Empty pieces are skipped, because no service accepts an empty text.
        """
        require_unicode(texts)
        pieces: list[str] = []
        counts: list[int] = []
        for text in texts:
            windows = (text[start : start + WINDOW] for start in range(0, len(text), WINDOW))
            pieces_of_text = [window for window in windows if window.strip()]
            pieces += pieces_of_text
            counts.append(len(pieces_of_text))
        vectors = iter(self._request_vectors(pieces, query=query))
        return [self._make_vector([*itertools.islice(vectors, count)]) for count in counts]

    def _make_vector(self, pieces: list[list[float]]) -> Vector:
        """Return the vector of a text from the vectors of its pieces."""
        if not pieces:
            return make_uniform_vector(self.dimensions)
        total = [sum(numbers) for numbers in zip(*pieces, strict=True)] if len(pieces) > 1 else pieces[0]
        length = math.hypot(*total)
        if not math.isfinite(length):
            raise self._make_error("returned a vector with invalid numbers")
        if not length:
            return make_uniform_vector(self.dimensions)
        return struct.pack(f"<{len(total)}f", *[number / length for number in total])

    def _request_vectors(self, texts: Sequence[str], *, query: bool) -> list[list[float]]:
        return [
            numbers
            for batch in _split_batches(texts, self._service.batch)
            for numbers in self._embed_batch(batch, query=query)
        ]

    def _embed_batch(self, texts: list[str], *, query: bool) -> list[list[float]]:
        self._require_permission()
        key = self._read_key()
        try:
            answer = endpoint.post_json(self._url, self._service.body(self._model, texts, query), key=key)
            vectors = self._service.vectors(answer)
        except ModuleNotFoundError as error:
            raise make_missing_extra("httpx", extra="web") from error
        except endpoint.NoAnswer as error:
            raise self._convert_refusal(error, key) from error
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            raise self._make_error(f"did not return one vector for each text ({error})") from error
        if len(vectors) != len(texts):
            raise self._make_error(f"returned {len(vectors)} vectors for {len(texts)} texts")
        lengths = {len(numbers) for numbers in vectors}
        if len(lengths) > 1 or not 0 < max(lengths) <= MAX_DIMENSIONS:
            raise self._make_error(f"returned vectors of {' and '.join(map(str, sorted(lengths)))} dimensions")
        self._check_dimensions(max(lengths))
        return vectors

    def _check_dimensions(self, dimensions: int) -> None:
        self._dimensions = self._dimensions or dimensions
        if dimensions != self._dimensions:
            raise EmbeddingMismatch(
                f"{self._title} returned vectors of {dimensions} dimensions, but existing vectors have {self._dimensions}: the "
                "service has another model with the same name.",
                hint=f"run '{self._format_setting('url')} URL' to set a server that has the earlier model",
                **self._details,
            )

    def _require_permission(self) -> None:
        """Raise `ServiceNotTrusted` if no text may be sent to the service."""
        if not self._permitted:
            raise ServiceNotTrusted(
                f"{self._title} is not trusted to receive texts of this repository"
                + (f" and to use the key in {self._service.key}." if self._service.key else "."),
                hint=f"run 'vmrag trust --service {self._name}'",
                **self._details,
            )

    def _read_key(self) -> str | None:
        """Return the key to send, or None if no key may be sent to this address.

        Raises `EmbeddingFailed` if the service requires a key and none is set.
        """
        variable = self._service.key
        if not self._keyed:
            return None
        key = (env.read_variable(variable) or "").strip() if variable else ""
        if variable and not key and self._is_default_url:
            raise self._make_error(
                f"requires a key, but {variable} is not set", hint=_make_export_hint(variable), variable=variable
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise self._make_error(
                f"cannot be used: {variable} is not a valid key",
                hint=_make_export_hint(str(variable)),
                variable=variable,
            )
        return key or None

    def _convert_refusal(self, error: endpoint.NoAnswer, key: str | None) -> EmbeddingFailed:
        variable = self._service.key
        if error.status in endpoint.REFUSALS and variable:
            if not self._keyed and env.read_variable(variable):
                return self._make_withheld_key_error(variable, error.status)
            reason = f"rejected the key in {variable}" if key else f"requires a key, but {variable} is not set"
            return self._make_error(reason, hint=_make_export_hint(variable), variable=variable, status=error.status)
        if error.status == NOT_FOUND and self._name == "ollama":
            reason = f"does not have the model {self._model}"
            hint = f"run 'ollama pull {quoted(self._model)}'"
        elif error.status and error.status < endpoint.SERVER_ERRORS and error.status != endpoint.TOO_MANY:
            reason = error.reason
            setting = self._format_setting("model")
            hint = (
                f"check that it has the model {self._model}, or run '{setting} MODEL' to set another one for new "
                "collections"
            )
        else:
            reason = error.reason
            is_ollama = self._name == "ollama"
            hint = "run 'ollama serve' to check that the service runs" if is_ollama else "run the command again later"
        return self._make_error(reason, hint=hint, status=error.status)

    def _make_withheld_key_error(self, variable: str, status: int | None) -> EmbeddingFailed:
        if not endpoint.is_private(self._url):
            reason = f"requires a key, but {variable} was not sent, because the connection is not encrypted"
            hint = f"run '{self._format_setting('url')} https://…' to set the address"
        else:
            reason = f"requires a key, but {variable} was not sent, because only {CONFIG_NAME} sets this address"
            hint = f"run '{self._format_setting('url')} {quoted(self._configured_url)}' to use that address"
        return self._make_error(reason, hint=hint, variable=variable, status=status)

    def _make_error(self, reason: str, *, hint: str = "", **details: Any) -> EmbeddingFailed:
        return EmbeddingFailed(
            f"{self._title} {reason.rstrip('.')}.",
            hint=hint
            or f"run '{self._format_setting('url')}' to check that the address is that of a {self._name} service",
            **self._details,
            **{name: value for name, value in details.items() if value is not None},
        )

    @property
    def _title(self) -> str:
        return f"the embedding service {self._name} ({urlsplit(self._url).netloc})"

    @property
    def _details(self) -> dict[str, Any]:
        return {"embedding_function": self._name, "model": self._model, "url": self._url}

    def _format_setting(self, name: str) -> str:
        """Return the command that shows a setting of the service, or sets it if a value is
        appended.
        """
        return f"git config vmrag.embedding.{self._name}-{name}"


def _make_export_hint(variable: str) -> str:
    return f"run 'export {variable}=KEY' to set the key in the environment of this program"


def _split_batches(texts: Sequence[str], limit: int) -> Iterator[list[str]]:
    """Yield texts in batches of at most `limit` texts and `MAX_REQUEST_CHARS` characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == limit or size + len(text) > MAX_REQUEST_CHARS):
            yield batch
            batch = []
            size = 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch
