"""The Python API against a start of the program: opening a knowledge base, and warm searches.

`python -m bench.api REPO` measures one process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench import knowledge
from bench.query import texts_of
from bench.timing import Figure, in_turn, once

CHUNKS = 10_000
OPENING, SEARCH = 0.3, 0.2
QUERIES = 40


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = knowledge.make(folder, CHUNKS, env)
    knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "switch", "-q", "main", env=env)
    subprocess.run([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
    argv, measured = [sys.executable, "-m", "bench.api", str(repo)], []
    starts = []
    for _ in range(rounds):
        starts.append(
            in_turn({"start": lambda: once([*knowledge.VMRAG, "--version"], cwd=repo, env=env)}, 3)["start"].wall
        )
        measured.append(json.loads(subprocess.run(argv, env=env, check=True, capture_output=True).stdout))
    start = statistics.median(starts)
    seconds = {name: statistics.median(run[name] for run in measured) for name in measured[0]} | {"start": start}
    return [
        Figure("import and vmrag.open against a start of vmrag", seconds["import_and_open"] / start, OPENING, seconds),
        Figure(f"warm kb.search, {CHUNKS:,} chunks, against a start", seconds["search"] / start, SEARCH, seconds),
        Figure(f"warm kb.search at a ref, {CHUNKS:,} chunks, against a start", seconds["at"] / start, None, seconds),
    ]


def measure(repo: Path) -> dict[str, float]:
    """Seconds: to import and open, to open once more, to search at a place and at a ref."""
    start = time.perf_counter()
    import vmrag_link

    kb = vmrag_link.open(repo)
    opened = time.perf_counter()
    vmrag_link.open(repo).close()
    again = time.perf_counter()
    texts = texts_of(QUERIES)
    seconds = {"import_and_open": opened - start, "open": again - opened}
    for name, at in (("search", None), ("at", "main")):
        taken = []
        for text in (*texts[:5], *texts):
            begun = time.perf_counter()
            kb.search(text, k=10, at=at)
            taken.append(time.perf_counter() - begun)
        seconds[name] = statistics.median(taken[5:])
    return seconds


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
