"""The errors of a Dolt sql-server, by what it said and by what it left unsaid. No password is in
any of them.
"""

from __future__ import annotations

from vmrag_link import terminal_text
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import failure
from vmrag_link.errors import (
    Busy,
    EngineUnwritable,
    KnowledgeMissing,
    LoginRefused,
    ServerUnreachable,
    VmragError,
    shortened,
)

_LOGIN_DENIED = 1045
_CONFLICTS = (1205, 1213)
_DENIED = (1044, 1142, 1227, 1290, 1370, 1792)
_DENIED_WORDS = ("command denied to user", "access denied for user", "read only mode", "read-only mode")
_GONE = (1040, 1053, 2003, 2006, 2013, 2026)
_GONE_WORDS = ("this connection can no longer be used",)
"""After a garbage collection that ends sessions."""

_MOST_SHOWN = 500


def error_of(access: DoltAccess, code: int, words: str, *, gone: bool) -> VmragError:
    """The error for what the server, or PyMySQL in its place, said with one of MySQL's codes.

    `gone`: the session has ended by it.
    """
    lower = words.lower()
    if code == _LOGIN_DENIED:
        return login_refused(access)
    if code in _CONFLICTS:
        return Busy(
            f"Somebody else has changed the same at the same time: {_one_line(words)}.", hint="Run the command again."
        )
    if code in _DENIED or any(each in lower for each in _DENIED_WORDS):
        return EngineUnwritable(
            f"The server {access.server} does not allow that: {_one_line(words)}.",
            hint="Ask who runs it for the rights that docs/dolt.md lists.",
            said=words,
        )
    if gone or code in _GONE or any(each in lower for each in _GONE_WORDS):
        return unreachable(access, words)
    return failure(words)


def unreachable(access: DoltAccess, why: str) -> ServerUnreachable:
    return ServerUnreachable(
        f"The server {access.server} cannot be reached, or has ended the session: {_one_line(why)}.",
        hint="Ask whether it runs there, then run the command again. The address: git config vmrag.dolt.server",
        server=access.server,
    )


def lost(access: DoltAccess) -> ServerUnreachable:
    """Where something depended on the session."""
    return ServerUnreachable(
        f"The session with the server {access.server} was lost in the middle of writing.",
        hint="Run the command again.",
        server=access.server,
    )


def other_program(access: DoltAccess) -> ServerUnreachable:
    return ServerUnreachable(
        f"What answers at {access.server} is not Dolt's sql-server.",
        hint="Name the server: git config vmrag.dolt.server HOST:PORT",
        server=access.server,
    )


def login_refused(access: DoltAccess) -> LoginRefused:
    how = "with the password" if access.password else "without a password"
    return LoginRefused(
        f"The server {access.server} does not let in the user {shortened(access.user)!r} {how}.",
        hint="Set VMRAG_DOLT_PASSWORD in the environment; name the user by: git config vmrag.dolt.user NAME",
        server=access.server,
        user=access.user,
    )


def no_knowledge(access: DoltAccess) -> KnowledgeMissing:
    return KnowledgeMissing(
        f"The server {access.server} has no knowledge base in a database {access.database!r},"
        f" or does not show it to the user {shortened(access.user)!r}.",
        hint="Ask who runs it for its name: git config vmrag.dolt.database NAME",
        server=access.server,
        database=access.database,
    )


def in_the_clear(access: DoltAccess) -> ServerUnreachable:
    return ServerUnreachable(
        f"The server {access.server} asks for the password in the clear, which it does not get.",
        hint="Encrypt the connection: git config vmrag.dolt.tls true",
        server=access.server,
    )


def _one_line(words: str) -> str:
    return terminal_text.one_line(" ".join(words.split()))[:_MOST_SHOWN].rstrip(".")
