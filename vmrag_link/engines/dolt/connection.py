"""What the engine asks of Dolt, whether the program answers or a server, and how values are quoted
in it.

The program takes statements as text, without parameters, and a server gets the same text. So the
texts, which may be a stranger's, depend on `literal` and `identifier` alone: every value that goes
into a statement goes through them. Sessions are opened with an SQL mode in which a backslash
escapes and double quotes are quotes (`SQL_MODE`).
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
"""What `literal` relies on: no ANSI_QUOTES, no NO_BACKSLASH_ESCAPES."""

CALL = "CALL "
"""How the only statements begin that change something and answer."""

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

They undo each global setting of a repository or a server that would change our tables, our rows or
our revisions.
"""

STATEMENT_SECONDS = 300.0
"""Seconds."""

_MOST_SAID = 500
_MAKE_ROOM = "make room on that disk, then run the command again"
_REMEDIES = {
    "no space left on device": _MAKE_ROOM,
    "disk quota exceeded": _MAKE_ROOM,
    "read-only file system": "mount that file system writable, or use a copy of the repository on another one",
    "permission denied": "let your user write there (ls -l shows whose it is), then run the command again",
}
"""What helps if Dolt cannot write, by its words."""

BATCH_SIZE = 500

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\x1a": "\\Z"})
"""Line ends, too: a statement is one line, so an error message that repeats it is one line."""

SqlRow = Mapping[str, Any]
"""A row by column name; a column that is NULL may be missing."""


class SqlConnection(ABC):
    """Statements in, rows out. One thread at a time.

    `at` names the place where statements run: a branch with its working set, or a revision, which
    is read-only; None is the default branch. A place is only named, never checked out. A statement
    that fails raises `EngineFailed`, and what its transaction had changed is rolled back.
    """

    @abstractmethod
    def run_queries(self, queries: Sequence[str], *, at: str | None = None) -> list[list[SqlRow]]:
        """The rows of each of these queries, which change nothing."""

    @abstractmethod
    def execute(self, statements: Sequence[str], *, at: str | None = None) -> list[SqlRow]:
        """Run statements that may change something; returns the rows of the last one.

        Raises `Busy` where others go on writing for too long. Outside of a transaction each
        statement is one.
        """

    @abstractmethod
    def server_lock(self, purpose: str, timeout: float) -> AbstractContextManager[None]:
        """Keep other machines from writing. Raises `Busy` after `timeout` seconds."""

    @abstractmethod
    def transaction(self, at: str) -> AbstractContextManager[None]:
        """All or nothing of what is changed within; `dolt_commit` commits it, too."""

    @abstractmethod
    def snapshot(self, at: str) -> AbstractContextManager[None]:
        """What is read within is the state at its beginning. Within another one, or a transaction,
        it is theirs.
        """

    @property
    def asleep(self) -> bool:
        """Whether a program would have to be started before it could answer."""
        return False

    @property
    def settled(self) -> bool:
        """Whether no transaction is open, so that nothing is changed that files do not show yet."""
        return False

    @property
    def seen_revisions(self) -> set[str]:
        """The revisions that this session has read: it can read them until it ends.

        Empty where a server collects garbage by itself.
        """
        return set()

    @abstractmethod
    def read_stamp(self) -> object:
        """See `Engine.stamp`."""

    @abstractmethod
    def format_command(self, statement: str, at: str) -> str:
        """Return what a user types to run a statement at a branch, for hints."""

    @abstractmethod
    def end_session(self) -> None:
        """End the session; the next statement opens another one."""

    def forget_remotes(self) -> None:
        """Let `remotely` see what remotes hold now: a session keeps what it read of one."""
        self.end_session()

    def run_remotely(self, statements: Sequence[str], *, check: Callable[[], None]) -> None:
        """Run statements by which Dolt talks to other places; the first that fails ends it.

        `check` is called now and then meanwhile; what it raises ends it, too.
        """
        for statement in statements:
            self.execute([statement])
            check()

    def query_rows(self, query: str, *, at: str | None = None) -> list[SqlRow]:
        """The rows of one query."""
        return self.run_queries([query], at=at)[0]

    def query_value(self, expression: str, *, at: str | None = None) -> Any:
        """The value of an expression."""
        return self.query_rows(f"SELECT {expression} AS v", at=at)[0].get("v")

    def call(self, procedure: str, *args: str, at: str | None = None) -> SqlRow:
        """Call one of Dolt's procedures; returns the row that it answers, `{}` for none."""
        rows = self.execute([f"{CALL}{procedure}({quote_literals(args)})"], at=at)
        return rows[0] if rows else {}


def quote_place(database: str, at: str | None) -> str:
    """How a statement names a branch or a revision of a database."""
    return quote_identifier(database if at is None else f"{database}/{at}")


def parse_bool(value: object) -> bool:
    """What Dolt says for true: a boolean, a number, or their text.

    All values are texts where the program answers for a server that has its repository open.
    """
    return value in (True, "1", "true")


def dolt_error(told: str) -> EngineFailed:
    """The error for what Dolt said, which may hold a stranger's words."""
    shown = terminal_text.escape_line(" ".join(told.split()))[:_MOST_SAID]
    if hint := find_remedy(told):
        return EngineUnwritable(f"The knowledge base cannot be written: {shown}.", hint=hint, said=shown)
    return EngineFailed(f"Dolt failed: {shown}.", said=shown)


def find_remedy(told: str) -> str:
    """Return what helps if Dolt said that it cannot write; empty if it said something else."""
    lower = told.lower()
    return next((hint for words, hint in _REMEDIES.items() if words in lower), "")


def dolt_message(error: EngineFailed) -> str:
    """What Dolt said; empty where it did not fail."""
    return str(error.details.get("said", ""))


def quote_literal(value: Value) -> str:
    """A value as SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else f"'{value.translate(_ESCAPES)}'"


def quote_literals(values: Iterable[Value]) -> str:
    """Values with commas between."""
    return ", ".join(map(quote_literal, values))


def split_batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Values by as many as one statement takes."""
    return (values[start : start + BATCH_SIZE] for start in range(0, len(values), BATCH_SIZE))


def quote_identifier(name: str) -> str:
    """A name as SQL.

    None of ours has a backslash, which the program takes for an escape within backticks, too; the
    server does not. Raises `ValueError`.
    """
    if "\\" in name:
        raise ValueError("a name with a backslash")
    return "`" + name.replace("`", "``") + "`"
