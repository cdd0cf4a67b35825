"""Documents and collections at revisions or in working sets.

Rows come in pages: each is one answer of Dolt's, of about PAGE_BYTES, so memory does not grow with
their number, and nothing stays open between two pages. A revision never changes. The pages of a
working set are read in one transaction and set aside.

Other programs write here, too. What derives is computed where it is read (`select_list`), so that
no text is known by another one's hash; a row that can be no document is named (`values`).
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
"""Rows; as many as may be large."""

_LARGEST_PAGE = 2000
_GROWTH = 4
_LARGEST_PAGE_BYTES = 16_000_000
_SHRINKING = 8
_IN_MEMORY = 4_000_000

Values = tuple[Any, ...]


def read_pages(connection: SqlConnection, at: str | None, query: str) -> Iterator[SqlRow]:
    """The rows of a query that Dolt answers in the same order each time.

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
    """At a revision or in the working set of a branch."""

    def __init__(self, session: DoltSession, at: At) -> None:
        self._session, self._at = session, at
        self._place = _place_name(at)

    @functools.cached_property
    def version(self) -> int:
        return self._session.read_version(self._at)

    def read_table(self, table: Table, ids: Iterable[str] | None = None) -> Iterator[Row]:
        if not self.version:
            return iter(())
        selection = _Selection(self._place, table, table.columns)
        asked = None if ids is None else sorted(set(ids))
        rows = _stable(self._session, self._at, lambda: _selected(self._session.connection, selection, asked))
        return (records.parse_record(table, row) for row in rows)

    def read_stored(
        self, columns: Sequence[str], collection: str | None, ids: Iterable[str] | None
    ) -> Iterator[Sequence[Any]]:
        asked = None if ids is None else sorted(set(ids))
        connection, place = self._session.connection, self._place

        def rows() -> Iterator[Values]:
            for name in [collection] if collection is not None else _collection_names(connection, place):
                where = f"collection_name = {quote_literal(name)}"
                yield from _selected(connection, _Selection(place, DOCUMENTS, columns, where), asked)

        return _stable(self._session, self._at, rows)

    def select_texts(self, columns: Sequence[str], conditions: Mapping[str, str]) -> Iterator[Sequence[str]]:
        where = " AND ".join(f"{each} {quote_literal(value)}" for each, value in conditions.items())
        return map(
            records.require_texts, _pages(self._session.connection, _Selection(self._place, DOCUMENTS, columns, where))
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
        where = " AND ".join(f"{each} = {quote_literal(value)}" for each, value in key.items())
        query = f"SELECT {names} FROM dolt_history_{table.name} WHERE {where}"
        found = read_pages(self._session.connection, self._place, query)
        return ((row["commit_hash"], *parse_values(row, table, columns)) for row in found)

    def read_keys(self, table: Table, ids: Iterable[str] | None) -> Iterable[tuple[str, str]]:
        for row in self._asked(table, (table.columns[0], logical.implying_column(table)), ids):
            doc_id, name = records.require_texts(row)
            yield doc_id, name

    def read_rows(self, table: Table, ids: list[str], *, texts: bool) -> Iterable[Document]:
        columns = [name for name in table.columns if texts or name != "content"]
        for row in self._asked(table, columns, ids):
            found = dict(zip(columns, row, strict=True))
            yield records.parse_logical_document(table, [found.get(name, "") for name in table.columns])

    def count_rows(self, table: Table) -> int:
        if not self._session.check_place(self._place):
            return 0
        query = f"SELECT count(*) AS v FROM {table.name}"
        return int(self._session.connection.query_rows(query, at=self._place)[0]["v"])

    def _asked(self, table: Table, columns: Sequence[str], ids: Iterable[str] | None) -> Iterator[Values]:
        if not self._session.check_place(self._place):
            return iter(())
        selection = _Selection(self._place, table, columns)
        return _selected(self._session.connection, selection, None if ids is None else sorted(set(ids)))


def select_list(table: Table, columns: Sequence[str], prefix: str = "") -> list[str]:
    """Columns as SQL, called as they are: NULL as `records.defaults` has it, and the hash of the
    text that is there.
    """
    return [f"{column_sql(table, column, prefix)} AS {quote_identifier(prefix + column)}" for column in columns]


def column_sql(table: Table, column: str, prefix: str = "") -> str:
    """The value of a column as SQL, whatever another program has left in it."""
    if column == "content_hash":
        text = f"ifnull({prefix}content, '')"
        return f"if(instr({text}, char(0)) > 0, char(0), sha2({text}, 256))"  # `values` refuses the one with NUL
    default = records.column_defaults(table).get(column)
    return f"{prefix}{column}" if default is None else f"ifnull({prefix}{column}, {quote_literal(default)})"


def parse_values(row: SqlRow, table: Table, columns: Sequence[str], prefix: str = "") -> Values:
    """The columns of a row in this order; None where one is NULL.

    Metadata is canonical, however it was written. Raises `RowsInvalid` for an empty key, a text
    that no engine stores exactly, and metadata that is none.
    """
    found = []
    for column in columns:
        value = row.get(prefix + column)
        if column in table.number_columns:
            value = _number(value)
        elif isinstance(value, str):
            if "\0" in value:
                where = "content" if column == "content_hash" else column
                raise records.invalid_row_error(table, _key(row, table, prefix), where, "holds a NUL character")
            if not value and column in table.columns[: table.key_count]:
                raise records.invalid_row_error(table, _key(row, table, prefix), column, "is empty")
            if column == "metadata" and value != "{}":
                value = _metadata(row, table, value, prefix)
        found.append(value)
    return tuple(found)


def _metadata(row: SqlRow, table: Table, text: str, prefix: str) -> str:
    try:
        return records.canonicalize_metadata(text)
    except ValueError as error:
        raise records.invalid_row_error(table, _key(row, table, prefix), "metadata", str(error)) from error


def _key(row: SqlRow, table: Table, prefix: str) -> list[str]:
    """What a document of the row is called, as far as the row says it."""
    key = [str(row.get(prefix + column, "")) for column in table.columns[: table.key_count]]
    if table.name in logical.METADATA_KEYS:
        return [logical.implied_collection(table, str(row.get(prefix + logical.implying_column(table), ""))), *key]
    return key


def _number(value: object) -> object:
    """A number that is one or, as `connection.truth` says, its text; any other value as it is."""
    return int(value) if isinstance(value, str) and value.removeprefix("-").isdecimal() else value


def _place_name(at: At) -> str:
    return at.branch if isinstance(at, WorkingSet) else at


class _Selection(NamedTuple):
    """Rows of a table at a place, in the order of a key, which ends the primary key.

    `ids`: only rows with these keys; all rows if there are none.
    """

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
        # Named whole, the primary key is the order in which rows are found; else they are sorted.
        order = ", ".join(self.table.columns[: self.table.key_count])
        where = self.where if after is None else f"{self.where} AND {self.key} > {quote_literal(after)}"
        return f"SELECT {names} FROM {self._rows()} WHERE {where} ORDER BY {order} LIMIT {size}"

    def _rows(self) -> str:
        """Return what follows FROM.

        For 500 ids, Dolt needs a sixth of the time that it needs for a list after IN.
        """
        if not self.ids:
            return self.table.name
        keys = ", ".join(f"ROW({quote_literal(key)})" for key in self.ids)
        return f"(VALUES {keys}) AS wanted_rows(wanted_key) JOIN {self.table.name} ON {self.key} = wanted_key"


def _collection_names(connection: SqlConnection, place: str) -> Iterator[str]:
    """The collections that documents are in, each found by the key."""
    name: str | None = None
    while True:
        where = "TRUE" if name is None else f"collection_name > {quote_literal(name)}"
        query = f"SELECT collection_name AS v FROM documents WHERE {where} ORDER BY collection_name LIMIT 1"
        rows = connection.query_rows(query, at=place)
        if not rows:
            return
        name = _next_key(name, rows[0]["v"])
        yield name


def _next_key(before: str | None, found: object) -> str:
    """Raises `RowsInvalid` for a key that a stranger's program wrote so that what follows it is it
    again: bytes that are no UTF-8 come as another text.
    """
    if not isinstance(found, str) or (before is not None and found <= before):
        raise RowsInvalid("The knowledge base holds a key that is no text.", hint=ROWS_HINT)
    return found


def _selected(connection: SqlConnection, selection: _Selection, ids: Sequence[str] | None) -> Iterator[Values]:
    """`ids`: only rows with these keys, which are sorted."""
    if ids is None:
        yield from _pages(connection, selection)
        return
    start, size = 0, _FIRST_PAGE
    while some_ids := ids[start : start + size]:  # as many as make one page: Dolt finds each id once
        rows = list(_pages(connection, selection._replace(ids=some_ids), size=len(some_ids) + 1))
        yield from rows
        start += len(some_ids)
        size = min(BATCH_SIZE, _next_size(rows)) if rows else BATCH_SIZE


def _pages(connection: SqlConnection, selection: _Selection, *, size: int = _FIRST_PAGE) -> Iterator[Values]:
    index, after = selection.columns.index(selection.key), None
    while True:
        try:
            found = connection.query_rows(selection.query(after, size), at=selection.place)
        except LimitExceeded:
            if size == 1:
                raise
            size = shrink_page(size)
            continue
        rows = [parse_values(row, selection.table, selection.columns) for row in found]
        yield from rows
        if len(rows) < size:
            return
        after = _next_key(after, rows[-1][index])
        size = _next_size(rows)


def shrink_page(size: int) -> int:
    """The rows to ask for where so many were too long for an answer: some may be much longer than
    those before.
    """
    return max(1, size // _SHRINKING)


def _next_size(rows: Sequence[Values]) -> int:
    """How many more rows like these make a page."""
    length = sum(len(each) for row in rows for each in row if isinstance(each, str))
    return max(1, min(_LARGEST_PAGE, len(rows) * PAGE_BYTES // (length + 1)))


def _stable(session: DoltSession, at: At, rows: Callable[[], Iterator[Values]]) -> Iterator[Values]:
    """The rows as they are now, whatever is written while they are read."""
    return rows() if isinstance(at, str) else _set_aside(session, at.branch, rows)


def _set_aside(session: DoltSession, branch: str, rows: Callable[[], Iterator[Values]]) -> Iterator[Values]:
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as aside:
        number = 0
        encode = msgspec.msgpack.Encoder().encode
        with session.connection.snapshot(branch):
            for row in rows():
                packed = encode(row)
                aside.write(len(packed).to_bytes(4) + packed)
                number += 1
        aside.seek(0)
        for _ in range(number):
            yield tuple(msgspec.msgpack.decode(aside.read(int.from_bytes(aside.read(4)))))
