"""Whole processes, timed from outside: wall and CPU seconds.

Things are run in turn, so that a machine that drifts slows them alike.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    wall: float
    cpu: float
    peak_mb: float


def once(argv: Sequence[str], *, cwd: Path, env: dict[str, str] | None = None) -> Run:
    """Run a program once. CPU seconds include its children.

    Raises SystemExit with the output if the program fails.
    """
    start = time.perf_counter()
    with subprocess.Popen(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {child.returncode}:\n{said.decode(errors='replace')}")
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


@dataclass(frozen=True)
class Sample:
    """Several runs of one thing; `wall` and `cpu` are medians, in seconds."""

    runs: tuple[Run, ...]

    @property
    def wall(self) -> float:
        return statistics.median(run.wall for run in self.runs)

    @property
    def cpu(self) -> float:
        return statistics.median(run.cpu for run in self.runs)

    @property
    def peak_mb(self) -> float:
        return max(run.peak_mb for run in self.runs)


def in_turn(things: dict[str, Callable[[], Run]], rounds: int, *, warm_up: int = 1) -> dict[str, Sample]:
    """Each thing once a round, A B C A B C …; the first `warm_up` rounds do not count."""
    runs: dict[str, list[Run]] = {name: [] for name in things}
    for number in range(warm_up + rounds):
        for name, thing in things.items():
            run = thing()
            if number >= warm_up:
                runs[name].append(run)
    return {name: Sample(tuple(samples)) for name, samples in runs.items()}


@dataclass(frozen=True)
class Figure:
    """One line of the report.

    `limit` binds the ratio (None: only reported), from below with `at_least`.
    """

    name: str
    ratio: float
    limit: float | None
    seconds: dict[str, float]
    at_least: bool = False

    @property
    def kept(self) -> bool:
        if self.limit is None:
            return True
        return self.ratio >= self.limit if self.at_least else self.ratio <= self.limit


def growths(seconds: dict[str, dict[int, float]], limit: float) -> list[Figure]:
    """The growth of each thing, whose seconds are given by size, from the smallest size to the
    largest.

    Nothing where there is one size only.
    """
    figures = []
    for name, by_size in seconds.items():
        small, large = min(by_size), max(by_size)
        if small < large:
            ends = {f"{size:,} documents": by_size[size] for size in (small, large)}
            title = f"growth of the {name} from {small:,} to {large:,}"
            figures.append(Figure(title, by_size[large] / by_size[small], limit, ends))
    return figures
