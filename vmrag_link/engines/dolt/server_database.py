"""A knowledge base that is a database of a Dolt server, and the file `server.json` that names it.

The file is in the folder of the knowledge base on this machine. It has no address, which is a
setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from vmrag_link import file_access, locks
from vmrag_link.engines.creation import translate_os_errors
from vmrag_link.engines.dolt import schema
from vmrag_link.engines.dolt.access import DoltAccess, is_local, require_private, require_server
from vmrag_link.engines.dolt.connection import dolt_message, quote_identifier, quote_literal
from vmrag_link.engines.dolt.server import ServerConnection
from vmrag_link.engines.folder import LOCK_NAME, SERVER_FILE
from vmrag_link.engines.limits import USUAL_LIMITS
from vmrag_link.engines.own_branches import ROOT_BRANCH, UNFINISHED_BRANCH
from vmrag_link.errors import (
    AlreadyInitialized,
    ConfigInvalid,
    EngineFailed,
    EngineUnwritable,
    FormatTooNew,
    KnowledgeMissing,
    RemoteInvalid,
    quoted,
    shortened,
)
from vmrag_link.models import Record

_FORMAT = 1
_MAX_SERVER_FILE_BYTES = 10_000
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
_LOCK_SECONDS = 30.0


class _ServerFile(Record, frozen=True):
    """The contents of `server.json`."""

    format: int
    database: str


def is_on_server(folder: Path) -> bool:
    """Return whether the knowledge base in a folder is a database of a server."""
    return (folder / SERVER_FILE).exists()


def resolve_access(folder: Path, access: DoltAccess) -> DoltAccess:
    """Return the access to the database that a folder's file names.

    Raises `ConfigInvalid` if the settings name no server, or another database.
    """
    require_server(access, f"the knowledge base in {folder} is a database of a Dolt server")
    require_private(access)
    database = _read_server_file(folder / SERVER_FILE).database
    if access.database and access.database.lower() != database.lower():
        raise ConfigInvalid(
            f"the knowledge base in {folder} is the database {database!r}, but dolt.database is {access.database!r}.",
            hint=f"run 'git config vmrag.dolt.database {quoted(database)}' to set the database",
            setting="dolt.database",
        )
    return msgspec.structs.replace(access, database=database)


def require_reachable(access: DoltAccess, url: str) -> None:
    """Raise `RemoteInvalid` for a folder of this machine if the server is on another one.

    The server itself fetches and pushes.
    """
    if url.startswith("file://") and not is_local(access):
        raise RemoteInvalid(
            f"the Dolt server {access.server} cannot reach the remote {url}, which is a folder of this machine.",
            hint="run 'vmrag remote' to check the remote, which must be an address that the server can reach, such as "
            "https://HOST/DATABASE",
            remote=url,
        )


def create_database(folder: Path, *, author: str, date: str, access: DoltAccess, origin: str = "") -> None:
    """Create the tables in a database of the server, and record it. A missing database is created.

    An empty new database is used, and so is the result of a killed creation. Raises
    `AlreadyInitialized` for a database that is in use.
    """
    schema.parse_author(author)

    def fill_database(server: ServerConnection) -> None:
        with server.server_lock("create the knowledge base", _LOCK_SECONDS):
            _prepare_database(server, access)
            if _count_revisions(server) == 1:
                _fill_root(server, author, date, origin)
            elif _has_other_branches(server, access.database):
                raise AlreadyInitialized(
                    f"the server {access.server} already has a knowledge base in the database {access.database!r}.",
                    hint="run 'vmrag clone' to use it, or 'git config vmrag.dolt.database NAME' to use another database",
                    database=access.database,
                )
            schema.require_known_schema(server, ROOT_BRANCH, f"the database {access.database!r}")
        server.end_session()  # the session was on a branch that will be renamed
        with server.server_lock("create the knowledge base", _LOCK_SECONDS):
            _make_root_default(server, access.database)

    _record_database(folder, access, fill_database)


def join_database(folder: Path, access: DoltAccess) -> None:
    """Record a knowledge base that already exists on the server.

    Raises `AlreadyInitialized` if the folder holds one, and `KnowledgeMissing` if the server has
    none.
    """

    def require_knowledge(server: ServerConnection) -> None:
        if _count_revisions(server) == 1:
            raise KnowledgeMissing(
                f"the creation of the knowledge base {access.database!r} on {access.server} was not finished.",
                hint="run 'vmrag init --knowledge-base' to create a knowledge base",
            )
        schema.require_known_schema(server, ROOT_BRANCH, f"the database {access.database!r}")

    _record_database(folder, access, require_knowledge)


# -- the file


def _record_database(folder: Path, access: DoltAccess, prepare: Callable[[ServerConnection], None]) -> None:
    """Record the database in the folder after `prepare` has prepared it."""
    _require_name(access.database)
    with (
        translate_os_errors(folder),
        locks.hold_exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=_LOCK_SECONDS),
    ):
        schema.require_no_engine(folder)
        server = _open_server(access)
        try:
            prepare(server)
        finally:
            server.end_session()
        content = msgspec.json.format(msgspec.json.encode(_ServerFile(_FORMAT, access.database)))
        file_access.write_atomically(folder / SERVER_FILE, content + b"\n")


def _read_server_file(path: Path) -> _ServerFile:
    try:
        content = msgspec.json.decode(file_access.read_regular(path, _MAX_SERVER_FILE_BYTES), type=_ServerFile)
    except (OSError, ValueError) as error:
        raise EngineFailed(
            f"cannot read the name of the database from {path}.",
            hint=f"run 'rm {quoted(path)} && vmrag clone' to remove the file and connect again",
        ) from error
    if content.format != _FORMAT:
        raise FormatTooNew(
            f"a newer version of vmrag wrote {path}.",
            hint="run 'python -m pip install --upgrade vmrag-link' to upgrade vmrag-link",
            path=str(path),
        )
    _require_name(content.database)
    return content


def _require_name(database: str) -> None:
    if not re.fullmatch(_NAME, database):
        what = f"invalid database name {shortened(database)!r}" if database else "the setting dolt.database is missing"
        raise ConfigInvalid(
            f"{what}.", hint="run 'git config vmrag.dolt.database NAME' to set the database", setting="dolt.database"
        )


def _open_server(access: DoltAccess) -> ServerConnection:
    return ServerConnection(access, max_answer_bytes=USUAL_LIMITS.text_bytes)


# -- the database


def _prepare_database(server: ServerConnection, access: DoltAccess) -> None:
    """Create the database and its branch `vmrag_root` if they are missing."""
    database = access.database
    names = {str(name).lower() for row in server.run_anywhere("SHOW DATABASES") for name in row.values()}
    if database.lower() not in names:
        _make_database(server, access)
        _set_default_branch(server, database, "")  # a dropped database of this name may have left a setting
    try:
        server.query_rows("SELECT 1")
    except KnowledgeMissing as error:
        branches = server.run_anywhere(f"SELECT name, dirty FROM {quote_identifier(database)}.dolt_branches")
        first = str(branches[0]["name"])
        if len(branches) > 1 or branches[0]["dirty"] or not _is_empty(server, first):
            raise AlreadyInitialized(
                f"the server {access.server} already has a database {database!r} with other content.",
                hint="run 'git config vmrag.dolt.database NAME' to use another database",
                database=database,
            ) from error
        server.call("dolt_branch", ROOT_BRANCH, first, at=first)


def _make_database(server: ServerConnection, access: DoltAccess) -> None:
    try:
        server.run_anywhere(f"CREATE DATABASE {quote_identifier(access.database)}")
    except EngineUnwritable as error:
        raise KnowledgeMissing(
            f"the user {shortened(access.user)!r} cannot see or create the database {access.database!r}"
            f" on the server {access.server}.",
            hint=f"ask the administrator to run 'CREATE DATABASE {quote_identifier(access.database)}' and to grant its "
            "rights, or run 'git config vmrag.dolt.database NAME' to use another one",
            server=access.server,
            database=access.database,
        ) from error


def _is_empty(server: ServerConnection, branch: str) -> bool:
    return _count_revisions(server, branch) == 1 and not server.query_rows("SHOW TABLES", at=branch)


def _count_revisions(server: ServerConnection, branch: str = ROOT_BRANCH) -> int:
    return int(server.query_rows("SELECT count(*) AS v FROM dolt_log", at=branch)[0]["v"])


def _fill_root(server: ServerConnection, author: str, date: str, origin: str) -> None:
    """Create the tables on `vmrag_root`, where a killed creation may have begun."""
    server.call("dolt_reset", "--hard", at=ROOT_BRANCH)
    server.call("dolt_clean", at=ROOT_BRANCH)
    schema.create_root(server, author=author, date=date, origin=origin)


def _has_other_branches(server: ServerConnection, database: str) -> bool:
    """Return whether the database has branches other than those of a creation."""
    expected = {ROOT_BRANCH, UNFINISHED_BRANCH, _read_default_branch(server, database)}
    return any(row["name"] not in expected for row in server.query_rows("SELECT name FROM dolt_branches"))


def _make_root_default(server: ServerConnection, database: str) -> None:
    """Replace the branch that a new database comes with by `vmrag_root`.

    It is the branch for clients that name none. The name `main` belongs to the code branch main.
    """
    default = _read_default_branch(server, database)
    if default == ROOT_BRANCH:
        return
    if default:
        server.call("dolt_branch", "-f", default, ROOT_BRANCH)
        server.call("dolt_branch", "-m", "-f", default, ROOT_BRANCH)
    _set_default_branch(server, database, ROOT_BRANCH)


def _read_default_branch(server: ServerConnection, database: str) -> str:
    """Return the branch for clients that name none, or an empty text if it does not exist."""
    try:
        server.run_anywhere(f"USE {quote_identifier(database)}")
    except EngineFailed as error:
        phrases = "cannot resolve default branch", f"not found: {database}/", "access denied for user"
        message = dolt_message(error)
        if not any(phrase in message or phrase in message.lower() for phrase in phrases):
            raise
        return ""
    return str(server.run_anywhere("SELECT active_branch() AS v")[0]["v"])


def _set_default_branch(server: ServerConnection, database: str, branch: str) -> None:
    """Set the default branch until the server's next start.

    Then the renamed branch is the default.
    """
    server.run_anywhere(f"SET GLOBAL {quote_identifier(f'{database}_default_branch')} = {quote_literal(branch)}")
