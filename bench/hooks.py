"""What the hooks cost git when there is nothing to do, against hooks whose body is `exit 0`."""

from __future__ import annotations

from pathlib import Path

from bench import knowledge, timing
from bench.timing import Figure, Run, Sample

ADDED = 4.0
REBASE = 1.2
COMMITS = 10
CHECKOUTS = 20


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = knowledge.make(folder, 1_000, env)
    hooks = {name: _hooks(folder, repo, name, env) for name in ("none", "exit 0", "ours")}
    if "pin/a" not in knowledge.git(repo, "branch", "--list", "pin/*", env=env):
        _branches(repo, env)
    checkout = {name: _checkouts(repo, path, env) for name, path in hooks.items()}
    rebase = {name: _rebase(repo, path, env) for name, path in hooks.items()}
    return [*_added(timing.in_turn(checkout, rounds)), *_rebased(timing.in_turn(rebase, rounds))]


def _added(timed: dict[str, Sample]) -> list[Figure]:
    seconds = {name: sample.cpu / CHECKOUTS for name, sample in timed.items()}
    ratio = (seconds["ours"] - seconds["none"]) / (seconds["exit 0"] - seconds["none"])
    return [Figure("CPU that the shims add to git checkout, against `exit 0`", ratio, ADDED, seconds)]


def _rebased(timed: dict[str, Sample]) -> list[Figure]:
    seconds = {name: sample.cpu for name, sample in timed.items()}
    return [
        Figure("CPU of a ten-commit rebase, against `exit 0`", seconds["ours"] / seconds["exit 0"], REBASE, seconds)
    ]


def _hooks(folder: Path, repo: Path, name: str, env: dict[str, str]) -> Path:
    from vmrag_hooks import shims

    path = folder / f"hooks-{name.replace(' ', '-')}"
    path.mkdir(exist_ok=True)
    for hook in shims.HOOKS if name != "none" else ():
        (path / hook).write_bytes(shims.text(hook) if name == "ours" else b"#!/bin/sh\nexit 0\n")
        (path / hook).chmod(0o755)
    knowledge.git(repo, "config", "core.hooksPath", str(path), env=env)
    return path


def _branches(repo: Path, env: dict[str, str]) -> None:
    """Branches with one pin: `pin/a`, `pin/b` to go between, `pin/topic` of ten commits to rebase onto `pin/b`."""
    knowledge.git(repo, "switch", "-q", "main", env=env)
    for name in ("pin/a", "pin/b", "pin/topic"):
        knowledge.git(repo, "switch", "-q", "-c", name, "main", env=env)
        for number in range(COMMITS if name == "pin/topic" else 1):
            (repo / f"{name.removeprefix('pin/')}-{number}").write_text("code")
            knowledge.git(repo, "add", "-A", env=env)
            knowledge.git(repo, "commit", "-q", "-m", f"{name} {number}", env=env)
    knowledge.git(repo, "switch", "-q", "main", env=env)


def _checkouts(repo: Path, hooks: Path, env: dict[str, str]):
    """Detached heads with one pin: HEAD's name and the pin stay as applied."""

    def measure() -> Run:
        knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "checkout", "-q", "--detach", "pin/a", env=env)
        _apply(repo)
        there = "git checkout -q --detach pin/b; git checkout -q --detach pin/a; " * (CHECKOUTS // 2)
        knowledge.git(repo, "config", "core.hooksPath", str(hooks), env=env)
        return timing.once(["sh", "-ec", there], cwd=repo, env=env)

    return measure


def _rebase(repo: Path, hooks: Path, env: dict[str, str]):
    def measure() -> Run:
        knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "switch", "-q", "-C", "work", "pin/topic", env=env)
        _apply(repo)
        knowledge.git(repo, "config", "core.hooksPath", str(hooks), env=env)
        return timing.once(["git", "rebase", "-q", "pin/b"], cwd=repo, env=env)

    return measure


def _apply(repo: Path) -> None:
    """Note HEAD and pin as applied, as the last sync would have."""
    from vmrag_link.git import plumbing
    from vmrag_link.sync import binding, resolve

    places = plumbing.locate(repo)
    binding.note_applied(places, resolve.read_trigger(places))
