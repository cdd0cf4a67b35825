"""Warm queries in a process, against Chroma's query of the same store; and `vmrag check` against
them.

`python -m bench.query REPO ours|chroma|golden`
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench import knowledge
from bench.timing import Figure, in_turn, once

LIMITS = {10_000: 1.0, 100_000: 2.5}
MEMORY = 1.5
QUERIES = 40
GOLDEN = 100
CHECK = 2.0


def run(folder: Path, sizes: list[int], env: dict[str, str]) -> list[Figure]:
    figures, memory = [], {}
    for size in (size for size in sizes if size in LIMITS):
        repo = knowledge.make(folder, size, env)
        knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "switch", "-q", "main", env=env)
        subprocess.run([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
        measured = {}
        for kind in ("ours", "chroma"):  # apart, so that neither's memory counts for the other
            argv = [sys.executable, "-m", "bench.query", str(repo), kind]
            measured |= json.loads(subprocess.run(argv, env=env, check=True, capture_output=True).stdout)
        memory[f"{size:,} chunks, MB"] = measured.pop("memory_mb")
        ratio = measured["vector"] / measured["chroma"]
        figures.append(Figure(f"warm vector query, {size:,} chunks, against Chroma's", ratio, LIMITS[size], measured))
        hybrid = measured["hybrid"] / measured["chroma"]
        figures.append(Figure(f"warm hybrid query, {size:,} chunks, against Chroma's", hybrid, None, measured))
        filtered = measured["filtered"] / measured["chroma_filtered"]
        figures.append(Figure(f"query with a new filter, {size:,} chunks, against Chroma's", filtered, None, measured))
        figures.append(_check(repo, size, env))
    if len(memory) > 1:
        small, large = memory.values()
        name = "peak memory of queries without mapped vectors, 100,000 chunks against 10,000"
        figures.append(Figure(name, large / small, MEMORY, memory))
    return figures


def _check(repo: Path, size: int, env: dict[str, str]) -> Figure:
    """Whole processes of `vmrag check` of recorded queries, against the same in a warm process."""
    lines = "".join(f"  - query: {text}\n" for text in texts_of(GOLDEN))
    (repo / ".vmrag").mkdir(exist_ok=True)
    (repo / ".vmrag" / "queries.yaml").write_text(f"queries:\n{lines}")
    check = [*knowledge.VMRAG, "check", "-q"]
    subprocess.run([*check, "--update"], cwd=repo, env=env, check=True)
    whole = in_turn({"check": lambda: once(check, cwd=repo, env=env)}, 5)["check"].wall
    argv = [sys.executable, "-m", "bench.query", str(repo), "golden"]
    warm = json.loads(subprocess.run(argv, env=env, check=True, capture_output=True).stdout)["warm"]
    seconds = {"check": whole, "warm": warm}
    return Figure(
        f"check of {GOLDEN} golden queries, {size:,} chunks, against a warm process", whole / warm, CHECK, seconds
    )


def texts_of(number: int) -> list[str]:
    rng = random.Random(3)
    return [" ".join(f"word{rng.randrange(5000)}" for _ in range(6)) for _ in range(number)]


def _golden(ws: Any) -> dict[str, float]:
    """Seconds of all golden queries, one by one, in a process that has answered others."""
    from vmrag_link.golden import file
    from vmrag_link.retrieval.search import Searcher

    queries = file.parse_queries(ws.places.queries.read_bytes(), "queries").queries
    searches = [query.build_query(ws.config.retrieval) for query in queries]
    with ws.reader.view() as view:
        searcher = Searcher(view.folder, ws.models.of)
        rounds = []
        for _ in range(6):
            start = time.perf_counter()
            for search in searches:
                searcher.search(search)
            rounds.append(time.perf_counter() - start)
        searcher.close()
    return {"warm": statistics.median(rounds[1:])}


def measure(repo: Path, kind: str) -> dict[str, float]:
    from vmrag_link.index.view import segments_folder
    from vmrag_link.index.views import list_segments
    from vmrag_link.progress import QUIET
    from vmrag_link.retrieval.query import Mode, Query
    from vmrag_link.retrieval.search import Searcher
    from vmrag_link.workspace import Workspace

    ws = Workspace.open(repo, QUIET)
    texts = texts_of(QUERIES)
    if kind == "golden":
        return _golden(ws)
    if kind == "chroma":
        return _chroma(ws, texts)
    with ws.reader.view() as view:
        searcher = Searcher(view.folder, ws.models.load_for)
        seconds = {
            mode.value: _median(lambda text, mode=mode: searcher.search(Query(text, k=10, mode=mode)), texts)
            for mode in (Mode.VECTOR, Mode.KEYWORD, Mode.HYBRID)
        }
        seconds["filtered"] = _median(
            lambda text: searcher.search(Query(text, k=10, mode=Mode.VECTOR, **_filters(text))), texts
        )
        searcher.close()
        segments = [segments_folder(view.folder) / name for name in list_segments(view.folder)]
        mapped = sum(path.stat().st_size for segment in segments for path in segment.glob("vectors-*")) / 1_000_000
    return seconds | {"memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1_000_000 - mapped}


def _filters(text: str) -> dict[str, Any]:
    """Another one for each text, so that no answer is remembered."""
    return {"where": {"title": {"$ne": text}}, "where_document": {"$contains": f"{text.split(maxsplit=1)[0]} "}}


def _chroma(ws, texts: list[str]) -> dict[str, float]:
    """Chroma's public client with the embedding of the text included, as ours includes it."""
    import array

    import chromadb

    argv = [*knowledge.VMRAG, "path", "chroma", "--json"]
    env = os.environ | {"VMRAG_INDEX_CHROMA": "follow"}
    process = subprocess.run(argv, cwd=ws.places.top, env=env, check=True, capture_output=True)
    path = json.loads(process.stdout)["chroma"]
    collection = chromadb.PersistentClient(path).get_collection("documents", embedding_function=None)
    model = ws.models.named("default")

    def ask(text: str, **filters: Any) -> None:
        vector = array.array("f")
        vector.frombytes(model.embed([text])[0])
        collection.query(
            query_embeddings=[vector.tolist()], n_results=10, include=["documents", "metadatas", "distances"], **filters
        )

    return {"chroma": _median(ask, texts), "chroma_filtered": _median(lambda text: ask(text, **_filters(text)), texts)}


def _median(ask, texts: list[str]) -> float:
    for text in texts[:5]:
        ask(text)
    seconds = []
    for text in texts:
        start = time.perf_counter()
        ask(text)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2])))
