"""A sync in the background: at most one process a work tree.

Hooks request it by a file, commands watch it through another.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import msgspec

from vmrag_link import locks
from vmrag_link.errors import Busy, GitRepositoryMissing
from vmrag_link.models import Record
from vmrag_link.paths import Places, write_atomically
from vmrag_link.progress import Task

START_SECONDS = 10.0
"""A process that did not begin within this time after its start has died."""

POLL_SECONDS = 0.05
WRITE_SECONDS = 0.2
_PATIENCE = 1.0


class Report(Record, frozen=True):
    """`done` of `total` steps of what the process does.

    When it is gone: `error`, why it gave up; `unsaid`, what a person should know.
    """

    pid: int
    doing: str = ""
    done: int = 0
    total: int = 0
    error: str = ""
    unsaid: tuple[str, ...] = ()


def ask(places: Places, start: Callable[[], int]) -> None:
    """Request a sync of the work tree.

    Calls `start`, which returns a process id, unless a process is at work: that one looks again.
    """
    _note_request(places, os.getpid())
    if not locks.is_held(places.background_lock):
        _note_request(places, start())


def _note_request(places: Places, pid: int) -> None:
    write_atomically(places.background_request, str(pid).encode())


def running(places: Places) -> bool:
    """Whether a process syncs this work tree, or was just started to."""
    if locks.is_held(places.background_lock):
        return True
    path = places.background_request
    try:
        return time.time() - path.stat().st_mtime < START_SECONDS and locks.alive(int(path.read_bytes()))
    except (FileNotFoundError, ValueError):
        return False


def ended(places: Places, *, within: float) -> bool:
    """Wait at most `within` seconds for the sync of this work tree; whether it has ended then."""
    deadline = time.monotonic() + within
    while running(places):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def serve(places: Places, work: Callable[[], None]) -> None:
    """Call `work` until no request came since it began; nothing where another process does."""
    with contextlib.suppress(Busy):
        while (
            places.background_request.exists()
        ):  # again when the lock is free: a request before that started no process
            with locks.exclusive(places.background_lock, purpose="sync in the background", timeout=_PATIENCE):
                while _take_request(places):
                    work()


def _take_request(places: Places) -> bool:
    try:
        places.background_request.unlink()
    except FileNotFoundError:
        return False
    return True


def report(places: Places) -> Report | None:
    """What runs, what failed, and what is still to be said; None if nothing is."""
    found = _read(places)
    if found is None:
        return None
    return found if found.error or found.unsaid or running(places) else None


def _read(places: Places) -> Report | None:
    try:
        return msgspec.json.decode(places.background_report.read_bytes(), type=Report)
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return None


def tell(places: Places, note: Callable[[str], None]) -> None:
    """Say what earlier syncs in the background had to say, once."""
    if not places.background_report.exists() or running(places):
        return
    found = report(places)
    if found is None or not found.unsaid:
        return
    for sentence in found.unsaid:
        note(sentence)
    places.background_report.unlink(missing_ok=True)


class Watched:
    """A `Progress` whose state other processes can read. Raises `GitRepositoryMissing` when the
    work tree is gone.
    """

    def __init__(self, places: Places, log: Callable[[str], None]) -> None:
        self._places = places
        self._log = log
        before = _read(places)
        self._report = Report(os.getpid(), unsaid=before.unsaid if before else ())
        self._written = 0.0
        self._write()

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        before = self._report
        self._report = msgspec.structs.replace(before, doing=description, done=0, total=total)
        self._write()
        yield self
        self._report = msgspec.structs.replace(before, unsaid=self._report.unsaid)

    def advance(self, steps: int = 1) -> None:
        self._report = msgspec.structs.replace(self._report, done=self._report.done + steps)
        if time.monotonic() >= self._written + WRITE_SECONDS:
            self._write()

    def note(self, sentence: str) -> None:
        self._log(sentence)
        self._report = msgspec.structs.replace(self._report, unsaid=(*self._report.unsaid, sentence))
        self._write()

    def failed(self, reason: str) -> None:
        self._report = msgspec.structs.replace(self._report, error=reason)
        self._write()

    def succeeded(self) -> None:
        if self._report.unsaid:
            self._write()
        else:
            self._places.background_report.unlink(missing_ok=True)

    def _write(self) -> None:
        if not self._places.git_dir.is_dir():  # and would be made again
            raise GitRepositoryMissing("The work tree was removed meanwhile.", hint="git worktree list")
        self._written = time.monotonic()
        write_atomically(self._places.background_report, msgspec.json.encode(self._report))
