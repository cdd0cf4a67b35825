"""A real `chroma run`, and a network between it and its clients with the faults of a test."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.chroma import MISSING
from tests.support.terminal import Project
from vmrag_link import endpoint
from vmrag_link.chroma_server.client import ChromaClient
from vmrag_link.chroma_server.server import ServerAddress

HOST = "127.0.0.1"
LACKS, CHANGED = "CHROMA_SERVER_LACKS", "CHROMA_SERVER_CHANGED"
"""Findings of a server that doctor repairs: `test_chroma_server.py` has both."""

_PATIENCE = 60.0
_PROGRAM = "import sys, chromadb_rust_bindings as b; b.cli(sys.argv[1:])"
"""The program `chroma`, without importing all of chromadb first, which takes seconds."""


@dataclass
class ChromaServer:
    """`chroma run` on a folder."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Returns when it answers. Skips where there is no `chroma`."""
        if MISSING:
            pytest.skip(MISSING)
        self.port = self.port or free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        options = ["--path", self.folder, "--host", HOST, "--port", str(self.port)]
        arguments = [sys.executable, "-c", _PROGRAM, "chroma", "run", *options]
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                arguments, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ}
            )
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                send_request(self.url, "GET", "/api/v2/heartbeat")
            except OSError:
                assert self.process.poll() is None, "chroma run ended"
                assert time.monotonic() < deadline, "chroma run does not answer"
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


def send_request(url: str, method: str, path: str, body: object = None) -> Any:
    """Return the answer of a server without vmrag's client."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request(
            method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status < 300, (method, path, answer.status, said)
        return json.loads(said) if said else None
    finally:
        connection.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="session")
def chroma_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    """One server for all tests of a process; each test has a database of its own."""
    server = ChromaServer(tmp_path_factory.mktemp("chroma-run") / "data")
    server.start()
    yield server
    server.stop()


@dataclass
class Database:
    """A database on a server, as its administrator sees it."""

    url: str
    name: str

    @property
    def root(self) -> str:
        return f"/api/v2/tenants/default_tenant/databases/{self.name}"

    def client(self, url: str = "", *, seconds: float = 20.0, **more: Any) -> ChromaClient:
        return ChromaClient(ServerAddress("http", url or self.url, "default_tenant", self.name, seconds, **more))

    def collections(self) -> dict[str, dict[str, Any]]:
        """By name."""
        return {
            request["name"]: request for request in send_request(self.url, "GET", f"{self.root}/collections?limit=1000")
        }

    def sealed(self) -> list[str]:
        """The names of complete collections."""
        return sorted(name for name in self.collections() if name.startswith("vmrag-") and name.count("-") == 2)

    def records(self, name: str) -> dict[str, dict[str, Any]]:
        """By id."""
        at = f"{self.root}/collections/{self.collections()[name]['id']}"
        page = send_request(self.url, "POST", f"{at}/get", {"include": ["embeddings", "documents", "metadatas"]})
        rows = zip(page["ids"], page["embeddings"], page["documents"], page["metadatas"], strict=True)
        return {one: {"vector": vector, "text": text, "metadata": more} for one, vector, text, more in rows}

    def update(self, name: str, **body: Any) -> None:
        """Change a sealed collection as another client does."""
        at = f"{self.root}/collections/{self.collections()[name]['id']}"
        send_request(self.url, "POST", f"{at}/update", body)

    def remove(self, name: str, *ids: str) -> None:
        at = f"{self.root}/collections/{self.collections()[name]['id']}"
        send_request(self.url, "POST", f"{at}/delete", {"ids": list(ids)})

    def drop(self, name: str) -> None:
        send_request(self.url, "DELETE", f"{self.root}/collections/{name}")

    def use(self, project: Project, url: str = "", **settings: str) -> None:
        """Configure this server for a project; commands upload only if one waits."""
        expected = {"mode": "http", "url": url or self.url, "database": self.name, "share": "off", **settings}
        for name, value in expected.items():
            project.git("config", f"vmrag.chroma.{name}", value)


@pytest.fixture
def database(chroma_run: ChromaServer, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Return an empty database; a silent server is contacted again at once."""
    monkeypatch.setattr(endpoint, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(endpoint, "_open_until", {})
    return create_database(chroma_run.url)


def create_database(url: str) -> Database:
    made = Database(url, f"db-{uuid.uuid4().hex[:12]}")
    send_request(url, "POST", "/api/v2/tenants/default_tenant/databases", {"name": made.name})
    return made


# -- between client and server


@dataclass
class Request:
    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def is_(self, method: str, ending: str) -> bool:
        return self.method == method and self.path.partition("?")[0].endswith(ending)


@dataclass
class Fault:
    """Fault of one request.

    `lost`: it never arrives; `unanswered`: its answer is lost; `cut`: number of answer bytes that
    arrive; `slow`: seconds before the answer; `dripping`: seconds between its bytes; `status` and
    `said`: replacement of the answer; `rewrite`: function that changes the answer.
    """

    lost: bool = False
    unanswered: bool = False
    cut: int | None = None
    slow: float = 0.0
    dripping: float = 0.0
    status: int | None = None
    said: bytes = b""
    rewrite: Callable[[Any], Any] | None = None


NO_FAULT = Fault()


@dataclass
class Network:
    """A proxy before a real server.

    `rule` returns the fault of a request; all are recorded in `requests`.
    """

    database: Database
    rule: Callable[[Request], Fault | None] = lambda _: None
    requests: list[Request] = field(default_factory=list)
    port: int = 0
    most_at_once: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def count(self, method: str, ending: str) -> int:
        return sum(request.is_(method, ending) for request in self.requests)

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("Content-Length") or 0)
        request = Request(handler.command, handler.path, handler.rfile.read(size), dict(handler.headers))
        with self._lock:
            self.requests.append(request)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            self._answer(handler, request, self.rule(request) or NO_FAULT)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True
        finally:
            with self._lock:
                self._now -= 1

    def _answer(self, handler: BaseHTTPRequestHandler, request: Request, fault: Fault) -> None:
        if fault.lost:
            self._hang_up(handler)
            return
        time.sleep(fault.slow)
        status, said = (fault.status, fault.said) if fault.status else self._forward(request)
        if fault.unanswered:
            self._hang_up(handler)
            return
        if fault.rewrite:
            said = json.dumps(fault.rewrite(json.loads(said))).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(said)))
        handler.end_headers()
        if fault.dripping:
            for at in range(len(said)):
                handler.wfile.write(said[at : at + 1])
                handler.wfile.flush()
                time.sleep(fault.dripping)
        handler.wfile.write(said if fault.cut is None else said[: fault.cut])
        if fault.cut is not None:
            self._hang_up(handler)

    def _forward(self, request: Request) -> tuple[int, bytes]:
        host, port = self.database.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            connection.request(request.method, request.path, request.body or None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @staticmethod
    def _hang_up(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def network(database: Database) -> Iterator[Network]:
    """Before the server of `database`; it passes everything on until it gets a rule."""
    between = Network(database)
    with serving(between):
        yield between


class serving:  # noqa: N801  a context manager
    """Let a network answer while the block runs."""

    def __init__(self, between: Network) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                between.pass_on(self)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        between.port = self._server.server_address[1]

    def __enter__(self) -> None:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
