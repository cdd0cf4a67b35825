"""Convert files of any format, given as bytes, to Markdown.

Imports and toolsets call `Converter.convert`. Plain text is read here. Other formats need a parser
of untrusted data, which runs in a confined child process (`conversion.child`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from vmrag_link import terminal_text
from vmrag_link.conversion.confined_process import ConfinedProcess, ProcessEnded
from vmrag_link.conversion.formats import Format, detect_format
from vmrag_link.conversion.limits import (
    MIB,
    ContentUnreadable,
    ConversionLimits,
)
from vmrag_link.errors import ConversionFailed
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
