"""Run a module of vmrag in a child process that has few rights, because it parses untrusted data.

`converter` and `code.cutter` use it. A task is one or more frames to the child and one frame as the
answer (`limits.send_frames`). The child gives up its rights itself (`child.serving`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link import env, proc, terminal_text
from vmrag_link.conversion.limits import MIB, ConversionLimits, Disconnected, receive_frame, send_frames
from vmrag_link.errors import file_failures


class ProcessEnded(Exception):
    """The process ended without an answer.

    `late`: it took too long and was killed. `killed_by`: the signal that killed it. `last_line`:
    the last line of its standard error.
    """

    def __init__(self, *, late: bool = False, killed_by: str = "", last_line: str = "") -> None:
        super().__init__(killed_by or last_line)
        self.late = late
        self.killed_by = killed_by
        self.last_line = last_line


class ConfinedProcess:
    """A child process that runs a module (see `child.serving`), and its private folder, if one can
    be created.

    Use it in one thread at a time. The first frame that it gets has its limits.
    """

    def __init__(self, module: str, limits: ConversionLimits) -> None:
        """Start the process. Raises `FileFailed` if the disk is full."""
        self._limits = limits
        self._is_late = False
        """True after the watchdog has killed the process."""

        self._is_spent = False
        """True if the process must get no further task."""

        self._until: float | None = None
        """The end of the time for the present task, by the monotonic clock."""

        self._watchdog: threading.Thread | None = None
        self._has_ended = threading.Event()
        with file_failures():
            self._folder = _make_private_folder()
            self._errors = (self._folder / "stderr" if self._folder else Path(os.devnull)).open("wb")
        argv = [sys.executable, "-P", "-E", "-m", module]
        folder = self._folder or Path("/")
        try:
            self._process = proc.start_piped(argv, cwd=folder, env=env.bare_environment(folder), stderr=self._errors)
        except BaseException:
            self._remove_folder()
            raise
        assert self._process.stdin is not None  # noqa: S101  `proc.start_piped` creates both
        assert self._process.stdout is not None  # noqa: S101
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        for stream in (self._stdin, self._stdout):  # larger pipes, so that neither process waits for the other
            with contextlib.suppress(OSError, AttributeError):  # only Linux has this, up to a limit for each user
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, MIB)
        with contextlib.suppress(BrokenPipeError):  # the first task reports it
            send_frames(self._stdin, msgspec.json.encode(limits))

    @property
    def is_usable(self) -> bool:
        """True if it can process another task."""
        return not self._is_spent and self._process.poll() is None

    @contextlib.contextmanager
    def watch_task(self) -> Iterator[None]:
        """Send a task and receive its answer in this block.

        Raises `ProcessEnded` if the block takes longer than the limits allow, or if the process
        dies.
        """
        self._until = time.monotonic() + self._limits.max_seconds
        if self._watchdog is None:
            self._watchdog = threading.Thread(target=self._watch_tasks, daemon=True)
            self._watchdog.start()
        try:
            yield
        except (Disconnected, BrokenPipeError, msgspec.DecodeError, UnicodeDecodeError):
            self._is_spent = True
            raise self._make_ended_error() from None
        except BaseException:  # such as Ctrl-C: the next task would get this answer
            self._is_spent = True
            raise
        finally:
            self._until = None
        self._is_spent = self._is_spent or self._is_late

    def send_frames(self, *sent: bytes) -> None:
        """Send frames. Call it in a block of `watch_task`."""
        send_frames(self._stdin, *sent)

    def receive_frame(self, longest: int) -> bytes:
        """Return the next frame. Call it in a block of `watch_task`."""
        return receive_frame(self._stdout, longest)

    def retire(self) -> None:
        """Assign no further tasks to this process."""
        self._is_spent = True

    def kill(self) -> None:
        """Kill the process, and remove its folder."""
        self._has_ended.set()
        self._kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._remove_folder()

    def _watch_tasks(self) -> None:
        """Kill the process when the time of its task is over.

        One thread watches all tasks, because most take less time than starting a thread.
        """
        while not self._has_ended.wait(self._seconds_until_check()):
            if self._seconds_until_check() <= 0:
                self._is_late = True
                self._kill()
                return

    def _seconds_until_check(self) -> float:
        """Return the seconds until the process has to be checked again."""
        until = self._until
        return self._limits.max_seconds if until is None else until - time.monotonic()

    def _kill(self) -> None:
        if self._process.poll() is None:  # otherwise another process may have its id by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()  # it may have left its group if the kernel allows that

    def _make_ended_error(self) -> ProcessEnded:
        if self._is_late:
            return ProcessEnded(late=True)
        proc.wait_or_kill(self._process, 1)
        killed_by = proc.FinishedProcess(self._process.args, self._process.returncode, b"", b"").killed_by
        if killed_by:
            return ProcessEnded(killed_by=killed_by)
        return ProcessEnded(last_line=self._read_last_line())

    def _read_last_line(self) -> str:
        """Return the last line of the standard error, or an empty text."""
        if self._folder is None:
            return ""
        try:
            lines = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return terminal_text.escape_line(lines[-1][:300]) if lines else ""

    def _remove_folder(self) -> None:
        self._errors.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _make_private_folder() -> Path | None:
    """Create a temporary folder, and return it; None if no folder for temporary files is
    writable.
    """
    try:
        return Path(tempfile.mkdtemp(prefix="vmrag-convert-"))
    except FileNotFoundError:
        return None
