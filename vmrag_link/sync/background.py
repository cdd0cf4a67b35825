"""Work in the background: at most one process for each job.

A file requests the work, and another file shows its state.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from vmrag_link import locks
from vmrag_link.errors import Busy, GitRepositoryMissing
from vmrag_link.file_access import write_atomically
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.progress import Task

START_SECONDS = 10.0
"""A process that has not begun within this time after its start has died."""

POLL_SECONDS = 0.05
WRITE_SECONDS = 0.2
_PATIENCE = 1.0
_HASH = 12
"""Number of characters of a commit in a file name."""


class Job(NamedTuple):
    """Work of a background process. Its files are in `home`."""

    home: Path
    name: str

    @property
    def request(self) -> Path:
        return self.home / f"{self.name}.request"

    @property
    def lock(self) -> Path:
        return self.home / f"{self.name}.lock"

    @property
    def report(self) -> Path:
        return self.home / f"{self.name}.json"

    @property
    def log(self) -> Path:
        return self.home / f"{self.name}.log"


def get_sync_job(places: Places) -> Job:
    """Return the job that brings a work tree to its pin."""
    return Job(places.work_tree_folder, "sync")


def get_chroma_job(places: Places) -> Job:
    """Return the job that builds Chroma's stores for all work trees."""
    return Job(places.builder, "chroma")


def get_index_job(places: Places, commit: str = "") -> Job:
    """Return the job that builds the index of a work tree, or of a commit if one is given, for a
    server.
    """
    return Job(places.work_tree_folder, f"index-{commit[:_HASH]}" if commit else "index")


class JobReport(Record, frozen=True, rename={"completed": "done"}):
    """State of a job: `completed` of `total` steps.

    After the process has ended: `error` is the reason of a failure, and `code` its code.
    """

    pid: int
    doing: str = ""
    completed: int = 0
    total: int = 0
    error: str = ""
    code: str = ""
    unsaid: tuple[str, ...] = ()
    """Notes for the user that were not printed yet."""


def request_or_start(job: Job, start: Callable[[], int]) -> None:
    """Request the work. Calls `start`, which returns a process id, unless a process is running. A
    running process works again for the request.
    """
    request_work(job)
    if not locks.is_held(job.lock):
        _note_request(job, start())


def request_work(job: Job) -> None:
    """Request the work from the process that is running, or was just started."""
    _note_request(job, os.getpid())


def _note_request(job: Job, pid: int) -> None:
    write_atomically(job.request, str(pid).encode(), durable=False)


def is_running(job: Job) -> bool:
    """Return whether a process is running, or was just started."""
    if locks.is_held(job.lock):
        return True
    path = job.request
    try:
        age = time.time() - path.stat().st_mtime  # negative after a clock was set back
        return abs(age) < START_SECONDS and locks.is_process_alive(int(path.read_bytes()))
    except (FileNotFoundError, ValueError):
        return False


def wait_for_end(job: Job, *, within: float) -> bool:
    """Wait at most `within` seconds for the end of the job, and return whether it has ended."""
    deadline = time.monotonic() + within
    while is_running(job):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def serve_requests(job: Job, work: Callable[[], None]) -> None:
    """Call `work` until no request arrived since it began. Do nothing if another process serves the
    job.
    """
    with contextlib.suppress(Busy):
        while job.request.exists():  # again after the lock is free, because an earlier request started no process
            with locks.hold_exclusive(job.lock, purpose="work in the background", timeout=_PATIENCE):
                while _take_request(job):
                    work()


def _take_request(job: Job) -> bool:
    try:
        job.request.unlink()
    except FileNotFoundError:
        return False
    return True


def read_report(job: Job) -> JobReport | None:
    """Return the state of a running or failed job, or one with notes. Otherwise None."""
    report = _read_file(job)
    if report is None:
        return None
    return report if report.error or report.unsaid or is_running(job) else None


def _read_file(job: Job) -> JobReport | None:
    try:
        return msgspec.json.decode(job.report.read_bytes(), type=JobReport)
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return None


def report_notes(job: Job, note: Callable[[str], None]) -> None:
    """Print the notes of earlier processes once."""
    if not job.report.exists() or is_running(job):
        return
    report = read_report(job)
    if report is None or not report.unsaid:
        return
    for sentence in report.unsaid:
        note(sentence)
    job.report.unlink(missing_ok=True)


class WatchedProgress:
    """A `Progress` whose state other processes can read. Raises `GitRepositoryMissing` when the
    work tree was removed.
    """

    def __init__(self, job: Job, log: Callable[[str], None]) -> None:
        self._job = job
        self._log = log
        before = _read_file(job)
        self._report = JobReport(os.getpid(), unsaid=before.unsaid if before else ())
        self._written = 0.0
        self._write_report()

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        before = self._report
        self._report = msgspec.structs.replace(before, doing=description, completed=0, total=total)
        self._write_report()
        yield self
        self._report = msgspec.structs.replace(before, unsaid=self._report.unsaid)

    def advance(self, steps: int = 1) -> None:
        self._report = msgspec.structs.replace(self._report, completed=self._report.completed + steps)
        if time.monotonic() >= self._written + WRITE_SECONDS:
            self._write_report()

    def note(self, sentence: str) -> None:
        self._log(sentence)
        self._report = msgspec.structs.replace(self._report, unsaid=(*self._report.unsaid, sentence))
        self._write_report()

    def record_failure(self, reason: str, code: str = "") -> None:
        self._report = msgspec.structs.replace(self._report, error=reason, code=code)
        self._write_report()

    def record_success(self) -> None:
        if self._report.unsaid:
            self._write_report()
        else:
            self._job.report.unlink(missing_ok=True)

    def _write_report(self) -> None:
        if not self._job.home.parent.is_dir():  # writing would create it again
            raise GitRepositoryMissing(
                "the worktree was removed during the command.", hint="run 'git worktree list' to list the worktrees"
            )
        self._written = time.monotonic()
        write_atomically(self._job.report, msgspec.json.encode(self._report), durable=False)
