"""Locks between processes. They belong to the open file: the system drops them when their process dies, however it dies.

Beside a lock that is held exclusively lies `<name>.holder`, so that whoever waits in vain can be told for whom.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fasteners

from vmrag_link.errors import Busy

POLL_SECONDS = 0.02


@contextlib.contextmanager
def exclusive(path: Path, *, purpose: str, timeout: float) -> Iterator[None]:
    """Hold the lock alone. `timeout` in seconds, 0 = do not wait. Raises `Busy` with the holder's process and purpose."""
    lock = _opened(path)
    _acquire(lock.acquire_write_lock, path, purpose, timeout)
    holder = _holder_file(path)
    try:
        with contextlib.suppress(OSError):  # a full disk must not keep anyone from working: the name is a courtesy
            holder.write_text(f"{os.getpid()} {purpose}")
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release_write_lock()


@contextlib.contextmanager
def shared(path: Path, *, purpose: str, timeout: float) -> Iterator[None]:
    """Hold the lock together with other readers; waits as `exclusive` does."""
    lock = _opened(path)
    _acquire(lock.acquire_read_lock, path, purpose, timeout)
    try:
        yield
    finally:
        lock.release_read_lock()


def holder(path: Path) -> tuple[int, str] | None:
    """Process id and purpose of who holds the lock exclusively, as far as it said so."""
    with contextlib.suppress(OSError, ValueError):
        pid, _, purpose = _holder_file(path).read_text().partition(" ")
        return int(pid), purpose
    return None


def _opened(path: Path) -> fasteners.InterProcessReaderWriterLock:
    path.parent.mkdir(parents=True, exist_ok=True)
    return fasteners.InterProcessReaderWriterLock(path)


def _holder_file(path: Path) -> Path:
    return path.with_name(path.name + ".holder")


def _acquire(acquire: object, path: Path, purpose: str, timeout: float) -> None:
    assert callable(acquire)  # noqa: S101  one of the two methods of a lock
    deadline = time.monotonic() + timeout
    while not acquire(blocking=False):
        if time.monotonic() >= deadline:
            pid, theirs = holder(path) or (None, "another process")
            who = f"process {pid} ({theirs})" if pid else theirs
            raise Busy(
                f"Cannot {purpose}: {who} has held {path.name} for {timeout:g} s.",
                hint="Wait for it to finish and run the command again."
                + (f" See what it does: ps -fp {pid}" if pid and sys.platform != "win32" else ""),
                lock=str(path),
                holder_pid=pid,
                holder=theirs,
            )
        time.sleep(POLL_SECONDS)
