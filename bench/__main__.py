"""`python -m bench [--into DIR] [--sizes 1000,10000]`: measure, print a table, write JSON.

Exit code 1 if a limit is broken.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import (
    action,
    api,
    chroma_server,
    engines,
    growth,
    hooks,
    importing,
    issue_logs,
    knowledge,
    links,
    mcp,
    merge,
    migrate,
    notes,
    parallel,
    query,
    segments,
    sources,
    switch,
    team,
    travel,
    verify,
    words,
    worktrees,
)
from bench import report as reports
from bench.timing import Figure

RESULTS = Path(__file__).parent / "results"

Part = Callable[[Path, list[int], int, dict[str, str]], list[Figure]]

PARTS: dict[str, Part] = {
    "switch": switch.run,
    "segments": segments.run,
    "notes": lambda folder, _, rounds, env: notes.run(folder, rounds, env),
    "sources": lambda folder, _, rounds, env: sources.run(folder, rounds, env),
    "hooks": lambda folder, _, rounds, env: hooks.run(folder, rounds, env),
    "query": lambda folder, sizes, _, env: query.run(folder, sizes, env),
    "api": lambda folder, _, rounds, env: api.run(folder, rounds, env),
    "words": lambda folder, sizes, _, env: words.run(folder, sizes, env),
    "merge": merge.run,
    "worktrees": lambda folder, _, rounds, env: worktrees.run(folder, rounds, env),
    "links": lambda folder, _, rounds, env: links.run(folder, rounds, env),
    "verify": lambda folder, _, rounds, env: verify.run(folder, rounds, env),
    "travel": travel.run,
    "mcp": lambda folder, _, rounds, env: mcp.run(folder, rounds, env),
    "importing": lambda folder, _, rounds, env: importing.run(folder, rounds, env),
    "action": action.run,
    "engines": engines.run,
    "chroma_server": lambda folder, _, rounds, env: chroma_server.run(folder, rounds, env),
    "issue_logs": lambda folder, _, rounds, env: issue_logs.run(folder, rounds, env),
    "report": lambda folder, _, rounds, env: reports.run(folder, rounds, env),
    "team": lambda folder, sizes, _, env: team.run(folder, sizes, env),
    "migrate": lambda folder, _, __, env: migrate.run(folder, env),
    "growth": lambda folder, _, __, env: growth.run(folder, env),
    "parallel": lambda folder, _, __, env: parallel.run(folder, env),
}
USUAL = [name for name in PARTS if name not in ("growth", "parallel")]
"""A thousand pushes take a quarter of an hour, and so do sixteen agents."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--into", type=Path, help="keep the repositories here, for the next run")
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of documents")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(USUAL))
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    parts = given.only.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.into or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        env = knowledge.environment(folder / "home")
        figures: list[Figure] = []
        for name in parts:
            figures += PARTS[name](folder, sizes, given.rounds, env)
    report(figures)
    return 0 if all(figure.kept for figure in figures) else 1


def report(figures: list[Figure]) -> None:
    print(f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}, Python {platform.python_version()}\n")
    print("| what | ratio | limit | kept | seconds |\n|---|---|---|---|---|")
    for figure in figures:
        sign = "≥" if figure.at_least else "≤"
        limit = f"{sign} {figure.limit:g}" if figure.limit is not None else "-"
        seconds = ", ".join(f"{name} {value:.4g}" for name, value in figure.seconds.items())
        print(f"| {figure.name} | {figure.ratio:.2f} | {limit} | {'yes' if figure.kept else '**no**'} | {seconds} |")
    RESULTS.mkdir(exist_ok=True)
    rows = [dataclasses.asdict(figure) | {"kept": figure.kept} for figure in figures]
    (RESULTS / "latest.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
