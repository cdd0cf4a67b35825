"""Source code to pieces, in a child process: grammars are C code that reads strangers' texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from vmrag_link.code.cutting import cut, is_parsed
from vmrag_link.code.languages import LONGEST_MESSAGE, CodePiece, CodeTask, CodeUnparsed, CutAnswer, CutBudget
from vmrag_link.conversion.limits import ConversionLimits

if TYPE_CHECKING:
    from vmrag_link.conversion.converter import ConfinedProcess, ProcessEnded  # only where one is needed

MODULE = "vmrag_link.code.child"

_MOST_AHEAD, _CHARACTERS_AHEAD = 64, 1 << 21
"""Texts that the child is told before their turn, so that it never waits for us."""

_LIMITS = ConversionLimits(max_cpu_seconds=30, max_seconds=120)
"""Code takes a second for five megabytes. What is made to be hard is stopped by the parser, but for
some that grow with the square of a text, which may not grow for long.
"""


class _Copy(NamedTuple):
    """A text that came before, of a language and a size."""

    blob: str
    language: str
    size: int


_Waiting = deque[CodeTask | _Copy | list[CodePiece]]
"""Tasks, copies of earlier ones, and the pieces of texts that no child is needed for; in order."""


class CodeCutter:
    """Cuts texts, one after the other. For one thread at a time.

    A child process is started for the first text that is parsed, serves the next ones, and ends
    with the block. One that dies of a text is replaced for the next.
    """

    def __init__(self, limits: ConversionLimits | None = None, budget: CutBudget | None = None) -> None:
        self._limits = limits or _LIMITS
        self._budget = budget or CutBudget()
        self._process: ConfinedProcess | None = None
        self._told = 0
        """How many of the texts that wait it knows: the first ones."""

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

    def cut(self, text: str, language: str, size: int) -> list[CodePiece]:
        """As `cutting.cut`. Raises `CodeUnparsed` where the parser dies of the text, or takes
        longer than the limits allow.
        """
        found = next(iter(self.cut_all([CodeTask(text, language, size)])))
        if isinstance(found, CodeUnparsed):
            raise found
        return found

    def cut_all(self, tasks: Iterable[CodeTask]) -> Iterator[list[CodePiece] | CodeUnparsed]:
        """The pieces of each text, or why it has none; in the order of the tasks, which are read
        ahead. It ends before the tasks do once the budget is spent.
        """
        given, waiting, self._told = iter(tasks), _Waiting(), 0
        answers: dict[_Copy, list[CodePiece] | CodeUnparsed | None] = {}
        try:
            while _read_ahead(given, waiting, answers):
                first = waiting[0]
                if isinstance(first, CodeTask):
                    if self._budget.seconds <= 0:
                        return
                    pieces = self._answer(waiting)
                    if first.blob:
                        answers[_copy_of(first)] = pieces
                elif isinstance(first, _Copy):
                    copied = answers[first]
                    assert copied is not None  # noqa: S101  the text came before, and has its answer
                    pieces = copied
                else:
                    pieces = first
                waiting.popleft()
                self._told = max(0, self._told - 1)
                yield pieces
        finally:
            if self._process and any(isinstance(each, CodeTask) for each in islice(waiting, self._told)):
                self._process.retire()  # its answers would be taken for those to others

    def _answer(self, waiting: _Waiting) -> list[CodePiece] | CodeUnparsed:
        """To the first of them; the child is told all."""
        from vmrag_link.conversion.converter import ProcessEnded

        process = self._running()
        frames = [
            msgspec.msgpack.encode(each) for each in islice(waiting, self._told, None) if isinstance(each, CodeTask)
        ]
        self._told = len(waiting)
        try:
            with process.watched():
                process.send(*frames)
                answer = msgspec.msgpack.decode(process.receive(LONGEST_MESSAGE), type=CutAnswer)
        except ProcessEnded as ended:
            self._budget.seconds -= self._limits.max_cpu_seconds
            return self._failure(ended)
        self._budget.seconds -= answer.seconds
        if answer.last:
            process.retire()
        return list(answer.pieces)

    def _running(self) -> ConfinedProcess:
        """The child, or another one, which knows nothing yet, if it is of no more use."""
        from vmrag_link.conversion.converter import ConfinedProcess

        if self._process and not self._process.usable:
            self.close()
        if self._process is None:
            self._process, self._told = ConfinedProcess(MODULE, self._limits), 0
        return self._process

    def _failure(self, ended: ProcessEnded) -> CodeUnparsed:
        if ended.late:
            return CodeUnparsed(f"takes more than {self._limits.max_seconds} seconds to be cut")
        if ended.killed_by == "SIGXCPU":
            return CodeUnparsed(f"takes more than {self._limits.max_cpu_seconds} seconds of computing to be cut")
        why = f"its parser was ended by {ended.killed_by}" if ended.killed_by else ended.said
        return CodeUnparsed(f"cannot be cut ({why})" if why else "cannot be cut")


def _copy_of(task: CodeTask) -> _Copy:
    return _Copy(task.blob, task.language, task.size)


def _read_ahead(
    given: Iterator[CodeTask], waiting: _Waiting, answers: dict[_Copy, list[CodePiece] | CodeUnparsed | None]
) -> bool:
    """Return whether any task remains. Texts that may come again get a place in `answers`."""
    characters = sum(len(each.text) for each in waiting if isinstance(each, CodeTask))
    while not waiting or (len(waiting) < _MOST_AHEAD and characters < _CHARACTERS_AHEAD):
        task = next(given, None)
        if task is None:
            break
        parsed = is_parsed(task.text, task.language)
        if parsed and task.blob:
            if _copy_of(task) in answers:
                waiting.append(_copy_of(task))
                continue
            answers[_copy_of(task)] = None
        waiting.append(task if parsed else cut(task.text, task.language, task.size))
        characters += len(task.text) if parsed else 0
    return bool(waiting)
