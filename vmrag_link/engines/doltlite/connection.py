"""One connection to a doltlite database: statements in, tuples out, exact texts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from vmrag_link.engines.doltlite.library import (
    BUSY,
    DEFENSIVE,
    DONE,
    ENABLE_TRIGGER,
    ENABLE_VIEW,
    FLOAT,
    INTEGER,
    INTERRUPTED,
    LIMIT_LENGTH,
    NULL,
    OPEN_CREATE,
    OPEN_FULL_MUTEX,
    OPEN_READONLY,
    OPEN_READWRITE,
    ROW,
    TEXT,
    TRANSIENT,
    TRUSTED_SCHEMA,
    Watch,
    load_library,
    sqlite_error,
)
from vmrag_link.engines.records import Value
from vmrag_link.engines.tables import ROWS_HINT
from vmrag_link.errors import ContentRefused, EngineFailed, RowsInvalid, StatementGivenUp, VmragError

_SLICE_MS = 100
"""How long C waits for a lock at a time. Between two waits, Python handles Ctrl-C."""

MAX_STEP_SECONDS = 300.0
"""Time limit of a step in seconds.

The longest measured step took a second: a count over a million documents.
"""

_CHECK_SECONDS = 1.0

_INSTRUCTIONS_PER_CHECK = 100_000
"""Instructions of SQLite's machine between two checks of the time, about a millisecond."""

_FLAGS = {"read": OPEN_READONLY, "write": OPEN_READWRITE, "create": OPEN_READWRITE | OPEN_CREATE}


class Connection:
    """A connection at the default branch, a branch with its working set, or a revision (read-only).

    `access`: `read` changes nothing; `write` creates no file, but turns an empty or zeroed one into
    a database. `timeout`: seconds to wait for another writer. `max_text_bytes`: a longer text
    raises `LimitExceeded` before it is read. `max_step_seconds`: seconds that a statement may take
    until its next row; then `StatementGivenUp` ends it.

    The file may be untrusted, so nothing in its schema is executed. Triggers and views are switched
    off, and expressions in it may not call functions with side effects.

    `statements` is the number of open statements. They run without the interpreter's lock. Ctrl-C
    is handled between two rows, and by `execute_long` within one.
    """

    def __init__(
        self,
        path: Path,
        *,
        at: str | None = None,
        access: Literal["read", "write", "create"] = "write",
        timeout: float = 30.0,
        max_text_bytes: int | None = None,
        max_step_seconds: float = MAX_STEP_SECONDS,
    ) -> None:
        self.path = path
        self._max_step_seconds = max_step_seconds
        due = [time.monotonic() + max_step_seconds]
        self._due = due
        """The time by which the current step must end, in a list that the callback shares."""
        # The callback must live as long as the handle. A bound method would create a reference
        # cycle.
        self._watch = Watch(lambda _: int(time.monotonic() > due[0]))
        self._timeout = timeout
        self._handle = ctypes.c_void_p()
        self._lib = load_library()
        self.statements = 0
        self.in_transaction = False
        self.schema_version: int | None = None
        """The result of `schema.read_version` after the last transaction."""
        name = os.fsencode(path) + (b"" if at is None else b"@" + at.encode())
        try:
            self._require_ok(self._lib.open(name, ctypes.byref(self._handle), _FLAGS[access] | OPEN_FULL_MUTEX, None))
            self._lib.busy_timeout(self._handle, _SLICE_MS)
            for option, on in (
                (DEFENSIVE, True),
                (TRUSTED_SCHEMA, False),
                (ENABLE_TRIGGER, False),
                (ENABLE_VIEW, False),
            ):
                self._lib.set_option(self._handle, option, on=on)
            self._lib.watch(self._handle, _INSTRUCTIONS_PER_CHECK, self._watch, None)
            if max_text_bytes is not None:
                self._lib.limit(self._handle, LIMIT_LENGTH, max_text_bytes)
            if not self._lib.version_checked:
                self._lib.require_version(str(self.execute("SELECT dolt_version()")[0][0]))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. Repeated calls are allowed. Open streams fail at their next row."""
        if self._handle:
            self._lib.close(self._handle)
            self._handle = ctypes.c_void_p()

    def __del__(self) -> None:
        self.close()  # otherwise its descriptors would stay open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def execute(self, sql: str, args: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        return list(self.stream(sql, args))

    def stream(self, sql: str, args: Sequence[Value] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield row by row, all from one state of the database.

        The statement ends with the generator.
        """
        with self._prepare_statement(sql) as statement:
            self._bind_arguments(statement, args)
            columns = range(self._lib.column_count(statement))
            more = self._first_step(statement)
            while more:
                yield tuple(self._column_value(statement, index) for index in columns)
                more = self._next_step(statement)

    def execute_long(
        self, sql: str, args: Sequence[Value] = (), *, check: Callable[[], None] = lambda: None
    ) -> list[tuple[Any, ...]]:
        """Run a statement that may take minutes. Ctrl-C ends it at once and rolls it back.

        `check` is called once a second. Any exception that it raises has the same effect.
        """
        from concurrent.futures import ThreadPoolExecutor, wait

        # The main thread waits in Python, where signals arrive; in C they would wait for the end of
        # the statement.
        with ThreadPoolExecutor(1, "doltlite") as pool:
            try:
                rows = pool.submit(self.execute, sql, args)
                while wait([rows], _CHECK_SECONDS).not_done:
                    check()
            except BaseException:
                self._lib.interrupt(self._handle)
                raise
            return rows.result()

    def executemany(self, sql: str, rows: Iterable[Sequence[Value]]) -> None:
        with self._prepare_statement(sql) as statement:
            for row in rows:
                self._bind_arguments(statement, row)
                self._first_step(statement)
                self._lib.reset(statement)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes of the block all or nothing, durable at the end. Do not nest.

        This waits for another writer.
        """
        self.execute("BEGIN IMMEDIATE")
        # Another process may have upgraded the tables, and a merge in this transaction may do so.
        self.in_transaction, self.schema_version = True, None
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # After an error such as a full disk, SQLite has already rolled back.
            if not self._lib.get_autocommit(self._handle):
                self.execute("ROLLBACK")
            raise
        finally:
            self.in_transaction = False

    # -- statements

    @contextlib.contextmanager
    def _prepare_statement(self, sql: str) -> Iterator[ctypes.c_void_p]:
        if not self._handle:
            raise EngineFailed(f"the knowledge base {self.path} was closed.")
        statement = ctypes.c_void_p()
        text = sql.encode()
        self._require_ok(self._lib.prepare(self._handle, text, len(text), ctypes.byref(statement), None))
        self.statements += 1
        try:
            yield statement
        finally:
            self.statements -= 1
            self._lib.finalize(statement)

    def _bind_arguments(self, statement: ctypes.c_void_p, args: Sequence[Value]) -> None:
        for index, value in enumerate(args, 1):
            if isinstance(value, str):
                try:
                    text = value.encode()
                except UnicodeEncodeError as error:
                    raise ContentRefused(
                        f"a text is not UTF-8: {value[:40]!a}.",
                        hint="convert it to UTF-8, or run 'locale' to check the encoding of your terminal",
                    ) from error
                code = self._lib.bind_text(statement, index, text, len(text), TRANSIENT)
            elif value is None:
                code = self._lib.bind_null(statement, index)
            else:
                code = self._lib.bind_int64(statement, index, value)
            self._require_ok(code)

    def _first_step(self, statement: ctypes.c_void_p) -> bool:
        """Take the first step.

        A busy database has done nothing yet, so the step can be repeated.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            self._due[0] = time.monotonic() + self._max_step_seconds
            code = self._lib.step(statement)
            if code & 0xFF != BUSY or time.monotonic() >= deadline:
                return self._has_row(code)
            self._lib.reset(statement)

    def _next_step(self, statement: ctypes.c_void_p) -> bool:
        if not self._handle:
            raise EngineFailed(f"the knowledge base {self.path} was closed while it was read.")
        self._due[0] = time.monotonic() + self._max_step_seconds
        return self._has_row(self._lib.step(statement))

    def _has_row(self, code: int) -> bool:
        """Return whether a step returned a row. Raises the error of any other result."""
        if code not in (ROW, DONE):
            raise self._last_error()
        return code == ROW

    def _column_value(self, statement: ctypes.c_void_p, index: int) -> Any:
        lib = self._lib
        kind = lib.column_type(statement, index)
        if kind == TEXT:
            pointer = lib.column_text(statement, index)
            # Read by length, because the text may contain NUL.
            raw = ctypes.string_at(pointer, lib.column_bytes(statement, index))
            try:
                return raw.decode()
            except UnicodeDecodeError as error:
                raise RowsInvalid(
                    f"the knowledge base {self.path} contains a text that is not UTF-8.", hint=ROWS_HINT
                ) from error
        if kind == INTEGER:
            return lib.column_int64(statement, index)
        if kind == NULL:
            return None
        if kind == FLOAT:
            return lib.column_double(statement, index)
        pointer = lib.column_blob(statement, index)
        return ctypes.string_at(pointer, lib.column_bytes(statement, index)) if pointer else b""

    def _require_ok(self, code: int) -> None:
        if code:
            raise self._last_error()

    def _last_error(self) -> VmragError:
        message = self._lib.errmsg(self._handle).decode(errors="replace")
        code = self._lib.extended_errcode(self._handle)
        if code & 0xFF == INTERRUPTED:
            return StatementGivenUp(
                f"a statement on the knowledge base {self.path} was aborted after {self._max_step_seconds:g} s; nothing changed.",
                hint="check whether the machine is overloaded, or run 'vmrag doctor' to check the knowledge base",
                sqlite_code=code,
                sqlite_message=message,
                path=str(self.path),
            )
        return sqlite_error(code, message, self.path)
