"""A connection to a database on a running `dolt sql-server`, which other machines use, too.

Reading asks again where a session was lost that nothing depended on. What changes something is
never repeated: whether a lost server has stored it, nobody knows. With the session go the lock, and
what a transaction had changed.

A server that took long not to answer is not asked again for a minute: each command, and each hook
of git's, would wait for it once more.
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
from vmrag_link.engines.base import ROOT_BRANCH
from vmrag_link.engines.dolt import server_socket
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import AUTOCOMMIT, SqlConnection, SqlRow, quote_literal, quote_place
from vmrag_link.engines.dolt.server_session import ServerSession
from vmrag_link.errors import Busy, ServerUnreachable, quoted
from vmrag_link.models import Record
from vmrag_link.paths import write_atomically

_PAUSE, _LONGEST_PAUSE = 0.02, 0.2
"""Seconds between two tries for the lock. The server itself tries 10,000 times a second."""

T = TypeVar("T")

SILENCE_NAME = "unreached.json"
"""The note, in a knowledge base's folder, that a server did not answer."""

RETRY_SECONDS = 60.0
LONG_SECONDS = 2.0
"""What took less is asked again each time: it costs nobody anything."""


class ServerConnection(SqlConnection):
    """`longest`: bytes of one answer; a longer one raises `LimitExceeded`. `folder`: where it is
    remembered that the server is silent.
    """

    def __init__(self, access: DoltAccess, *, longest: int, folder: Path | None = None) -> None:
        self._access, self._longest, self._folder = access, longest, folder
        self._session: ServerSession | None = None
        self._bound = 0
        """How many blocks depend on the session: it holds their lock, or their transaction."""

        self._begun_at = ""
        """The branch of the open transaction; empty: there is none."""

        self._in_use = threading.RLock()

    def run_queries(self, queries: Sequence[str], *, at: str | None = None) -> list[list[SqlRow]]:
        def ask(session: ServerSession) -> list[list[SqlRow]]:
            session.use_place(at)
            return [session.run_statement(query) for query in queries]

        with self._in_use:
            return self._harmless(ask)

    def execute(self, statements: Sequence[str], *, at: str | None = None) -> list[SqlRow]:
        with self._in_use:
            if not self._bound:
                self._harmless(lambda session: session.run_statement("SELECT 1"))  # it may have been lost long ago
            session = self._current()
            session.use_place(at)
            rows: list[SqlRow] = []
            for statement in statements:
                rows = session.run_statement(statement)
            return rows

    def run_anywhere(self, statement: str) -> list[SqlRow]:
        """Run a statement that needs no database, or names it. It must be harmless twice."""
        with self._in_use:
            return self._harmless(lambda session: session.run_anywhere(statement))

    @contextlib.contextmanager
    def server_lock(self, purpose: str, timeout: float) -> Iterator[None]:
        """Hold MySQL's lock `vmrag/DATABASE`, which goes with the session."""
        with self._in_use:
            session = self._locked(purpose, timeout)
            with self._bind():
                try:
                    yield
                finally:
                    with contextlib.suppress(ServerUnreachable):  # with the session, the lock is gone
                        if not session.ended:
                            session.run_statement(f"SELECT RELEASE_LOCK({self._lock})")

    @contextlib.contextmanager
    def transaction(self, at: str) -> Iterator[None]:
        with self._in_use, self._transaction(at):
            yield
            self._current().run_statement("COMMIT")

    @contextlib.contextmanager
    def snapshot(self, at: str) -> Iterator[None]:
        with self._in_use, contextlib.nullcontext() if self._begun_at else self._transaction(at):
            yield

    @contextlib.contextmanager
    def _transaction(self, at: str) -> Iterator[None]:
        """Its end rolls back what is not committed."""
        session = self._harmless(lambda session: self._begun(session, at))
        self._begun_at = at
        with self._bind():
            try:
                yield
            finally:
                self._begun_at = ""
                if not session.ended:
                    session.run_statement("ROLLBACK")
                    session.run_statement(AUTOCOMMIT)

    def _begun(self, session: ServerSession, at: str) -> ServerSession:
        session.use_place(at)
        session.run_statement("SET @@autocommit = 0")
        session.run_statement("START TRANSACTION")
        return session

    def read_stamp(self) -> object:
        """The heads of all branches, and what the working set of each dirty one holds."""
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
        """A session that holds a lock or a transaction stays."""
        with self._in_use:
            if self._session is not None and not self._bound:
                session, self._session = self._session, None
                session.close()

    # -- the session

    def _current(self) -> ServerSession:
        if self._session is not None and not self._session.ended:
            return self._session
        if self._bound:
            raise server_socket.lost_session_error(self._access)
        folder = self._folder
        with remember_silence(folder, self._access) if folder else contextlib.nullcontext():
            self._session = ServerSession(self._access, longest=self._longest)
        return self._session

    def _harmless(self, asked: Callable[[ServerSession], T]) -> T:
        """Ask, and once more in a new session where the old one turns out to be lost."""
        known = self._session
        try:
            return asked(self._current())
        except server_socket.ServerSilent as error:
            if self._folder:
                _note_silence(self._folder / SILENCE_NAME, self._access, error)
            raise
        except ServerUnreachable:
            if self._bound or known is None or known is not self._session:
                raise
            return asked(self._current())

    @contextlib.contextmanager
    def _bind(self) -> Iterator[None]:
        self._bound += 1
        try:
            yield
        finally:
            self._bound -= 1

    # -- the lock

    @property
    def _lock(self) -> str:
        return quote_literal(f"vmrag/{self._access.database.lower()}")  # Dolt takes `KB` and `kb` for the same

    def _locked(self, purpose: str, timeout: float) -> ServerSession:
        deadline, pause = time.monotonic() + timeout, _PAUSE
        while not self._harmless(
            lambda session: session.run_statement(f"SELECT GET_LOCK({self._lock}, 0) AS v")[0]["v"]
        ):
            if time.monotonic() >= deadline:
                raise self._busy(purpose, timeout)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return self._current()

    def _busy(self, purpose: str, timeout: float) -> Busy:
        session = self._current()
        number = session.run_statement(f"SELECT IS_USED_LOCK({self._lock}) AS v")[0].get("v")
        rows = [each for each in session.run_statement("SHOW PROCESSLIST") if each.get("Id") == number]
        who = terminal_text.escape_line(f"{rows[0]['User']} on {rows[0]['Host']}") if rows else "another program"
        return Busy(
            f"Cannot {purpose}: {who} has held the knowledge base {self._access.database} on"
            f" {self._access.server} for {timeout:g} s.",
            hint=f"Wait for it to finish and run the command again. A session that hangs is ended on the server by: KILL {number}",
            holder=who,
        )


class _Silence(Record, frozen=True):
    """`at`: seconds since 1970."""

    server: str
    at: float
    message: str


@contextlib.contextmanager
def remember_silence(folder: Path, access: DoltAccess) -> Iterator[None]:
    """Reach the server in the block; what keeps it from that is remembered in a knowledge base's
    folder, if it took long.

    Raises `ServerUnreachable` at once for what is remembered.
    """
    note = folder / SILENCE_NAME
    _require_not_silent(note, access)
    begun = time.monotonic()
    try:
        yield
    except ServerUnreachable as error:
        if time.monotonic() - begun >= LONG_SECONDS:
            _note_silence(note, access, error)
        raise


def _note_silence(note: Path, access: DoltAccess, error: ServerUnreachable) -> None:
    with contextlib.suppress(OSError):  # a courtesy to the next command
        write_atomically(note, msgspec.json.encode(_Silence(access.server, time.time(), error.message)), durable=False)


def _require_not_silent(note: Path, access: DoltAccess) -> None:
    try:
        found = msgspec.json.decode(note.read_bytes(), type=_Silence)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return
    ago = time.time() - found.at
    if found.server == access.server and 0 <= ago < RETRY_SECONDS:
        raise ServerUnreachable(
            f"{found.message} That was {ago:.0f} s ago; it is asked again {RETRY_SECONDS:.0f} s after it.",
            hint=f"Ask whether it runs there. To try at once: rm -f {quoted(note)}, and run the command again.",
            server=access.server,
        )
