"""A sync that nobody waits for: one process a work tree.

Hooks ask for it by a mark, commands watch it through a file.
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
"""After that long a process that was started and did not begin has died."""

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
    """Have the work tree synced. Calls `start`, which gives a process id, unless a process works
    already: that one looks again.
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
    """Wait until no process syncs this work tree, at most that many seconds; whether that is so."""
    deadline = time.monotonic() + within
    while running(places):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def serve(places: Places, work: Callable[[], None]) -> None:
    """Do the work until nobody has asked for it since it began; nothing where another process does
    it.
    """
    with contextlib.suppress(Busy):
        while places.background_request.exists():  # again when the lock is free: who asked before that started nobody
            with locks.exclusive(places.background_lock, purpose="sync in the background", timeout=_PATIENCE):
                while _taken(places):
                    work()


def _taken(places: Places) -> bool:
    try:
        places.background_request.unlink()
    except FileNotFoundError:
        return False
    return True


def report(places: Places) -> Report | None:
    """None where nothing works and nothing failed."""
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
    """Say what syncs in the background had to say; only once."""
    if not places.background_report.exists() or running(places):
        return
    found = report(places)
    if found is None or not found.unsaid:
        return
    for sentence in found.unsaid:
        note(sentence)
    places.background_report.unlink(missing_ok=True)


class Watched:
    """A `Progress` whose state other processes can read.

    Refuses to go on when the work tree is gone: there is nobody to tell any more.
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
