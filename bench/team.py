"""Eight agents in one work tree, each with a server of its own, while somebody writes and commits.

What they are told in time, and whether anything fails.
"""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

from bench import knowledge
from bench.knowledge import VMRAG
from bench.mcp_process import OURS, Server
from bench.timing import Figure

READERS = 8
SECONDS = 20.0
DOCUMENTS = 10_000
SLOWER = 3.0
"""The limit for the median with a writer, against the same readers without."""


class Answers(NamedTuple):
    """Seconds of each answer, and what failed."""

    seconds: list[float]
    failures: list[str]

    def at(self, share: float) -> float:
        return statistics.quantiles(self.seconds, n=100)[round(share * 100) - 1]


def run(folder: Path, env: dict[str, str], documents: int = DOCUMENTS, seconds: float = SECONDS) -> list[Figure]:
    source, repo = knowledge.make(folder, documents, env), folder / f"team-{documents}"
    shutil.rmtree(repo, ignore_errors=True)
    shutil.copytree(source, repo, symlinks=True)
    knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "switch", "-q", "main", env=env)
    subprocess.run([*VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
    servers = [Server(OURS, repo, env) for _ in range(READERS)]
    try:
        for each in servers:
            each.greet()
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
        for each in servers:
            each.close()
    name = f"{READERS} agents ask {documents:,} documents"
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
    """What all of them answer within these seconds, one question after the other each."""
    told = Answers([], [])

    def ask(server: Server, number: int) -> None:
        words = random.Random(number)
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            text = " ".join(f"word{words.randrange(5000)}" for _ in range(6))
            try:
                server.call("chroma_query_documents", collection_name="documents", query_texts=[text], n_results=5)
            except SystemExit as error:
                told.failures.append(str(error))
                return
            told.seconds.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=ask, args=pair) for pair in zip(servers, range(len(servers)), strict=True)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return told


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
