"""Writing rows. `engines.base.Engine` documents the contracts."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.engines import logical, records
from vmrag_link.engines.base import Write
from vmrag_link.engines.doltlite import reading, schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.records import Value
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS, Table
from vmrag_link.errors import EngineFailed


def store_rows(connection: Connection, rows: Write) -> None:
    """Change the rows at the connection's place. Call this in a transaction."""
    version = schema.upgrade_tables(connection, rows.schema_version)
    twins = logical.find_twins(rows.put_documents)
    removed = reading.DoltliteRows(connection).group_removed_ids(
        [*rows.remove_documents, *twins.in_logical_tables], rows.remove_collections
    )
    for table, ids in removed.items():
        _delete_rows(connection, table, ids)
    for name in rows.remove_collections:
        connection.execute("DELETE FROM documents WHERE collection_name = ?", (name,))
        _delete_rows(connection, COLLECTIONS, [name])
    connection.executemany(
        "DELETE FROM documents WHERE collection_name = ? AND doc_id = ?", [*rows.remove_documents, *twins.in_documents]
    )
    _put_rows(connection, COLLECTIONS, version, map(records.collection_row, rows.put_collections))
    for table, documents in logical.group_by_table(rows.put_documents):
        _put_rows(connection, table, version, map(records.document_row, documents))
    if version >= PROJECTS.since:
        _delete_rows(connection, PROJECTS, rows.remove_projects)
        _put_rows(connection, PROJECTS, version, map(records.project_row, rows.put_projects))


def _delete_rows(connection: Connection, table: Table, keys: Iterable[str]) -> None:
    sql = f"DELETE FROM {table.name} WHERE {table.columns[0]} = ?"  # noqa: S608  our own names
    connection.executemany(sql, ((key,) for key in keys))


def _put_rows(connection: Connection, table: Table, version: int, rows: Iterable[tuple[Value, ...]]) -> None:
    """Insert or replace rows.

    Columns that a schema version lacks are at the end of a row, and empty.
    """
    columns = table.columns_in(version)
    placeholders = ", ".join("?" * len(columns))
    sql = f"INSERT OR REPLACE INTO {table.name}({', '.join(columns)}) VALUES ({placeholders})"  # noqa: S608  our own names
    connection.executemany(sql, (row[: len(columns)] for row in rows))


def begin_merge(connection: Connection, joining: str) -> None:
    """See `SqlEngine`."""
    try:
        connection.execute("SELECT dolt_merge('--no-ff', '--no-commit', ?)", (joining,))
    except EngineFailed:
        tables = connection.execute('SELECT "table" FROM dolt_conflicts')
        if not tables:
            raise
        for (table,) in tables:
            connection.execute("SELECT dolt_conflicts_resolve('--ours', ?)", (table,))
