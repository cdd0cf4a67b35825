"""Vectors of a service from a Chroma server, against those from the service, and from the cache.

The server is a real `chroma run`. The service is ours, on this machine: it answers at once, which
no real one does.
"""

from __future__ import annotations

import http.client
import json
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.switch import remove_views
from bench.timing import Figure, Run
from vmrag_link.engines import opening
from vmrag_link.engines.base import Write

DOCUMENTS = 10_000
DIMENSIONS = 1536
LIMIT = 1.0
"""For a download, against a service that costs nothing and answers at once."""

_PROGRAM = "import sys, chromadb_rust_bindings as b; b.cli(sys.argv[1:])"


def run(folder: Path, rounds: int, env: dict[str, str], documents: int = DOCUMENTS) -> list[Figure]:
    service = _Service()
    threading.Thread(target=service.serve_forever, daemon=True).start()
    port = _free_port()
    options = ["--path", str(folder / "chroma-server"), "--host", "127.0.0.1", "--port", str(port)]
    shutil.rmtree(folder / "chroma-server", ignore_errors=True)
    env = env | {"OPENAI_API_KEY": "none"}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "chroma", "run", *options], stdout=subprocess.DEVNULL
    ) as server:
        try:
            _until_it_answers(port)
            repo = _repository(folder, documents, f"http://127.0.0.1:{service.server_port}/v1", port, env)
            put = timing.once([*VMRAG, "sync", "--wait"], cwd=repo, env=env | {"VMRAG_CHROMA_SHARE": "wait"})
            things: dict[str, Callable[[], Run]] = {
                "download": lambda: _built(repo, env, keep_cache=False, mode="http"),
                "service": lambda: _built(repo, env, keep_cache=False, mode="embedded"),
                "cache": lambda: _built(repo, env, keep_cache=True, mode="embedded"),
            }
            samples = timing.in_turn(things, rounds)
        finally:
            server.kill()
            service.shutdown()
    seconds = {name: sample.wall for name, sample in samples.items()} | {"put there": put.wall}
    name = f"index of {documents:,} documents, {DIMENSIONS} dimensions, by a Chroma server"
    return [
        Figure(
            f"{name}: against a service that answers at once", seconds["download"] / seconds["service"], LIMIT, seconds
        )
    ]


def _built(repo: Path, env: dict[str, str], *, keep_cache: bool, mode: str) -> Run:
    remove_views(repo, "")
    if not keep_cache:
        (repo / ".git/vmrag/embeddings.sqlite").unlink()
    return timing.once([*VMRAG, "sync"], cwd=repo, env=env | {"VMRAG_CHROMA_MODE": mode})


def _repository(folder: Path, documents: int, url: str, port: int, env: dict[str, str]) -> Path:
    """Return a copy of `knowledge.make`'s repository in which a service embeds the documents.

    Only this machine pays for the service.
    """
    source, repo = knowledge.make(folder, documents, env), folder / f"paid-{documents}"
    shutil.rmtree(repo, ignore_errors=True)
    shutil.copytree(source, repo, symlinks=True)
    for key, value in {
        "vmrag.embedding.openai-url": url,
        "vmrag.trustedService": "openai",
        "vmrag.chroma.mode": "http",
        "vmrag.chroma.url": f"http://127.0.0.1:{port}",
        "vmrag.chroma.share": "off",
    }.items():
        knowledge.git(repo, "config", key, value, env=env)
    engine = opening.open_engine(repo / ".git/vmrag/kb")
    main = knowledge.head(engine, "main")
    (collection,) = engine.list_collections(main)
    model = f"openai text-embedding-3-small {DIMENSIONS} unit v1"
    paid = msgspec.structs.replace(
        collection, embedding_function="openai", embedding_model=model, embedding_dimensions=DIMENSIONS
    )
    engine.write("main", Write(put_collections=[paid]), expected=main)
    engine.close()
    subprocess.run([*VMRAG, "commit", "-q", "-m", "paid"], cwd=repo, env=env, check=True)
    knowledge.git(repo, "commit", "-q", "-a", "-m", "paid", env=env)
    return repo


class _Service(ThreadingHTTPServer):
    """OpenAI's `/embeddings`: each text has the numbers of one vector, turned by its checksum."""

    def __init__(self) -> None:
        rng = random.Random(7)
        numbers = [f"{rng.gauss(0, 1):.6f}" for _ in range(DIMENSIONS)]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
                rows = []
                for at, text in enumerate(texts):
                    turned = zlib.crc32(text.encode()) % DIMENSIONS
                    vector = ",".join(numbers[turned:] + numbers[:turned])
                    rows.append(f'{{"index":{at},"embedding":[{vector}]}}')
                said = f'{{"data":[{",".join(rows)}]}}'.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _until_it_answers(port: int) -> None:
    for _ in range(200):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/api/v2/heartbeat")
            connection.getresponse().read()
            connection.close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("chroma run does not answer")
