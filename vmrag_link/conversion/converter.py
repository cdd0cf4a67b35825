"""Files of any format, as bytes, to Markdown."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from vmrag_link import terminal_text
from vmrag_link.conversion.formats import Format, format_of
from vmrag_link.conversion.limits import ContentUnreadable, ConversionLimits
from vmrag_link.errors import ConversionFailed
from vmrag_link.models import Record

if TYPE_CHECKING:
    from vmrag_link.conversion.confined import ConvertingProcess  # imports of a process only where one is needed


class Converted(Record, frozen=True):
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
            self._process.end()
            self._process = None

    def convert(self, data: bytes, *, name: str, media_type: str = "", charset: str = "") -> Converted:
        """`name` is a path or the last part of a URL: its ending may tell the format, and messages
        name it. `charset` is what a server says.

        Raises `FormatUnsupported`, and `ConversionFailed` for contents that are not of the format,
        or cost more than the limits allow.
        """
        found = format_of(name, media_type)
        try:
            return self._convert(found, data, charset)
        except ContentUnreadable as error:
            raise ConversionFailed(
                f"{terminal_text.one_line(name)} {error.reason}.",
                hint=error.hint or "Check the file, or convert it to Markdown or text by other means and take that.",
                reason=error.reason,
                file_type=found.file_type,
            ) from None

    def _convert(self, found: Format, data: bytes, charset: str) -> Converted:
        from vmrag_link.conversion import reading
        from vmrag_link.conversion.formats import decode

        if len(data) > self._limits.max_bytes:
            raise ContentUnreadable(f"is larger than {self._limits.max_bytes >> 20} MiB")
        if found.where == "here":
            read = reading.page(decode(data, charset), found.file_type)
            return Converted(read.content, read.title, found.file_type, read.metadata)
        if time.monotonic() >= self._until:
            self.late = True
            raise ContentUnreadable("was not converted, because others took too long")
        from vmrag_link.conversion.limits import ConversionTask

        answer = self._running().convert(ConversionTask(found.file_type, charset, found.reader), data)
        return Converted(answer.text, answer.title, found.file_type, answer.metadata)

    def _running(self) -> ConvertingProcess:
        from vmrag_link.conversion.confined import ConvertingProcess

        if self._process and not self._process.usable:
            self.close()
        if self._process is None:
            self._process = ConvertingProcess(self._limits)
        return self._process


def convert(
    data: bytes, *, name: str, media_type: str = "", charset: str = "", limits: ConversionLimits | None = None
) -> Converted:
    """One file, as `Converter.convert`."""
    with Converter(limits) as converter:
        return converter.convert(data, name=name, media_type=media_type, charset=charset)
