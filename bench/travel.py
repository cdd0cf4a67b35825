"""The time to push and fetch 10 changed documents through git, against a text with 10 changed
lines.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure, Run, Sample
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.models import Document, content_hash

CHANGED = 10
LINES = 2_000
GROWTH = 4.0
"""The limit for a push and a fetch from 1,000 to 100,000 documents: both read the whole file once.
"""


def run(folder: Path, sizes: list[int], rounds: int, env: dict[str, str]) -> list[Figure]:
    figures: list[Figure] = []
    seconds: dict[str, dict[int, float]] = {"push": {}, "fetch": {}}
    for size in sizes:
        stage = Stage(folder, size, env)
        first = stage.first_push()
        figures.append(
            Figure(
                f"first push of {size:,} documents, {stage.bytes_there() / 1e6:.1f} MB there",
                first.wall,
                None,
                {"push": first.wall},
            )
        )
        before = stage.bytes_there()
        timed = stage.measured(rounds)
        for name, by_size in seconds.items():
            ours, git = timed[f"vmrag {name}"].wall, timed[f"git {name}"].wall
            by_size[size] = ours
            figures.append(
                Figure(
                    f"{name} of {CHANGED} changed of {size:,} documents: against git {name} of a text",
                    ours / git,
                    None,
                    {name: ours, f"git {name}": git},
                )
            )
        grown = (stage.bytes_there() - before - stage.text_bytes) / stage.pushes / 1000
        figures.append(Figure(f"growth of the remote for each push, kB, {size:,} documents", grown, None, {}))
    return figures + timing.growths(seconds, GROWTH)


class Stage:
    """Two clones, and the bare repository between them."""

    def __init__(self, folder: Path, size: int, env: dict[str, str]) -> None:
        source, self.folder, self.env = knowledge.make(folder, size, env), folder / f"travel-{size}", env
        shutil.rmtree(self.folder, ignore_errors=True)
        self.bare, self.writer, self.reader = (self.folder / name for name in ("bare.git", "writer", "reader"))
        shutil.copytree(source, self.writer, symlinks=True)
        self.git(self.folder, "init", "-q", "--bare", str(self.bare))
        self.git(self.writer, "remote", "add", "origin", str(self.bare))
        self.git(self.writer, "switch", "-q", "main")
        self.commit_text("start")
        self.pushes = 0
        self.text_bytes = 0

    def git(self, where: Path, *arguments: str) -> str:
        return knowledge.git(where, *arguments, env=self.env)

    def first_push(self) -> Run:
        push_run = timing.once([*VMRAG, "push", "-q"], cwd=self.writer, env=self.env)
        self.git(self.writer, "push", "-q", "origin", "main")
        self.git(self.writer, "fetch", "-q", "origin")
        shutil.copytree(self.writer, self.reader, symlinks=True)
        return push_run

    def measured(self, rounds: int) -> dict[str, Sample]:
        return timing.in_turn(
            {
                "vmrag push": self.push,
                "git push": self.git_push,
                "vmrag fetch": lambda: timing.once([*VMRAG, "fetch", "-q"], cwd=self.reader, env=self.env),
                "git fetch": lambda: timing.once(
                    ["git", "fetch", "-q", "origin", "main"], cwd=self.reader, env=self.env
                ),
            },
            rounds,
        )

    def push(self) -> Run:
        engine = DoltliteEngine.open(self.writer / ".git/vmrag/kb")
        head = knowledge.head(engine, "main")
        self.pushes += 1
        rows = [_document(f"d{number * 97:07d}", _text(f"push {self.pushes}", number)) for number in range(CHANGED)]
        engine.write("main", Write(put_documents=rows), expected=head)
        engine.commit("main", message="push", author="B <b@example.com>", date="2026-01-02T03:04:05Z", expected=head)
        engine.close()
        return timing.once([*VMRAG, "push", "-q"], cwd=self.writer, env=self.env)

    def git_push(self) -> Run:
        self.commit_text(f"push {self.pushes}")
        before = self.bytes_there()
        push_run = timing.once(["git", "push", "-q", "origin", "main"], cwd=self.writer, env=self.env)
        self.text_bytes += self.bytes_there() - before
        return push_run

    def commit_text(self, what: str) -> None:
        """Ten of the lines are others each time, as long as the documents."""
        lines = [f"line {number}" for number in range(LINES)]
        for number in range(CHANGED):
            lines[number * 97] = _text(what, number)
        (self.writer / "texts.txt").write_text("\n".join(lines) + "\n")
        self.git(self.writer, "add", "texts.txt")
        self.git(self.writer, "commit", "-q", "-m", what)

    def bytes_there(self) -> int:
        listing = subprocess.run(["du", "-sb", self.bare / "objects"], capture_output=True, text=True, check=True)
        return int(listing.stdout.split()[0])


def _text(what: str, number: int) -> str:
    words = random.Random(f"{what} {number}")
    return " ".join(f"word{words.randrange(5000)}" for _ in range(knowledge.WORDS))


def _document(doc_id: str, text: str) -> Document:
    return Document("documents", doc_id, doc_id, text, content_hash(text))
