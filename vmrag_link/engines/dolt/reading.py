"""Documents and collections at revisions or in working sets.

Rows are read in pages. Each page is one answer of Dolt, of about PAGE_BYTES, so memory does not
grow with the number of rows, and nothing stays open between two pages. A revision never changes.
The pages of a working set are read in one transaction and stored in a temporary file.

Other programs also write here. Derived values are computed when they are read (`select_list`), so
that a text cannot have the hash of another one. A row that cannot be a document is reported with
its key (`parse_values`).
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from vmrag_link.engines import logical, records
from vmrag_link.engines.dolt.connection import BATCH_SIZE, SqlConnection, SqlRow, quote_identifier, quote_literal
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.reading import PlaceRows
from vmrag_link.engines.tables import DOCUMENTS, ROWS_HINT, TEXT_TABLES, Table
from vmrag_link.errors import LimitExceeded, RowsInvalid
from vmrag_link.models import At, Document, Row, WorkingSet

PAGE_BYTES = 200_000
_FIRST_PAGE = 16
"""Rows of the first page: few, because all of them may be large."""

_LARGEST_PAGE = 2000
_GROWTH = 4
_LARGEST_PAGE_BYTES = 16_000_000
_SHRINKING = 8
_IN_MEMORY = 4_000_000

Values = tuple[Any, ...]


def read_pages(connection: SqlConnection, at: str | None, query: str) -> Iterator[SqlRow]:
    """Yield the rows of a query that Dolt answers in the same order each time.

    Dolt runs the query again for each page, so pages grow.
    """
    start, size = 0, _LARGEST_PAGE
    while True:
        try:
            rows = connection.query_rows(f"{query} LIMIT {size} OFFSET {start}", at=at)
        except LimitExceeded:
            if size == 1:
                raise
            size = shrink_page(size)
            continue
        yield from rows
        if len(rows) < size:
            return
        start += size
        length = sum(len(value) for row in rows for value in row.values() if isinstance(value, str))
        size = max(1, min(_GROWTH * size, size * _LARGEST_PAGE_BYTES // (length + 1)))


class DoltRows(PlaceRows):
    """Reads rows at a revision or in the working set of a branch."""

    def __init__(self, session: DoltSession, at: At) -> None:
        self._session = session
        self._at = at
        self._place = at.branch if isinstance(at, WorkingSet) else at

    @functools.cached_property
    def version(self) -> int:
        return self._session.read_version(self._at)

    def read_table(self, table: Table, ids: Iterable[str] | None = None) -> Iterator[Row]:
        if not self.version:
            return iter(())
        selection = _Selection(self._place, table, table.columns)
        sorted_ids = None if ids is None else sorted(set(ids))
        rows = _read_stable(
            self._session, self._at, lambda: _read_selected(self._session.connection, selection, sorted_ids)
        )
        return (records.parse_record(table, row) for row in rows)

    def read_stored(
        self, columns: Sequence[str], collection: str | None, ids: Iterable[str] | None
    ) -> Iterator[Sequence[Any]]:
        sorted_ids = None if ids is None else sorted(set(ids))
        connection, place = self._session.connection, self._place

        def rows() -> Iterator[Values]:
            for name in [collection] if collection is not None else _collection_names(connection, place):
                where = f"collection_name = {quote_literal(name)}"
                yield from _read_selected(connection, _Selection(place, DOCUMENTS, columns, where), sorted_ids)

        return _read_stable(self._session, self._at, rows)

    def select_texts(self, columns: Sequence[str], conditions: Mapping[str, str]) -> Iterator[Sequence[str]]:
        where = " AND ".join(f"{condition} {quote_literal(value)}" for condition, value in conditions.items())
        return map(
            records.require_texts,
            _read_selection_pages(self._session.connection, _Selection(self._place, DOCUMENTS, columns, where)),
        )

    def count_documents(self, collection: str | None) -> int:
        if collection is not None or not self.version:
            return super().count_documents(collection)
        counts = " + ".join(f"(SELECT count(*) FROM {table.name})" for table in TEXT_TABLES)
        return int(self._session.connection.query_value(counts, at=self._place))

    def count_stored(self, collection: str | None) -> int:
        where = "" if collection is None else f" WHERE collection_name = {quote_literal(collection)}"
        return int(
            self._session.connection.query_rows(f"SELECT count(*) AS v FROM documents{where}", at=self._place)[0]["v"]
        )

    def read_past_rows(self, table: Table, columns: Sequence[str], key: Mapping[str, str]) -> Iterator[Sequence[Any]]:
        names = ", ".join(["commit_hash", *select_list(table, columns)])
        where = " AND ".join(f"{column} = {quote_literal(value)}" for column, value in key.items())
        query = f"SELECT {names} FROM dolt_history_{table.name} WHERE {where}"
        pages = read_pages(self._session.connection, self._place, query)
        return ((row["commit_hash"], *parse_values(row, table, columns)) for row in pages)

    def read_keys(self, table: Table, ids: Iterable[str] | None) -> Iterable[tuple[str, str]]:
        for row in self._read_logical_rows(table, (table.columns[0], logical.implying_column(table)), ids):
            doc_id, name = records.require_texts(row)
            yield doc_id, name

    def read_rows(self, table: Table, ids: list[str], *, texts: bool) -> Iterable[Document]:
        columns = [name for name in table.columns if texts or name != "content"]
        for row in self._read_logical_rows(table, columns, ids):
            values = dict(zip(columns, row, strict=True))
            yield records.parse_logical_document(table, [values.get(name, "") for name in table.columns])

    def count_rows(self, table: Table) -> int:
        if not self._session.check_place(self._place):
            return 0
        query = f"SELECT count(*) AS v FROM {table.name}"
        return int(self._session.connection.query_rows(query, at=self._place)[0]["v"])

    def _read_logical_rows(self, table: Table, columns: Sequence[str], ids: Iterable[str] | None) -> Iterator[Values]:
        if not self._session.check_place(self._place):
            return iter(())
        selection = _Selection(self._place, table, columns)
        return _read_selected(self._session.connection, selection, None if ids is None else sorted(set(ids)))


def select_list(table: Table, columns: Sequence[str], prefix: str = "") -> list[str]:
    """Return columns as SQL, named like the columns.

    NULL becomes the value in `records.column_defaults`, and `content_hash` is computed from the
    text.
    """
    return [f"{column_sql(table, column, prefix)} AS {quote_identifier(prefix + column)}" for column in columns]


def column_sql(table: Table, column: str, prefix: str = "") -> str:
    """Return SQL for the value of a column, whatever another program has stored there."""
    if column == "content_hash":
        text = f"ifnull({prefix}content, '')"
        return f"if(instr({text}, char(0)) > 0, char(0), sha2({text}, 256))"  # `parse_values` refuses NUL
    default = records.column_defaults(table).get(column)
    return f"{prefix}{column}" if default is None else f"ifnull({prefix}{column}, {quote_literal(default)})"


def parse_values(row: SqlRow, table: Table, columns: Sequence[str], prefix: str = "") -> Values:
    """Return the columns of a row in this order; None for NULL.

    Metadata becomes canonical. Raises `RowsInvalid` for an empty key, a text that no engine stores
    exactly, and invalid metadata.
    """
    parsed = []
    for column in columns:
        value = row.get(prefix + column)
        if column in table.number_columns:
            value = _parse_number(value)
        elif isinstance(value, str):
            if "\0" in value:
                where = "content" if column == "content_hash" else column
                raise records.invalid_row_error(
                    table, _document_key(row, table, prefix), where, "contains a NUL character"
                )
            if not value and column in table.columns[: table.key_count]:
                raise records.invalid_row_error(table, _document_key(row, table, prefix), column, "is empty")
            if column == "metadata" and value != "{}":
                value = _canonical_metadata(row, table, value, prefix)
        parsed.append(value)
    return tuple(parsed)


def _canonical_metadata(row: SqlRow, table: Table, text: str, prefix: str) -> str:
    try:
        return records.canonicalize_metadata(text)
    except ValueError as error:
        raise records.invalid_row_error(table, _document_key(row, table, prefix), "metadata", str(error)) from error


def _document_key(row: SqlRow, table: Table, prefix: str) -> list[str]:
    """Return the name of the row's document, as far as the row has one."""
    key = [str(row.get(prefix + column, "")) for column in table.columns[: table.key_count]]
    if table.name in logical.METADATA_KEYS:
        return [logical.implied_collection(table, str(row.get(prefix + logical.implying_column(table), ""))), *key]
    return key


def _parse_number(value: object) -> object:
    """Return a decimal text as a number (see `connection.parse_bool`).

    Any other value is returned unchanged.
    """
    return int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() else value


class _Selection(NamedTuple):
    """Rows of a table at a place, ordered by a key, which is the last column of the primary key."""

    place: str
    table: Table
    columns: Sequence[str]
    where: str = "TRUE"
    ids: Sequence[str] = ()

    @property
    def key(self) -> str:
        return self.table.columns[self.table.key_count - 1]

    def query(self, after: str | None, size: int) -> str:
        names = ", ".join(select_list(self.table, self.columns))
        # With the whole primary key, rows are found in order. Otherwise Dolt sorts them.
        order = ", ".join(self.table.columns[: self.table.key_count])
        where = self.where if after is None else f"{self.where} AND {self.key} > {quote_literal(after)}"
        return f"SELECT {names} FROM {self._from_clause()} WHERE {where} ORDER BY {order} LIMIT {size}"

    def _from_clause(self) -> str:
        """Return the SQL after FROM.

        With 500 ids, Dolt needs a sixth of the time that it needs for a list after IN.
        """
        if not self.ids:
            return self.table.name
        keys = ", ".join(f"ROW({quote_literal(key)})" for key in self.ids)
        return f"(VALUES {keys}) AS wanted_rows(wanted_key) JOIN {self.table.name} ON {self.key} = wanted_key"


def _collection_names(connection: SqlConnection, place: str) -> Iterator[str]:
    """Yield the collections that contain documents. Each one is found by the key."""
    name: str | None = None
    while True:
        where = "TRUE" if name is None else f"collection_name > {quote_literal(name)}"
        query = f"SELECT collection_name AS v FROM documents WHERE {where} ORDER BY collection_name LIMIT 1"
        rows = connection.query_rows(query, at=place)
        if not rows:
            return
        name = _next_key(name, rows[0]["v"])
        yield name


def _next_key(before: str | None, key: object) -> str:
    """Return the key that follows `before`.

    Raises `RowsInvalid` for a key that is not a text or not in order. An untrusted program may have
    written bytes that are not UTF-8. Dolt returns them as another text, and then the same rows
    would follow again.
    """
    if not isinstance(key, str) or (before is not None and key <= before):
        raise RowsInvalid("the knowledge base contains an invalid key.", hint=ROWS_HINT)
    return key


def _read_selected(connection: SqlConnection, selection: _Selection, ids: Sequence[str] | None) -> Iterator[Values]:
    """Yield the selected rows. With `ids`, which are sorted, yield only rows with these keys."""
    if ids is None:
        yield from _read_selection_pages(connection, selection)
        return
    start, size = 0, _FIRST_PAGE
    while page_ids := ids[start : start + size]:  # one page of ids, so that Dolt looks up each id once
        rows = list(_read_selection_pages(connection, selection._replace(ids=page_ids), size=len(page_ids) + 1))
        yield from rows
        start += len(page_ids)
        size = min(BATCH_SIZE, _next_size(rows)) if rows else BATCH_SIZE


def _read_selection_pages(
    connection: SqlConnection, selection: _Selection, *, size: int = _FIRST_PAGE
) -> Iterator[Values]:
    index, after = selection.columns.index(selection.key), None
    while True:
        try:
            page = connection.query_rows(selection.query(after, size), at=selection.place)
        except LimitExceeded:
            if size == 1:
                raise
            size = shrink_page(size)
            continue
        rows = [parse_values(row, selection.table, selection.columns) for row in page]
        yield from rows
        if len(rows) < size:
            return
        after = _next_key(after, rows[-1][index])
        size = _next_size(rows)


def shrink_page(size: int) -> int:
    """Return a smaller page size, for use if the answer was too long.

    Some rows may be much longer than those before.
    """
    return max(1, size // _SHRINKING)


def _next_size(rows: Sequence[Values]) -> int:
    """Return how many more rows like these make a page."""
    length = sum(len(value) for row in rows for value in row if isinstance(value, str))
    return max(1, min(_LARGEST_PAGE, len(rows) * PAGE_BYTES // (length + 1)))


def _read_stable(session: DoltSession, at: At, rows: Callable[[], Iterator[Values]]) -> Iterator[Values]:
    """Yield the rows as they are now, whatever is written while they are read."""
    return rows() if isinstance(at, str) else _buffer_rows(session, at.branch, rows)


def _buffer_rows(session: DoltSession, branch: str, rows: Callable[[], Iterator[Values]]) -> Iterator[Values]:
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as buffer:
        number = 0
        encode = msgspec.msgpack.Encoder().encode
        with session.connection.snapshot(branch):
            for row in rows():
                packed = encode(row)
                buffer.write(len(packed).to_bytes(4) + packed)
                number += 1
        buffer.seek(0)
        for _ in range(number):
            yield tuple(msgspec.msgpack.decode(buffer.read(int.from_bytes(buffer.read(4)))))
