"""Issue logs beside as many plain documents of the same texts: a diff, a merge, a sync."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from pathlib import Path

from bench import knowledge, timing
from bench.knowledge import VMRAG
from bench.switch import remove_views
from bench.timing import Figure, Run
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.merging import threeway

LOGS = 8_000
LIMIT = 1.2
OTHER = "other"


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repos = {name: knowledge.make(folder, LOGS, env, logs=name == "logs") for name in ("logs", "documents")}
    for repo in repos.values():
        _changed_otherwise(repo)
    figures = []
    for what, step in (("diff", _diff), ("merge", _merge), ("sync", _sync)):
        things: dict[str, Callable[[], Run]] = {
            name: lambda repo=repo, step=step: step(repo, env) for name, repo in repos.items()
        }
        seconds = {name: sample.wall for name, sample in timing.in_turn(things, rounds).items()}
        title = f"{what} of {LOGS:,} issue logs, {knowledge.DIFFERENT} differ: against as many documents"
        figures.append(Figure(title, seconds["logs"] / seconds["documents"], LIMIT, seconds))
    return figures


def _changed_otherwise(repo: Path) -> None:
    """A branch on which other documents differ than on `feature`."""
    with contextlib.closing(_engine(repo)) as engine:
        if engine.find_branch(OTHER):
            return
        main = knowledge.head(engine, "main")
        ids = [header.doc_id for header in engine.read_headers(main)]
        made = knowledge.issue_log if "logs" in repo.name else knowledge.plain_document
        changed = [made(doc_id, f"changed {doc_id}") for doc_id in ids[1 :: len(ids) // knowledge.DIFFERENT]]
        engine.create_branch(OTHER, main)
        engine.write(OTHER, Write(put_documents=changed), expected=main)
        engine.commit(OTHER, message=OTHER, author="B <b@example.com>", date="2026-01-01T00:00:00Z", expected=main)


def _engine(repo: Path) -> Engine:
    return opening.open_engine(repo / ".git/vmrag/kb")


def _diff(repo: Path, env: dict[str, str]) -> Run:
    return timing.once([*VMRAG, "diff", "main", "feature", "--stat"], cwd=repo, env=env)


def _merge(repo: Path, _: dict[str, str]) -> Run:
    """In this process, without its start: what differs on both sides, and the rows stored."""
    with contextlib.closing(_engine(repo)) as engine:
        base, ours, theirs = (knowledge.head(engine, name) for name in ("main", "feature", OTHER))
        start, cpu = time.perf_counter(), time.process_time()
        merged = threeway.merge(engine, base=base, ours=ours, theirs=theirs)
        assert len(list(merged.rows.put_documents)) >= knowledge.DIFFERENT
        engine.commit_onto(
            ours, [merged.rows], joining=theirs, message="m", author="B <b@example.com>", date="2026-01-02T00:00:00Z"
        )
        durations = time.perf_counter() - start, time.process_time() - cpu
    return Run(*durations, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _sync(repo: Path, env: dict[str, str]) -> Run:
    knowledge.git(repo, "switch", "-q", "feature", env=env)
    remove_views(repo, knowledge.pinned(repo, "feature", env))
    sync_run = timing.once([*VMRAG, "sync", "-q"], cwd=repo, env=env)
    knowledge.git(repo, "switch", "-q", "main", env=env)
    timing.once([*VMRAG, "sync", "-q"], cwd=repo, env=env)
    return sync_run
