"""Long output through the pager, as git does it: on a terminal only."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import IO

from vmrag_link.git import programs
from vmrag_link.paths import Places
from vmrag_link.proc import Started


@contextlib.contextmanager
def paged(places: Places) -> Iterator[None]:
    """What is printed within goes through git's pager, if standard output is a terminal; returns
    when the person has left it.
    """
    process = programs.start_pager(places) if sys.stdout.isatty() else None
    if process is None:
        yield
        return
    assert process.stdin is not None  # noqa: S101  that is what it was started for
    stream = _Screen(process.stdin)
    try:
        with contextlib.redirect_stdout(stream):
            yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            stream.close()
        _wait(process)


class _Screen(io.TextIOWrapper):
    """The pager's input: what a terminal shows in the end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(pipe, encoding="utf-8", errors="backslashreplace")

    def isatty(self) -> bool:
        return True


def _wait(process: Started) -> None:
    """Ctrl-C is for the pager, which ends when it wants to."""
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return
