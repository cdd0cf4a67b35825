"""Build an index in a separate process, while `search` answers from words and names.

python -m vmrag_link.toolsets.essential.index_build [COMMIT]

It runs in the work tree, and indexes its files and documents, or those of a commit. It ends with
the server that started it. It builds in steps, so finished steps survive a kill.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from vmrag_hooks.boundary import run_guarded
from vmrag_link import env, proc
from vmrag_link.index.directories import remove_orphaned_lock
from vmrag_link.paths import Places
from vmrag_link.progress import BUILDING, EMBEDDING, INDEXING, QUIET, Progress, Task
from vmrag_link.sync import background
from vmrag_link.sync.background import Job, WatchedProgress
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.follow.search_scope import ranked_at

MAX_OWN_WORK: Mapping[str, int] = {BUILDING: 200, INDEXING: 200, EMBEDDING: 1_000}
"""Maximum number of documents, files and texts that a search indexes itself, by task."""

WAIT_SECONDS = 2.0
"""Maximum time that a search waits for an index."""

MAX_AWAITED_DOCUMENTS = 1_000
"""Maximum number of documents of an index for which a search waits."""

MODULE = "vmrag_link.toolsets.essential.index_build"
NICENESS = 5

_starting = threading.Lock()


class TooManyDocuments(Exception):
    """An answer cannot wait for the index. `size` is the number of documents or texts to index."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class ImpatientProgress:
    """A `Progress` that raises `TooManyDocuments` for more work than `MAX_OWN_WORK`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        if total > MAX_OWN_WORK.get(description, total):
            raise TooManyDocuments(total)
        return self._progress.task(description, total)

    def note(self, sentence: str) -> None:
        self._progress.note(sentence)


@contextlib.contextmanager
def refusing_long_work(ws: Workspace) -> Iterator[None]:
    """Raise `TooManyDocuments` in the block before a long build of an index."""
    usual_progress = ws.progress
    ws.progress = ImpatientProgress(usual_progress)
    try:
        yield
    finally:
        ws.progress = usual_progress


def ensure_build(job: Job, places: Places, commit: str) -> None:
    """Start the build, unless it already runs for this server or another one."""
    with _starting:
        if not background.is_running(job):
            job.report.unlink(missing_ok=True)
            module = [sys.executable, "-P", "-E", "-m", MODULE, *([commit] if commit else [])]
            environ = env.copy_without(frozenset()) | {env.UNATTENDED: "1"}
            background.request_or_start(job, lambda: proc.start_companion(module, cwd=places.top, env=environ))


def main() -> None:
    threading.Thread(target=_end_with_server, daemon=True).start()
    os.nice(NICENESS)
    commit = next(iter(sys.argv[1:]), "")
    places = Workspace.open(Path.cwd(), QUIET).places
    job = background.get_index_job(places, commit)
    background.serve_requests(job, lambda: _run_build(places, job, commit))
    if commit:
        remove_orphaned_lock(job.lock)


def _end_with_server() -> None:
    """Exit at the end of input, which occurs when the server ends for any reason."""
    sys.stdin.buffer.read()
    proc.terminate_programs()
    os._exit(0)


def _run_build(places: Places, job: Job, commit: str) -> None:
    watched = WatchedProgress(job, lambda _: None)
    failures: list[str] = []
    run_guarded(lambda: _index_in_steps(places, watched, commit), say=failures.append)
    if failures:
        watched.record_failure(failures[0])
    else:
        watched.record_success()


def _index_in_steps(places: Places, progress: Progress, commit: str) -> None:
    with contextlib.closing(Workspace.open(places.top, progress)) as ws:
        ws.source_index.in_steps = True
        at = ranked_at(ws, commit) if commit else None
        last_folder = None
        while True:  # each search indexes the next files
            opened = search_index(ws, lambda _, view: view.sources, at=at)
            if opened is None or opened.indexed == 100 or opened.folder == last_folder:  # noqa: PLR2004  percent
                return
            last_folder = opened.folder


if __name__ == "__main__":
    main()
