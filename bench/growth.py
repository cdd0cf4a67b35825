"""Cost of a long history: bytes of the knowledge base, of the objects in git, and of a clone."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench import knowledge
from bench.knowledge import VMRAG
from bench.timing import Figure
from vmrag_link import pin as pins
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.models import Document, content_hash

COMMITS = 10_000
CHANGED = 3
WORDS = 300
DOCUMENTS = 1_000
A_PUSH = 10
"""Commits."""

DATE = "2026-01-02T03:04:05Z"

LIMITS = {"knowledge base": 5.0, "what git carries": 2.0, "a clone": 6.0, "what git carries after gc --remote": 2.0}
"""Bytes for each byte of text that was committed."""


def run(folder: Path, env: dict[str, str], commits: int = COMMITS) -> list[Figure]:
    source, place = knowledge.make(folder, DOCUMENTS, env), folder / f"growth-{commits}"
    shutil.rmtree(place, ignore_errors=True)
    writer, bare, clone = (place / name for name in ("writer", "bare.git", "clone"))
    shutil.copytree(source, writer, symlinks=True)
    knowledge.git(place, "init", "-q", "--bare", str(bare), env=env)
    knowledge.git(writer, "remote", "add", "origin", str(bare), env=env)
    _push(writer, env)
    before = _bytes(writer / ".git/vmrag/kb"), _carried(bare, env)
    written = sum(_grow(writer, commits, env))
    held = {
        "knowledge base": _bytes(writer / ".git/vmrag/kb") - before[0],
        "what git carries": _carried(bare, env) - before[1],
    }
    pushes = int(knowledge.git(bare, "rev-list", "--count", "refs/vmrag/data", env=env))
    knowledge.git(place, "clone", "-q", str(bare), str(clone), env=env)
    subprocess.run([*VMRAG, "clone", "-q"], cwd=clone, env=env, check=True)
    held["a clone"] = _bytes(clone / ".git/vmrag/kb") + _bytes(clone / ".git/vmrag/remotes.git") - sum(before)
    subprocess.run([*VMRAG, "gc", "--remote", "--apply", "-q"], cwd=writer, env=env, check=True)
    held["what git carries after gc --remote"] = _carried(bare, env) - before[1]
    after = int(knowledge.git(bare, "rev-list", "--count", "refs/vmrag/data", env=env))
    figures = [
        Figure(
            f"{name}: bytes for each byte of text in {commits:,} commits of {CHANGED} documents",
            size / written,
            LIMITS[name],
            {"MB": size / 1e6, "MB of text": written / 1e6},
        )
        for name, size in held.items()
    ]
    return [*figures, Figure("commits of refs/vmrag/data after gc --remote", after, 1, {"before": pushes})]


def _grow(writer: Path, commits: int, env: dict[str, str]) -> Iterator[int]:
    """Commit, and push now and then; yields the bytes of text of each commit."""
    rng = random.Random(7)
    for begin in range(0, commits, A_PUSH):
        engine = DoltliteEngine.open(writer / ".git/vmrag/kb")
        revision = knowledge.head(engine, "main")
        for number in range(begin, min(commits, begin + A_PUSH)):
            rows = [_document(page, rng) for page in rng.sample(range(DOCUMENTS), CHANGED)]
            engine.write("main", Write(put_documents=rows), expected=revision)
            revision = engine.commit(
                "main", message=f"change {number}", author="B <b@example.com>", date=DATE, expected=revision
            )
            yield sum(len(row.content) for row in rows)
        engine.close()
        pin = pins.update_pin(None, remote="git:", branch="main", commit=revision, committed_at=DATE)
        (writer / ".dolt-version").write_bytes(pins.format_pin(pin))
        knowledge.git(writer, "commit", "-q", "-am", f"change {begin}", env=env)
        _push(writer, env)


def _document(number: int, rng: random.Random) -> Document:
    text = " ".join(f"word{rng.randrange(5000)}" for _ in range(WORDS))
    return Document("documents", f"d{number:07d}", f"d{number:07d}", text, content_hash(text))


def _push(writer: Path, env: dict[str, str]) -> None:
    subprocess.run([*VMRAG, "push", "-q"], cwd=writer, env=env, check=True)
    knowledge.git(writer, "push", "-q", "origin", "main", env=env)


def _carried(bare: Path, env: dict[str, str]) -> int:
    """The packs, as a host keeps them."""
    knowledge.git(bare, "gc", "-q", "--prune=now", env=env)
    return _bytes(bare / "objects")


def _bytes(folder: Path) -> int:
    listing = subprocess.run(["du", "-sb", folder], capture_output=True, text=True, check=True)
    return int(listing.stdout.split()[0])
