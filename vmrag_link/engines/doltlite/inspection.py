"""Checks of the heads of a remote's branches, before anything is fetched.

These checks execute nothing from the remote. Every head must have our tables and nothing else, be
within the limits, and hold only rows that vmrag could have written. Older revisions are checked
when they are opened (`DoltliteSession`), and `vmrag adopt` checks all revisions
(`transfer.vet_revisions`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vmrag_link.engines import inspection, records
from vmrag_link.engines.doltlite import history, remotes, schema
from vmrag_link.engines.doltlite.connection import MAX_STEP_SECONDS, Connection
from vmrag_link.engines.doltlite.history import WORKING
from vmrag_link.engines.inspector import InspectedPlace, Inspector
from vmrag_link.engines.limits import Limits, too_large_error
from vmrag_link.engines.tables import ROWS_HINT, Table
from vmrag_link.errors import EngineError, EngineFailed
from vmrag_link.file_access import require_space
from vmrag_link.models import Link, Row

HEAD_STEP_SECONDS = 60.0
"""Time limit in seconds for one statement. It only reads the difference from the last check."""


def require_room(url: str, into: Path, limits: Limits) -> None:
    """Require that a remote's file is not too large, and that the disk has room for it.

    A server does not report its size, and the fetch handles a missing file. Raises
    `KnowledgeRefused` and `FileFailed`.
    """
    file = remotes.parse_file(url)
    if file is None or not file.exists():
        return
    size = file.stat().st_size
    if size > limits.file_bytes:
        raise too_large_error(size, limits.file_bytes)
    existing_size = into.stat().st_size if into.exists() else 0
    require_space(into.parent, max(0, size - existing_size), "the remote's knowledge base")


class DoltliteInspectedPlace(InspectedPlace):
    """The connection's place: the revision `at`, or WORKING of its branch."""

    def __init__(self, connection: Connection, at: str) -> None:
        self._connection, self._at = connection, at

    def describe_foreign_objects(self, *, with_links: bool = False) -> str:
        return schema.describe_foreign_objects(
            self._connection, also=history.LINK_OBJECTS if with_links else frozenset()
        )

    def read_version(self) -> int:
        return schema.read_version(self._connection)

    def read_meta(self) -> list[tuple[Any, ...]]:
        return self._connection.execute("SELECT key, value FROM vmrag_meta LIMIT 2")

    def query_values(self, queries: Sequence[str]) -> list[Any]:
        results = (self._connection.execute(query) for query in queries)
        return [rows[0][0] if rows else None for rows in results]

    def changed_rows_sql(self, table: Table, since: str) -> str:
        if not (history.is_hash(since) and (history.is_hash(self._at) or self._at == WORKING)):
            raise EngineFailed("the remote has a revision with an invalid hash.", hint=ROWS_HINT)
        return f"dolt_diff_{table.name}('{since}', '{self._at}')"

    def read_stored(self, table: Table, since: str | None) -> Iterator[Row]:
        """Yield rows, and check their types, because a column can hold values of any type."""
        columns = table.select_list(self.read_version(), "to_" if since else "")
        sql = f"SELECT {', '.join(columns)} FROM {self._from_clause(table, since)}"  # noqa: S608  our own names
        return (records.parse_record(table, row) for row in self._connection.stream(sql))

    def describe_odd_types(self, since: str | None) -> str:
        """Describe a value of a wrong type.

        A row may hold bytes, NULL or a number instead of a text.
        """
        for table in self.list_tables():
            types = ["integer" if name in table.number_columns else "text" for name in table.columns]
            columns = zip(table.select_list(self.read_version(), "to_" if since else ""), types, strict=True)
            wrong_type = " OR ".join(f"typeof({column}) <> '{type_}'" for column, type_ in columns)
            rows = f"{self._from_clause(table, since)} {'AND' if since else 'WHERE'} ({wrong_type})"
            if self._connection.execute(f"SELECT 1 FROM {rows} LIMIT 1"):  # noqa: S608  our own names
                return f"{table.name} contains values of wrong types"
        return ""

    def _from_clause(self, table: Table, since: str | None) -> str:
        return f"{self.changed_rows_sql(table, since)} WHERE diff_type <> 'removed'" if since else table.name

    def has_links(self) -> bool:
        return history.has_links(self._connection)

    def list_links(self) -> Sequence[Link]:
        return history.list_links(self._connection)


class DoltliteInspector(Inspector):
    def __init__(self, file: Path, limits: Limits, *, max_step_seconds: float = MAX_STEP_SECONDS) -> None:
        self._file = file
        self.limits = limits
        self._max_step_seconds = max_step_seconds

    @contextlib.contextmanager
    def open_place(self, revision: str) -> Iterator[InspectedPlace]:
        with Connection(
            self._file,
            at=revision,
            access="read",
            max_text_bytes=self.limits.text_bytes,
            max_step_seconds=self._max_step_seconds,
        ) as connection:
            yield DoltliteInspectedPlace(connection, revision)

    def can_compare_with(self, revision: str) -> bool:
        with Connection(self._file, access="read") as connection:
            return history.revision_exists(connection, revision)

    def require_readable_info(self, revision: str) -> None:
        with Connection(self._file, access="read", max_text_bytes=self.limits.text_bytes) as connection:
            next(history.log(connection, revision, 1))

    def describe_error(self, error: Exception) -> str:
        if not isinstance(error, EngineError):
            return str(error)
        message = (error.result_message if isinstance(error, EngineFailed) else "") or error.message
        return message.replace(f"the knowledge base {self._file}", "it")


def require_sound_heads(
    file: Path, heads: Mapping[str, str], *, checked_heads: Mapping[str, str], limits: Limits
) -> None:
    """Check the heads of a remote's file. See `Inspector.require_sound_heads`."""
    DoltliteInspector(file, limits, max_step_seconds=HEAD_STEP_SECONDS).require_sound_heads(
        heads, checked_heads=checked_heads
    )


def require_valid_rows(connection: Connection, at: str, since: str) -> None:
    """See `Engine.require_valid_rows`. `at`: a revision, or WORKING of the connection's branch."""
    place = DoltliteInspectedPlace(connection, at)
    if place.read_version():
        for row in place.read_rows(since):
            inspection.require_valid_row(row)
