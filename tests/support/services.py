"""A server that stands for embedding services. The real ones need keys and a network, which tests
have not; so this one cannot show that
they still speak as they did. It speaks the requests and answers of their references: OpenAI's `POST
/v1/embeddings`, Cohere's
`POST /v2/embed`, Hugging Face's `POST /models/…/pipeline/feature-extraction`, Ollama's `POST
/api/embed`.
"""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from vmrag_link import endpoint
from vmrag_link.embedding import registry

KEYS = {"openai": "OPENAI_API_KEY", "cohere": "COHERE_API_KEY", "huggingface": "HF_TOKEN"}
NAMES = ("openai", "cohere", "huggingface", "ollama")
KEY = "sk-opensesame-0123456789"


@dataclass
class Asked:
    """A request as it came in."""

    path: str
    key: str | None
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        return self.body.get("input") or self.body.get("texts") or self.body["inputs"]


@dataclass
class Services:
    """All four at one address. `script`: what the next requests get instead of vectors;
    `dimensions`: numbers in each vector.
    """

    port: int = 0
    requests: list[Asked] = field(default_factory=list)
    script: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    dimensions: int = 256
    hang: float = 0.0
    models: tuple[str, ...] = ("text-embedding-3-small", "embed-v4.0", "BAAI/bge-m3", "bge-m3")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def base(self, name: str) -> str:
        return f"{self.url}/v1" if name == "openai" else self.url

    def settings(self, name: str) -> str:
        """The lines of a settings file; it has to be a trusted one."""
        return f"embedding:\n  model: {name}\n  {name}_url: {self.base(name)}\n"

    def answer(self, request: Asked) -> tuple[int, dict[str, str], Any]:
        self.requests.append(request)
        time.sleep(self.hang)
        if self.script:
            return self.script.pop(0)
        if request.key not in (None, KEY):  # as OpenAI does it, which quotes the key
            return (
                401,
                {},
                {"error": {"message": f"Incorrect API key provided: {request.key}.", "code": "invalid_api_key"}},
            )
        model = request.body.get("model") or request.path.removeprefix("/models/").partition("/pipeline/")[0]
        if model not in self.models:
            return 404, {}, self.unknown(request.path, model)
        return 200, {}, self.vectors(request)

    def unknown(self, path: str, model: str) -> Any:
        match path:
            case "/v1/embeddings":
                return {"error": {"message": f"The model `{model}` does not exist.", "code": "model_not_found"}}
            case "/v2/embed":
                return {"id": "1", "message": f"model '{model}' not found"}
            case "/api/embed":
                return {"error": f'model "{model}" not found, try pulling it first'}
        return {"error": f"Model {model} does not exist"}

    def vectors(self, request: Asked) -> Any:
        result = [self.numbers(text) for text in request.texts]
        match request.path:
            case "/v1/embeddings":
                rows = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(result)]
                return {
                    "object": "list",
                    "data": rows[::-1],
                    "model": request.body["model"],
                    "usage": {"total_tokens": 8},
                }
            case "/v2/embed":
                return {"id": "1", "embeddings": {"float": result}, "texts": request.texts, "meta": {"api_version": {}}}
            case "/api/embed":
                return {"model": request.body["model"], "embeddings": result, "total_duration": 14143917}
        return result

    def numbers(self, text: str) -> list[float]:
        """The vector of the model `hash`, not of unit length."""
        vector = struct.unpack("<256f", registry.load_model("hash").embed([text])[0])
        return [3 * number for number in (vector * 10)[: self.dimensions]]


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """The server, pauses that take no time, and no keys."""
    with running(monkeypatch) as stand:
        yield stand


@contextlib.contextmanager
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Start `services` for templates."""
    for variable in KEYS.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(endpoint, "_open_until", {})
    stand = Services()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = self.headers.get("Authorization")
            status, headers, answer = stand.answer(Asked(self.path, key.removeprefix("Bearer ") if key else None, body))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stand
    server.shutdown()
    thread.join()
    server.server_close()
