"""A knowledge base with a long history, moved to Dolt and back: against committing as much."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.timing import Figure
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.own_branches import read_root
from vmrag_link.models import Document

COMMITS = 1_000
CHANGED = 3
DOCUMENTS = 1_000
LIMIT = 4.0
DATE = "2026-01-02T03:04:05Z"
AUTHOR = "B <b@example.com>"


def run(folder: Path, env: dict[str, str], commits: int = COMMITS) -> list[Figure]:
    if shutil.which("dolt") is None:
        print("dolt is not on PATH: nothing is measured of it", file=sys.stderr)
        return []
    env = env | {"DOLT_ROOT_PATH": env["HOME"], "PATH": os.environ["PATH"]}
    source, place = knowledge.make(folder, DOCUMENTS, env), folder / f"migrate-{commits}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place / "repo", symlinks=True)
    with contextlib.closing(opening.open_engine(place / "repo/.git/vmrag/kb")) as engine:
        documents = list(engine.read_documents(knowledge.head(engine, "main")))
        _commit(engine, "main", documents, commits)
    figures = []
    targets: tuple[EngineName, ...] = ("dolt", "doltlite")
    for to in targets:
        bare = _bare(place / f"bare-{to}", to, documents, commits)
        size = _bytes(place / "repo/.git/vmrag/kb")
        moved = timing.once([*VMRAG, "migrate", "--to", to, "-q"], cwd=place / "repo", env=env)
        title = f"migrate --to {to}, {commits:,} revisions of {CHANGED} documents: against committing them there"
        numbers = {
            "migrate": moved.wall,
            "commits": bare,
            "revisions a second": commits / moved.wall,
            "MB before": size / 1e6,
            "MB after": _bytes(place / "repo/.git/vmrag/kb") / 1e6,
            "peak MB": moved.peak_mb,
        }
        figures.append(Figure(title, moved.wall / bare, LIMIT, numbers))
        shutil.rmtree(place / f"bare-{to}")
    return figures


def _bare(folder: Path, to: EngineName, documents: list[Document], commits: int) -> float:
    """Seconds for as many commits of as many documents in a new knowledge base, in one process."""
    with contextlib.closing(opening.create_engine(to, folder, author=AUTHOR, date=DATE)) as engine:
        engine.create_branch("main", read_root(engine))
        began = time.perf_counter()
        engine.write("main", Write(put_documents=documents), expected=read_root(engine))
        engine.commit("main", message="all", author=AUTHOR, date=DATE, expected=read_root(engine))
        _commit(engine, "main", documents, commits)
        return time.perf_counter() - began


def _commit(engine: Engine, branch: str, documents: list[Document], commits: int) -> None:
    head = knowledge.head(engine, branch)
    for number in range(commits):
        some = (documents[(number * CHANGED + offset) % len(documents)] for offset in range(CHANGED))
        rows = [knowledge.plain_document(document.doc_id, f"{number} {document.content}") for document in some]
        engine.write(branch, Write(put_documents=rows), expected=head)
        head = engine.commit(branch, message=f"{number}", author=AUTHOR, date=DATE, expected=head)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
