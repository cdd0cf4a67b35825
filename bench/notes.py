"""Measure the cost of notes: of a write, of the query after it, and of `git status` with 10,000."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from bench import timing
from bench.knowledge import VMRAG, git, make
from bench.timing import Figure, Run, once

NOTES = 10_000
SETTINGS = """\
embedding:
  model: default
sources:
  - collection: notes
    paths: [".vmrag/notes/"]
    write: true
"""
WRITE, ASK, STATUS, STORED = 1.6, 1.3, 1.1, 1.0
STATUS_SECONDS = 0.020
"""Added to the limit of `git status`."""


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    env = {**env, "VMRAG_SOURCES": '[{"collection":"notes","paths":[".vmrag/notes/"],"write":true}]'}
    few, many = _repository(folder, 100, env), _repository(folder, NOTES, env)
    return [*_writing(few, rounds, env), _status(few, many, rounds, env), _stored(folder, many, rounds, env)]


def _repository(folder: Path, notes: int, env: dict[str, str]) -> Path:
    """Return a repository with so many committed notes; made once."""
    repo = folder / f"notes-{notes}"
    if (repo / ".git" / "ready").exists():
        return repo
    shutil.rmtree(repo, ignore_errors=True)
    (repo / ".vmrag" / "notes").mkdir(parents=True)
    git(repo, "init", "-q", env=env)
    (repo / ".vmrag.yaml").write_text(SETTINGS)
    for number in range(notes):
        text = f"# Decision {number}\n\nWe chose variant {number % 97} of part {number % 89}, because it is smaller.\n"
        (repo / ".vmrag" / "notes" / f"decision-{number}.md").write_text(text)
    git(repo, "add", "-A", env=env)
    git(repo, "commit", "-q", "-m", "notes", env=env)
    once([*VMRAG, "query", "variant"], cwd=repo, env=env)
    (repo / ".git" / "ready").touch()
    return repo


def _writing(repo: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    numbers = itertools.count()

    def write() -> Run:
        return once([*VMRAG, "add", "-m", f"Note {next(numbers)}", "--replace"], cwd=repo, env=env)

    ask = [*VMRAG, "query", "variant of part"]
    samples = timing.in_turn(
        {
            "start": lambda: once([*VMRAG, "--version"], cwd=repo, env=env),
            "write": write,
            "query after it": lambda: once(ask, cwd=repo, env=env),
            "query": lambda: once(ask, cwd=repo, env=env),
        },
        rounds,
    )
    seconds = {name: sample.cpu for name, sample in samples.items()}
    return [
        Figure("writing a note, CPU, in starts", seconds["write"] / seconds["start"], WRITE, seconds),
        Figure(
            "query after a note, CPU, against one after none", seconds["query after it"] / seconds["query"], ASK, {}
        ),
    ]


def _status(few: Path, many: Path, rounds: int, env: dict[str, str]) -> Figure:
    samples = timing.in_turn(
        {
            "few": lambda: once(["git", "status", "--porcelain"], cwd=few, env=env),
            "many": lambda: once(["git", "status", "--porcelain"], cwd=many, env=env),
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in samples.items()}
    ratio = (seconds["many"] - STATUS_SECONDS) / seconds["few"]
    return Figure(f"git status with {NOTES:,} notes, less 20 ms, against 100", ratio, STATUS, seconds)


def _stored(folder: Path, many: Path, rounds: int, env: dict[str, str]) -> Figure:
    """Compare a note with a stored document; each is added to ten thousand others."""
    base = make(folder, NOTES, env)
    numbers = itertools.count()

    def add(repo: Path, *options: str) -> Run:
        name = f"new-{next(numbers)}"
        return once([*VMRAG, "add", "-m", f"New text {name}.", "--id", name, *options], cwd=repo, env=env)

    collection = "docs"
    samples = timing.in_turn(
        {"note": lambda: add(many), "stored": lambda: add(base, "--collection", collection)}, rounds
    )
    seconds = {name: sample.cpu for name, sample in samples.items()}
    name = f"adding a note to {NOTES:,}, CPU, against a stored document"
    return Figure(name, seconds["note"] / seconds["stored"], STORED, seconds)
