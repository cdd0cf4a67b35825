"""The child process that converts, as its parent sees it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import msgspec

from vmrag_link import env, proc, terminal_text
from vmrag_link.conversion import frames
from vmrag_link.conversion.frames import Answer, ConversionTask, Disconnected
from vmrag_link.conversion.limits import MIB, ConversionLimits
from vmrag_link.conversion.unreadable import ContentUnreadable
from vmrag_link.errors import file_failures

MODULE = "vmrag_link.conversion.child"


class ConvertingProcess:
    """A child process and its private folder. For one thread at a time."""

    def __init__(self, limits: ConversionLimits) -> None:
        """Start it. Raises `FileFailed` where there is no room."""
        self._limits = limits
        self._late = self._spent = False
        with file_failures():
            self._folder = Path(tempfile.mkdtemp(prefix="vmrag-convert-"))
            self._complaints = (self._folder / "stderr").open("wb")
        argv = [sys.executable, "-P", "-E", "-m", MODULE]
        try:
            self._process = proc.piped(argv, cwd=self._folder, env=env.bare(self._folder), stderr=self._complaints)
        except BaseException:
            self._remove()
            raise
        assert self._process.stdin is not None  # noqa: S101  `proc.piped` makes both
        assert self._process.stdout is not None  # noqa: S101
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # the first task tells
            frames.send(self._stdin, frames.encode(limits))

    @property
    def usable(self) -> bool:
        """Whether it can take another file."""
        return not self._spent and self._process.poll() is None

    def convert(self, task: ConversionTask, data: bytes) -> Answer:
        """Raises `ContentUnreadable` where the process does not come to an end, or dies of it."""
        watchdog = threading.Timer(self._limits.max_seconds, self._give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            answer = self._ask(task, data)
        except (Disconnected, BrokenPipeError, msgspec.DecodeError, UnicodeDecodeError):
            self._spent = True
            raise self._failure() from None
        except BaseException:  # Ctrl-C: its answer would be taken for the next one's
            self._spent = True
            raise
        finally:
            watchdog.cancel()
        self._spent = answer.last or self._late
        if answer.failed:
            raise ContentUnreadable(terminal_text.one_line(answer.failed), terminal_text.one_line(answer.hint))
        return answer

    def end(self) -> None:
        """Kill it, and remove its folder."""
        self._kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._remove()

    def _ask(self, task: ConversionTask, data: bytes) -> Answer:
        frames.send(self._stdin, frames.encode(task), data)
        found = frames.receive(self._stdout, self._limits.max_text + MIB)
        return msgspec.msgpack.decode(found, type=Answer)

    def _give_up(self) -> None:
        self._late = True
        self._kill()

    def _kill(self) -> None:
        if self._process.poll() is None:  # its number may be another's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()  # it may have left its group where the kernel lets it

    def _failure(self) -> ContentUnreadable:
        """Why there was no answer."""
        more_seconds = f"git config vmrag.ingest.convert-s {5 * self._limits.max_cpu_seconds}"
        if self._late:
            why = f"takes more than {self._limits.max_seconds} seconds to be converted"
            return ContentUnreadable(why, more_seconds)
        proc.wait_or_kill(self._process, 1)
        killed_by = proc.Finished(self._process.args, self._process.returncode, b"", b"").killed_by
        if killed_by == "SIGXCPU":
            why = f"takes more than {self._limits.max_cpu_seconds} seconds of computing to be converted"
            return ContentUnreadable(why, more_seconds)
        if killed_by:
            return ContentUnreadable(f"cannot be converted (its conversion was ended by {killed_by})")
        with contextlib.suppress(OSError):
            said = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
            return ContentUnreadable(f"cannot be converted ({terminal_text.one_line(''.join(said)[:300])})")
        return ContentUnreadable("cannot be converted")

    def _remove(self) -> None:
        self._complaints.close()
        shutil.rmtree(self._folder, ignore_errors=True)
