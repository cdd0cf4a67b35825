"""A knowledge base that is a database of a Dolt server, and the note of it in a folder here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from vmrag_link import locks, paths
from vmrag_link.engines.base import LOCK_NAME, ROOT_BRANCH, SERVER_FILE, UNFINISHED_BRANCH
from vmrag_link.engines.dolt import schema
from vmrag_link.engines.dolt.access import DoltAccess, is_local, require_private, require_server
from vmrag_link.engines.dolt.connection import dolt_message, quote_identifier, quote_literal
from vmrag_link.engines.dolt.server import ServerConnection
from vmrag_link.engines.limits import USUAL_LIMITS, translate_os_errors
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
_LONGEST_NOTE = 10_000
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
_PATIENCE = 30.0


class _Note(Record, frozen=True):
    """What `server.json` holds. Where the server is, the settings say: it may move."""

    format: int
    database: str


def is_on_server(folder: Path) -> bool:
    """Whether the knowledge base in a folder is a database of a server."""
    return (folder / SERVER_FILE).exists()


def resolve_access(folder: Path, access: DoltAccess) -> DoltAccess:
    """The way to the database that a folder's note names.

    Raises `ConfigInvalid` where the settings name no server, or another database.
    """
    require_server(access, f"The knowledge base in {folder} is a database of a Dolt server")
    require_private(access)
    database = _read(folder / SERVER_FILE).database
    if access.database and access.database.lower() != database.lower():
        raise ConfigInvalid(
            f"The knowledge base in {folder} is the database {database!r}, and dolt.database names {access.database!r}.",
            hint=f"git config vmrag.dolt.database {quoted(database)}",
            setting="dolt.database",
        )
    return msgspec.structs.replace(access, database=database)


def require_reachable(access: DoltAccess, url: str) -> None:
    """Raise `RemoteInvalid` for a folder of this machine, where the server is on another one: it
    fetches and pushes by itself.
    """
    if url.startswith("file://") and not is_local(access):
        raise RemoteInvalid(
            f"The Dolt server {access.server} fetches and pushes by itself, and reaches no folder of this machine.",
            hint="Name a remote that the server reaches, as https://HOST/DATABASE or organisation/repository: vmrag remote",
            remote=url,
        )


def create_database(folder: Path, *, author: str, date: str, access: DoltAccess, origin: str = "") -> None:
    """Make the tables in a database of the server, which is made where there is none, and note it.

    A database that was made for it, in which nothing is yet, is taken; so is what a killed creation
    has left. Raises `AlreadyInitialized` for a database that is used.
    """
    schema.parse_author(author)

    def fill(server: ServerConnection) -> None:
        with server.server_lock("create the knowledge base", _PATIENCE):
            _begin(server, access)
            if _revisions(server) == 1:
                _fill(server, author, date, origin)
            elif _used(server, access.database):
                raise AlreadyInitialized(
                    f"The server {access.server} has a knowledge base in the database {access.database!r} already.",
                    hint="Use it: vmrag clone; or name another database: git config vmrag.dolt.database NAME",
                    database=access.database,
                )
            schema.require_known_schema(server, ROOT_BRANCH, f"The database {access.database!r}")
        server.end_session()  # it has been on a branch that is renamed now
        with server.server_lock("create the knowledge base", _PATIENCE):
            _make_default(server, access.database)

    _note(folder, access, fill)


def join_database(folder: Path, access: DoltAccess) -> None:
    """Note a knowledge base that is on the server already.

    Raises `AlreadyInitialized` where the folder holds one; `KnowledgeMissing` where the server has
    none.
    """

    def check(server: ServerConnection) -> None:
        if _revisions(server) == 1:
            raise KnowledgeMissing(
                f"The creation of the knowledge base {access.database!r} on {access.server} was not finished.",
                hint="vmrag init --knowledge-base",
            )
        schema.require_known_schema(server, ROOT_BRANCH, f"The database {access.database!r}")

    _note(folder, access, check)


def database_exists(access: DoltAccess) -> bool:
    """Whether the server has a knowledge base in this database."""
    server = _server(access)
    try:
        return _revisions(server) > 1
    except KnowledgeMissing:
        return False
    finally:
        server.end_session()


# -- the note


def _note(folder: Path, access: DoltAccess, prepare: Callable[[ServerConnection], None]) -> None:
    """Note the database in the folder, last of all, when it is prepared."""
    _require_name(access.database)
    with (
        translate_os_errors(folder),
        locks.hold_exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=_PATIENCE),
    ):
        schema.require_no_engine(folder)
        server = _server(access)
        try:
            prepare(server)
        finally:
            server.end_session()
        note = msgspec.json.format(msgspec.json.encode(_Note(_FORMAT, access.database)))
        paths.write_atomically(folder / SERVER_FILE, note + b"\n")


def _read(path: Path) -> _Note:
    try:
        note = msgspec.json.decode(paths.read_regular(path, _LONGEST_NOTE), type=_Note)
    except (OSError, ValueError) as error:
        raise EngineFailed(
            f"{path} does not say which database the knowledge base is.",
            hint=f"Remove it, and name the database again: rm {quoted(path)}; vmrag clone",
        ) from error
    if note.format != _FORMAT:
        raise FormatTooNew(
            f"A newer program wrote {path}.", hint="python -m pip install --upgrade vmrag-link", path=str(path)
        )
    _require_name(note.database)
    return note


def _require_name(database: str) -> None:
    if not re.fullmatch(_NAME, database):
        what = f"{shortened(database)!r} is not the name of a database" if database else "No database is named"
        raise ConfigInvalid(f"{what}.", hint="git config vmrag.dolt.database NAME", setting="dolt.database")


def _server(access: DoltAccess) -> ServerConnection:
    return ServerConnection(access, longest=USUAL_LIMITS.text_bytes)


# -- the database


def _begin(server: ServerConnection, access: DoltAccess) -> None:
    """See that the database is there, with a branch `vmrag_root`."""
    database = access.database
    names = {str(name).lower() for row in server.run_anywhere("SHOW DATABASES") for name in row.values()}
    if database.lower() not in names:
        _make_database(server, access)
        _set_default(server, database, "")  # one of that name may have been dropped
    try:
        server.query_rows("SELECT 1")
    except KnowledgeMissing as error:
        branches = server.run_anywhere(f"SELECT name, dirty FROM {quote_identifier(database)}.dolt_branches")
        first = str(branches[0]["name"])
        if len(branches) > 1 or branches[0]["dirty"] or not _empty(server, first):
            raise AlreadyInitialized(
                f"The server {access.server} has a database {database!r} already, which holds something else.",
                hint="Name another one: git config vmrag.dolt.database NAME",
                database=database,
            ) from error
        server.call("dolt_branch", ROOT_BRANCH, first, at=first)


def _make_database(server: ServerConnection, access: DoltAccess) -> None:
    try:
        server.run_anywhere(f"CREATE DATABASE {quote_identifier(access.database)}")
    except EngineUnwritable as error:
        raise KnowledgeMissing(
            f"The server {access.server} shows the user {shortened(access.user)!r} no database {access.database!r},"
            " and lets it make none.",
            hint=f"Whoever runs it says: CREATE DATABASE {quote_identifier(access.database)}, and grants it to you"
            " (docs/sharing.md#a-team-on-one-server). Another name: git config vmrag.dolt.database NAME",
            server=access.server,
            database=access.database,
        ) from error


def _empty(server: ServerConnection, branch: str) -> bool:
    return _revisions(server, branch) == 1 and not server.query_rows("SHOW TABLES", at=branch)


def _revisions(server: ServerConnection, branch: str = ROOT_BRANCH) -> int:
    return int(server.query_rows("SELECT count(*) AS v FROM dolt_log", at=branch)[0]["v"])


def _fill(server: ServerConnection, author: str, date: str, origin: str) -> None:
    """Make the tables on `vmrag_root`, which a killed creation may have begun."""
    server.call("dolt_reset", "--hard", at=ROOT_BRANCH)
    server.call("dolt_clean", at=ROOT_BRANCH)
    schema.create_root(server, author=author, date=date, origin=origin)


def _used(server: ServerConnection, database: str) -> bool:
    """Whether there is a branch but for those of a creation."""
    ours = {ROOT_BRANCH, UNFINISHED_BRANCH, _default(server, database)}
    return any(row["name"] not in ours for row in server.query_rows("SELECT name FROM dolt_branches"))


def _make_default(server: ServerConnection, database: str) -> None:
    """Have `vmrag_root` take the place of the branch that a new database comes with.

    A client that names no branch gets it. The name `main` belongs to the code branch main.
    """
    default = _default(server, database)
    if default == ROOT_BRANCH:
        return
    if default:
        server.call("dolt_branch", "-f", default, ROOT_BRANCH)
        server.call("dolt_branch", "-m", "-f", default, ROOT_BRANCH)
    _set_default(server, database, ROOT_BRANCH)


def _default(server: ServerConnection, database: str) -> str:
    """The branch that clients get who name none; empty where it is not there any more."""
    try:
        server.run_anywhere(f"USE {quote_identifier(database)}")
    except EngineFailed as error:
        gone = "cannot resolve default branch", f"not found: {database}/", "access denied for user"
        if not any(each in dolt_message(error) or each in dolt_message(error).lower() for each in gone):
            raise
        return ""
    return str(server.run_anywhere("SELECT active_branch() AS v")[0]["v"])


def _set_default(server: ServerConnection, database: str, branch: str) -> None:
    """Until the server's next start; then it is the branch that was renamed."""
    server.run_anywhere(f"SET GLOBAL {quote_identifier(f'{database}_default_branch')} = {quote_literal(branch)}")
