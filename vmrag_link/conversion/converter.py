"""Convert files of any format, given as bytes, to Markdown. Also the parent's side of a confined
child process.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from vmrag_link import env, proc, terminal_text
from vmrag_link.conversion.formats import Format, detect_format
from vmrag_link.conversion.limits import (
    MIB,
    ContentUnreadable,
    ConversionLimits,
    Disconnected,
    receive_frame,
    send_frames,
)
from vmrag_link.errors import ConversionFailed, file_failures
from vmrag_link.models import Record

if TYPE_CHECKING:
    from vmrag_link.conversion.messages import ConversionAnswer, ConversionTask


class ConvertedFile(Record, frozen=True):
    """A file as Markdown."""

    text: str
    """Every engine can store it exactly."""

    title: str
    """Empty if the file has no title."""

    file_type: str
    """One of `formats.FORMATS`."""

    metadata: Mapping[str, Any]
    """The front matter, ready for JSON."""


class Converter:
    """Converts files, one after the other. Use it in one thread at a time.

    A child process is started for the first file that needs one, and ends with the block. If it
    dies, a new one is started for the next file.

    `seconds`: the maximum time for all files together. Then the child gets no more files, and
    `late` is True.
    """

    def __init__(self, limits: ConversionLimits | None = None, *, seconds: float = math.inf) -> None:
        self._limits = limits or ConversionLimits()
        self._until = time.monotonic() + seconds
        self.late = False
        self._process: ConvertingProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process = None

    def convert(self, data: bytes, *, name: str, media_type: str = "", charset: str = "") -> ConvertedFile:
        """Convert a file.

        `name`: a path or the last part of a URL. Its suffix may determine the format, and messages
        show it. `charset`: the encoding that a server sent.

        Raises `FormatUnsupported`, and `ConversionFailed` for contents that are not of the format
        or that exceed the limits.
        """
        file_format = detect_format(name, media_type)
        try:
            return self._convert_data(file_format, data, charset)
        except ContentUnreadable as error:
            raise ConversionFailed(
                f"{terminal_text.escape_line(name)} {error.reason}.",
                hint=error.hint or "check the file, or convert it to Markdown or text with another program first",
                reason=error.reason,
                file_type=file_format.file_type,
            ) from None

    def _convert_data(self, file_format: Format, data: bytes, charset: str) -> ConvertedFile:
        from vmrag_link.conversion import reading
        from vmrag_link.conversion.formats import decode_text

        if len(data) > self._limits.max_bytes:
            raise ContentUnreadable(f"is larger than {self._limits.max_bytes >> 20} MiB")
        if file_format.where == "here":
            text = reading.convert_text(decode_text(data, charset), file_format.file_type)
            return ConvertedFile(text.content, text.title, file_format.file_type, text.metadata)
        if time.monotonic() >= self._until:
            self.late = True
            raise ContentUnreadable("was not converted, because other files took too long")
        from vmrag_link.conversion.messages import ConversionTask

        answer = self._start_process().convert(ConversionTask(file_format.file_type, charset, file_format.reader), data)
        return ConvertedFile(answer.text, answer.title, file_format.file_type, answer.metadata)

    def _start_process(self) -> ConvertingProcess:

        if self._process and not self._process.is_usable:
            self.close()
        if self._process is None:
            self._process = ConvertingProcess(self._limits)
        return self._process


class ProcessEnded(Exception):
    """The process ended without an answer.

    `late`: it took too long and was killed. `killed_by`: the signal that killed it. `last_line`:
    the last line of its standard error.
    """

    def __init__(self, *, late: bool = False, killed_by: str = "", last_line: str = "") -> None:
        super().__init__(killed_by or last_line)
        self.late, self.killed_by, self.last_line = late, killed_by, last_line


class ConfinedProcess:
    """A child process that runs a module (see `child.serving`), and its private folder, if one can
    be created.

    Use it in one thread at a time. The first frame that it gets has its limits.
    """

    def __init__(self, module: str, limits: ConversionLimits) -> None:
        """Start the process. Raises `FileFailed` if the disk is full."""
        self._limits = limits
        self._late = self._is_spent = False
        self._until: float | None = None
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
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
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
        self._is_spent = self._is_spent or self._late

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
                self._late = True
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
        if self._late:
            return ProcessEnded(late=True)
        proc.wait_or_kill(self._process, 1)
        killed_by = proc.FinishedProcess(self._process.args, self._process.returncode, b"", b"").killed_by
        if killed_by:
            return ProcessEnded(killed_by=killed_by)
        last_line = ""
        with contextlib.suppress(OSError):
            if self._folder is None:
                return ProcessEnded()
            last = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
            last_line = terminal_text.escape_line("".join(last)[:300])
        return ProcessEnded(last_line=last_line)

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


CONVERTER_MODULE = "vmrag_link.conversion.child"


class ConvertingProcess(ConfinedProcess):
    """A child process that converts files. Use it in one thread at a time."""

    def __init__(self, limits: ConversionLimits) -> None:
        """Start the process. Raises `FileFailed` if the disk is full."""
        super().__init__(CONVERTER_MODULE, limits)

    def convert(self, task: ConversionTask, data: bytes) -> ConversionAnswer:
        """Convert a file. Raises `ContentUnreadable` if it fails, if the process takes too long, or
        if the process dies.
        """
        from vmrag_link.conversion.messages import ConversionAnswer, encode

        try:
            with self.watch_task():
                self.send_frames(encode(task), data)
                answer = msgspec.msgpack.decode(self.receive_frame(self._limits.max_text + MIB), type=ConversionAnswer)
        except ProcessEnded as ended:
            raise self._make_error(ended) from None
        if answer.last:
            self.retire()
        if answer.failed:
            raise ContentUnreadable(terminal_text.escape_line(answer.failed), terminal_text.escape_line(answer.hint))
        return answer

    def _make_error(self, ended: ProcessEnded) -> ContentUnreadable:
        """Return the error for a process that ended without an answer."""
        more_seconds = f"git config vmrag.ingest.convert-s {5 * self._limits.max_cpu_seconds}"
        if ended.late:
            reason = f"takes more than {self._limits.max_seconds} seconds to be converted"
            return ContentUnreadable(reason, more_seconds)
        if ended.killed_by == "SIGXCPU":
            reason = f"takes more than {self._limits.max_cpu_seconds} seconds of computing to be converted"
            return ContentUnreadable(reason, more_seconds)
        if ended.killed_by:
            return ContentUnreadable(f"cannot be converted (its conversion was ended by {ended.killed_by})")
        return ContentUnreadable(
            f"cannot be converted ({ended.last_line})" if ended.last_line else "cannot be converted"
        )
