"""One process of `dolt sql`, and what is said to it and by it."""

from __future__ import annotations

import contextlib
import os
import select
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

_PIECE = 1 << 20
_ENDING_SECONDS = 10.0
_CHECK_SECONDS = 0.1
REMOTE_SECONDS = 900.0
"""As long as git may take over a remote."""

_MARK = "vmrag_end"
_REPEATED = 300
"""Characters of a statement's end by which it is found in a complaint."""


def _ready(seconds: float, output: IO[bytes], input: IO[bytes] | None = None) -> tuple[bool, bool]:  # noqa: A002
    """Whether something can be read, and written; waits for one of both. `select` would take no
    descriptor above 1,023.
    """
    waiting = select.poll()
    waiting.register(output, select.POLLIN)
    if input is not None:
        waiting.register(input, select.POLLOUT)
    found = dict(waiting.poll(seconds * 1000))
    return output.fileno() in found, input is not None and input.fileno() in found


class _Result(msgspec.Struct):
    """A line of standard output: what one query gave. Without rows it is `{}`."""

    rows: list[SqlRow] = []


class ShellSession:
    """Any failure ends it, but for an answer that is too long. `begun`: when it was started;
    `used`: when it was asked last.
    """

    def __init__(self, folder: Path, access: DoltAccess, *, longest: int) -> None:
        self.used = self.begun = time.monotonic()
        self.ended = False
        self._longest = longest
        self._out = bytearray()
        self._exceeded = False
        self._number = 0
        self._unanswered: list[str] = []
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        self._at: str | None = None
        self._database = ""
        path = program.locate_program(access.binary)
        argv = [path, "sql", "-r", "json", "--disable-auto-gc"]
        try:
            self._process = proc.start_piped(
                argv, cwd=folder, env=program.build_environment(folder), stderr=self._complaints
            )
            os.set_blocking(self._input.fileno(), False)
            begun = self._run(SESSION_STATEMENTS, ["SELECT database() AS name, dolt_version() AS version"])[0][0]
        except (OSError, EngineFailed):
            program.find_program(access.binary)  # raises what is wrong with the program
            raise
        program.remember_version(path, str(begun["version"]))
        self._database = str(begun["name"])

    def run_queries(self, queries: Sequence[str], *, at: str | None) -> list[list[SqlRow]]:
        """The rows of each query."""
        return self._run([], queries, at=at)

    def run_statements(
        self, statements: Sequence[str], *, at: str | None, check: Callable[[], None] | None = None
    ) -> list[SqlRow]:
        """The rows of the last statement, if it is a call; nothing can be said of any other.

        `check` is called while nothing is answered, for as long as REMOTE_SECONDS; what it raises
        ends the process.
        """
        calls = [statement for statement in statements[-1:] if statement.startswith(CALL)]
        found = self._run(statements[: len(statements) - len(calls)], calls, at=at, check=check)
        return found[0] if found else []

    def queue_statements(self, statements: Sequence[str], *, at: str | None) -> None:
        """Run statements without waiting for them; their failure is that of the next one."""
        try:
            self._say([*self._moving(at), *statements])
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """What was not committed is rolled back; a statement that runs is waited for."""
        self.ended = True
        with contextlib.suppress(OSError):
            self._input.close()
        proc.wait_or_kill(self._process, _ENDING_SECONDS)
        self._output.close()
        self._complaints.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None  # noqa: S101  `proc.piped` makes both
        return self._process.stdin

    @property
    def _output(self) -> IO[bytes]:
        assert self._process.stdout is not None  # noqa: S101  `proc.piped` makes both
        return self._process.stdout

    def _run(
        self,
        statements: Sequence[str],
        queries: Sequence[str],
        *,
        at: str | None = None,
        check: Callable[[], None] | None = None,
    ) -> list[list[SqlRow]]:
        """Each query prints one line; so do some statements, but the queries come last."""
        self._number += 1
        end = f"{_MARK}_{self._number}"
        whole = [*self._moving(at), *statements, *queries, f"SELECT '' AS {end}"]
        try:
            self._say(whole)
            lines = self._lines_until(f'{{"rows": [{{"{end}":""}}]}}'.encode(), check)
        except BaseException:
            self._abandon()
            raise
        if self._exceeded:
            self._exceeded = False
            raise LimitExceeded(f"The knowledge base answers with more than {self._longest // MEGABYTE:,} MB.")
        try:
            return [msgspec.json.decode(line, type=_Result).rows for line in lines[len(lines) - len(queries) :]]
        except (UnicodeDecodeError, msgspec.DecodeError) as error:
            self._abandon()
            raise dolt_error(f"its answer cannot be read: {error}") from error

    def _moving(self, at: str | None) -> list[str]:
        if at == self._at:
            return []
        self._at = at
        return [f"USE {quote_place(self._database, at)}"]

    def _say(self, statements: Sequence[str]) -> None:
        """What is answered meanwhile is taken in: the program does not go on reading before."""
        self._unanswered += [statement[-_REPEATED:] for statement in statements]
        left = memoryview("".join(f"{statement};\n" for statement in statements).encode())
        while left:
            answers, ready = _ready(STATEMENT_SECONDS, self._output, self._input)
            if not (answers or ready):
                raise StatementGivenUp(f"Dolt took longer than {STATEMENT_SECONDS:.0f} seconds and was ended.")
            if answers:
                self._take_in()
                if len(self._out) > 2 * self._longest:
                    raise LimitExceeded("The knowledge base answers with more than was asked.")
            if ready:
                try:
                    left = left[os.write(self._input.fileno(), left[:_PIECE]) :]
                except BrokenPipeError as error:
                    raise self._failure() from error

    def _lines_until(self, mark: bytes, check: Callable[[], None] | None) -> list[bytes]:
        lines: list[bytes] = []
        while True:
            line = self._line(check)
            if line == mark:
                self._unanswered.clear()
                return lines
            if line:
                lines.append(line)

    def _line(self, check: Callable[[], None] | None) -> bytes:
        """The next line of standard output, or the end of one that is too long.

        Raises `EngineFailed` where there is none.
        """
        start, begun = 0, time.monotonic()
        while (end := self._out.find(b"\n", start)) < 0:
            self._drop_excess()
            start = len(self._out)
            self._await_output(begun, check)
            self._take_in()
        line = bytes(self._out[:end])
        del self._out[: end + 1]
        return line

    def _take_in(self) -> None:
        """More of standard output, of which there is some, or its end."""
        piece = os.read(self._output.fileno(), _PIECE)
        if not piece:
            raise self._failure()
        self._out += piece

    def _drop_excess(self) -> None:
        """Forget the beginning of a line that is too long; its query will have no answer."""
        if len(self._out) > self._longest:
            self._out.clear()
            self._exceeded = True

    def _await_output(self, begun: float, check: Callable[[], None] | None) -> None:
        most, pause = (REMOTE_SECONDS, _CHECK_SECONDS) if check else (STATEMENT_SECONDS, STATEMENT_SECONDS)
        while (left := begun + most - time.monotonic()) > 0:
            answers, _ = _ready(min(left, pause), self._output)
            if check:
                check()
            if answers:
                return
        raise StatementGivenUp(f"Dolt took longer than {most:.0f} seconds and was ended.")

    def _failure(self) -> EngineFailed:
        proc.wait_or_kill(self._process, _ENDING_SECONDS)
        self._complaints.seek(0)
        told = self._complaints.read().decode(errors="replace")
        for end in self._unanswered:  # the program repeats the statement, which may be full of documents
            _, found, after = told.rpartition(end)
            told = after.removeprefix(": ") if found else told
        return dolt_error(told or f"it ended with exit code {self._process.returncode}")

    def _abandon(self) -> None:
        """Kill it: it is in the middle of something."""
        self.ended = True
        self._process.kill()
        self.close()
