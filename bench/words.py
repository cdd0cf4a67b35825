"""Warm queries by words, against `bm25s` with the same texts.

`python -m bench.words REPOSITORY QUERIES` answers as `bare_words.py` does.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import bare_words, knowledge
from bench.timing import Figure

SIZE = 100_000
LIMIT = 1.2
QUERIES, WORDS = 40, 6
ROUNDS = 11
PEER = "bm25s==0.3.16"


def run(folder: Path, sizes: Sequence[int], env: dict[str, str]) -> list[Figure]:
    if SIZE not in sizes:
        return []
    repo = knowledge.make(folder, SIZE, env)
    knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "switch", "-q", "main", env=env)
    subprocess.run([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
    texts, queries = folder / "texts.json", folder / "queries.json"
    texts.write_text(json.dumps(_texts(repo)))
    queries.write_text(json.dumps(_queries()))
    peer = [str(_python_with_peer(folder, env)), bare_words.__file__, str(texts), str(queries)]
    ours = [sys.executable, "-m", "bench.words", str(repo), str(queries)]
    seconds = _in_turn({"ours": ours, "bm25s": peer}, env)
    name = f"{QUERIES} queries by words, {SIZE:,} chunks, CPU, against bm25s"
    return [Figure(name, seconds["ours"] / seconds["bm25s"], LIMIT, seconds)]


def _queries() -> list[str]:
    dice = random.Random(3)
    return [" ".join(f"word{dice.randrange(5000)}" for _ in range(WORDS)) for _ in range(QUERIES)]


def _python_with_peer(folder: Path, env: dict[str, str]) -> Path:
    python = folder / "bm25s/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "bm25s")], env=env, check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", PEER], env=env, check=True)
    return python


def _in_turn(commands: dict[str, list[str]], env: dict[str, str]) -> dict[str, float]:
    """Return the median seconds of CPU that each process takes for all queries."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = {name: subprocess.Popen(command, env=env, **pipes) for name, command in commands.items()}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, process in processes.items():
            process.stdin.write("\n")
            process.stdin.flush()
            seconds[name].append(float(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    return {name: statistics.median(some) for name, some in seconds.items()}


def _texts(repo: Path) -> list[str]:
    from vmrag_link.engines import opening

    engine = opening.open_engine(repo / ".git/vmrag/kb")
    try:
        return [document.content for document in engine.read_documents(knowledge.head(engine, "main"))]
    finally:
        engine.close()


def main(repo: Path, queries_file: Path) -> None:
    from vmrag_link.progress import QUIET
    from vmrag_link.retrieval.query import Mode, Query
    from vmrag_link.retrieval.search import Searcher
    from vmrag_link.workspace import Workspace

    ws = Workspace.open(repo, QUIET)
    with ws.reader.view() as view:
        searcher = Searcher(view.folder, ws.models.load_for)
        bare_words.serve(
            lambda text: searcher.search(Query(text, k=bare_words.BEST, mode=Mode.KEYWORD)),
            json.loads(queries_file.read_bytes()),
        )
        searcher.close()
    ws.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
