"""Documents and collections at revisions or in working sets."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link.engines import logical, records
from vmrag_link.engines.doltlite import schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.library import FETCH_AGAIN
from vmrag_link.engines.reading import PlaceRows
from vmrag_link.engines.tables import DOCUMENTS, Table
from vmrag_link.errors import EngineFailed
from vmrag_link.models import Document, Row

_ROW = msgspec.json.Decoder(list[Any])


class DoltliteRows(PlaceRows):
    """Reads rows at the connection's place."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @functools.cached_property
    def version(self) -> int:
        return schema.read_version(self._connection)

    def read_table(self, table: Table, ids: Iterable[str] | None = None) -> Iterator[Row]:
        if self.version < table.since:
            return iter(())
        key, columns = table.columns[0], ", ".join(table.select_list(self.version))
        where = "" if ids is None else f"WHERE {key} IN (SELECT value FROM json_each(?))"  # noqa: S608  our own names
        args = () if ids is None else (json.dumps(list(ids)),)
        sql = f"SELECT {columns} FROM {table.name} {where} ORDER BY {key}"  # noqa: S608  our own names
        return (records.parse_record(table, row) for row in self._connection.stream(sql, args))

    def read_stored(
        self, columns: Sequence[str], collection: str | None, ids: Iterable[str] | None
    ) -> Iterator[Sequence[Any]]:
        conditions = {} if collection is None else {"collection_name = ?": collection}
        if ids is not None:
            conditions["doc_id IN (SELECT value FROM json_each(?))"] = json.dumps(list(ids))
        return _select_documents(self._connection, columns, conditions)

    def select_texts(self, columns: Sequence[str], conditions: Mapping[str, str]) -> Iterator[Sequence[str]]:
        with_placeholders = {f"{condition} ?": value for condition, value in conditions.items()}
        return map(records.require_texts, _select_documents(self._connection, columns, with_placeholders))

    def find_document(self, collection: str, doc_id: str) -> Document | None:
        if not self.version:
            return None
        columns = ", ".join(DOCUMENTS.columns)
        sql = f"SELECT {columns} FROM documents WHERE collection_name = ? AND doc_id = ?"  # noqa: S608  our own names
        rows = self._connection.execute(sql, (collection, doc_id))
        return records.parse_document(rows[0]) if rows else self.find_logical_document(collection, doc_id)

    def count_stored(self, collection: str | None) -> int:
        """Return the number of documents.

        Takes constant time for all documents, because the tree knows its size, and 1.5 µs per
        document for one collection.
        """
        where, args = ("", ()) if collection is None else ("WHERE collection_name = ?", (collection,))
        return int(self._connection.execute(f"SELECT count(*) FROM documents {where}", args)[0][0])  # noqa: S608  our own names

    def read_past_rows(self, table: Table, columns: Sequence[str], key: Mapping[str, str]) -> Iterator[Sequence[Any]]:
        where = " AND ".join(f"{column} = ?" for column in key)
        sql = f"SELECT commit_hash, {', '.join(columns)} FROM dolt_history_{table.name} WHERE {where}"  # noqa: S608  our own names
        rows = self._connection.stream(sql, tuple(key.values()))
        return map(records.require_texts, rows) if table is DOCUMENTS else rows

    def read_keys(self, table: Table, ids: Iterable[str] | None) -> Iterable[tuple[str, str]]:
        for row in self._read_logical_rows(table, [table.columns[0], logical.implying_column(table)], ids):
            doc_id, name = records.require_texts(row)
            yield doc_id, name

    def read_rows(self, table: Table, ids: list[str], *, texts: bool) -> Iterable[Document]:
        columns = [name if texts or name != "content" else "''" for name in table.columns]
        return (records.parse_logical_document(table, row) for row in self._read_logical_rows(table, columns, ids))

    def count_rows(self, table: Table) -> int:
        if self.version < table.since:
            return 0
        return int(self._connection.execute(f"SELECT count(*) FROM {table.name}")[0][0])  # noqa: S608  our own names

    def _read_logical_rows(
        self, table: Table, columns: Sequence[str], ids: Iterable[str] | None
    ) -> list[Sequence[Any]]:
        """Return rows of a logical table, fetched as JSON if possible (see `_fetch_texts`)."""
        if self.version < table.since:
            return []
        rest, args = f"FROM {table.name}", list[str]()
        if ids is not None:
            rest += f" WHERE {table.columns[0]} IN (SELECT value FROM json_each(?))"  # noqa: S608  our own names
            args = [json.dumps(list(ids))]
        selected = ", ".join(columns)
        try:
            rows = self._connection.stream(f"SELECT json_array({selected}) {rest}", args)
            return [_ROW.decode(row) for (row,) in rows]
        except (EngineFailed, UnicodeDecodeError, msgspec.DecodeError):
            return list(self._connection.stream(f"SELECT {selected} {rest}", args))


def _select_documents(
    connection: Connection, columns: Sequence[str], conditions: Mapping[str, str]
) -> Iterator[Sequence[Any]]:
    """Yield the documents for which all conditions hold.

    `conditions` maps each condition to its value.
    """
    # The order of the primary key needs no sorting, so memory stays constant.
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rest = f"FROM documents {where} ORDER BY collection_name, doc_id"
    previous = ("", "")
    for row in _fetch_texts(connection, columns, rest, tuple(conditions.values())):
        collection_name, doc_id = records.require_texts(row[:2])
        key = (collection_name, doc_id)
        if not previous < key:  # a damaged tree that contains itself would never end
            raise EngineFailed(
                f"the knowledge base {connection.path} is damaged: its documents are not in order.", hint=FETCH_AGAIN
            )
        previous = key
        yield row


def _fetch_texts(
    connection: Connection, columns: Sequence[str], rest: str, args: tuple[str, ...]
) -> Iterator[Sequence[Any]]:
    """Yield rows of texts, fetched as JSON.

    One value per row takes a fifth of the time of one per column. From the first row that is not
    JSON (bytes, broken UTF-8, a text that is too long with its escapes), rows are fetched as they
    are. That row is found by its key, because a working set may change in between.
    """
    decode, latest = msgspec.json.Decoder(list[str]).decode, [""]
    try:
        for (row,) in connection.stream(f"SELECT json_array({', '.join(columns)}) {rest}", args):
            fetched = decode(row)
            yield fetched
            latest = fetched[:2]
    except (EngineFailed, UnicodeDecodeError, msgspec.DecodeError):
        for row in connection.stream(f"SELECT {', '.join(columns)} {rest}", args):
            key = list(row[:2])
            if not all(type(value) is str for value in key) or key > latest:
                yield row
