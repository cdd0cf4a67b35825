"""`python -m vmrag_hooks.chroma`: build stores for Chroma's own clients from the indexes of all
work trees, and share them.

`workspace.chroma` starts this process, and `sync.chroma_builder` has the rules.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from vmrag_hooks.background import open_job_log
from vmrag_hooks.boundary import run_guarded
from vmrag_link.git import work_trees
from vmrag_link.progress import QUIET
from vmrag_link.sync import background
from vmrag_link.sync.background import WatchedProgress
from vmrag_link.workspace import Workspace

NICENESS = 10


def main() -> None:
    os.nice(NICENESS)
    places = Workspace.open(Path.cwd(), QUIET).places
    job = background.get_chroma_job(places)
    with open_job_log(job) as log:
        background.serve_requests(job, lambda: _build_stores(places.top, job, log))


def _build_stores(top: Path, job: background.Job, log: logging.Logger) -> None:
    progress = WatchedProgress(job, log.info)
    failures: list[str] = []
    run_guarded(lambda: _build_missing_stores(top, progress, log), say=failures.append)
    if not job.home.is_dir():
        return  # the repository was deleted
    if failures:
        log.error("failed: %s", failures[0])
        progress.record_failure(failures[0])
    else:
        progress.record_success()


def _build_missing_stores(top: Path, progress: WatchedProgress, log: logging.Logger) -> None:
    from vmrag_link.sync.chroma_builder import build_missing_stores
    from vmrag_link.sync.chroma_sharing import share_bound_views
    from vmrag_link.workspace.committed_files import bind_lacking_files

    workspace = Workspace.open(top, progress)

    def bind_files() -> None:
        for path in work_trees.list_work_trees(workspace.places):
            with contextlib.closing(Workspace.open(path, progress)) as worktree:
                bind_lacking_files(worktree, log.info)

    try:
        local = workspace.chroma.local
        build_missing_stores(
            local, vectors=workspace.read_vectors, progress=progress, log=log.info, bind_files=bind_files
        )
        if workspace.is_initialized and (sharing := workspace.chroma.sharing).address:
            share_bound_views(sharing, workspace.chroma.publisher, progress=progress, log=log.info)
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
