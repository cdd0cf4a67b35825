"""Cost of the N-th work tree: `git worktree add` with our hooks against the same without, its
first query against one in the main work tree, and the disk space of vmrag for it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run
from vmrag_link.file_access import measure_size

DOCUMENTS = 1_000
TREES = 200
QUERY = [*VMRAG, "query", "--mode", "keyword", "word1"]

ADD = None
"""A start of Python is many times `git worktree add` of a few files; see `GROWTH`."""

FIRST_QUERY = 1.3
GROWTH = 1.3
DISK_KB = 1.0


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo, trees = knowledge.make(folder, DOCUMENTS, env), folder / "trees"
    shutil.rmtree(trees, ignore_errors=True)
    knowledge.git(repo, "worktree", "prune", env=env)
    knowledge.git(repo, "switch", "-q", "main", env=env)
    timing.once([*VMRAG, "install"], cwd=repo, env=env)
    first = _measured(repo, trees, "first", rounds, env)
    before = _disk(repo)
    tree_count = len(list((repo / ".git/worktrees").iterdir()))
    for number in range(tree_count, TREES):
        _add(repo, trees / f"{number}", env)
    kilobytes = (_disk(repo) - before) / (TREES - tree_count) / 1000
    last = _measured(repo, trees, "last", rounds, env)
    for path in trees.iterdir():
        knowledge.git(repo, "worktree", "remove", "--force", str(path), env=env)
    knowledge.git(repo, "config", "core.hooksPath", "/dev/null", env=env)
    figures = []
    for name, seconds in (("1st", first), (f"{TREES}th", last)):
        figures.append(
            Figure(
                f"git worktree add with our hooks, {name}, CPU against it without",
                _ratio(seconds, "hooks", "plain"),
                ADD,
                seconds,
            )
        )
        figures.append(
            Figure(
                f"first query of the {name} work tree, CPU against one in the main one",
                _ratio(seconds, "query", "main"),
                FIRST_QUERY,
                seconds,
            )
        )
    for name in ("hooks", "query"):
        ends = {"1st": first[name], f"{TREES}th": last[name]}
        figures.append(Figure(f"growth to {TREES} work trees: {name}", last[name] / first[name], GROWTH, ends))
    return [*figures, Figure("disk of ours for a work tree, kB", kilobytes, DISK_KB, {})]


def _ratio(seconds: dict[str, float], one: str, other: str) -> float:
    return seconds[one] / seconds[other]


def _measured(repo: Path, trees: Path, name: str, rounds: int, env: dict[str, str]) -> dict[str, float]:
    """CPU seconds of each, medians; `query`: the first in a work tree added without hooks."""
    number = iter(range(1_000))
    off = env | {"VMRAG": "0"}

    def query() -> Run:
        tree = trees / f"{name}-query-{next(number)}"
        _add(repo, tree, off)
        return timing.once(QUERY, cwd=tree, env=env)

    timed = timing.in_turn(
        {
            "plain": lambda: _add(repo, trees / f"{name}-plain-{next(number)}", off, "-c", "core.hooksPath=/dev/null"),
            "hooks": lambda: _add(repo, trees / f"{name}-hooks-{next(number)}", env),
            "query": query,
            "main": lambda: timing.once(QUERY, cwd=repo, env=env),
        },
        rounds,
    )
    return {case: sample.cpu for case, sample in timed.items()}


def _add(repo: Path, tree: Path, env: dict[str, str], *options: str) -> Run:
    argv = ["git", *options, "worktree", "add", "-q", "-b", tree.name, str(tree), "main"]
    if (repo / ".git/refs/heads" / tree.name).exists():
        knowledge.git(repo, "branch", "-q", "-D", tree.name, env=env)
    return timing.once(argv, cwd=repo, env=env)


def _disk(repo: Path) -> int:
    """Return the disk space of vmrag for all work trees."""
    folders = (path / "vmrag" for path in (repo / ".git/worktrees").iterdir())
    return measure_size(repo / ".git/vmrag") + sum(measure_size(folder) for folder in folders if folder.is_dir())
