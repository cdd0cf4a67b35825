"""Warm queries in a process, against Chroma's query of the same store.

`python -m bench.query REPO ours|chroma`
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
from bench.timing import Figure

LIMITS = {10_000: 1.0, 100_000: 2.5}
MEMORY = 1.5
QUERIES = 40


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
    if len(memory) > 1:
        small, large = memory.values()
        name = "peak memory of queries without mapped vectors, 100,000 chunks against 10,000"
        figures.append(Figure(name, large / small, MEMORY, memory))
    return figures


def measure(repo: Path, kind: str) -> dict[str, float]:
    from vmrag_link.progress import QUIET
    from vmrag_link.retrieval.query import Mode, Query
    from vmrag_link.retrieval.search import Searcher
    from vmrag_link.workspace import Workspace

    ws = Workspace.open(repo, QUIET)
    rng = random.Random(3)
    texts = [" ".join(f"word{rng.randrange(5000)}" for _ in range(6)) for _ in range(QUERIES)]
    if kind == "chroma":
        return _chroma(ws, texts)
    with ws.reader.view() as view:
        searcher = Searcher(view.folder, ws.models.of)
        seconds = {
            mode.value: _median(lambda text, mode=mode: searcher.search(Query(text, k=10, mode=mode)), texts)
            for mode in (Mode.VECTOR, Mode.KEYWORD, Mode.HYBRID)
        }
        seconds["filtered"] = _median(
            lambda text: searcher.search(Query(text, k=10, mode=Mode.VECTOR, **_filters(text))), texts
        )
        searcher.close()
        mapped = sum(path.stat().st_size for path in view.folder.glob("vectors-*")) / 1_000_000
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
    done = subprocess.run(argv, cwd=ws.places.top, env=env, check=True, capture_output=True)
    path = json.loads(done.stdout)["chroma"]
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
