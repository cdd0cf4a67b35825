"""A connection to a database on a running `dolt sql-server`, which other machines also use.

A query is repeated if its session was lost and nothing depended on it. A statement that changes
something is never repeated, because a lost server may already have stored it. A lost session also
loses its lock and the changes of its transaction.

If a server took long without an answer, it is not contacted again for a minute. Otherwise each
command and each git hook would wait for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from vmrag_link import terminal_text
from vmrag_link.engines.dolt import server_socket
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import AUTOCOMMIT, SqlConnection, SqlRow, quote_literal, quote_place
from vmrag_link.engines.dolt.server_session import ServerSession
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import Busy, ServerUnreachable, quoted
from vmrag_link.file_access import write_atomically
from vmrag_link.models import Record

_FIRST_PAUSE = 0.02
"""Seconds between the first attempts to get the lock. The server itself tries 10,000 times a
second.
"""
_MAX_PAUSE = 0.2

T = TypeVar("T")

SILENCE_NAME = "unreached.json"
"""The file in a knowledge base's folder that records that a server did not answer."""

RETRY_SECONDS = 60.0
"""The server is contacted again this long after a recorded failure."""
LONG_SECONDS = 2.0
"""A failure that took less time is not recorded: the next attempt is cheap."""


class ServerConnection(SqlConnection):
    """A connection to the server.

    `max_answer_bytes`: a longer answer raises `LimitExceeded`. `folder`: where to record
    that the server does not answer.
    """

    def __init__(self, access: DoltAccess, *, max_answer_bytes: int, folder: Path | None = None) -> None:
        self._access = access
        self._max_answer_bytes = max_answer_bytes
        self._folder = folder
        self._session: ServerSession | None = None
        self._dependents = 0
        """Number of blocks whose lock or transaction the session holds."""

        self._transaction_branch = ""
        """The branch of the open transaction, or an empty text."""

        self._in_use = threading.RLock()

    def run_queries(self, queries: Sequence[str], *, at: str | None = None) -> list[list[SqlRow]]:
        def run_all(session: ServerSession) -> list[list[SqlRow]]:
            session.use_place(at)
            return [session.run_statement(query) for query in queries]

        with self._in_use:
            return self._retry_once(run_all)

    def execute(self, statements: Sequence[str], *, at: str | None = None) -> list[SqlRow]:
        with self._in_use:
            if not self._dependents:
                # The session may have been lost long ago.
                self._retry_once(lambda session: session.run_statement("SELECT 1"))
            session = self._current_session()
            session.use_place(at)
            rows: list[SqlRow] = []
            for statement in statements:
                rows = session.run_statement(statement)
            return rows

    def run_anywhere(self, statement: str) -> list[SqlRow]:
        """Run a statement that needs no database, or names it. It may run twice."""
        with self._in_use:
            return self._retry_once(lambda session: session.run_anywhere(statement))

    @contextlib.contextmanager
    def server_lock(self, purpose: str, timeout: float) -> Iterator[None]:
        """Hold MySQL's lock `vmrag/DATABASE`, which ends with the session."""
        with self._in_use:
            session = self._wait_for_lock(purpose, timeout)
            with self._depend_on_session():
                try:
                    yield
                finally:
                    with contextlib.suppress(ServerUnreachable):  # a lost session has no lock
                        if not session.ended:
                            session.run_statement(f"SELECT RELEASE_LOCK({self._lock_name})")

    @contextlib.contextmanager
    def transaction(self, at: str) -> Iterator[None]:
        with self._in_use, self._open_transaction(at):
            yield
            self._current_session().run_statement("COMMIT")

    @contextlib.contextmanager
    def snapshot(self, at: str) -> Iterator[None]:
        with self._in_use:
            if self._transaction_branch:
                yield
                return
            with self._open_transaction(at):
                yield

    @contextlib.contextmanager
    def _open_transaction(self, at: str) -> Iterator[None]:
        """Open a transaction. Its end rolls back uncommitted changes."""
        session = self._retry_once(lambda session: self._begin_transaction(session, at))
        self._transaction_branch = at
        with self._depend_on_session():
            try:
                yield
            finally:
                self._transaction_branch = ""
                if not session.ended:
                    session.run_statement("ROLLBACK")
                    session.run_statement(AUTOCOMMIT)

    def _begin_transaction(self, session: ServerSession, at: str) -> ServerSession:
        session.use_place(at)
        session.run_statement("SET @@autocommit = 0")
        session.run_statement("START TRANSACTION")
        return session

    def read_stamp(self) -> object:
        """Return the heads of all branches, and a hash of the working set of each dirty one."""
        with self.snapshot(ROOT_BRANCH):
            branches = self.query_rows("SELECT name, hash, dirty FROM dolt_branches ORDER BY name")
            working = [
                self.query_value("dolt_hashof_db('WORKING')", at=str(branch["name"]))
                for branch in branches
                if branch["dirty"]
            ]
        return tuple((branch["name"], branch["hash"]) for branch in branches), tuple(working)

    def format_command(self, statement: str, at: str) -> str:
        return f"in a client of the server {self._access.server}: USE {quote_place(self._access.database, at)}; {statement};"

    def end_session(self) -> None:
        """End the session, unless it holds a lock or a transaction."""
        with self._in_use:
            if self._session is not None and not self._dependents:
                session = self._session
                self._session = None
                session.close()

    # -- the session

    def _current_session(self) -> ServerSession:
        if self._session is not None and not self._session.ended:
            return self._session
        if self._dependents:
            raise server_socket.lost_session_error(self._access)
        folder = self._folder
        with remember_silence(folder, self._access) if folder else contextlib.nullcontext():
            self._session = ServerSession(self._access, max_answer_bytes=self._max_answer_bytes)
        return self._session

    def _retry_once(self, operation: Callable[[ServerSession], T]) -> T:
        """Call `operation`. Call it again in a new session if the old session was lost."""
        previous = self._session
        try:
            return operation(self._current_session())
        except server_socket.ServerSilent as error:
            if self._folder:
                _record_silence(self._folder / SILENCE_NAME, self._access, error)
            raise
        except ServerUnreachable:
            if self._dependents or previous is None or previous is not self._session:
                raise
            return operation(self._current_session())

    @contextlib.contextmanager
    def _depend_on_session(self) -> Iterator[None]:
        self._dependents += 1
        try:
            yield
        finally:
            self._dependents -= 1

    # -- the lock

    @property
    def _lock_name(self) -> str:
        return quote_literal(f"vmrag/{self._access.database.lower()}")  # for Dolt, `KB` and `kb` are the same

    def _wait_for_lock(self, purpose: str, timeout: float) -> ServerSession:
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE
        request = f"SELECT GET_LOCK({self._lock_name}, 0) AS v"
        while not self._retry_once(lambda session: session.run_statement(request)[0]["v"]):
            if time.monotonic() >= deadline:
                raise self._busy_error(purpose, timeout)
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)
        return self._current_session()

    def _busy_error(self, purpose: str, timeout: float) -> Busy:
        session = self._current_session()
        number = session.run_statement(f"SELECT IS_USED_LOCK({self._lock_name}) AS v")[0].get("v")
        rows = [process for process in session.run_statement("SHOW PROCESSLIST") if process.get("Id") == number]
        who = terminal_text.escape_line(f"{rows[0]['User']} on {rows[0]['Host']}") if rows else "another program"
        return Busy(
            f"cannot {purpose}: {who} has locked the knowledge base {self._access.database} on"
            f" {self._access.server} for {timeout:g} s.",
            hint=f"wait for it to finish and run the command again, or run 'KILL {number}' on the server to end a "
            "hanging session",
            holder=who,
        )


class _Silence(Record, frozen=True):
    """The recorded failure of a server."""

    server: str
    at: float
    """The time in seconds since 1970."""
    message: str


@contextlib.contextmanager
def remember_silence(folder: Path, access: DoltAccess) -> Iterator[None]:
    """Contact the server in the block. If that fails after a long time, record it in `folder`.

    Raises `ServerUnreachable` at once if a recent failure is recorded.
    """
    record = folder / SILENCE_NAME
    _require_not_silent(record, access)
    begun = time.monotonic()
    try:
        yield
    except ServerUnreachable as error:
        if time.monotonic() - begun >= LONG_SECONDS:
            _record_silence(record, access, error)
        raise


def _record_silence(record: Path, access: DoltAccess, error: ServerUnreachable) -> None:
    with contextlib.suppress(OSError):  # the record only helps the next command
        write_atomically(
            record, msgspec.json.encode(_Silence(access.server, time.time(), error.message)), durable=False
        )


def _require_not_silent(record: Path, access: DoltAccess) -> None:
    try:
        silence = msgspec.json.decode(record.read_bytes(), type=_Silence)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return
    ago = time.time() - silence.at
    if silence.server == access.server and 0 <= ago < RETRY_SECONDS:
        raise ServerUnreachable(
            f"{silence.message} That was {ago:.0f} s ago. vmrag contacts it again {RETRY_SECONDS:.0f} s after a failure.",
            hint=f"check that the server is running, or run 'rm -f {quoted(record)}' to try again at once",
            server=access.server,
        )
