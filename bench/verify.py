"""Cost of verifying a long history of pins, against git's own walk over it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure
from vmrag_link import pin as pins
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.models import Collection

COMMITS = 10_000
PINS = 500
LIMIT = 4.0
START = 1_700_000_000
AUTHOR = "Bench <bench@example.com>"
DATE = "2026-01-02T03:04:05Z"


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = folder / f"verified-{COMMITS}"
    if not (repo / "done").exists():
        make(repo, env)
    timed = timing.in_turn(
        {
            "vmrag verify": lambda: timing.once([*VMRAG, "verify", "main", "-q"], cwd=repo, env=env),
            "git log --raw": lambda: timing.once(["git", "log", "--raw", "--format=%H"], cwd=repo, env=env),
            "vmrag --version": lambda: timing.once([*VMRAG, "--version"], cwd=repo, env=env),
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    return [
        Figure(
            f"verify of {COMMITS:,} commits, {PINS} of them merges, with {PINS} pins: against git log --raw, one start taken off",
            (seconds["vmrag verify"] - seconds["vmrag --version"]) / seconds["git log --raw"],
            LIMIT,
            seconds,
        )
    ]


def make(repo: Path, env: dict[str, str]) -> None:
    """A history in which every twentieth commit moves the pin on a branch that is merged later."""
    repo.mkdir(parents=True)
    knowledge.git(repo, "init", "-q", "-b", "main", env=env)
    timing.once([*VMRAG, "init", "--knowledge-base", "--no-sources", "-q", "--no-hooks"], cwd=repo, env=env)
    stream = b"".join(_stream(_revisions(repo / ".git/vmrag/kb")))
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=repo, env=env, input=stream, check=True)
    knowledge.git(repo, "reset", "-q", "--hard", env=env)
    (repo / "done").touch()


def _revisions(kb: Path) -> list[str]:
    """One after the other, each with another collection."""
    engine = DoltliteEngine.open(kb)
    made = [knowledge.head(engine, "main")]
    for number in range(PINS):
        engine.write("main", Write(put_collections=[Collection(f"c{number}")]), expected=made[-1])
        made.append(engine.commit("main", message="more", author=AUTHOR, date=DATE, expected=made[-1]))
    engine.close()
    return made[1:]


def _stream(revisions: list[str]) -> Iterator[bytes]:
    block = COMMITS // PINS
    tip = 0
    for number, revision in enumerate(revisions):
        first = number * block + 1
        pin = pins.format_pin(
            pins.update_pin(None, remote="git:", branch="main", commit=revision, committed_at=DATE),
        )
        side, last = first, first + block - 1
        yield _commit(side, [tip] if tip else [], b".dolt-version", pin)
        for mark in range(first + 1, last):
            yield _commit(
                mark, [tip if mark == first + 1 and tip else mark - 1], f"src/{mark % 200}.py".encode(), b"%d" % mark
            )
        yield _commit(last, [last - 1, side], b".dolt-version", pin)
        tip = last


def _commit(mark: int, parents: list[int], path: bytes, content: bytes) -> bytes:
    """`parents`: marks, ours first."""
    names = ["from", *["merge"] * len(parents)]
    lines = "".join(f"{name} :{parent}\n" for name, parent in zip(names, parents, strict=False))
    return (
        f"commit refs/heads/main\nmark :{mark}\ncommitter {AUTHOR} {START + mark * 60} +0000\ndata 4\nwork\n{lines}".encode()
        + b"M 100644 inline %s\ndata %d\n%s\n" % (path, len(content), content)
    )
