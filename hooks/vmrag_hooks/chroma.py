"""`python -m vmrag_hooks.chroma`: build Chroma's stores of the bound indexes, and share these."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from vmrag_hooks.background import logging_to
from vmrag_hooks.boundary import guarded
from vmrag_link.git import refs
from vmrag_link.progress import QUIET
from vmrag_link.sync import background
from vmrag_link.sync.background import Watched
from vmrag_link.workspace import Workspace

NICENESS = 10


def main() -> None:
    os.nice(NICENESS)
    places = Workspace.open(Path.cwd(), QUIET).places
    job = background.chroma_of(places)
    with logging_to(job) as log:
        background.serve(job, lambda: _build(places.top, background.chroma_of(places), log))


def _build(top: Path, job: background.Job, log: logging.Logger) -> None:
    watched = Watched(job, log.info)
    failed: list[str] = []
    guarded(lambda: _build_wanted(top, watched, log), say=failed.append)
    if not job.home.is_dir():
        return  # the repository is gone
    if failed:
        log.error("failed: %s", failed[0])
        watched.failed(failed[0])
    else:
        watched.succeeded()


def _build_wanted(top: Path, watched: Watched, log: logging.Logger) -> None:
    from vmrag_link.sync.chroma_builder import build_wanted
    from vmrag_link.sync.chroma_sharing import share_bound
    from vmrag_link.workspace.committed_files import bind_lacking_files

    workspace = Workspace.open(top, watched)

    def bind_files() -> None:
        for path in refs.tops(workspace.places):
            with contextlib.closing(Workspace.open(path, watched)) as worktree:
                bind_lacking_files(worktree, log.info)

    try:
        local = workspace.chroma.local
        build_wanted(local, vectors=workspace.vectors, progress=watched, log=log.info, bind_files=bind_files)
        if workspace.initialized and (sharing := workspace.chroma.sharing).address:
            share_bound(sharing, workspace.chroma.publisher, progress=watched, log=log.info)
    finally:
        workspace.close()


if __name__ == "__main__":
    main()
