"""The child process that converts, as its parent sees it."""

from __future__ import annotations

import msgspec

from vmrag_link import terminal_text
from vmrag_link.conversion import frames
from vmrag_link.conversion.confined import ConfinedProcess, ProcessEnded
from vmrag_link.conversion.frames import Answer, ConversionTask
from vmrag_link.conversion.limits import MIB, ConversionLimits
from vmrag_link.conversion.unreadable import ContentUnreadable

MODULE = "vmrag_link.conversion.child"


class ConvertingProcess(ConfinedProcess):
    """A child process that converts files. For one thread at a time."""

    def __init__(self, limits: ConversionLimits) -> None:
        """Start it. Raises `FileFailed` where there is no room."""
        super().__init__(MODULE, limits)

    def convert(self, task: ConversionTask, data: bytes) -> Answer:
        """Raises `ContentUnreadable` where the process does not come to an end, or dies of it."""
        try:
            with self.watched():
                self.send(frames.encode(task), data)
                answer = msgspec.msgpack.decode(self.receive(self._limits.max_text + MIB), type=Answer)
        except ProcessEnded as ended:
            raise self._failure(ended) from None
        if answer.last:
            self.retire()
        if answer.failed:
            raise ContentUnreadable(terminal_text.one_line(answer.failed), terminal_text.one_line(answer.hint))
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
