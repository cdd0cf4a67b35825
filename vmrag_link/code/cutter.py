"""Split source code into pieces in child processes, because grammars are C code that reads
untrusted texts.
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
    from vmrag_link.conversion.converter import ConfinedProcess, ProcessEnded  # only where one is needed

MODULE = "vmrag_link.code.child"

_MOST_AHEAD, _CHARACTERS_AHEAD = 256, 1 << 21
"""Maximum number of texts and characters that each child gets in advance, so that it works while
the parent does other things.
"""

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


class _Copy(NamedTuple):
    """A text of which an equal one was already assigned, with a language and a size."""

    blob: str
    language: str
    size: int


class _Child:
    """A child process, started for the first task, and its unanswered tasks."""

    def __init__(self, limits: ConversionLimits) -> None:
        self._limits = limits
        self._process: ConfinedProcess | None = None
        self._tasks: deque[CodeTask] = deque()
        self._sent = 0
        self.characters = 0
        """Characters of the tasks."""

    def add(self, task: CodeTask) -> None:
        self._start_process()  # now, so that it starts while other texts are read
        self._tasks.append(task)
        self.characters += len(task.text)

    def send(self) -> None:
        """Send the tasks that were added. If the process has died, `answer` reports it."""
        if self._sent == len(self._tasks):
            return
        from vmrag_link.conversion.converter import ProcessEnded

        process = self._start_process()
        frames = (_encode_task(task) for task in islice(self._tasks, self._sent, None))
        self._sent = len(self._tasks)
        with contextlib.suppress(ProcessEnded), process.watch_task():
            process.send_frames(*chain.from_iterable(frames))

    def answer(self) -> CutAnswer | CodeUnparsed:
        """Wait for the answer to the first task."""
        from vmrag_link.conversion.converter import ProcessEnded

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
        from vmrag_link.conversion.converter import ConfinedProcess

        if self._process and not self._process.is_usable:
            self.close()
        if self._process is None:
            self._process, self._sent = ConfinedProcess(MODULE, self._limits), 0
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
    """A text that a child splits. `copy`: set if an equal text may follow."""

    child: _Child
    copy: _Copy | None


_Waiting = deque[_Assigned | _Copy | list[CodePiece]]
"""Texts in order. Each is assigned to a child, a copy of an earlier text, or already split."""


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
        remaining, waiting = iter(tasks), _Waiting()
        answers: dict[_Copy, list[CodePiece] | CodeUnparsed] = {}
        repeated: set[_Copy] = set()
        try:
            while self._read_ahead(remaining, waiting, repeated):
                first = waiting[0]
                if isinstance(first, list):
                    pieces: list[CodePiece] | CodeUnparsed = first
                elif isinstance(first, _Copy):
                    pieces = answers[first]
                elif self._budget.seconds <= 0:
                    return
                else:
                    pieces = self._receive_pieces(first.child)
                    if first.copy:
                        answers[first.copy] = pieces
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

    def _read_ahead(self, tasks: Iterator[CodeTask], waiting: _Waiting, repeated: set[_Copy]) -> bool:
        """Assign many tasks to the children at once, and return whether any task remains."""
        limit, characters = _MOST_AHEAD * len(self._children), _CHARACTERS_AHEAD * len(self._children)
        ahead = sum(child.characters for child in self._children)
        if waiting and (len(waiting) > limit // 2 or ahead > characters // 2):
            return True
        while len(waiting) < limit and ahead < characters and (task := next(tasks, None)):
            if not needs_parser(task.text, task.language):
                waiting.append(cut_code(task.text, task.language, task.size))
                continue
            copy = _Copy(task.blob, task.language, task.size) if task.blob else None
            if copy in repeated:
                waiting.append(copy)
                continue
            repeated |= {copy} if copy else set()
            child = min(self._children, key=lambda child: child.characters)
            child.add(task)
            waiting.append(_Assigned(child, copy))
            ahead += len(task.text)
        for child in self._children:
            child.send()
        return bool(waiting)
