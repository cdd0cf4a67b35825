"""Writing rows and committing them. The contracts are those of `engines.base.Engine`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from vmrag_link import permissions
from vmrag_link.engines import limits, logical, records
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite import history, reading, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.session import DoltliteSession, unfinished_branch
from vmrag_link.engines.records import Value
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS, Table
from vmrag_link.errors import Busy, EngineFailed, NoChanges

COMPACTED_NAME = "compacted"
"""Holds the size in bytes that the file had after it was last compacted."""

COMPACT_BYTES = 4_000_000


def write(session: DoltliteSession, branch: str, rows: Write, *, expected: str) -> None:
    with session.transaction_on(branch, f"write to the branch {branch}", expected) as connection:
        session.note_uncommitted()
        _store(connection, rows)


def commit(session: DoltliteSession, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
    with session.transaction_on(branch, f"commit on the branch {branch}", expected) as connection:
        if not schema.is_dirty(connection):
            raise NoChanges(f"The branch {branch!r} has nothing to commit.", branch=branch)
        revision = schema.commit(connection, message, author, date)
    session.note_committed()
    _compact(session)
    return revision


def commit_onto(
    session: DoltliteSession,
    revision: str,
    rows: Sequence[Write],
    *,
    joining: str | None,
    undo: Callable[[str], Write],
    message: str,
    author: str,
    date: str,
) -> str:
    """`undo`: what takes back the engine's own merge with a revision."""
    with session.writing("merge"):
        history.require(session.main, revision)
        if joining and history.is_ancestor(session.main, joining, revision):
            joining = None
        if joining:
            session.require(joining)  # the engine merges its tables, too
        made = revision
        with (
            unfinished_branch(session.main, revision, session.connection) as connection,
            connection.transaction(),
        ):
            schema.version(connection)
            if joining:
                taken_back = undo(joining)
                _begin_merge(connection, joining)
                _store(connection, taken_back)
            for each in rows:
                _store(connection, each)
            if joining or schema.is_dirty(connection):
                made = schema.commit(connection, message, author, date)
        session.keep(made, "a merge")
    _compact(session)
    return made


def recreate(
    session: DoltliteSession,
    parents: Sequence[str],
    rows: Iterable[Write],
    *,
    undo: Callable[[str], Write],
    message: str,
    author: str,
    date: str,
) -> str:
    """`undo`: what takes back the engine's own merge with a revision."""
    with session.writing("recreate a revision"):
        for each in parents:
            session.require(each)
        first, *others = parents
        with unfinished_branch(session.main, first, session.connection) as connection, connection.transaction():
            for joining in others:
                taken_back = undo(joining)
                _begin_merge(connection, joining)
                _store(connection, taken_back)
            for part in rows:
                _store(connection, part)
            made = schema.commit(connection, message, author, date, "--allow-empty")
        limits.require_parents(made, history.own_parents(session.main, made), parents)
    return made


def _store(connection: Connection, rows: Write) -> None:
    """Change the rows where the connection stands; call it in a transaction."""
    version = schema.upgrade(connection, rows.schema_version)
    twins, logical_twins = logical.twins(rows.put_documents)
    gone = reading.DoltliteRows(connection).removed([*rows.remove_documents, *logical_twins], rows.remove_collections)
    for table, ids in gone.items():
        _remove(connection, table, ids)
    for name in rows.remove_collections:
        connection.execute("DELETE FROM documents WHERE collection_name = ?", (name,))
        _remove(connection, COLLECTIONS, [name])
    connection.executemany(
        "DELETE FROM documents WHERE collection_name = ? AND doc_id = ?", [*rows.remove_documents, *twins]
    )
    _put(connection, COLLECTIONS, version, map(records.collection_row, rows.put_collections))
    for table, documents in logical.by_table(rows.put_documents):
        _put(connection, table, version, map(records.document_row, documents))
    if version >= PROJECTS.since:
        _remove(connection, PROJECTS, rows.remove_projects)
        _put(connection, PROJECTS, version, map(records.project_row, rows.put_projects))


def _remove(connection: Connection, table: Table, keys: Iterable[str]) -> None:
    sql = f"DELETE FROM {table.name} WHERE {table.columns[0]} = ?"  # noqa: S608  our own names
    connection.executemany(sql, ((key,) for key in keys))


def _put(connection: Connection, table: Table, version: int, rows: Iterable[tuple[Value, ...]]) -> None:
    """Insert or replace rows; what a version of the schema lacks is at their end, and empty."""
    columns = table.stored(version)
    marks = ", ".join("?" * len(columns))
    sql = f"INSERT OR REPLACE INTO {table.name}({', '.join(columns)}) VALUES ({marks})"  # noqa: S608  our own names
    connection.executemany(sql, (row[: len(columns)] for row in rows))


def discard(session: DoltliteSession, branch: str) -> None:
    """Make a branch clean. Hold the write lock."""
    with session.connection(branch) as connection:
        connection.execute("SELECT dolt_reset('--hard')")
    session.note_committed()


def _compact(session: DoltliteSession) -> None:
    """Collect garbage when much was appended since the last time: opening reads it, a millisecond a
    megabyte.

    Whatever our own branches ever stood at is anchored, so it stays. A size that cannot be noted is
    no reason to fail: the revision is committed.
    """
    note = session.folder / COMPACTED_NAME
    with contextlib.suppress(OSError, ValueError, EngineFailed, Busy), session.writing("compact the knowledge base"):
        before = int(note.read_text()) if note.exists() else 0
        if session.file.stat().st_size - before > max(COMPACT_BYTES, before // 2):
            session.collect_garbage()
            permissions.make_file(note)
            note.write_text(str(session.file.stat().st_size))


def _begin_merge(connection: Connection, joining: str) -> None:
    """Begin a merge in the open transaction: the next commit has `joining` as its second parent.

    Rows in conflict stay as they are on this side. Costs by what either changed.
    """
    try:
        connection.execute("SELECT dolt_merge('--no-ff', '--no-commit', ?)", (joining,))
    except EngineFailed:
        tables = connection.execute('SELECT "table" FROM dolt_conflicts')
        if not tables:
            raise
        for (table,) in tables:
            connection.execute("SELECT dolt_conflicts_resolve('--ours', ?)", (table,))
