"""The versioned tables in Dolt, the check that a place holds only them, and new repositories.

A repository is created completely or not at all, even if the process is killed. The statements have
the form of `SHOW CREATE TABLE`, so both can be compared. Knowledge bases of this engine begin with
version 2 of the schema.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from vmrag_link import file_access, locks, permissions, terminal_text
from vmrag_link.engines import inspection, tables
from vmrag_link.engines.base import SCHEMA_VERSION, schema_too_new_error
from vmrag_link.engines.creation import already_exists_error, continuation_message, translate_os_errors
from vmrag_link.engines.dolt import program
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import SqlConnection, quote_identifier, quote_literal
from vmrag_link.engines.dolt.shell import ShellConnection, limit_answer_bytes
from vmrag_link.engines.folder import CREATING_NAME, DOLT_FOLDER, LOCK_NAME, SERVER_FILE, UNCOMMITTED_NAME
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.engines.own_branches import ROOT_BRANCH
from vmrag_link.engines.records import require_storable
from vmrag_link.engines.tables import ROWS_HINT, Table
from vmrag_link.errors import EngineFailed, RowsInvalid
from vmrag_link.models import Record

META = "vmrag_meta"
_VERSION = "[1-9][0-9]{0,8}"
_MAX_SHOWN_CHARACTERS = 100
_PLAIN_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_ABORT = "CALL dolt_merge('--abort')"
_CONFLICTS = {"dolt_conflicts": "table", "dolt_schema_conflicts": "table_name"}

_SYSTEM_TABLES = ("dolt_schemas", "dolt_procedures", "dolt_ignore", "dolt_nonlocal_tables")
"""Dolt's own tables that change the effect of other statements.

They hold triggers and views, procedures, tables that are not committed, and tables that redirect to
another branch.
"""

_DELETABLE_TABLES = ("dolt_ignore", "dolt_nonlocal_tables")
"""The tables whose rows can be deleted. The rows of the others show what to drop."""

_VARCHAR_COLUMNS = frozenset(
    "collection_name doc_id project_id log_id kind embedding_function embedding_model distance content_hash file_type"
    " log_type created_at updated_at last_modified".split()
)
"""Columns of the type VARCHAR(255). Any other is LONGTEXT, or a number."""

_END = ") ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_bin"


def _create_statement(table: Table) -> str:
    types = dict.fromkeys(table.columns, "longtext")
    types |= dict.fromkeys(_VARCHAR_COLUMNS.intersection(types), "varchar(255)")
    types |= dict.fromkeys(table.number_columns, "int")
    keys = table.columns[: table.key_count]
    lines = [f"`{column}` {kind}{' NOT NULL' if column in keys else ''}" for column, kind in types.items()]
    lines.append(f"PRIMARY KEY ({','.join(map(quote_identifier, keys))})")
    return f"CREATE TABLE `{table.name}` ({', '.join(lines)}{_END}"


TABLES: Mapping[str, str] = {
    META: f"CREATE TABLE `{META}` (`key` varchar(255) NOT NULL, `value` longtext, PRIMARY KEY (`key`){_END}",
    **{table.name: _create_statement(table) for table in tables.TABLES},
}
"""The statements that create the tables of the newest version, by name.

A version, once released, never changes.
"""

LINKS: Mapping[str, str] = {
    "git_links": (
        "CREATE TABLE `git_links` (`git_commit` varchar(255) NOT NULL, `dolt_commit` varchar(255),"
        " `dolt_branch` varchar(255), `git_branch` longtext, `git_repo_url` longtext, `linked_at` varchar(255),"
        " `source` varchar(255), `superseded_by` varchar(255), `metadata` longtext, PRIMARY KEY (`git_commit`),"
        f" KEY `git_links_by_revision` (`dolt_commit`){_END}"
    )
}
"""The table of links, which is on a branch of its own next to the other tables."""


def create_tables(connection: SqlConnection, at: str) -> None:
    version = quote_literal(str(SCHEMA_VERSION))
    connection.execute([*TABLES.values(), f"INSERT INTO {META} VALUES ('schema_version', {version})"], at=at)


def require_known_schema(
    connection: SqlConnection, at: str, where: str, *, also: Mapping[str, str] | None = None
) -> int:
    """Return the version of the schema at a place, or 0 if there are no tables.

    Anchors and the commit before the first revision have no tables. Raises `KnowledgeRefused`, with
    `where` in the message, if the place holds anything except our tables and those in `also`, and
    `SchemaTooNew` if a newer program wrote it. Call this before you read anything else from a
    place.
    """
    foreign, version = inspect_schema(connection, at, also=also)
    if foreign:
        raise inspection.foreign_place_error(where, foreign.text)
    return version


class ForeignObject(Record, frozen=True):
    """An object at a place that is not ours."""

    text: str
    removal: str
    """The statement that removes the object while it is not committed, or shows it."""


class InspectedSchema(NamedTuple):
    foreign: ForeignObject | None
    """The first object at a place that is not ours."""
    version: int
    """The version of the schema, or 0 without tables or with a foreign object."""


def inspect_schema(connection: SqlConnection, at: str, *, also: Mapping[str, str] | None = None) -> InspectedSchema:
    """Read which tables a place has. `also`: statements of further tables that are allowed."""
    listed, *system = connection.run_queries(
        ["SHOW FULL TABLES", *(f"SELECT 1 AS v FROM {system_table} LIMIT 1" for system_table in _SYSTEM_TABLES)], at=at
    )
    for name, rows in zip(_SYSTEM_TABLES, system, strict=True):
        if rows:
            verb = "DELETE" if name in _DELETABLE_TABLES else "SELECT *"
            return InspectedSchema(ForeignObject(f"the table {name} is not empty", f"{verb} FROM {name}"), 0)
    kinds = {_table_name(row): str(row["Table_type"]) for row in listed}
    if not kinds:
        return InspectedSchema(None, 0)
    if kinds.get(META) == "BASE TABLE":
        version = _stored_version(connection, at)
        if version > SCHEMA_VERSION:
            raise schema_too_new_error(version, SCHEMA_VERSION)
    allowed = {name: _normalize_sql(sql) for name, sql in (*TABLES.items(), *(also or {}).items())}
    # Statements only contain our names, because the program treats a backslash as an escape in any
    # quotes.
    foreign = sorted(name for name, kind in kinds.items() if name not in allowed or kind != "BASE TABLE")
    foreign = foreign or sorted(TABLES.keys() - kinds.keys())
    if not foreign:
        names = sorted(kinds)
        results = connection.run_queries([f"SHOW CREATE TABLE {quote_identifier(name)}" for name in names], at=at)
        statements = {
            name: _normalize_sql(str(rows[0]["Create Table"])) for name, rows in zip(names, results, strict=True)
        }
        foreign = [name for name in names if statements[name] != allowed[name]]
    if foreign:
        name = foreign[0]
        text = f"the table {terminal_text.escape_line(repr(name[:_MAX_SHOWN_CHARACTERS]))} differs from the schema"
        removal = _removal_statement(name, kinds.get(name, ""), ours=name in allowed)
        return InspectedSchema(ForeignObject(text, removal), 0)
    return InspectedSchema(None, version)


def _removal_statement(name: str, kind: str, *, ours: bool) -> str:
    if ours:
        return f"CALL dolt_checkout('{name}')"
    if not re.fullmatch(_PLAIN_NAME, name):
        return "SHOW FULL TABLES"
    return f"DROP {'TABLE' if kind == 'BASE TABLE' else 'VIEW'} {name}"


def require_no_conflict(connection: SqlConnection, at: str) -> None:
    """Raise `RowsInvalid` for a branch on which another program left a merge in conflict."""
    queries = [f"SELECT `{key}` AS v FROM {table} LIMIT 1" for table, key in _CONFLICTS.items()]
    rows = [row for result in connection.run_queries(queries, at=at) for row in result]
    if rows:
        table = terminal_text.escape_line(str(rows[0]["v"]))
        raise RowsInvalid(
            f"branch {at!r} has an unfinished merge of another program, with conflicts in the table {table!r}.",
            hint=f"resolve the conflicts with Dolt, or run '{connection.format_command(_ABORT, at)}' to discard that "
            "merge",
        )


def _table_name(row: Mapping[str, object]) -> str:
    """Return the table in a row of SHOW FULL TABLES. Its column name contains the place."""
    return next(str(value) for column, value in row.items() if column != "Table_type")


def _stored_version(connection: SqlConnection, at: str) -> int:
    rows = connection.query_rows(f"SELECT value AS v FROM {META} WHERE `key` = 'schema_version'", at=at)
    match = re.fullmatch(_VERSION, str(rows[0].get("v"))) if rows else None
    if match is None:
        raise RowsInvalid("the knowledge base does not contain its schema version.", hint=ROWS_HINT)
    return int(match[0])


def _normalize_sql(sql: str) -> str:
    """Return SQL without the line ends and indentation of `SHOW CREATE TABLE`."""
    return " ".join(sql.split()).replace("( ", "(").replace(" )", ")")


def is_dirty(connection: SqlConnection, at: str) -> bool:
    """Return whether a branch has uncommitted rows."""
    return bool(connection.query_rows("SELECT 1 AS v FROM dolt_status LIMIT 1", at=at))


def commit(connection: SqlConnection, at: str, message: str, author: str, date: str, *options: str) -> str:
    """Commit everything on a branch. Return the revision, or an empty text if `options` skip it."""
    texts = (
        require_storable(message, "the message"),
        require_storable(author, "the author"),
        require_storable(date, "the date"),
    )
    args = ("-A", *options, "-m", texts[0], "--author", texts[1], "--date", texts[2])
    return str(connection.call("dolt_commit", *args, at=at).get("hash", ""))


_AUTHOR = r"(?s)(?P<name>[^<]*[^< ]) *<(?P<email>[^<>]+)>"


def create_repository(folder: Path, *, author: str, date: str, access: DoltAccess, origin: str = "") -> None:
    """Create a repository whose branch `vmrag_root` holds the empty tables in its first revision.

    `origin`: see `opening.create_engine`.
    """
    program.find_program(access.binary)
    match = parse_author(author)

    def fill_repository(new: Path) -> None:
        identity = ["--name", match["name"], "--email", match["email"]]
        # The name `main` belongs to the code branch main.
        program.run_dolt(["init", *identity, "-b", ROOT_BRANCH, "--date", date], cwd=new, binary=access.binary)
        with open_repository(new, access) as connection:
            create_root(connection, author=author, date=date, origin=origin)

    install_repository(folder, fill_repository)


def parse_author(author: str) -> re.Match[str]:
    """Return the `name` and the `email` of `Name <email>` as a match. Raises `EngineFailed`."""
    match = re.fullmatch(_AUTHOR, author)
    if match is None:
        raise EngineFailed(
            f"invalid author {author[:80]!r}: use 'Name <email>'.",
            hint="run 'git config user.name NAME && git config user.email ADDRESS' to set your name and address",
        )
    return match


def create_empty_repository(folder: Path, access: DoltAccess) -> None:
    """Create a repository in an empty folder, for data that will be fetched into it.

    Its only branch is `vmrag_root`, with a revision that will be replaced. Its configuration has no
    author, so a person who commits there by hand does so under their own name.
    """
    identity = ["--name", "vmrag", "--email", "vmrag@localhost"]
    program.run_dolt(["init", *identity, "-b", ROOT_BRANCH], cwd=folder, binary=access.binary)
    (folder / DOLT_FOLDER / "config.json").write_text("{}")


def create_root(connection: SqlConnection, *, author: str, date: str, origin: str) -> None:
    """Create the tables on the branch `vmrag_root`, and commit them."""
    if origin:
        commit(connection, ROOT_BRANCH, continuation_message(origin), author, date, "--amend", "--allow-empty")
    create_tables(connection, ROOT_BRANCH)
    commit(connection, ROOT_BRANCH, "Create the knowledge base", author, date)


@contextlib.contextmanager
def open_repository(folder: Path, access: DoltAccess, limits: Limits = USUAL_LIMITS) -> Iterator[SqlConnection]:
    """Open a connection to a repository that no other process uses."""
    connection = ShellConnection(folder, access, max_answer_bytes=limit_answer_bytes(limits), timeout=30.0)
    try:
        yield connection
    finally:
        connection.end_session()


def install_repository(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` create a repository in an empty folder, and move it to `folder`.

    Raises `AlreadyInitialized`. A kill leaves no knowledge base, and a failure leaves no files.
    """
    unfinished = folder / CREATING_NAME
    with (
        translate_os_errors(folder),
        locks.hold_exclusive(folder / LOCK_NAME, purpose="create the knowledge base", timeout=30.0),
    ):
        require_no_engine(folder)
        shutil.rmtree(unfinished, ignore_errors=True)
        permissions.make_folder(unfinished)
        try:
            fill(unfinished)
            _write_configuration(unfinished / DOLT_FOLDER / "config.json")
            permissions.apply_folder_mode(unfinished / DOLT_FOLDER)
            (folder / UNCOMMITTED_NAME).unlink(missing_ok=True)  # left from a previous repository
            (unfinished / DOLT_FOLDER).rename(folder / DOLT_FOLDER)
        finally:
            shutil.rmtree(unfinished)
        file_access.sync_to_disk(folder)


def require_no_engine(folder: Path) -> None:
    """Raise `AlreadyInitialized` if the folder holds a knowledge base, or names one of a server."""
    if (folder / DOLT_FOLDER).exists() or (folder / SERVER_FILE).exists():
        raise already_exists_error(folder)


def _write_configuration(configuration: Path) -> None:
    """Disable Dolt's metrics and statistics in a repository.

    Metrics record each command in this user's home directory and are sent to Dolt's makers.
    Statistics are written while Dolt reads, for queries that are never made.
    """
    settings = json.loads(configuration.read_text()) if configuration.exists() else {}
    ours = {"metrics.disabled": "true", "sqlserver.global.dolt_stats_enabled": "0"}
    configuration.write_text(json.dumps(settings | ours))
