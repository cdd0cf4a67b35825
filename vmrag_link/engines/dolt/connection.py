"""The interface to Dolt, for the program and for a server, and the quoting of values for it.

The program takes statements as text, without parameters, and a server gets the same text. So
`quote_literal` and `quote_identifier` are the only protection against untrusted texts: every value
in a statement goes through them. Sessions are opened with an SQL mode in which a backslash escapes
and double quotes are quotes (`SQL_MODE`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from vmrag_link import terminal_text
from vmrag_link.engines.records import Value
from vmrag_link.errors import EngineFailed, EngineUnwritable

T = TypeVar("T")

SQL_MODE = "NO_ENGINE_SUBSTITUTION,ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES"
"""The mode on which `quote_literal` relies: no ANSI_QUOTES, no NO_BACKSLASH_ESCAPES."""

CALL = "CALL "
"""The prefix of the only statements that change something and return rows."""

AUTOCOMMIT = "SET @@autocommit = 1"
SESSION_STATEMENTS = (
    f"SET @@sql_mode = '{SQL_MODE}'",
    "SET NAMES utf8mb4",
    "SET @@time_zone = '+00:00'",
    "SET @@sql_select_limit = DEFAULT",
    "SET @@dolt_transaction_commit = 0, @@dolt_force_transaction_commit = 0",
    "SET @@dolt_show_system_tables = 0, @@dolt_override_schema = '', @@gpgsign = 0",
    AUTOCOMMIT,
)
"""The first statements of every session.

They reset each global setting of a repository or a server that would change our tables, rows or
revisions.
"""

STATEMENT_SECONDS = 300.0
"""Time limit of one statement."""

_MAX_SHOWN_CHARACTERS = 500
_MAKE_ROOM = "make room on that disk, then run the command again"
_REMEDIES = {
    "no space left on device": _MAKE_ROOM,
    "disk quota exceeded": _MAKE_ROOM,
    "read-only file system": "mount that file system writable, or use a copy of the repository on another one",
    "permission denied": "let your user write there, then run the command again",
}
"""The hint for each message with which Dolt reports that it cannot write."""

BATCH_SIZE = 500

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\x1a": "\\Z"})
"""Escapes of special characters, also line ends.

So a statement is one line, and an error message that repeats it is one line.
"""

SqlRow = Mapping[str, Any]
"""A row by column name. A NULL column may be missing."""


class SqlConnection(ABC):
    """Runs statements and returns rows. Only one thread uses it at a time.

    `at` is the place where statements run: a branch with its working set, or a revision, which is
    read-only. None is the default branch. A place is addressed, never checked out. A statement that
    fails raises `EngineFailed`, and the changes of its transaction are rolled back.
    """

    @abstractmethod
    def run_queries(self, queries: Sequence[str], *, at: str | None = None) -> list[list[SqlRow]]:
        """Return the rows of each of these queries, which change nothing."""

    @abstractmethod
    def execute(self, statements: Sequence[str], *, at: str | None = None) -> list[SqlRow]:
        """Run statements that may change something, and return the rows of the last one.

        Raises `Busy` if other writers do not finish in time. Outside of a transaction, each
        statement is its own transaction.
        """

    @abstractmethod
    def server_lock(self, purpose: str, timeout: float) -> AbstractContextManager[None]:
        """Keep other machines from writing. Raises `Busy` after `timeout` seconds."""

    @abstractmethod
    def transaction(self, at: str) -> AbstractContextManager[None]:
        """Make the changes of the block all or nothing.

        `dolt_commit` also commits the transaction.
        """

    @abstractmethod
    def snapshot(self, at: str) -> AbstractContextManager[None]:
        """Read the state at the beginning of the block, whatever others write.

        In another snapshot or a transaction, it is the state of that one.
        """

    @property
    def asleep(self) -> bool:
        """True if a query would have to start a program first."""
        return False

    @property
    def settled(self) -> bool:
        """True if no transaction is open, so that the files show all changes."""
        return False

    @property
    def seen_revisions(self) -> set[str]:
        """The revisions that this session has read, and can read until it ends.

        Empty for a server that collects garbage on its own.
        """
        return set()

    @abstractmethod
    def read_stamp(self) -> object:
        """Return a value that differs from earlier ones if any program wrote in between."""

    @abstractmethod
    def format_command(self, statement: str, at: str) -> str:
        """Return the command with which a user runs a statement at a branch, for hints."""

    @abstractmethod
    def end_session(self) -> None:
        """End the session. The next statement opens a new one."""

    def forget_remotes(self) -> None:
        """Make `run_remotely` read remotes again: a session caches what it has read of one."""
        self.end_session()

    def run_remotely(self, statements: Sequence[str], *, check: Callable[[], None]) -> None:
        """Run statements with which Dolt contacts remotes. Stop at the first that fails.

        `check` is called regularly. An error that it raises also stops them.
        """
        for statement in statements:
            self.execute([statement])
            check()

    def query_rows(self, query: str, *, at: str | None = None) -> list[SqlRow]:
        """Return the rows of one query."""
        return self.run_queries([query], at=at)[0]

    def query_value(self, expression: str, *, at: str | None = None) -> Any:
        """Return the value of an expression."""
        return self.query_rows(f"SELECT {expression} AS v", at=at)[0].get("v")

    def call(self, procedure: str, *args: str, at: str | None = None) -> SqlRow:
        """Call a procedure of Dolt; return the row that it returns, or `{}`."""
        rows = self.execute([f"{CALL}{procedure}({quote_literals(args)})"], at=at)
        return rows[0] if rows else {}


def quote_place(database: str, at: str | None) -> str:
    """Return a branch or a revision of a database as SQL."""
    return quote_identifier(database if at is None else f"{database}/{at}")


def parse_bool(value: object) -> bool:
    """Return whether Dolt's value is true: a boolean, a number, or the text of one.

    If the program runs statements on a server that has the repository open, all values are texts.
    """
    return value in (True, "1", "true")


def dolt_error(message: str) -> EngineFailed:
    """Return the error for a message of Dolt, which may contain untrusted text."""
    shown = terminal_text.escape_line(" ".join(message.split()))[:_MAX_SHOWN_CHARACTERS]
    if hint := find_remedy(message):
        return EngineUnwritable(f"cannot write to the knowledge base: {shown}.", hint=hint, said=shown)
    return EngineFailed(f"Dolt failed: {shown}.", said=shown)


def find_remedy(message: str) -> str:
    """Return the hint for a message about a failed write, or an empty text."""
    lower = message.lower()
    return next((hint for words, hint in _REMEDIES.items() if words in lower), "")


def dolt_message(error: EngineFailed) -> str:
    """Return Dolt's message in an error, or an empty text if Dolt did not fail."""
    return str(error.details.get("said", ""))


def quote_literal(value: Value) -> str:
    """Return a value as SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else f"'{value.translate(_ESCAPES)}'"


def quote_literals(values: Iterable[Value]) -> str:
    """Return values as SQL, separated by commas."""
    return ", ".join(map(quote_literal, values))


def split_batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the values in groups of the size that fits in one statement."""
    return (values[start : start + BATCH_SIZE] for start in range(0, len(values), BATCH_SIZE))


def quote_identifier(name: str) -> str:
    """Return a name as SQL. Raises `ValueError` for a name with a backslash.

    The program treats a backslash in backticks as an escape, the server does not. None of our names
    has one.
    """
    if "\\" in name:
        raise ValueError("a name with a backslash")
    return "`" + name.replace("`", "``") + "`"
