"""A real terminal for a `vmrag` that believes that a person sits in front of it.

A test module takes the fixture with `screens = screen.screens`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from typing import Self

import pytest

from tests.support.terminal import SCRIPT, Project


class Screen:
    """One run, over when the block ends; `said` is all output."""

    def __init__(self, project: Project, *arguments: str, columns: int = 80, **environ: str) -> None:
        self.said = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            [SCRIPT, *arguments],
            cwd=project.top,
            env=os.environ | {"TERM": "xterm"} | environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509  no threads here
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def expect(self, text: str) -> str:
        """Return the output since the last answer, up to the text."""
        start = len(self.said)
        until = time.monotonic() + 30
        while text not in self.said[start:]:
            assert self._read(until), f"{text!r} did not come: {self.said}"
        return self.said[start:]

    def answer(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        while self._read(time.monotonic() + 30):
            pass
        return self._process.wait(30)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with what it started: a pager, an editor
        self._process.wait()
        os.close(self._master)

    def _read(self, until: float) -> bool:
        waiting = select.poll()  # `select` takes no descriptor above 1,023
        waiting.register(self._master, select.POLLIN)
        try:
            data = os.read(self._master, 4096) if waiting.poll(max(0, until - time.monotonic()) * 1000) else b""
        except OSError:  # Linux reports a closed other side this way
            data = b""
        self.said += data.decode(errors="replace")
        return bool(data)


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches it


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.close()
