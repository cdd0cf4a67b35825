"""How long a question about much code takes: 50,000 pieces, in an open process and in a whole one,
beside semble's program.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench import code_docstrings, code_sets, knowledge
from bench.code_baselines import SEMBLE, Asked, Semble
from bench.code_docstrings import EACH
from bench.timing import Run, in_turn, once
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import search_index

MANY = ("django", "networkx", "nltk", "sphinx", "sqlalchemy")
ALL_OF_IT = 10**6
K = 10
WARM, COLD, FIRST = 300, 9, 20
"""Questions, and rounds of processes, that are timed; questions before them that are not."""


def report(folder: Path, semble: Semble) -> None:
    """Print the latency of questions about `MANY`, as one repository with all docstrings."""
    wholes = [code_docstrings.whole_package(folder / "documented", package) for package in code_docstrings.DOCUMENTED]
    repo = code_sets.repository(
        folder / "repositories/many", {whole.name: whole for whole in wholes if whole.name in MANY}
    )
    sets = [
        code_set for code_set in code_docstrings.documented(folder / "documented", test=False) if code_set.name in MANY
    ]
    texts = [question.text for made in sets for question in made.questions][:: len(sets) * EACH // WARM][:WARM]
    with contextlib.closing(Workspace.open(repo, QUIET)) as ws:
        pieces, ours = search_index(ws, lambda searcher, _: _timed(searcher, texts))
    theirs = semble.ask([Asked(repo, texts)], K)[0]
    print(f"\nLatency of {len(texts)} questions in an open process, {K} results each, and of whole processes\n")
    print("| what | p50 | p95 | CPU, p50 |\n|---|---|---|---|")
    _row(f"vmrag, {pieces:,} pieces", ours)
    _row(f"{SEMBLE}, {theirs.pieces:,} pieces", theirs.runs)
    for title, runs in _cold(repo, texts, semble).items():
        _row(f"`{title}`", runs)


def _timed(searcher: Searcher, texts: Sequence[str]) -> tuple[int, list[Run]]:
    """The number of pieces, and how long each question took."""
    pieces = len(searcher.search(Query("def", k=ALL_OF_IT, mode=Mode.VECTOR)))
    runs = []
    for text in [*texts[:FIRST], *texts]:
        start = time.perf_counter(), time.process_time()
        searcher.search(Query(text, k=K))
        runs.append(Run(time.perf_counter() - start[0], time.process_time() - start[1], 0))
    return pieces, runs[FIRST:]


def _cold(repo: Path, texts: Sequence[str], semble: Semble) -> dict[str, Sequence[Run]]:
    """Return the runs of whole processes; the index of each program exists."""
    turn = itertools.cycle(texts)
    things = {
        "vmrag query": lambda: once([*knowledge.VMRAG, "query", next(turn)], cwd=repo),
        "semble search": lambda: semble.once(next(turn), repo),
        "vmrag --version": lambda: once([*knowledge.VMRAG, "--version"], cwd=repo),
    }
    samples = in_turn(things, COLD)
    return {title: sample.runs for title, sample in samples.items()}


def _row(title: str, runs: Sequence[Run]) -> None:
    p50, p95 = (np.quantile([run.wall for run in runs], share) * 1000 for share in (0.5, 0.95))
    cpu = np.median([run.cpu for run in runs]) * 1000
    print(f"| {title} | {p50:,.1f} ms | {p95:,.1f} ms | {cpu:,.1f} ms |")
