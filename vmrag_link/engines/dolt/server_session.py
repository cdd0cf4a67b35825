"""One session with a Dolt sql-server, through PyMySQL.

The user has trusted the server. It may still be down, another program, or compromised: it gets no
file, no unencrypted password, and limited memory and time.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from typing import Any, NoReturn

from vmrag_link.engines.dolt import program, server_socket
from vmrag_link.engines.dolt.access import DoltAccess, parse_address, require_private
from vmrag_link.engines.dolt.connection import SESSION_STATEMENTS, STATEMENT_SECONDS, SqlRow, dolt_message, quote_place
from vmrag_link.engines.dolt.server_socket import Allowance
from vmrag_link.engines.limits import MEGABYTE
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.errors import (
    ConfigInvalid,
    EngineFailed,
    LimitExceeded,
    ServerUnreachable,
    StatementGivenUp,
    VmragError,
)

LOGIN_SECONDS = 10.0
"""Time limit to reach the server and to log in."""

_LOGIN_BYTES = 1_000_000
_VERSION = r"\d+\.\d+\.\d+[\w.+-]*"
_MISSING_PLACE = ("database not found", "access denied for user")
"""A server's messages for a missing place. Users without global rights get the second."""

_PROTOCOL_ERRORS = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError, struct.error)
"""Errors that PyMySQL raises if the server violates MySQL's protocol or requests a file."""


_ALL_ANSWERS_FACTOR = 5
"""The limit for all answers together, as a multiple of `DoltAccess.answer_seconds`."""


class ServerSession:
    """A session with the server. `max_answer_bytes`: the limit of one answer. The database need not
    exist.
    """

    def __init__(self, access: DoltAccess, *, max_answer_bytes: int) -> None:
        self._access = access
        self._max_answer_bytes = max_answer_bytes
        self._at: str | None = None
        """The branch or revision of the last `USE`, as SQL."""
        self._logged_in = False
        self._statement = ""
        """The latest statement, for errors."""
        self._waited = 0.0
        """The seconds that all answers together took."""
        self._allowance = Allowance()
        self._mysql = import_pymysql()
        self._connection = self._create_connection()
        try:
            self._log_in()
            for statement in SESSION_STATEMENTS:
                self.run_statement(statement)
            self._require_dolt()
        except BaseException:
            self.close()
            raise

    @property
    def ended(self) -> bool:
        """True if the session cannot run statements any longer."""
        return not self._connection.open

    def use_place(self, at: str | None) -> None:
        """Run the next statements at a place."""
        # Other programs may change the default branch of a server's database.
        target = quote_place(self._access.database, at or ROOT_BRANCH)
        if target == self._at:
            return
        self._at = None
        try:
            self.run_statement(f"USE {target}")
        except EngineFailed as error:
            if at in (None, ROOT_BRANCH) and any(words in dolt_message(error).lower() for words in _MISSING_PLACE):
                raise server_socket.missing_database_error(self._access) from error
            raise
        self._at = target

    def run_anywhere(self, statement: str) -> list[SqlRow]:
        """Run a statement that may leave the place."""
        self._at = None
        return self.run_statement(statement)

    def run_statement(self, statement: str) -> list[SqlRow]:
        """Return the rows of a statement.

        Raises `EngineError`, and `Busy` for a conflict with concurrent changes.
        """
        self._statement = statement
        self._allowance.renew(self._max_answer_bytes, self._limit_seconds(STATEMENT_SECONDS))
        begun = time.monotonic()
        with self._connection.cursor() as cursor:
            try:
                self._run_translated(lambda: cursor.execute(statement))
            finally:
                self._waited += time.monotonic() - begun
            return [self._check_row(row) for row in cursor.fetchall()]

    def close(self) -> None:
        """End the session. Uncommitted changes are rolled back, and its locks are freed."""
        if self._connection.open:
            self._allowance.renew(0, LOGIN_SECONDS)
            self._connection.close()

    # -- connecting

    def _create_connection(self) -> Any:
        """Return PyMySQL's connection object, not connected."""
        access = self._access
        host, port = parse_address(access.server)
        require_private(access)
        types = self._mysql.constants.FIELD_TYPE
        integers = (types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG)
        connect = self._mysql.connections.Connection if access.tls else _keyless_connection(self._mysql, access)
        return connect(
            host=host,
            port=port,
            user=access.user,
            password=access.password,
            charset="utf8mb4",
            autocommit=None,  # `SESSION_STATEMENTS` sets it
            cursorclass=self._mysql.cursors.DictCursor,
            conv=dict.fromkeys(integers, int),  # everything else stays text, like the output of the program
            defer_connect=True,
            **(self._tls_options() if access.tls else {"ssl_disabled": True}),
        )

    def _tls_options(self) -> dict[str, Any]:
        try:
            return {"ssl": server_socket.create_tls_context(self._access.authorities, self._allowance)}
        except OSError as error:
            raise ConfigInvalid(
                f"cannot read certificates from {self._access.authorities}: {error.strerror or error}.",
                hint="run 'git config vmrag.dolt.authorities /PATH/TO/ca.pem' with a PEM file of the authority that "
                "signed the server's certificate",
                setting="dolt.authorities",
            ) from error

    def _log_in(self) -> None:
        self._allowance.renew(_LOGIN_BYTES, self._limit_seconds(LOGIN_SECONDS))
        host, port = self._connection.host, self._connection.port
        try:
            plain = server_socket.connect(host, port, self._allowance)
        except OSError as error:
            raise self._final_error(
                server_socket.unreachable_error(self._access, error.strerror or str(error))
            ) from error
        self._run_translated(lambda: self._connection.connect(plain))
        self._logged_in = True

    def _require_dolt(self) -> None:
        try:
            version = str(self.run_statement("SELECT dolt_version() AS version")[0]["version"])
        except (EngineFailed, IndexError) as error:
            if self.ended:
                raise
            raise server_socket.other_program_error(self._access) from error
        if not re.fullmatch(_VERSION, version):
            raise server_socket.other_program_error(self._access)
        program.require_recent_version(f"the server {self._access.server}", version)

    def _limit_seconds(self, seconds: float) -> float:
        limit = self._access.answer_seconds
        return min(seconds, limit, max(0.0, _ALL_ANSWERS_FACTOR * limit - self._waited)) if limit else seconds

    # -- rows and errors

    def _check_row(self, row: dict[str, object]) -> SqlRow:
        for value in row.values():
            if not isinstance(value, str | int | None):
                kind = type(value).__name__
                raise EngineFailed(f"the server {self._access.server} returned {kind} instead of a text.")
        return _Row(row)

    def _run_translated(self, operation: Callable[[], object]) -> None:
        try:
            operation()
        except self._mysql.err.Error as error:
            raise self._final_error(self._convert_error(*error.args)) from error
        except OSError as error:
            raise self._final_error(
                server_socket.unreachable_error(self._access, error.strerror or str(error))
            ) from error
        except _PROTOCOL_ERRORS as error:
            raise self._final_error(server_socket.other_program_error(self._access)) from error
        except BaseException:
            self.close()  # the connection is in an unknown state
            raise

    def _convert_error(self, code: object = None, words: object = "", *_: object) -> VmragError:
        """Convert an error of PyMySQL. One without a code is about the protocol."""
        if not isinstance(code, int):
            return server_socket.other_program_error(self._access)
        words = str(words) or "the session has ended"
        return server_socket.translate_error(self._access, code, words, gone=self.ended, statement=self._statement)

    def _final_error(self, error: VmragError) -> VmragError:
        """Return the error, or the exceeded limit that caused it."""
        if isinstance(error, ServerUnreachable):
            self.close()
        if self._allowance.exceeded:
            megabytes = self._max_answer_bytes // MEGABYTE
            return LimitExceeded(f"the server {self._access.server} returned more than {megabytes:,} MB.")
        if self._allowance.late:
            seconds = f"{self._allowance.granted:.0f} seconds"
            limit = self._access.answer_seconds
            if limit and self._waited + self._allowance.granted >= _ALL_ANSWERS_FACTOR * limit:
                seconds = f"{_ALL_ANSWERS_FACTOR * limit:.0f} seconds in all"
            if not self._logged_in or limit:
                self.close()
                return server_socket.silent_error(self._access, seconds)
            return StatementGivenUp(f"the server {self._access.server} took longer than {seconds}.")
        return error


class _Row(dict[str, Any]):
    def __missing__(self, column: str) -> NoReturn:
        raise EngineFailed(f"the server returned a row without the column {column!r}.")


def _keyless_connection(mysql: Any, access: DoltAccess) -> Any:
    """Return PyMySQL's connection class, changed so that it never sends an unprotected password.

    It refuses the unencrypted password, and the password encrypted with a public key, because any
    program that answers at the port could send such a key.
    """

    def refuse(*_: object) -> NoReturn:
        raise server_socket.cleartext_error(access)

    class Keyless(mysql.connections.Connection):  # type: ignore[misc]  # PyMySQL has no types
        server_public_key = property(refuse, lambda *_: None)

        def __init__(self, **options: object) -> None:
            plugins = ("mysql_clear_password", "dialog")
            super().__init__(auth_plugin_map=dict.fromkeys(plugins, refuse), **options)

    return Keyless


def import_pymysql() -> Any:
    """Return PyMySQL. Raises `EngineFailed` if it is not installed."""
    try:
        import pymysql
        import pymysql.constants.FIELD_TYPE
        import pymysql.cursors
    except ImportError as error:
        raise EngineFailed(
            "a Dolt server needs PyMySQL, which is not installed.",
            hint="run 'python -m pip install \"vmrag-link[dolt]\"'",
        ) from error
    return pymysql
