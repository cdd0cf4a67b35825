"""Writing rows and committing them. The contracts are those of `engines.base.Engine`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vmrag_link.engines import logical, records
from vmrag_link.engines.base import Write
from vmrag_link.engines.dolt import reading
from vmrag_link.engines.dolt.comparison import WORKING, Comparable, differing
from vmrag_link.engines.dolt.connection import SqlConnection, identifier, literal, literals, parts, truth
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.records import Value
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS, TABLES, Table
from vmrag_link.models import Working

_THERE = "diff_type <> 'removed'"
_BATCH_CHARACTERS = 1_000_000
_BATCH_ROWS = 500


def complete(session: DoltSession, at: str, head: str) -> None:
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
        columns = [column for column in table.columns if column != "content"]
        selected = reading.select_list(table, columns, "to_")
        diff = f"dolt_diff({literals([head, WORKING, table.name])})"
        query = f"SELECT {', '.join(selected)}, {other} AS incomplete FROM {diff} WHERE {_THERE}"
        is_complete = True
        for row in reading.pages(connection, at, query):
            after = reading.values(row, table, columns, "to_")
            is_complete = is_complete and not truth(row["incomplete"])
            if table is COLLECTIONS:
                records.record(table, after)
        if not is_complete:
            incomplete = differing(connection, step, table, ((), table.columns), f"{_THERE} AND ({other})")
            _put(connection, at, table, [records.row(records.record(table, after)) for _, after in incomplete])


def begin_merge(connection: SqlConnection, at: str, joining: str) -> None:
    """See `SqlEngine`."""
    connection.call("dolt_merge", "--no-ff", "--no-commit", joining, at=at)
    for row in connection.rows("SELECT `table` AS v FROM dolt_conflicts", at=at):
        connection.call("dolt_conflicts_resolve", "--ours", str(row["v"]), at=at)


def store(session: DoltSession, at: str, rows: Write) -> None:
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
    names = [identifier(column) for column in table.columns]
    insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES"
    replace = ", ".join(f"{name} = VALUES({name})" for name in names[table.keys :])
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
