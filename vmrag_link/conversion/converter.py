"""Files of any format, as bytes, to Markdown; and a child process that has confined itself, as its
parent sees it.
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
    """`text` can be stored exactly; `title` is empty where the file names none.

    `file_type` is one of `formats.FORMATS`; `metadata`, from front matter, is ready for JSON.
    """

    text: str
    title: str
    file_type: str
    metadata: Mapping[str, Any]


class Converter:
    """Converts files, one after the other. For one thread at a time.

    A child process is started for the first file that needs one, serves the next ones, and ends
    with the block. One that dies of a file is replaced for the next.

    `seconds`: for all files together. Then the child is given no other, and `late` is true.
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
        """`name` is a path or the last part of a URL: its ending may tell the format, and messages
        name it. `charset` is what a server says.

        Raises `FormatUnsupported`, and `ConversionFailed` for contents that are not of the format,
        or cost more than the limits allow.
        """
        found = detect_format(name, media_type)
        try:
            return self._convert(found, data, charset)
        except ContentUnreadable as error:
            raise ConversionFailed(
                f"{terminal_text.escape_line(name)} {error.reason}.",
                hint=error.hint or "Check the file, or convert it to Markdown or text by other means and take that.",
                reason=error.reason,
                file_type=found.file_type,
            ) from None

    def _convert(self, found: Format, data: bytes, charset: str) -> ConvertedFile:
        from vmrag_link.conversion import reading
        from vmrag_link.conversion.formats import decode_text

        if len(data) > self._limits.max_bytes:
            raise ContentUnreadable(f"is larger than {self._limits.max_bytes >> 20} MiB")
        if found.where == "here":
            read = reading.convert_text(decode_text(data, charset), found.file_type)
            return ConvertedFile(read.content, read.title, found.file_type, read.metadata)
        if time.monotonic() >= self._until:
            self.late = True
            raise ContentUnreadable("was not converted, because others took too long")
        from vmrag_link.conversion.messages import ConversionTask

        answer = self._running().convert(ConversionTask(found.file_type, charset, found.reader), data)
        return ConvertedFile(answer.text, answer.title, found.file_type, answer.metadata)

    def _running(self) -> ConvertingProcess:

        if self._process and not self._process.is_usable:
            self.close()
        if self._process is None:
            self._process = ConvertingProcess(self._limits)
        return self._process


def convert_file(
    data: bytes, *, name: str, media_type: str = "", charset: str = "", limits: ConversionLimits | None = None
) -> ConvertedFile:
    """One file, as `Converter.convert`."""
    with Converter(limits) as converter:
        return converter.convert(data, name=name, media_type=media_type, charset=charset)


class ProcessEnded(Exception):
    """There is no answer. `late`: it took too long, and was killed; else the signal that ended the
    process, if one did, and the last line of what it complained of.
    """

    def __init__(self, *, late: bool = False, killed_by: str = "", said: str = "") -> None:
        super().__init__(killed_by or said)
        self.late, self.killed_by, self.said = late, killed_by, said


class ConfinedProcess:
    """A child process that runs a module, and its private folder, if one can be made. For one
    thread at a time.

    Its first frame is its limits; see `child.serving`.
    """

    def __init__(self, module: str, limits: ConversionLimits) -> None:
        """Start it. Raises `FileFailed` where there is no room."""
        self._limits = limits
        self._late = self._spent = False
        self._until: float | None = None
        self._watchdog: threading.Thread | None = None
        self._over = threading.Event()
        with file_failures():
            self._folder = _make_private_folder()
            self._complaints = (self._folder / "stderr" if self._folder else Path(os.devnull)).open("wb")
        argv = [sys.executable, "-P", "-E", "-m", module]
        folder = self._folder or Path("/")
        try:
            self._process = proc.start_piped(
                argv, cwd=folder, env=env.bare_environment(folder), stderr=self._complaints
            )
        except BaseException:
            self._remove()
            raise
        assert self._process.stdin is not None  # noqa: S101  `proc.piped` makes both
        assert self._process.stdout is not None  # noqa: S101
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        for stream in (self._stdin, self._stdout):  # so that neither process waits for the other
            with contextlib.suppress(OSError, AttributeError):  # only Linux, up to the limit of a user
                fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, MIB)
        with contextlib.suppress(BrokenPipeError):  # the first task tells
            send_frames(self._stdin, msgspec.json.encode(limits))

    @property
    def is_usable(self) -> bool:
        """Whether it can take another task."""
        return not self._spent and self._process.poll() is None

    @contextlib.contextmanager
    def watch_task(self) -> Iterator[None]:
        """For a task and its answer. Raises `ProcessEnded` where it takes longer than the limits
        allow, or the process dies of it.
        """
        self._until = time.monotonic() + self._limits.max_seconds
        if self._watchdog is None:
            self._watchdog = threading.Thread(target=self._watch, daemon=True)
            self._watchdog.start()
        try:
            yield
        except (Disconnected, BrokenPipeError, msgspec.DecodeError, UnicodeDecodeError):
            self._spent = True
            raise self._ended() from None
        except BaseException:  # Ctrl-C: its answer would be taken for the next one's
            self._spent = True
            raise
        finally:
            self._until = None
        self._spent = self._spent or self._late

    def send_frames(self, *sent: bytes) -> None:
        """Frames. In a block of `watched`."""
        send_frames(self._stdin, *sent)

    def receive_frame(self, longest: int) -> bytes:
        """The next frame. In a block of `watched`."""
        return receive_frame(self._stdout, longest)

    def retire(self) -> None:
        """It gets no other task."""
        self._spent = True

    def kill(self) -> None:
        """Kill it, and remove its folder."""
        self._over.set()
        self._kill()
        self._process.wait()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._remove()

    def _watch(self) -> None:
        """Kill the process when the time of its task is over. One thread looks after all tasks:
        most take less time than starting one does.
        """
        while not self._over.wait(self._left()):
            if self._left() <= 0:
                self._late = True
                self._kill()
                return

    def _left(self) -> float:
        """Seconds until somebody has to look again."""
        until = self._until
        return self._limits.max_seconds if until is None else until - time.monotonic()

    def _kill(self) -> None:
        if self._process.poll() is None:  # its number may be another's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()  # it may have left its group where the kernel lets it

    def _ended(self) -> ProcessEnded:
        if self._late:
            return ProcessEnded(late=True)
        proc.wait_or_kill(self._process, 1)
        killed_by = proc.FinishedProcess(self._process.args, self._process.returncode, b"", b"").killed_by
        if killed_by:
            return ProcessEnded(killed_by=killed_by)
        said = ""
        with contextlib.suppress(OSError):
            if self._folder is None:
                return ProcessEnded()
            last = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()[-1:]
            said = terminal_text.escape_line("".join(last)[:300])
        return ProcessEnded(said=said)

    def _remove(self) -> None:
        self._complaints.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _make_private_folder() -> Path | None:
    """Make a temporary folder; None where no folder for temporary files is writable."""
    try:
        return Path(tempfile.mkdtemp(prefix="vmrag-convert-"))
    except FileNotFoundError:
        return None


CONVERTER_MODULE = "vmrag_link.conversion.child"


class ConvertingProcess(ConfinedProcess):
    """A child process that converts files. For one thread at a time."""

    def __init__(self, limits: ConversionLimits) -> None:
        """Start it. Raises `FileFailed` where there is no room."""
        super().__init__(CONVERTER_MODULE, limits)

    def convert(self, task: ConversionTask, data: bytes) -> ConversionAnswer:
        """Raises `ContentUnreadable` where the process does not come to an end, or dies of it."""
        from vmrag_link.conversion.messages import ConversionAnswer, encode

        try:
            with self.watch_task():
                self.send_frames(encode(task), data)
                answer = msgspec.msgpack.decode(self.receive_frame(self._limits.max_text + MIB), type=ConversionAnswer)
        except ProcessEnded as ended:
            raise self._failure(ended) from None
        if answer.last:
            self.retire()
        if answer.failed:
            raise ContentUnreadable(terminal_text.escape_line(answer.failed), terminal_text.escape_line(answer.hint))
        return answer

    def _failure(self, ended: ProcessEnded) -> ContentUnreadable:
        """Why there was no answer."""
        more_seconds = f"git config vmrag.ingest.convert-s {5 * self._limits.max_cpu_seconds}"
        if ended.late:
            why = f"takes more than {self._limits.max_seconds} seconds to be converted"
            return ContentUnreadable(why, more_seconds)
        if ended.killed_by == "SIGXCPU":
            why = f"takes more than {self._limits.max_cpu_seconds} seconds of computing to be converted"
            return ContentUnreadable(why, more_seconds)
        if ended.killed_by:
            return ContentUnreadable(f"cannot be converted (its conversion was ended by {ended.killed_by})")
        return ContentUnreadable(f"cannot be converted ({ended.said})" if ended.said else "cannot be converted")
