"""`python -m vmrag_hooks.background`: bring a work tree to its pin, and log what happened.

A hook starts this process if the work takes longer than git should wait (`run`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from vmrag_hooks.boundary import run_guarded
from vmrag_link import env, permissions, proc
from vmrag_link.errors import VmragError
from vmrag_link.paths import Places
from vmrag_link.progress import QUIET
from vmrag_link.sync import background
from vmrag_link.sync.background import Job, WatchedProgress
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_or_raise

MAX_LOG_BYTES = 200_000
NICENESS = 5


def start_sync(places: Places) -> None:
    """Start the sync in its own process.

    The process gets no stream of this one, because a pipe around git would wait for it.
    """
    module = [sys.executable, "-P", "-E", "-m", "vmrag_hooks.background"]
    environ = env.copy_without(frozenset()) | {env.UNATTENDED: "1"}
    background.request_or_start(
        background.get_sync_job(places), lambda: proc.start_detached(module, cwd=places.top, env=environ)
    )


def main() -> None:
    os.nice(NICENESS)
    places = Workspace.open(Path.cwd(), QUIET).places
    job = background.get_sync_job(places)
    with open_job_log(job) as log:
        background.serve_requests(job, lambda: _sync_work_tree(places, log))


def _sync_work_tree(places: Places, log: logging.Logger) -> None:
    progress = WatchedProgress(background.get_sync_job(places), log.info)
    failures: list[str] = []
    codes: list[str] = []

    def follow_pin() -> None:
        try:
            with contextlib.closing(Workspace.open(places.top, progress)) as workspace:
                log.info("started")
                report = follow_or_raise(workspace)
                log.info("done: %s", f"{report.to} in {report.seconds}" if report else "nothing was to be done")
        except VmragError as error:
            codes.append(error.code)
            raise

    run_guarded(follow_pin, say=failures.append)
    if not places.git_dir.is_dir():
        return  # `git worktree remove`
    if failures:
        log.error("failed: %s", failures[0])
        progress.record_failure(failures[0], *codes)
    else:
        progress.record_success()


class _Log(RotatingFileHandler):
    """A log whose files are as open as the folder around them."""

    def _open(self) -> io.TextIOWrapper:
        permissions.make_file(Path(self.baseFilename))
        return super()._open()


@contextlib.contextmanager
def open_job_log(job: Job) -> Iterator[logging.Logger]:
    """Yield a logger that writes to the log of the job."""
    log = logging.getLogger("vmrag.background")
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = _Log(job.log, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(message)s"))
    log.addHandler(handler)
    try:
        yield log
    finally:
        log.removeHandler(handler)
        handler.close()


if __name__ == "__main__":
    main()
