"""Bars and notes on standard error during long work, and git's pager for long output."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from vmrag_link.cli import output
from vmrag_link.progress import QUIET, UNITS, Task
from vmrag_link.terminal_text import escape_line

if TYPE_CHECKING:
    from vmrag_link.paths import Places
    from vmrag_link.proc import Started


PATIENCE = 0.5
"""Seconds before a bar appears. Most work is done by then, and does not have to import rich."""

LINE_SECONDS = 5.0
"""Seconds between lines of progress without bars: through a pipe, or in a log."""


class Terminal:
    """The progress of work on standard error.

    Without `bars`, it prints notes, and a line now and then about long work.
    """

    def __init__(self, *, bars: bool) -> None:
        self._bars = bars
        self._rich: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        if not self._bars:
            yield _Lines(self, description, total)
            return
        if total <= 1:
            with QUIET.task(description, total) as task:
                yield task
            return
        bar = _Bar(self, description, total)
        try:
            yield bar
        finally:
            bar.end()

    def note(self, sentence: str) -> None:
        output.print_warning(sentence)

    def show_bar(self) -> Any:
        if self._rich is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.completed:,.0f} of {task.total:,.0f}{task.fields[unit]}"),
                TimeRemainingColumn(),
            )
            # rich prints standard output above its bars, so a file would get nothing.
            to_terminal = sys.stdout.isatty()
            console = Console(stderr=True)
            self._rich = Progress(*columns, console=console, transient=True, redirect_stdout=to_terminal)
            self._rich.start()
        return self._rich

    def hide_bar(self, task: Any) -> None:
        """Remove the bar, so that other output can be printed."""
        self._rich.remove_task(task)
        if not self._rich.tasks:
            self._rich.stop()
            self._rich = None


class _Lines:
    """A task without a bar, which prints a line now and then."""

    def __init__(self, terminal: Terminal, description: str, total: int) -> None:
        self._terminal = terminal
        self._description = description
        self._total = total
        self._completed = 0
        self._printed = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._completed += steps
        if self._completed < self._total and time.monotonic() - self._printed >= LINE_SECONDS:
            unit = UNITS.get(self._description, "")
            self._terminal.note(f"{self._description}: {self._completed:,} of {self._total:,}{unit}")
            self._printed = time.monotonic()


class _Bar:
    """A task with a bar, which appears after `PATIENCE`."""

    def __init__(self, terminal: Terminal, description: str, total: int) -> None:
        self._terminal = terminal
        self._description = description
        self._total = total
        self._begun = time.monotonic()
        self._completed = 0
        self._id: Any = None

    def advance(self, steps: int = 1) -> None:
        self._completed += steps
        if self._id is None and time.monotonic() - self._begun > PATIENCE:
            name = escape_line(self._description)
            unit = UNITS.get(self._description, "")
            self._id = self._terminal.show_bar().add_task(name, total=self._total, unit=unit)
        if self._id is not None:
            self._terminal.show_bar().update(self._id, completed=self._completed)

    def end(self) -> None:
        if self._id is not None:
            self._terminal.hide_bar(self._id)


@contextlib.contextmanager
def open_pager(places: Places) -> Iterator[None]:
    """Send the output of the block through git's pager, if standard output is a terminal.

    It returns when the user has left the pager.
    """
    from vmrag_link.git import programs  # most output is not paged

    process = programs.start_pager(places) if sys.stdout.isatty() else None
    if process is None:
        yield
        return
    assert process.stdin is not None  # noqa: S101  the pager was started with a pipe
    stream = _Screen(process.stdin)
    try:
        with contextlib.redirect_stdout(stream):
            yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            stream.close()
        _wait_for_pager(process)


class _Screen(io.TextIOWrapper):
    """The input of the pager, which a terminal shows in the end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(pipe, encoding="utf-8", errors="backslashreplace")

    def isatty(self) -> bool:
        return True


def _wait_for_pager(process: Started) -> None:
    """Wait for the pager to end. Ctrl-C is for the pager."""
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return
