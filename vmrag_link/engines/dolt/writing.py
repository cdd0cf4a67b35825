"""Writing and completing rows. `engines.base.Engine` documents the contracts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from vmrag_link import __version__
from vmrag_link.engines import logical, records
from vmrag_link.engines.base import Write
from vmrag_link.engines.dolt import reading
from vmrag_link.engines.dolt.comparison import WORKING, DiffStep, read_differences
from vmrag_link.engines.dolt.connection import (
    SqlConnection,
    parse_bool,
    quote_identifier,
    quote_literal,
    quote_literals,
    split_batches,
)
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.own_branches import UNFINISHED_BRANCH
from vmrag_link.engines.records import Value
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS, TABLES, Table
from vmrag_link.file_access import write_atomically
from vmrag_link.models import Record, WorkingSet

_NOT_REMOVED = "diff_type <> 'removed'"
_BATCH_CHARACTERS = 1_000_000
_BATCH_ROWS = 500

_COMPLETE_NAME = "complete.json"
"""The file in the folder of the knowledge base with the last `_UncommittedState`s of our rows."""
_MAX_STATES = 20


class _UncommittedState(Record, frozen=True):
    """Dolt's hashes of all tables of a branch: committed ones, and those with uncommitted rows."""

    head: str
    working: str
    program: str = __version__
    """The version that wrote the rows, because another one may compute columns differently."""


def complete_rows(session: DoltSession, at: str, head: str) -> None:
    """Replace missing or outdated values in the uncommitted rows by those of `reading.column_sql`.

    Other programs may leave columns out, or keep an old hash next to a new text. If only
    `store_rows` wrote the rows, they are not examined, because 10,000 documents would take a
    second. Otherwise the cost grows with the number of uncommitted rows. Their texts are not read.
    Raises `RowsInvalid` for a row that cannot be a record.
    """
    if _is_complete(session, _read_state(session, at)):
        return
    connection, step = session.connection, DiffStep(at, head, WORKING)
    changed = {str(row["v"]) for row in connection.query_rows("SELECT table_name AS v FROM dolt_status", at=at)}
    for table in (table for table in TABLES if table.name in changed):
        stored = table.columns[table.key_count :]
        other = " OR ".join(f"NOT (to_{column} <=> {reading.column_sql(table, column, 'to_')})" for column in stored)
        columns = [column for column in table.columns if column != "content"]
        selected = reading.select_list(table, columns, "to_")
        diff = f"dolt_diff({quote_literals([head, WORKING, table.name])})"
        query = f"SELECT {', '.join(selected)}, {other} AS incomplete FROM {diff} WHERE {_NOT_REMOVED}"
        is_complete = True
        for row in reading.read_pages(connection, at, query):
            after = reading.parse_values(row, table, columns, "to_")
            is_complete = is_complete and not parse_bool(row["incomplete"])
            if table is COLLECTIONS:
                records.parse_record(table, after)
        if not is_complete:
            incomplete = read_differences(connection, step, table, ((), table.columns), f"{_NOT_REMOVED} AND ({other})")
            _put_rows(
                connection, at, table, [records.to_row(records.parse_record(table, after)) for _, after in incomplete]
            )


def begin_merge(connection: SqlConnection, at: str, joining: str) -> None:
    """See `SqlEngine`."""
    connection.call("dolt_merge", "--no-ff", "--no-commit", joining, at=at)
    for row in connection.query_rows("SELECT `table` AS v FROM dolt_conflicts", at=at):
        connection.call("dolt_conflicts_resolve", "--ours", str(row["v"]), at=at)


def store_rows(session: DoltSession, at: str, rows: Write) -> None:
    """Change the rows of a branch. Call this in a transaction on it."""
    # `commit_onto` commits this branch at once.
    was_complete = at != UNFINISHED_BRANCH and _is_complete(session, _read_state(session, at))
    connection = session.connection
    stored = reading.DoltRows(session, WorkingSet(at))
    twins = logical.find_twins(rows.put_documents)
    removed = stored.group_removed_ids([*rows.remove_documents, *twins.in_logical_tables], rows.remove_collections)
    for table, ids in removed.items():
        _delete_rows(connection, at, table, ids)
    for name in rows.remove_collections:
        connection.execute([f"DELETE FROM documents WHERE collection_name = {quote_literal(name)}"], at=at)
    _delete_rows(connection, at, COLLECTIONS, rows.remove_collections)
    _delete_documents(connection, at, [*rows.remove_documents, *twins.in_documents])
    _put_rows(connection, at, COLLECTIONS, map(records.collection_row, rows.put_collections))
    for table, documents in logical.group_by_table(rows.put_documents):
        _put_rows(connection, at, table, map(records.document_row, documents))
    _delete_rows(connection, at, PROJECTS, rows.remove_projects)
    _put_rows(connection, at, PROJECTS, map(records.project_row, rows.put_projects))
    if was_complete:
        _note_complete(session, _read_state(session, at))


def _read_state(session: DoltSession, at: str) -> _UncommittedState:
    """Return the state in the open transaction. If it commits, the hashes stay the same."""
    query = "SELECT dolt_hashof_db('HEAD') AS head, dolt_hashof_db('WORKING') AS working"
    [row] = session.connection.query_rows(query, at=at)
    return _UncommittedState(str(row["head"]), str(row["working"]))


def _is_complete(session: DoltSession, state: _UncommittedState) -> bool:
    """Return whether `store_rows` wrote all uncommitted rows. Equal hashes mean equal rows."""
    return state.head == state.working or state in _read_complete_states(session)


def _read_complete_states(session: DoltSession) -> tuple[_UncommittedState, ...]:
    try:
        content = (session.folder / _COMPLETE_NAME).read_bytes()
        return msgspec.json.decode(content, type=tuple[_UncommittedState, ...])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return ()


def _note_complete(session: DoltSession, state: _UncommittedState) -> None:
    states = dict.fromkeys((*_read_complete_states(session), state))
    content = msgspec.json.encode([*states][-_MAX_STATES:])
    with contextlib.suppress(OSError):  # without the file, the next commit examines the rows
        write_atomically(session.folder / _COMPLETE_NAME, content, durable=False)


def _delete_rows(connection: SqlConnection, at: str, table: Table, keys: Sequence[str]) -> None:
    for batch in split_batches(keys):
        connection.execute([f"DELETE FROM {table.name} WHERE {table.columns[0]} IN ({quote_literals(batch)})"], at=at)


def _delete_documents(connection: SqlConnection, at: str, keys: Sequence[tuple[str, str]]) -> None:
    by_collection: dict[str, list[str]] = {}
    for collection, doc_id in keys:
        by_collection.setdefault(collection, []).append(doc_id)
    for collection, ids in by_collection.items():
        for batch in split_batches(ids):
            where = f"collection_name = {quote_literal(collection)} AND doc_id IN ({quote_literals(batch)})"
            connection.execute([f"DELETE FROM documents WHERE {where}"], at=at)


def _put_rows(connection: SqlConnection, at: str, table: Table, rows: Iterable[tuple[Value, ...]]) -> None:
    """Insert or replace rows."""
    names = [quote_identifier(column) for column in table.columns]
    insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES"
    replace = ", ".join(f"{name} = VALUES({name})" for name in names[table.key_count :])
    for batch in _batch_rows(rows):
        connection.execute([f"{insert} {', '.join(batch)} ON DUPLICATE KEY UPDATE {replace}"], at=at)


def _batch_rows(rows: Iterable[tuple[Value, ...]]) -> Iterator[list[str]]:
    """Yield rows as SQL, in groups for statements of about _BATCH_CHARACTERS."""
    batch: list[str] = []
    size = 0
    for row in rows:
        batch.append(f"({quote_literals(row)})")
        size += len(batch[-1])
        if size > _BATCH_CHARACTERS or len(batch) >= _BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
