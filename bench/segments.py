"""Costs and savings of sharing: disk of many revisions and work trees, queries over many segments,
and the first uncommitted document.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from bench import knowledge, timing
from bench.knowledge import VMRAG, WORDS, plain_document
from bench.timing import Figure
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.embedding.registry import load_model
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.file_access import measure_size
from vmrag_link.index import draft, upkeep
from vmrag_link.index.views import Views
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.sync import build
from vmrag_link.sync.build import Base
from vmrag_link.sync.indexer import Indexer

DOCUMENTS = 10_000
REVISIONS, CHANGED = 50, 100
DISK = 1.8
TREES, TREE_CHANGED = 100, 10
TREES_DISK = 1.3
SEGMENTS = 8
QUERIES = 40
MANY = 1.5
FIRST = 1.3
FIRST_SIZES = (1_000, 100_000)


def run(folder: Path, sizes: list[int], rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = knowledge.make(folder, DOCUMENTS, env)
    figures = [*disk(repo, env), trees(repo, env), *split(repo, env)]
    if set(FIRST_SIZES) <= set(sizes):
        figures.append(first_document(folder, rounds, env))
    return figures


class _Index:
    """The index of a copy of a repository's knowledge base, in a folder of its own."""

    def __init__(self, repo: Path, folder: Path) -> None:
        shutil.copytree(repo / ".git/vmrag/kb", folder / "kb")
        self.engine: Engine = opening.open_engine(folder / "kb")
        self.views = Views(folder / "views")
        self.views.root.mkdir()
        model = load_model("default")
        cache = EmbeddingCache(folder / "embeddings.sqlite")
        self.indexer = Indexer(self.engine, cache, lambda _: model, QUIET)
        self._rng = random.Random(11)
        self.vocabulary = [f"word{number}" for number in range(5000)]

    def bring(self, revision: str, base: str | None) -> Path:
        """The view of a revision, derived from another one."""
        bases = (
            [Base(self.views.view_path(base), base, lambda: self.views.lock_for_reading(self.views.view_path(base)))]
            if base
            else []
        )
        return build.build_view(
            revision, engine=self.engine, existing=self.views, bases=bases, indexer=lambda: self.indexer
        ).path

    def change(self, branch: str, at: str, number: int) -> str:
        """A new revision of a branch in which so many documents are others."""
        rows = [
            plain_document(
                f"d{self._rng.randrange(DOCUMENTS):07d}", " ".join(self._rng.choices(self.vocabulary, k=WORDS))
            )
            for _ in range(number)
        ]
        self.engine.write(branch, Write(put_documents=list({row.key: row for row in rows}.values())), expected=at)
        date = "2026-01-02T03:04:05Z"
        return self.engine.commit(branch, message="change", author="Bench <b@example.com>", date=date, expected=at)

    def bytes(self) -> int:
        self.views.segments.collect_garbage([self.views.root])
        return measure_size(self.views.segments.root) + measure_size(self.views.root)


def _opened(repo: Path, env: dict[str, str]) -> Iterator[tuple[_Index, str]]:
    with tempfile.TemporaryDirectory(dir=repo.parent) as temporary:
        index = _Index(repo, Path(temporary))
        main = knowledge.pinned(repo, "main", env)
        index.bring(main, None)
        yield index, main
        index.engine.close()


def disk(repo: Path, env: dict[str, str]) -> Iterator[Figure]:
    for index, main in _opened(repo, env):
        one, at = index.bytes(), main
        for _ in range(REVISIONS):
            before, at = at, index.change("main", at, CHANGED)
            index.bring(at, before)
        grown = index.bytes()
        upkeep.rewrite_segments(index.views)
        kept = index.bytes()
        name = f"disk of {REVISIONS} revisions, {CHANGED} of {DOCUMENTS:,} documents changed in each, beside one"
        sizes = {"one, MB": one / 1e6, "all, MB": grown / 1e6, "all after upkeep, MB": kept / 1e6}
        yield Figure(f"{name}, as they come", grown / one, None, sizes)
        yield Figure(f"{name}, after upkeep", kept / one, DISK, sizes)


def trees(repo: Path, env: dict[str, str]) -> Figure:
    for index, main in _opened(repo, env):
        one = index.bytes()
        for number in range(TREES):
            index.engine.create_branch(f"tree-{number}", main)
            index.bring(index.change(f"tree-{number}", main, TREE_CHANGED), main)
        all_ = index.bytes()
    name = f"disk of {TREES} work trees, {TREE_CHANGED} of {DOCUMENTS:,} documents changed in each, beside one"
    return Figure(name, all_ / one, TREES_DISK, {"one, MB": one / 1e6, "all, MB": all_ / 1e6})


def split(repo: Path, env: dict[str, str]) -> Iterator[Figure]:
    """A warm query over eight segments of which a third is dead, against one with the same
    documents.
    """
    for index, main in _opened(repo, env):
        at = main
        with mock.patch.object(draft, "choose_absorbed", return_value=[]):
            for _ in range(SEGMENTS - 1):
                before, at = at, index.change("main", at, DOCUMENTS // 2 // (SEGMENTS - 1))
                many = index.bring(at, before)
        one = many.parent.parent / "whole" / "view"
        with draft.Draft(index.views.segments.root) as whole:
            index.indexer.update_index(whole, at, base=None)
            whole.publish(one, revision=at)
        texts = [" ".join(random.Random(n).choices(index.vocabulary, k=4)) for n in range(QUERIES)]
        for mode in (Mode.KEYWORD, Mode.VECTOR, Mode.HYBRID):
            seconds = _in_turn([one, many], [Query(text, k=10, mode=mode) for text in texts])
            figures = {"one segment": seconds[0], f"{SEGMENTS} segments": seconds[1]}
            yield Figure(
                f"a warm {mode} query over {SEGMENTS} segments, a third dead, against one",
                seconds[1] / seconds[0],
                MANY,
                figures,
            )


def _in_turn(folders: Sequence[Path], queries: Sequence[Query]) -> list[float]:
    """The least CPU seconds of each index, asked in turn."""
    model = load_model("default")
    searchers = [Searcher(folder, lambda _: model) for folder in folders]
    best = [float("inf")] * len(folders)
    for _ in range(6):
        for number, searcher in enumerate(searchers):
            start = time.process_time()
            for query in queries:
                searcher.search(query)
            best[number] = min(best[number], time.process_time() - start)
    for searcher in searchers:
        searcher.close()
    return best


def first_document(folder: Path, rounds: int, env: dict[str, str]) -> Figure:
    repos = {size: knowledge.make(folder, size, env) for size in FIRST_SIZES}
    number = 0

    def add(repo: Path) -> timing.Run:
        nonlocal number
        number += 1
        shutil.rmtree(repo / ".git/vmrag/uncommitted", ignore_errors=True)
        (repo / ".git/page.md").write_text(f"page {number} of the bench")
        return timing.once(
            [*VMRAG, "add", ".git/page.md", "--collection", "documents", "--id", "new", "-q"], cwd=repo, env=env
        )

    for repo in repos.values():
        knowledge.git(repo, "switch", "-q", "main", env=env)
        subprocess.run([*VMRAG, "sync", "-q"], cwd=repo, env=env, check=True)
    timed = timing.in_turn({f"{size:,} documents": lambda repo=repo: add(repo) for size, repo in repos.items()}, rounds)
    for repo in repos.values():
        subprocess.run([*VMRAG, "restore", "new", "--collection", "documents", "-q"], cwd=repo, env=env, check=False)
    small, large = (sample.cpu for sample in timed.values())
    return Figure(
        f"the first uncommitted document at {FIRST_SIZES[1]:,} documents, CPU, against {FIRST_SIZES[0]:,}",
        large / small,
        FIRST,
        {name: sample.cpu for name, sample in timed.items()},
    )
