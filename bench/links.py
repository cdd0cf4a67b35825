"""The time to derive the table of links from a long history, against git's own walk over it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run
from vmrag_link import pin as pins

COMMITS = 10_000
PINS = 500
LIMIT = 4.0
START = 1_700_000_000


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = folder / f"history-{COMMITS}"
    if not repo.exists():
        make(repo, env)

    def rebuild() -> Run:
        """From an empty table: all rows have to be written."""
        shutil.rmtree(repo / ".git/vmrag/kb")
        shutil.copytree(repo / "kb-without-links", repo / ".git/vmrag/kb")
        return timing.once([*VMRAG, "links", "rebuild", "-q"], cwd=repo, env=env)

    timed = timing.in_turn(
        {
            "vmrag links rebuild": rebuild,
            "again": lambda: timing.once([*VMRAG, "links", "rebuild", "-q"], cwd=repo, env=env),
            "git log --raw": lambda: timing.once(["git", "log", "--raw", "--format=%H"], cwd=repo, env=env),
            "vmrag --version": lambda: timing.once([*VMRAG, "--version"], cwd=repo, env=env),
        },
        rounds,
    )
    seconds = {name: sample.wall for name, sample in timed.items()}
    git, start = seconds["git log --raw"], seconds["vmrag --version"]
    names = {"vmrag links rebuild": "links of {:,} commits with {} pins", "again": "links again, nothing new"}
    return [
        Figure(
            f"{title.format(COMMITS, PINS)}: against git log --raw, one start taken off",
            (seconds[name] - start) / git,
            LIMIT,
            {name: seconds[name], "git log --raw": git, "vmrag --version": start},
        )
        for name, title in names.items()
    ]


def make(repo: Path, env: dict[str, str]) -> None:
    """A straight history in which every twentieth commit moves the pin."""
    repo.mkdir(parents=True)
    knowledge.git(repo, "init", "-q", "-b", "main", env=env)
    timing.once([*VMRAG, "init", "--knowledge-base", "--no-sources", "-q", "--no-hooks"], cwd=repo, env=env)
    shutil.copytree(repo / ".git/vmrag/kb", repo / "kb-without-links")
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo, env=env, input=_stream(), check=True)
    knowledge.git(repo, "reset", "-q", "--hard", env=env)


def _stream() -> bytes:
    parts = []
    for number in range(COMMITS):
        code = f"line {number}\n".encode()
        who = f"Bench <bench@example.com> {START + number * 60} +0000"
        parts.append(f"commit refs/heads/main\nmark :{number + 1}\ncommitter {who}\ndata 4\nwork\n".encode())
        if number:
            parts.append(f"from :{number}\n".encode())
        parts.append(f"M 100644 inline src/file-{number % 200}.py\ndata {len(code)}\n".encode() + code + b"\n")
        if number % (COMMITS // PINS) == 0:
            revision = hashlib.sha1(code).hexdigest()
            pin = pins.format_pin(
                pins.update_pin(
                    None, remote="git:", branch="main", commit=revision, committed_at="2026-01-02T03:04:05Z"
                )
            )
            parts.append(f"M 100644 inline .dolt-version\ndata {len(pin)}\n".encode() + pin + b"\n")
    return b"".join(parts)
