"""One process of `dolt sql`: writing statements to it and reading its answers."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import msgspec

from vmrag_link import proc
from vmrag_link.engines.dolt import program
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import (
    CALL,
    SESSION_STATEMENTS,
    STATEMENT_SECONDS,
    SqlRow,
    dolt_error,
    quote_place,
)
from vmrag_link.engines.limits import MEGABYTE
from vmrag_link.errors import EngineFailed, LimitExceeded, StatementGivenUp

_READ_BYTES = 1 << 20
_ENDING_SECONDS = 10.0
_CHECK_SECONDS = 0.1
REMOTE_SECONDS = 900.0
"""Time limit for remotes, the same as for git."""

_MARK = "vmrag_end"
_REPEATED = 300
"""Number of characters at a statement's end that are searched in an error message."""


def _wait_until_ready(seconds: float, output: IO[bytes], input: IO[bytes] | None = None) -> tuple[bool, bool]:  # noqa: A002
    """Wait until a pipe can be read or written; return whether each can.

    `select` would not accept a descriptor above 1,023.
    """
    waiting = select.poll()
    waiting.register(output, select.POLLIN)
    if input is not None:
        waiting.register(input, select.POLLOUT)
    events = dict(waiting.poll(seconds * 1000))
    return output.fileno() in events, input is not None and input.fileno() in events


class _Result(msgspec.Struct):
    """A line of standard output: the result of one query. Without rows it is `{}`."""

    rows: list[SqlRow] = []


class ShellSession:
    """A process of `dolt sql`. Any failure ends it, except an answer that is too long.

    `begun` and `used` are the times when it was started and last used.
    """

    def __init__(self, folder: Path, access: DoltAccess, *, max_answer_bytes: int) -> None:
        self.begun = time.monotonic()
        self.used = self.begun
        self.ended = False
        self._max_answer_bytes = max_answer_bytes
        self._buffer = bytearray()
        self._exceeded = False
        self._number = 0
        self._unanswered: list[str] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._at: str | None = None
        self._database = ""
        path = program.locate_program(access.binary)
        argv = [path, "sql", "-r", "json", "--disable-auto-gc"]
        try:
            self._process = proc.start_piped(
                argv, cwd=folder, env=program.build_environment(folder), stderr=self._stderr
            )
            os.set_blocking(self._input.fileno(), False)
            info = self._run_all(SESSION_STATEMENTS, ["SELECT database() AS name, dolt_version() AS version"])[0][0]
        except (OSError, EngineFailed):
            program.find_program(access.binary)  # raises a better error if the program is the problem
            raise
        program.remember_version(path, str(info["version"]))
        self._database = str(info["name"])

    def run_queries(self, queries: Sequence[str], *, at: str | None) -> list[list[SqlRow]]:
        """Return the rows of each query."""
        return self._run_all([], queries, at=at)

    def run_statements(
        self, statements: Sequence[str], *, at: str | None, check: Callable[[], None] | None = None
    ) -> list[SqlRow]:
        """Run statements; return the rows of the last one if it is a call.

        Other statements have none. `check` is called while there is no answer, up to
        REMOTE_SECONDS. An error that it raises ends the process.
        """
        calls = [statement for statement in statements[-1:] if statement.startswith(CALL)]
        results = self._run_all(statements[: len(statements) - len(calls)], calls, at=at, check=check)
        return results[0] if results else []

    def queue_statements(self, statements: Sequence[str], *, at: str | None) -> None:
        """Send statements without waiting for them. The next statement raises their errors."""
        try:
            self._send_statements([*self._use_statements(at), *statements])
        except BaseException:
            self._kill_process()
            raise

    def close(self, *, kill: bool = False) -> None:
        """End the process after its current statement. Uncommitted changes are rolled back.

        `kill` takes a tenth of the time. It is for a process that has written nothing.
        """
        self.ended = True
        if kill and self._process.poll() is None:  # the number of an ended process may belong to another one
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a script may have started the program
        with contextlib.suppress(OSError):
            self._input.close()
        proc.wait_or_kill(self._process, _ENDING_SECONDS)
        self._output.close()
        self._stderr.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101  `proc.start_piped` opens both
        return self._process.stdin

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None  # noqa: S101  `proc.start_piped` opens both
        return self._process.stdout

    def _run_all(
        self,
        statements: Sequence[str],
        queries: Sequence[str],
        *,
        at: str | None = None,
        check: Callable[[], None] | None = None,
    ) -> list[list[SqlRow]]:
        """Run statements and then queries; return the rows of the queries.

        Each query prints one line. Some statements also do, but the queries come last.
        """
        self._number += 1
        end = f"{_MARK}_{self._number}"
        batch = [*self._use_statements(at), *statements, *queries, f"SELECT '' AS {end}"]
        try:
            self._send_statements(batch)
            lines = self._read_lines_until(f'{{"rows": [{{"{end}":""}}]}}'.encode(), check)
        except BaseException:
            self._kill_process()
            raise
        if self._exceeded:
            self._exceeded = False
            raise LimitExceeded(
                f"an answer of the knowledge base is larger than {self._max_answer_bytes // MEGABYTE:,} MB."
            )
        try:
            return [msgspec.json.decode(line, type=_Result).rows for line in lines[len(lines) - len(queries) :]]
        except (UnicodeDecodeError, msgspec.DecodeError) as error:
            self._kill_process()
            raise dolt_error(f"its answer cannot be parsed: {error}") from error

    def _use_statements(self, at: str | None) -> list[str]:
        if at == self._at:
            return []
        self._at = at
        return [f"USE {quote_place(self._database, at)}"]

    def _send_statements(self, statements: Sequence[str]) -> None:
        """Send statements while reading answers: otherwise the program stops reading."""
        self._unanswered += [statement[-_REPEATED:] for statement in statements]
        remaining = memoryview("".join(f"{statement};\n" for statement in statements).encode())
        while remaining:
            readable, writable = _wait_until_ready(STATEMENT_SECONDS, self._output, self._input)
            if not (readable or writable):
                raise StatementGivenUp(f"Dolt took longer than {STATEMENT_SECONDS:.0f} seconds and was stopped.")
            if readable:
                self._read_output()
                if len(self._buffer) > 2 * self._max_answer_bytes:
                    raise LimitExceeded("the knowledge base returned more than requested.")
            if writable:
                try:
                    remaining = remaining[os.write(self._input.fileno(), remaining[:_READ_BYTES]) :]
                except BrokenPipeError as error:
                    raise self._process_error() from error

    def _read_lines_until(self, mark: bytes, check: Callable[[], None] | None) -> list[bytes]:
        lines: list[bytes] = []
        while True:
            line = self._read_line(check)
            if line == mark:
                self._unanswered.clear()
                return lines
            if line:
                lines.append(line)

    def _read_line(self, check: Callable[[], None] | None) -> bytes:
        """Return the next line of standard output, or the end of one that is too long.

        Raises `EngineFailed` if there is none.
        """
        start, begun = 0, time.monotonic()
        while (end := self._buffer.find(b"\n", start)) < 0:
            self._drop_excess()
            start = len(self._buffer)
            self._await_output(begun, check)
            self._read_output()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _read_output(self) -> None:
        """Read more of standard output, which has data or has ended."""
        data = os.read(self._output.fileno(), _READ_BYTES)
        if not data:
            raise self._process_error()
        self._buffer += data

    def _drop_excess(self) -> None:
        """Drop the beginning of a line that is too long. Its query fails later."""
        if len(self._buffer) > self._max_answer_bytes:
            self._buffer.clear()
            self._exceeded = True

    def _await_output(self, begun: float, check: Callable[[], None] | None) -> None:
        limit, pause = (REMOTE_SECONDS, _CHECK_SECONDS) if check else (STATEMENT_SECONDS, STATEMENT_SECONDS)
        while (remaining := begun + limit - time.monotonic()) > 0:
            readable, _ = _wait_until_ready(min(remaining, pause), self._output)
            if check:
                check()
            if readable:
                return
        raise StatementGivenUp(f"Dolt took longer than {limit:.0f} seconds and was stopped.")

    def _process_error(self) -> EngineFailed:
        proc.wait_or_kill(self._process, _ENDING_SECONDS)
        self._stderr.seek(0)
        message = self._stderr.read().decode(errors="replace")
        for end in self._unanswered:  # the message repeats the statement, which may contain documents
            _, separator, after = message.rpartition(end)
            message = after.removeprefix(": ") if separator else message
        return dolt_error(message or f"it ended with exit code {self._process.returncode}")

    def _kill_process(self) -> None:
        """Kill the process, which may be in the middle of a statement."""
        self.close(kill=True)
