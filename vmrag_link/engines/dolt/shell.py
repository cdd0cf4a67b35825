"""A connection to a repository through `dolt sql`, with statements at its standard input.

A start takes 60 ms, a statement then takes 1 to 6 ms. The program answers each statement before it
reads the next one. It ends when its standard input does, so it never outlives us, and uncommitted
changes are rolled back.

The first process that opens a database holds its file `LOCK` until it ends. Another one that opens
it then can only read, and continues to read the state that it found. So an idle session ends,
a session that may be stale is replaced, and a writer first proves that it may write.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import AUTOCOMMIT, CALL, SqlConnection, SqlRow, dolt_message
from vmrag_link.engines.dolt.shell_session import ShellSession
from vmrag_link.engines.folder import DOLT_FOLDER, read_dolt_stamp
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.own_branches import UNFINISHED_BRANCH
from vmrag_link.errors import Busy, EngineFailed, quoted

IDLE_SECONDS = 1.0
"""A session without statements for this time ends, because others may wait to write.

A command that reads files or builds an index between two statements keeps its session.
"""

_NOMS = f"{DOLT_FOLDER}/noms"
_LOCK = f"{_NOMS}/LOCK"
READING_SECONDS = 2.0
"""A session that only reads also ends after this time, and another one begins."""

_PAUSE = 0.02
_TEXTS_PER_ANSWER = 4
_READ_ONLY = "database is read only"


def limit_answer_bytes(limits: Limits) -> int:
    """Return the maximum number of bytes of one answer: a few texts of the largest size."""
    return _TEXTS_PER_ANSWER * limits.text_bytes


class ShellConnection(SqlConnection):
    """A connection to the repository in a folder.

    `max_answer_bytes`: a longer result raises `LimitExceeded`.
    """

    def __init__(self, folder: Path, access: DoltAccess, *, max_answer_bytes: int, timeout: float) -> None:
        self._folder = folder
        self._access = access
        self._max_answer_bytes = max_answer_bytes
        self._timeout = timeout
        self._in_use = threading.RLock()
        self._session: ShellSession | None = None
        self._seen_stamp: object = None
        """The stamp of the repository before the session began."""
        self._seen_revisions: set[str] = set()
        self._may_write = False
        """True after the session has proved that it may write."""
        self._read_remotes = False
        """True if the session has cached data of remotes."""
        self._transactions = 0
        """Number of open blocks of `transaction` and `snapshot`."""
        self._writers = 0
        """Number of open blocks of `server_lock`."""

    @property
    def asleep(self) -> bool:
        with self._in_use:
            return (self._session is None or self._session.ended) and not self._transactions

    @property
    def settled(self) -> bool:
        return not self._transactions

    @property
    def seen_revisions(self) -> set[str]:
        return self._seen_revisions

    def run_queries(self, queries: Sequence[str], *, at: str | None = None) -> list[list[SqlRow]]:
        with self._in_use:
            return self._current_session().run_queries(queries, at=at)

    def execute(self, statements: Sequence[str], *, at: str | None = None) -> list[SqlRow]:
        with self._in_use:
            session = self._writable_session()
            if self._transactions and not statements[-1].startswith(CALL):
                session.queue_statements(statements, at=at)  # the end of the transaction waits for the answer
                return []
            return session.run_statements(statements, at=at)

    def forget_remotes(self) -> None:
        if self._read_remotes:
            self.end_session()

    def run_remotely(self, statements: Sequence[str], *, check: Callable[[], None]) -> None:
        with self._in_use:
            session = self._writable_session()
            self._read_remotes = True
            for statement in statements:
                session.run_statements([statement], at=None, check=check)

    @contextlib.contextmanager
    def server_lock(self, purpose: str, timeout: float) -> Iterator[None]:  # noqa: ARG002
        """Keep the session open, even if it is idle for long.

        The repository is on this machine, so the engine's lock keeps other writers out. A new
        session would move a branch to prove that it may write, and a revision may be in progress on
        that branch.
        """
        self._writers += 1
        try:
            yield
        finally:
            self._writers -= 1

    @contextlib.contextmanager
    def transaction(self, at: str) -> Iterator[None]:
        with self._in_use:
            session = self._writable_session()
            with self._open_transaction(session, at):
                yield
                session.run_statements(["COMMIT", AUTOCOMMIT], at=at)

    @contextlib.contextmanager
    def snapshot(self, at: str) -> Iterator[None]:
        with self._in_use:
            if self._transactions:
                yield
                return
            session = self._current_session()
            with self._open_transaction(session, at):
                yield
                session.queue_statements(["ROLLBACK", AUTOCOMMIT], at=at)

    @contextlib.contextmanager
    def _open_transaction(self, session: ShellSession, at: str) -> Iterator[None]:
        """Begin a transaction, and roll back if the block fails."""
        session.queue_statements(["SET @@autocommit = 0", "START TRANSACTION"], at=at)
        self._transactions += 1
        try:
            yield
        except BaseException:
            self.end_session()
            raise
        finally:
            self._transactions -= 1

    def read_stamp(self) -> object:
        try:
            return read_dolt_stamp(self._folder)
        except FileNotFoundError as error:
            raise EngineFailed(
                f"{self._folder} is not a Dolt database: its manifest is missing.",
                hint="move the folder away, because it has the only copy of unpushed revisions, then run 'vmrag clone' to fetch it again",
                path=str(self._folder),
            ) from error

    def format_command(self, statement: str, at: str) -> str:
        folder = quoted(self._folder)
        database = quoted(f"{self._folder.name}/{at}")
        return f'cd {folder} && dolt --use-db {database} sql -q "{statement}"'

    def end_session(self) -> None:
        with self._in_use:
            if self._session is not None:
                session = self._session
                self._session = None
                self._seen_revisions.clear()
                session.close(kill=not self._may_write)

    def _current_session(self) -> ShellSession:
        """Return the session, or a new one if it ended or may have missed writes of others."""
        session = self._session
        if session and session.ended and self._transactions:
            raise EngineFailed("Dolt ended during a transaction; nothing was stored.")
        if session is None or session.ended or self._may_be_stale(session):
            self.end_session()
            self._seen_stamp = self.read_stamp()
            self._may_write = self._read_remotes = False
            session = self._session = ShellSession(self._folder, self._access, max_answer_bytes=self._max_answer_bytes)
            self._end_when_idle(session)
        session.used = time.monotonic()
        return session

    def _may_be_stale(self, session: ShellSession) -> bool:
        """Return whether others may have written since the session began, or wait to write."""
        if self._transactions or self._may_write:
            return False
        return self._seen_stamp != self.read_stamp() or time.monotonic() - session.begun >= READING_SECONDS

    def _end_when_idle(self, session: ShellSession) -> None:
        def watch_idle() -> None:
            remaining = IDLE_SECONDS
            while remaining > 0:
                time.sleep(remaining)
                remaining = self._end_if_idle(session)

        threading.Thread(target=watch_idle, daemon=True).start()

    def _end_if_idle(self, session: ShellSession) -> float:
        """End the session if it is idle.

        Return the seconds until the next check, or 0 if it has ended.
        """
        if not self._in_use.acquire(blocking=False):
            return IDLE_SECONDS
        try:
            if self._session is not session:
                return 0
            remaining = IDLE_SECONDS - (time.monotonic() - session.used)
            if remaining > 0:
                return remaining
            if self._writers:
                return IDLE_SECONDS
            self.end_session()
            return 0
        finally:
            self._in_use.release()

    def _writable_session(self) -> ShellSession:
        """Return the session once it may write."""
        deadline = time.monotonic() + self._timeout
        while not self._proves_writable():
            self._await_lock(deadline)
        return self._current_session()

    def _proves_writable(self) -> bool:
        """Return whether the session may write.

        If another process holds the lock, end the session.
        """
        session = self._current_session()
        if not self._may_write:
            try:
                # Any change would do. This branch is never listed.
                session.run_statements([f"CALL dolt_branch('-f', '{UNFINISHED_BRANCH}', 'HEAD')"], at=None)
            except EngineFailed as error:
                self.end_session()
                if _READ_ONLY not in dolt_message(error):
                    raise
                return False
            self._may_write = True
        return True

    def _await_lock(self, deadline: float) -> None:
        """Wait until no process has the repository open for writing."""
        with (self._folder / _LOCK).open("rb") as lock:
            while time.monotonic() <= deadline:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                time.sleep(_PAUSE)
        raise Busy(
            f"another program has had the knowledge base in {self._folder} open for {self._timeout:g} seconds.",
            hint="run 'pgrep -a dolt' to find the program",
        )
