"""Eight agents in one work tree, each with its own server, while a colleague writes and commits.

It measures how long their answers take, and counts failures.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import knowledge
from bench.knowledge import VMRAG
from bench.mcp_process import OURS, Server
from bench.timing import Figure

READERS = 8
SECONDS = 20.0
ON_SERVER = 10_000
"""Documents on a Dolt server."""

SLOWER = 3.0
"""The limit for the median with a writer, against the same readers without."""


class Answers(NamedTuple):
    """Seconds of each answer, and what failed."""

    seconds: list[float]
    failures: list[str]

    def at(self, share: float) -> float:
        return statistics.quantiles(self.seconds, n=100)[round(share * 100) - 1]


def run(folder: Path, sizes: list[int], env: dict[str, str], seconds: float = SECONDS) -> list[Figure]:
    """Embedded at each size; on a Dolt server at one, where there is the program."""
    figures: list[Figure] = []
    for size in sizes:
        figures += _measured(_copy(folder, size, env), f"{size:,} documents", env, seconds)
    if ON_SERVER in sizes and shutil.which("dolt"):
        repo = _copy(folder, ON_SERVER, env)
        with _on_dolt_server(folder, repo, env) as client_env:
            figures += _measured(repo, f"{ON_SERVER:,} documents on a Dolt server", client_env, seconds)
    return figures


def _copy(folder: Path, documents: int, env: dict[str, str]) -> Path:
    source, repo = knowledge.make(folder, documents, env), folder / f"team-{documents}"
    shutil.rmtree(repo, ignore_errors=True)
    shutil.copytree(source, repo, symlinks=True)
    knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "switch", "-q", "main", env=env)
    return repo


@contextlib.contextmanager
def _on_dolt_server(folder: Path, repo: Path, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The knowledge base moved to a server of its own; with the environment of its clients."""
    data = folder / "team-server"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    password = secrets.token_hex(8)
    argv = [
        "dolt",
        "sql-server",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--data-dir",
        str(data),
        "--loglevel",
        "warning",
    ]
    server_env = {"DOLT_ROOT_PASSWORD": password, "DOLT_DISABLE_EVENT_FLUSH": "1"}
    with subprocess.Popen(
        argv, cwd=data, env=env | server_env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _wait_for(port)
            for name, value in (("server", f"127.0.0.1:{port}"), ("database", "team"), ("user", "root")):
                knowledge.git(repo, "config", f"vmrag.dolt.{name}", value, env=env)
            client_env = env | {"VMRAG_DOLT_PASSWORD": password}
            subprocess.run([*VMRAG, "migrate", "--to", "dolt", "-q"], cwd=repo, env=client_env, check=True)
            knowledge.git(repo, "commit", "-q", "-m", "Store the knowledge on a server", env=client_env)
            yield client_env
        finally:
            server.terminate()


def _wait_for(port: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _measured(repo: Path, what: str, env: dict[str, str], seconds: float) -> list[Figure]:
    subprocess.run([*VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
    servers = [Server(OURS, repo, env) for _ in range(READERS)]
    try:
        for server in servers:
            server.greet()
        _asked(servers, 2.0)  # the first answer opens the index
        alone = _asked(servers, seconds)
        stop = threading.Event()
        commits: list[float] = []
        writer = threading.Thread(target=_write, args=(repo, env, stop, commits))
        writer.start()
        beside = _asked(servers, seconds)
        stop.set()
        writer.join()
    finally:
        for server in servers:
            server.close()
    name = f"{READERS} agents ask {what}"
    return [
        Figure(
            f"{name}, beside {len(commits)} commits: median answer, against none beside",
            beside.at(0.5) / alone.at(0.5),
            SLOWER,
            {
                "alone": alone.at(0.5),
                "alone, p99": alone.at(0.99),
                "beside": beside.at(0.5),
                "beside, p99": beside.at(0.99),
                "answers a second": len(beside.seconds) / seconds,
                "a commit": statistics.median(commits),
            },
        ),
        Figure(f"{name}: answers that failed", len(alone.failures + beside.failures), 0, {}),
    ]


def _asked(servers: list[Server], seconds: float) -> Answers:
    """Return the answers of all servers; each gets one question after the other."""
    answers = Answers([], [])

    def ask(server: Server, number: int) -> None:
        words = random.Random(number)
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            text = " ".join(f"word{words.randrange(5000)}" for _ in range(6))
            try:
                server.call("chroma_query_documents", collection_name="documents", query_texts=[text], n_results=5)
            except SystemExit as error:
                answers.failures.append(str(error))
                return
            answers.seconds.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=ask, args=pair) for pair in zip(servers, range(len(servers)), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _write(repo: Path, env: dict[str, str], stop: threading.Event, commits: list[float]) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        begun = time.perf_counter()
        add = [*VMRAG, "add", "-", "--collection", "documents", "--id", f"new-{number}", "-q"]
        subprocess.run(add, cwd=repo, env=env, input=f"The note {number} of somebody.".encode(), check=True)
        subprocess.run([*VMRAG, "commit", "-q", "-m", f"note {number}"], cwd=repo, env=env, check=True)
        knowledge.git(repo, "commit", "-q", "-m", f"note {number}", env=env)
        commits.append(time.perf_counter() - begun)
