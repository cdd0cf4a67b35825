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
    """Where the connection stands."""

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
        asked = {} if collection is None else {"collection_name = ?": collection}
        if ids is not None:
            asked["doc_id IN (SELECT value FROM json_each(?))"] = json.dumps(list(ids))
        return _rows(self._connection, columns, asked)

    def select_texts(self, columns: Sequence[str], conditions: Mapping[str, str]) -> Iterator[Sequence[str]]:
        asked = {f"{each} ?": value for each, value in conditions.items()}
        return map(records.require_texts, _rows(self._connection, columns, asked))

    def find_document(self, collection: str, doc_id: str) -> Document | None:
        if not self.version:
            return None
        columns = ", ".join(DOCUMENTS.columns)
        sql = f"SELECT {columns} FROM documents WHERE collection_name = ? AND doc_id = ?"  # noqa: S608  our own names
        rows = self._connection.execute(sql, (collection, doc_id))
        return records.parse_document(rows[0]) if rows else self.find_logical_document(collection, doc_id)

    def count_stored(self, collection: str | None) -> int:
        """Constant time for all of them, because the tree knows its size; 1.5 µs per document for
        one collection.
        """
        where, args = ("", ()) if collection is None else ("WHERE collection_name = ?", (collection,))
        return int(self._connection.execute(f"SELECT count(*) FROM documents {where}", args)[0][0])  # noqa: S608  our own names

    def read_past_rows(self, table: Table, columns: Sequence[str], key: Mapping[str, str]) -> Iterator[Sequence[Any]]:
        where = " AND ".join(f"{each} = ?" for each in key)
        sql = f"SELECT commit_hash, {', '.join(columns)} FROM dolt_history_{table.name} WHERE {where}"  # noqa: S608  our own names
        rows = self._connection.stream(sql, tuple(key.values()))
        return map(records.require_texts, rows) if table is DOCUMENTS else rows

    def read_keys(self, table: Table, ids: Iterable[str] | None) -> Iterable[tuple[str, str]]:
        for row in self._asked(table, [table.columns[0], logical.implying_column(table)], ids):
            doc_id, name = records.require_texts(row)
            yield doc_id, name

    def read_rows(self, table: Table, ids: list[str], *, texts: bool) -> Iterable[Document]:
        columns = [name if texts or name != "content" else "''" for name in table.columns]
        return (records.parse_logical_document(table, row) for row in self._asked(table, columns, ids))

    def count_rows(self, table: Table) -> int:
        if self.version < table.since:
            return 0
        return int(self._connection.execute(f"SELECT count(*) FROM {table.name}")[0][0])  # noqa: S608  our own names

    def _asked(self, table: Table, columns: Sequence[str], ids: Iterable[str] | None) -> list[Sequence[Any]]:
        """Fetched as JSON where all of it is, as `_texts` does."""
        if self.version < table.since:
            return []
        rest, args = f"FROM {table.name}", [] if ids is None else [json.dumps(list(ids))]
        if args:
            rest += f" WHERE {table.columns[0]} IN (SELECT value FROM json_each(?))"  # noqa: S608  our own names
        selected = ", ".join(columns)
        try:
            rows = self._connection.stream(f"SELECT json_array({selected}) {rest}", args)
            return [_ROW.decode(row) for (row,) in rows]
        except (EngineFailed, UnicodeDecodeError, msgspec.DecodeError):
            return list(self._connection.stream(f"SELECT {selected} {rest}", args))


def _rows(connection: Connection, columns: Sequence[str], asked: Mapping[str, str]) -> Iterator[Sequence[Any]]:
    """The documents for which all of these conditions, each with its value, hold."""
    # In the order of the primary key, so that nothing is sorted: memory stays constant.
    where = f"WHERE {' AND '.join(asked)}" if asked else ""
    rest = f"FROM documents {where} ORDER BY collection_name, doc_id"
    before = ("", "")
    for row in _texts(connection, columns, rest, tuple(asked.values())):
        collection_name, doc_id = records.require_texts(row[:2])
        key = (collection_name, doc_id)
        if not before < key:  # a tree that lists a part of itself many times would never end
            raise EngineFailed(
                f"The knowledge base {connection.path} holds documents that are not in order.", hint=FETCH_AGAIN
            )
        before = key
        yield row


def _texts(connection: Connection, columns: Sequence[str], rest: str, args: tuple[str, ...]) -> Iterator[Sequence[Any]]:
    """Rows of texts, fetched as JSON: one value a row takes a fifth of the time of one a column.

    What is no JSON (bytes, broken UTF-8, a text that is too long with its escapes) is fetched as it
    is, from there on. That is found by its key, because a working set may change in between.
    """
    decode, latest = msgspec.json.Decoder(list[str]).decode, [""]
    try:
        for (row,) in connection.stream(f"SELECT json_array({', '.join(columns)}) {rest}", args):
            fetched = decode(row)
            yield fetched
            latest = fetched[:2]
    except (EngineFailed, UnicodeDecodeError, msgspec.DecodeError):
        for other in connection.stream(f"SELECT {', '.join(columns)} {rest}", args):
            key = list(other[:2])
            if not all(type(each) is str for each in key) or key > latest:
                yield other
