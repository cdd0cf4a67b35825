"""Split source code into pieces in child processes, because grammars are C code that reads
untrusted texts.

`sources.documents` gives all texts of a source to `CodeCutter.cut_all`. The children get many texts
in advance, so that they work while this process reads files. If texts are equal, only the first one
is split.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from vmrag_link.code.cutting import cut_code, needs_parser
from vmrag_link.code.languages import LONGEST_MESSAGE, CodePiece, CodeTask, CodeUnparsed, CutBudget
from vmrag_link.conversion.limits import ConversionLimits
from vmrag_link.models import Record

if TYPE_CHECKING:
    from vmrag_link.conversion.confined_process import ConfinedProcess, ProcessEnded  # only where one is needed

MODULE = "vmrag_link.code.child"

_MAX_TEXTS_AHEAD = 256
_MAX_CHARACTERS_AHEAD = 1 << 21
"""How much each child gets in advance."""

_LIMITS = ConversionLimits(max_cpu_seconds=30, max_seconds=120)
"""Code takes a second for five megabytes. The parser stops texts that are difficult on purpose,
except some whose time is quadratic, so the limits are low.
"""


class CutAnswer(Record, frozen=True, array_like=True):
    """The answer of a child."""

    pieces: tuple[CodePiece, ...]
    seconds: float = 0.0
    """CPU time of the task."""

    last: bool = False
    """True if the process ends after this answer, because it has used too much memory."""


class _TextKey(NamedTuple):
    """A key that equal tasks share."""

    blob: str
    language: str
    size: int


class _Child:
    """A queue of tasks for one child process, which is started for the first task.

    Tasks are added, then sent together, and answered in the same order.
    """

    def __init__(self, limits: ConversionLimits) -> None:
        self._limits = limits
        self._process: ConfinedProcess | None = None
        self._tasks: deque[CodeTask] = deque()
        """The tasks without an answer."""

        self._sent = 0
        """How many of them were sent."""

        self.characters = 0
        """The characters of their texts."""

    def add(self, task: CodeTask) -> None:
        """Add a task to the end of the queue."""
        self._start_process()  # now, so that it starts while other texts are read
        self._tasks.append(task)
        self.characters += len(task.text)

    def send(self) -> None:
        """Send the tasks that were added. If the process has died, `answer` reports it."""
        if self._sent == len(self._tasks):
            return
        from vmrag_link.conversion.confined_process import ProcessEnded

        process = self._start_process()
        frames = (_encode_task(task) for task in islice(self._tasks, self._sent, None))
        self._sent = len(self._tasks)
        with contextlib.suppress(ProcessEnded), process.watch_task():
            process.send_frames(*chain.from_iterable(frames))

    def answer(self) -> CutAnswer | CodeUnparsed:
        """Remove the first task from the queue, and wait for its answer."""
        from vmrag_link.conversion.confined_process import ProcessEnded

        process = self._start_process()
        if not self._sent:
            self.send()
        try:
            with process.watch_task():
                answer = msgspec.json.decode(process.receive_frame(LONGEST_MESSAGE), type=CutAnswer)
        except ProcessEnded as ended:
            return self._make_error(ended)
        finally:
            self.characters -= len(self._tasks.popleft().text)
            self._sent -= 1
        if answer.last:
            process.retire()
        return answer

    def abandon(self) -> None:
        """Forget the tasks. The process must not be used again if answers to sent tasks are
        pending.
        """
        if self._process and self._sent:
            self._process.retire()
        self._tasks.clear()
        self._sent = self.characters = 0

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process = None

    def _start_process(self) -> ConfinedProcess:
        """Return the process. Start a new one if there is none or it is no longer usable."""
        from vmrag_link.conversion.confined_process import ConfinedProcess

        if self._process and not self._process.is_usable:
            self.close()
        if self._process is None:
            self._process = ConfinedProcess(MODULE, self._limits)
            self._sent = 0
        return self._process

    def _make_error(self, ended: ProcessEnded) -> CodeUnparsed:
        if ended.late:
            return CodeUnparsed(f"takes more than {self._limits.max_seconds} seconds to be cut")
        if ended.killed_by == "SIGXCPU":
            return CodeUnparsed(f"takes more than {self._limits.max_cpu_seconds} seconds of computing to be cut")
        reason = f"its parser was ended by {ended.killed_by}" if ended.killed_by else ended.last_line
        return CodeUnparsed(f"cannot be cut ({reason})" if reason else "cannot be cut")


def _encode_task(task: CodeTask) -> tuple[bytes, bytes]:
    return msgspec.json.encode((task.language, task.size)), task.text.encode(errors="replace")


class _Assigned(NamedTuple):
    """A text that a child splits. `key`: set if an equal text may follow."""

    child: _Child
    key: _TextKey | None


_WaitingTexts = deque[_Assigned | _TextKey | list[CodePiece]]
"""Texts in order. Each is assigned to a child, equal to an earlier text with this key, or already
split.
"""


class CodeCutter:
    """Splits texts, one after the other. Use it in one thread at a time.

    Up to `processes` child processes share the texts that need a parser, and end with the block. If
    a process dies, a new one is started for the next text.
    """

    def __init__(
        self, limits: ConversionLimits | None = None, budget: CutBudget | None = None, *, processes: int = 1
    ) -> None:
        self._limits = limits or _LIMITS
        self._budget = budget or CutBudget()
        self._children = [_Child(self._limits) for _ in range(processes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for child in self._children:
            child.close()

    def cut_text(self, text: str, language: str, size: int) -> list[CodePiece]:
        """Return the pieces of a text (`cutting.cut_code`).

        Raises `CodeUnparsed` if the parser dies or takes longer than the limits allow.
        """
        pieces = next(iter(self.cut_all([CodeTask(text, language, size)])))
        if isinstance(pieces, CodeUnparsed):
            raise pieces
        return pieces

    def cut_all(self, tasks: Iterable[CodeTask]) -> Iterator[list[CodePiece] | CodeUnparsed]:
        """Yield the pieces of each text, or why it has none, in the order of the tasks.

        The tasks are read ahead. If the budget is spent, fewer results are yielded.
        """
        remaining = iter(tasks)
        waiting = _WaitingTexts()
        assigned: set[_TextKey] = set()
        answers: dict[_TextKey, list[CodePiece] | CodeUnparsed] = {}
        try:
            while self._read_ahead(remaining, waiting, assigned):
                first = waiting[0]
                if isinstance(first, list):
                    pieces: list[CodePiece] | CodeUnparsed = first
                elif isinstance(first, _TextKey):
                    pieces = answers[first]
                elif self._budget.seconds <= 0:
                    return
                else:
                    pieces = self._receive_pieces(first.child)
                    if first.key:
                        answers[first.key] = pieces
                waiting.popleft()
                yield pieces
        finally:
            for child in self._children:
                child.abandon()

    def _receive_pieces(self, child: _Child) -> list[CodePiece] | CodeUnparsed:
        answer = child.answer()
        if isinstance(answer, CodeUnparsed):
            self._budget.seconds -= self._limits.max_cpu_seconds
            return answer
        self._budget.seconds -= answer.seconds
        return list(answer.pieces)

    def _read_ahead(self, tasks: Iterator[CodeTask], waiting: _WaitingTexts, assigned: set[_TextKey]) -> bool:
        """Assign many tasks to the children at once, and return whether any task remains.

        `assigned`: the keys of earlier texts, to which the new ones are added.
        """
        max_texts = _MAX_TEXTS_AHEAD * len(self._children)
        max_characters = _MAX_CHARACTERS_AHEAD * len(self._children)
        characters = sum(child.characters for child in self._children)
        if waiting and (len(waiting) > max_texts // 2 or characters > max_characters // 2):
            return True
        while len(waiting) < max_texts and characters < max_characters:
            task = next(tasks, None)
            if task is None:
                break
            key = _TextKey(task.blob, task.language, task.size) if task.blob else None
            if not needs_parser(task.text, task.language):
                waiting.append(cut_code(task.text, task.language, task.size))
            elif key in assigned:
                waiting.append(key)
            else:
                if key:
                    assigned.add(key)
                child = min(self._children, key=lambda child: child.characters)
                child.add(task)
                waiting.append(_Assigned(child, key))
                characters += len(task.text)
        for child in self._children:
            child.send()
        return bool(waiting)
