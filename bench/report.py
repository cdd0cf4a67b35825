"""A report of two branches of which 100 documents differ, against `vmrag diff` of the same."""

from __future__ import annotations

from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure

DOCUMENTS = 10_000
LIMIT = 3.0
PLACES = ("main", "feature")


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = knowledge.make(folder, DOCUMENTS, env)
    files = ["--html", str(folder / "report.html"), "--markdown", str(folder / "report.md")]
    commands = {
        "diff": ["diff", *PLACES],
        "report": ["report", *PLACES],
        "with page and summary": ["report", *PLACES, *files],
    }
    timed = timing.in_turn(
        {
            name: lambda command=command: timing.once([*VMRAG, *command], cwd=repo, env=env)
            for name, command in commands.items()
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    title = f"report of {knowledge.DIFFERENT} of {DOCUMENTS:,} documents, against vmrag diff"
    return [
        Figure(title, seconds["report"] / seconds["diff"], LIMIT, seconds),
        Figure(f"{title}: with page and summary", seconds["with page and summary"] / seconds["diff"], LIMIT, seconds),
    ]
