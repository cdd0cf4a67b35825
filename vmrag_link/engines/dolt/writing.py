"""Writing rows and committing them. The contracts are those of `engines.base.Engine`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from vmrag_link.engines import limits, logical, records
from vmrag_link.engines.base import Write
from vmrag_link.engines.dolt import history, reading, schema
from vmrag_link.engines.dolt.comparison import WORKING, Comparable, differing
from vmrag_link.engines.dolt.connection import SqlConnection, identifier, literal, literals, parts
from vmrag_link.engines.dolt.session import DoltSession, unfinished_branch
from vmrag_link.engines.records import Value
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS, TABLES, Table
from vmrag_link.errors import NoChanges
from vmrag_link.models import Working

_THERE = "diff_type <> 'removed'"
_BATCH_CHARACTERS = 1_000_000
_BATCH_ROWS = 500


def write(session: DoltSession, branch: str, rows: Write, *, expected: str) -> None:
    with session.transaction_on(branch, f"write to the branch {branch}", expected) as at:
        session.note_uncommitted()
        _store(session, at, rows)


def commit(session: DoltSession, branch: str, *, message: str, author: str, date: str, expected: str) -> str:
    with session.transaction_on(branch, f"commit on the branch {branch}", expected) as at:
        _complete(session, at, expected)
        dirty = schema.is_dirty(session.connection, at)
        revision = schema.commit(session.connection, at, message, author, date) if dirty else ""
    session.note_committed()
    if not dirty:
        raise NoChanges(f"The branch {branch!r} has nothing to commit.", branch=branch)
    return revision


def _complete(session: DoltSession, at: str, head: str) -> None:
    """Store in the uncommitted rows what they stand for (`reading.column_sql`): other programs left
    columns out, or an old hash beside a new text.

    Costs by the number of uncommitted rows, whose texts are not read. Raises `RowsInvalid` for one
    that can be no record.
    """
    connection, step = session.connection, Comparable(at, head, WORKING)
    changed = {str(row["v"]) for row in connection.rows("SELECT table_name AS v FROM dolt_status", at=at)}
    for table in (each for each in TABLES if each.name in changed):
        stored = table.columns[table.keys :]
        other = " OR ".join(f"NOT (to_{each} <=> {reading.column_sql(table, each, 'to_')})" for each in stored)
        rows = [
            records.row(records.record(table, after))
            for _, after in differing(connection, step, table, ((), table.columns), f"{_THERE} AND ({other})")
        ]
        _put(connection, at, table, rows)
        columns = [each for each in table.columns if each != "content"]
        for _, after in differing(connection, step, table, ((), columns), _THERE):
            if table is COLLECTIONS:
                records.record(table, after)


def commit_onto(
    session: DoltSession,
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
    connection = session.connection
    with session.writing("merge"):
        session.require(revision)
        if joining and history.is_ancestor(connection, joining, revision):
            joining = None
        if joining:
            session.require(joining)  # Dolt merges its tables, too
        taken_back = undo(joining) if joining else Write()
        made = revision
        with unfinished_branch(connection, revision) as at, connection.transaction(at):
            if joining:
                _begin_merge(connection, at, joining)
            for each in (taken_back, *rows):
                _store(session, at, each)
            if joining or schema.is_dirty(connection, at):
                made = schema.commit(connection, at, message, author, date, *(["--allow-empty"] if joining else []))
        session.keep(made, "a merge")
    return made


def recreate(
    session: DoltSession,
    parents: Sequence[str],
    rows: Iterable[Write],
    *,
    undo: Callable[[str], Write],
    message: str,
    author: str,
    date: str,
) -> str:
    """`undo`: what takes back the engine's own merge with a revision."""
    connection = session.connection
    with session.writing("recreate a revision"):
        for each in parents:
            session.require(each)
        first, *others = parents
        taken_back = [undo(joining) for joining in others]
        with unfinished_branch(connection, first) as at, connection.transaction(at):
            for joining, back in zip(others, taken_back, strict=True):
                _begin_merge(connection, at, joining)
                _store(session, at, back)
            for part in rows:
                _store(session, at, part)
            made = schema.commit(connection, at, message, author, date, "--allow-empty")
        session.note_checked(made, first)
        limits.require_parents(made, history.own_parents(connection, made), parents)
    return made


def _begin_merge(connection: SqlConnection, at: str, joining: str) -> None:
    """Begin a merge in the open transaction: the next commit has `joining` as its second parent.

    Rows in conflict stay as they are on this side. Costs by what either changed.
    """
    connection.call("dolt_merge", "--no-ff", "--no-commit", joining, at=at)
    for row in connection.rows("SELECT `table` AS v FROM dolt_conflicts", at=at):
        connection.call("dolt_conflicts_resolve", "--ours", str(row["v"]), at=at)


def _store(session: DoltSession, at: str, rows: Write) -> None:
    """Change the rows of a branch; call it in a transaction on it."""
    connection = session.connection
    held = reading.DoltRows(session, Working(at))
    twins, logical_twins = logical.twins(rows.put_documents)
    gone = held.removed([*rows.remove_documents, *logical_twins], rows.remove_collections)
    for table, ids in gone.items():
        _remove(connection, at, table, ids)
    for name in rows.remove_collections:
        connection.change([f"DELETE FROM documents WHERE collection_name = {literal(name)}"], at=at)
    _remove(connection, at, COLLECTIONS, rows.remove_collections)
    _remove_documents(connection, at, [*rows.remove_documents, *twins])
    _put(connection, at, COLLECTIONS, map(records.collection_row, rows.put_collections))
    for table, documents in logical.by_table(rows.put_documents):
        _put(connection, at, table, map(records.document_row, documents))
    _remove(connection, at, PROJECTS, rows.remove_projects)
    _put(connection, at, PROJECTS, map(records.project_row, rows.put_projects))


def _remove(connection: SqlConnection, at: str, table: Table, keys: Sequence[str]) -> None:
    for some in parts(keys):
        connection.change([f"DELETE FROM {table.name} WHERE {table.columns[0]} IN ({literals(some)})"], at=at)


def _remove_documents(connection: SqlConnection, at: str, keys: Sequence[tuple[str, str]]) -> None:
    by_collection: dict[str, list[str]] = {}
    for collection, doc_id in keys:
        by_collection.setdefault(collection, []).append(doc_id)
    for collection, ids in by_collection.items():
        for some in parts(ids):
            where = f"collection_name = {literal(collection)} AND doc_id IN ({literals(some)})"
            connection.change([f"DELETE FROM documents WHERE {where}"], at=at)


def _put(connection: SqlConnection, at: str, table: Table, rows: Iterable[tuple[Value, ...]]) -> None:
    """Insert or replace rows."""
    names = [identifier(each) for each in table.columns]
    insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES"
    replace = ", ".join(f"{each} = VALUES({each})" for each in names[table.keys :])
    for batch in _batches(rows):
        connection.change([f"{insert} {', '.join(batch)} ON DUPLICATE KEY UPDATE {replace}"], at=at)


def _batches(rows: Iterable[tuple[Value, ...]]) -> Iterator[list[str]]:
    """Rows as SQL, as many as make a statement of about _BATCH_CHARACTERS."""
    batch: list[str] = []
    size = 0
    for row in rows:
        batch.append(f"({literals(row)})")
        size += len(batch[-1])
        if size > _BATCH_CHARACTERS or len(batch) >= _BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def discard(session: DoltSession, branch: str) -> None:
    """Make a branch clean. Hold the write lock."""
    session.connection.call("dolt_reset", "--hard", at=branch)
    session.note_committed()
