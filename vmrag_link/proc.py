"""The one place that starts processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from vmrag_link import terminal_text

_GRACE_SECONDS = 3.0
"""How long a program that is ended may clear up."""


_bounded_now: set[subprocess.Popen[bytes]] = set()
"""What runs with a limit now: such programs talk to others, and wait for them."""

_detached: list[subprocess.Popen[bytes]] = []
"""What was started to outlive us, as far as it had not ended when the next one was started."""


Started = subprocess.Popen[bytes]


class Finished(subprocess.CompletedProcess[bytes]):
    """What a program left: `returncode`, `stdout` and `stderr` as bytes."""

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="surrogateescape")

    @property
    def complaint(self) -> str:
        """Its standard error, for people. Part of it may come from another machine, so control
        characters are escaped.
        """
        lines = self.stderr.decode(errors="replace").splitlines()
        return "\n".join(terminal_text.visible(line) for line in lines).strip()

    @property
    def killed_by(self) -> str:
        """The signal that ended it, such as `SIGKILL`; empty if it ended by itself."""
        if self.returncode >= 0:
            return ""
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def failure(self) -> str:
        """Why it failed, for people: its signal, what it said, or else its exit code."""
        program = Path(str(self.args[0])).name
        if self.killed_by:
            return f"{program} was killed by {self.killed_by}"
        return self.complaint or f"{program} ended with exit code {self.returncode}"


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    show_stderr: bool = False,
    timeout: float | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Finished:
    """Run a program to its end with captured output; never through a shell. Raises
    FileNotFoundError if it is absent.

    `show_stderr` leaves it our own standard error, where it can draw its progress; nothing of that
    is captured. After `timeout` seconds it is ended, with all that it has started, and TimeoutError
    is raised; such a program must not ask anything at the terminal. `meanwhile` is called while one
    without a timeout runs.
    """
    if timeout is not None:
        return _bounded(list(argv), cwd, env, stdin, timeout)
    given = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    shown = None if show_stderr else subprocess.PIPE
    with subprocess.Popen(list(argv), cwd=cwd, env=env, stdin=given, stdout=subprocess.PIPE, stderr=shown) as process:
        try:
            if meanwhile:
                meanwhile()
            said, complained = process.communicate(stdin)
        except BaseException:
            _clear_up(process)
            raise
    return Finished(list(argv), process.returncode, said, complained or b"")


def piped(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program that answers on its standard output what it is told on its standard input;
    what it complains of goes to a file.

    It is in a process group of its own: Ctrl-C at the terminal ends us, not what it is in the
    middle of. The end of its input, which the end of our process is, too, ends it. Raises
    FileNotFoundError if it is absent.
    """
    pipe = subprocess.PIPE
    return subprocess.Popen(list(argv), cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=stderr, process_group=0)


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a program that ends by itself, and kill it when it does not within that time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def attended(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run a program that talks to the person at our terminal; returns its exit code."""
    with subprocess.Popen(list(argv), cwd=cwd, env=env) as process:
        try:
            return process.wait()
        except BaseException:
            _clear_up(process)
            raise


def fed(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Started:
    """Start a program that shows the person at our terminal what it gets on its standard input."""
    return subprocess.Popen(list(argv), cwd=cwd, env=env, stdin=subprocess.PIPE)


def _clear_up(process: subprocess.Popen[bytes]) -> None:
    """Wait for a program that Ctrl-C has reached, too: git then removes its locks. Killed at once
    it would leave them.
    """
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number:
            process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
            return


def _bounded(
    argv: list[str], cwd: Path | None, env: Mapping[str, str] | None, stdin: bytes | None, timeout: float
) -> Finished:
    """Run the program in a process group of its own, so that a timeout ends what it has started,
    too.
    """
    pipe = subprocess.PIPE
    given = subprocess.DEVNULL if stdin is None else pipe
    with subprocess.Popen(argv, cwd=cwd, env=env, stdin=given, stdout=pipe, stderr=pipe, process_group=0) as process:
        _bounded_now.add(process)
        try:
            said, complained = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise TimeoutError(timeout) from error
        except BaseException:  # Ctrl-C reaches us alone
            _end(process)
            raise
        finally:
            _bounded_now.discard(process)
    return Finished(argv, process.returncode, said, complained)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and its children. They are asked first, so that they can clear up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(_GRACE_SECONDS)


def abandon() -> None:
    """Ask the programs that our threads wait for to end, with their children. For a process that
    exits without joining its threads.
    """
    for process in list(_bounded_now):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def detached(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a program that outlives us and our terminal, with no stream of ours; returns its
    process id.
    """
    nothing = subprocess.DEVNULL
    _detached[:] = [each for each in _detached if each.poll() is None]  # a server would gather zombies
    process = subprocess.Popen(
        list(argv), cwd=cwd, env=env, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    _detached.append(process)
    return process.pid
