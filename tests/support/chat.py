"""A server that stands for language models. Real ones need keys and a network, which tests have
not; so this one cannot show that they still speak as they did. It speaks the requests and answers
of their references: OpenAI's `POST /v1/chat/completions` and Ollama's `POST /api/chat`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from vmrag_link import endpoint

KEY = "sk-opensesame-0123456789"


@dataclass
class Chat:
    """`requests`: path, key and body of each request. `script`: the replies to the
    next requests instead of an answer.
    """

    port: int = 0
    requests: list[tuple[str, str | None, dict[str, Any]]] = field(default_factory=list)
    script: list[tuple[int, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, key: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append((path, key, body))
        if self.script:
            return self.script.pop(0)
        if key not in (None, KEY):  # as OpenAI does it, which quotes the key
            return 401, {"error": {"message": f"Incorrect API key provided: {key}."}}
        message = {"role": "assistant", "content": "The battery froze [2]."}
        return 200, {"choices": [{"index": 0, "message": message}]} if path.startswith("/v1") else {"message": message}


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    """Listens on this machine until the test ends; no pause between attempts, and OpenAI's key in
    the environment.
    """
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(endpoint, "_open_until", {})
    result = Chat()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
            status, answer = result.answer(self.path, key, body)
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing: the tests ask `Chat`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    result.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield result
    server.shutdown()
    server.server_close()
    thread.join()
