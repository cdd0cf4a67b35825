"""One session with a Dolt sql-server, through PyMySQL.

The server was agreed to. It may be down all the same, another program, or one that was broken into:
it is given no file, no password in the clear, and only so much memory and time.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable
from typing import Any, NoReturn

from vmrag_link.engines.base import ROOT_BRANCH
from vmrag_link.engines.dolt import program, server_socket
from vmrag_link.engines.dolt.access import DoltAccess, parse_address, require_private
from vmrag_link.engines.dolt.connection import SESSION_STATEMENTS, STATEMENT_SECONDS, SqlRow, dolt_message, quote_place
from vmrag_link.engines.dolt.server_socket import Allowance
from vmrag_link.engines.limits import MEGABYTE
from vmrag_link.errors import (
    ConfigInvalid,
    EngineFailed,
    LimitExceeded,
    ServerUnreachable,
    StatementGivenUp,
    VmragError,
)

LOGIN_SECONDS = 10.0
"""To reach the server, and to log in."""

_MOST_AT_LOGIN = 1_000_000
_VERSION = r"\d+\.\d+\.\d+[\w.+-]*"
_NOT_FOUND = ("database not found", "access denied for user")
"""What a server says of a place that is not there: the second to users without global rights."""

_GARBLED = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError, struct.error)
"""What PyMySQL raises where the other side does not keep to MySQL's protocol, or wants a file."""


_ANSWERS = 5
"""How long a hook waits for all answers together, in times of `DoltAccess.answer_seconds`."""


class ServerSession:
    """`ended`: nothing more can be asked of it. `longest`: bytes of one answer.

    The database need not be there.
    """

    def __init__(self, access: DoltAccess, *, longest: int) -> None:
        self._access, self._longest = access, longest
        self._at: str | None = None
        self._logged_in = False
        self._statement = ""
        self._waited = 0.0
        self._allowance = Allowance()
        self._mysql = import_pymysql()
        self._connection = self._prepared()
        try:
            self._log_in()
            for each in SESSION_STATEMENTS:
                self.run_statement(each)
            self._require_dolt()
        except BaseException:
            self.close()
            raise

    @property
    def ended(self) -> bool:
        return not self._connection.open

    def use_place(self, at: str | None) -> None:
        """Have the next statements run at a place."""
        # The default branch of a server's database is another program's to choose.
        wanted = quote_place(self._access.database, at or ROOT_BRANCH)
        if wanted == self._at:
            return
        self._at = None
        try:
            self.run_statement(f"USE {wanted}")
        except EngineFailed as error:
            if at in (None, ROOT_BRANCH) and any(each in dolt_message(error).lower() for each in _NOT_FOUND):
                raise server_socket.missing_database_error(self._access) from error
            raise
        self._at = wanted

    def run_anywhere(self, statement: str) -> list[SqlRow]:
        """Run a statement that may leave the place."""
        self._at = None
        return self.run_statement(statement)

    def run_statement(self, statement: str) -> list[SqlRow]:
        """The rows of a statement.

        Raises `EngineError`, and `Busy` for what others changed at the same time.
        """
        self._statement = statement
        self._allowance.renew(self._longest, self._at_most(STATEMENT_SECONDS))
        begun = time.monotonic()
        with self._connection.cursor() as cursor:
            try:
                self._translated(lambda: cursor.execute(statement))
            finally:
                self._waited += time.monotonic() - begun
            return [self._row(each) for each in cursor.fetchall()]

    def close(self) -> None:
        """What was not committed is rolled back, and its locks are freed."""
        if self._connection.open:
            self._allowance.renew(0, LOGIN_SECONDS)
            self._connection.close()

    # -- the beginning

    def _prepared(self) -> Any:
        """PyMySQL's connection, not connected."""
        access = self._access
        host, port = parse_address(access.server)
        require_private(access)
        kinds = self._mysql.constants.FIELD_TYPE
        whole = (kinds.TINY, kinds.SHORT, kinds.INT24, kinds.LONG, kinds.LONGLONG)
        kind = self._mysql.connections.Connection if access.tls else _keyless(self._mysql, access)
        return kind(
            host=host,
            port=port,
            user=access.user,
            password=access.password,
            charset="utf8mb4",
            autocommit=None,  # `OPENING` says it
            cursorclass=self._mysql.cursors.DictCursor,
            conv=dict.fromkeys(whole, int),  # everything else is text, as the program writes it
            defer_connect=True,
            **(self._encrypted() if access.tls else {"ssl_disabled": True}),
        )

    def _encrypted(self) -> dict[str, Any]:
        try:
            return {"ssl": server_socket.create_tls_context(self._access.authorities, self._allowance)}
        except OSError as error:
            raise ConfigInvalid(
                f"{self._access.authorities} holds no certificates: {error.strerror or error}.",
                hint="Name a PEM file with the certificate of the authority that signed the server's:"
                " git config vmrag.dolt.authorities /PATH/TO/ca.pem",
                setting="dolt.authorities",
            ) from error

    def _log_in(self) -> None:
        self._allowance.renew(_MOST_AT_LOGIN, self._at_most(LOGIN_SECONDS))
        host, port = self._connection.host, self._connection.port
        try:
            plain = server_socket.connect(host, port, self._allowance)
        except OSError as error:
            raise self._failure(server_socket.unreachable_error(self._access, error.strerror or str(error))) from error
        self._translated(lambda: self._connection.connect(plain))
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
        program.require_recent_version(f"The server {self._access.server}", version)

    def _at_most(self, seconds: float) -> float:
        limit = self._access.answer_seconds
        return min(seconds, limit, max(0.0, _ANSWERS * limit - self._waited)) if limit else seconds

    # -- what is said

    def _row(self, said: dict[str, object]) -> SqlRow:
        for value in said.values():
            if not isinstance(value, str | int | None):
                kind = type(value).__name__
                raise EngineFailed(f"The server {self._access.server} answers with {kind} in place of a text.")
        return _Row(said)

    def _translated(self, asked: Callable[[], object]) -> None:
        try:
            asked()
        except self._mysql.err.Error as error:
            raise self._failure(self._error_of(*error.args)) from error
        except OSError as error:
            raise self._failure(server_socket.unreachable_error(self._access, error.strerror or str(error))) from error
        except _GARBLED as error:
            raise self._failure(server_socket.other_program_error(self._access)) from error
        except BaseException:
            self.close()  # it is in the middle of something
            raise

    def _error_of(self, code: object = None, words: object = "", *_: object) -> VmragError:
        """What an error of PyMySQL's says: one without a code is about the protocol."""
        if not isinstance(code, int):
            return server_socket.other_program_error(self._access)
        words = str(words) or "it has ended"
        return server_socket.translate_error(self._access, code, words, gone=self.ended, statement=self._statement)

    def _failure(self, error: VmragError) -> VmragError:
        """The error, or the one of ours that led to it."""
        if isinstance(error, ServerUnreachable):
            self.close()
        if self._allowance.exceeded:
            most = self._longest // MEGABYTE
            return LimitExceeded(f"The server {self._access.server} answers with more than {most:,} MB.")
        if self._allowance.late:
            seconds, limit = f"{self._allowance.granted:.0f} seconds", self._access.answer_seconds
            if limit and self._waited + self._allowance.granted >= _ANSWERS * limit:
                seconds = f"{_ANSWERS * limit:.0f} seconds in all"
            if not self._logged_in or limit:
                self.close()
                return server_socket.silent_error(self._access, seconds)
            return StatementGivenUp(f"The server {self._access.server} took longer than {seconds}.")
        return error


class _Row(dict[str, Any]):
    def __missing__(self, column: str) -> NoReturn:
        raise EngineFailed(f"The server answers without the column {column!r}.")


def _keyless(mysql: Any, access: DoltAccess) -> Any:
    """PyMySQL's connection that sends no password: neither in the clear, nor encrypted for whoever
    answers at the port and sends a key.
    """

    def refused(*_: object) -> NoReturn:
        raise server_socket.cleartext_error(access)

    class Keyless(mysql.connections.Connection):  # type: ignore[misc]  # PyMySQL has no types
        server_public_key = property(refused, lambda *_: None)

        def __init__(self, **given: object) -> None:
            plugins = ("mysql_clear_password", "dialog")
            super().__init__(auth_plugin_map=dict.fromkeys(plugins, refused), **given)

    return Keyless


def import_pymysql() -> Any:
    """PyMySQL. Raises `EngineFailed` where it is not installed."""
    try:
        import pymysql
        import pymysql.constants.FIELD_TYPE
        import pymysql.cursors
    except ImportError as error:
        raise EngineFailed(
            "A Dolt server is spoken to through PyMySQL, which is not installed here.",
            hint="python -m pip install 'vmrag-link[dolt]'",
        ) from error
    return pymysql
