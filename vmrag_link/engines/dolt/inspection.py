"""Checks of the heads of a remote's branches, and of a server's database.

These checks execute nothing from the remote. They only cover heads: older revisions are checked
when they are opened (`DoltSession.check_place`), and `vmrag adopt` checks all revisions
(`transfer.vet_revisions`). The files of a server belong to the server: its administrator checks
them with `dolt fsck` in its folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vmrag_link.engines import inspection, records
from vmrag_link.engines.dolt import comparison, history, reading, schema
from vmrag_link.engines.dolt.comparison import WORKING, DiffStep
from vmrag_link.engines.dolt.connection import quote_identifier, quote_literals
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.inspector import UNREADABLE, InspectedPlace, Inspector
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.engines.tables import DOCUMENTS, ROWS_HINT, TABLES, Table
from vmrag_link.errors import (
    EngineFailed,
    KnowledgeMissing,
    KnowledgeRefused,
    LoginRefused,
    RowsInvalid,
    SchemaTooNew,
    ServerUnreachable,
)
from vmrag_link.models import At, KbBranch, Link, Row, WorkingSet


class DoltInspectedPlace(InspectedPlace):
    def __init__(self, session: DoltSession, at: At) -> None:
        self._session, self._at = session, at
        self._place = at.branch if isinstance(at, WorkingSet) else at
        self._version: int | None = None

    def describe_foreign_objects(self, *, with_links: bool = False) -> str:
        also = schema.LINKS if with_links else None
        odd, self._version = schema.inspect_schema(self._session.connection, self._place, also=also)
        return odd.text if odd else ""

    def read_version(self) -> int:
        return self._session.read_version(self._at) if self._version is None else self._version

    def read_meta(self) -> list[tuple[Any, ...]]:
        rows = self._session.connection.query_rows(
            "SELECT `key` AS k, value AS v FROM vmrag_meta LIMIT 2", at=self._place
        )
        return [(row.get("k"), row.get("v")) for row in rows]

    def query_values(self, queries: Sequence[str]) -> list[Any]:
        results = self._session.connection.run_queries(queries, at=self._place) if queries else []
        return [rows[0].get("v") if rows else None for rows in results]

    def changed_rows_sql(self, table: Table, since: str) -> str:
        return f"dolt_diff({quote_literals([since, self._place, table.name])})"

    def read_stored(self, table: Table, since: str | None) -> Iterator[Row]:
        if since is not None:
            working = isinstance(self._at, WorkingSet)
            step = DiffStep(self._place if working else None, since, WORKING if working else self._place)
            columns, where = ((), table.columns), "diff_type <> 'removed'"
            pairs = comparison.read_differences(self._session.connection, step, table, columns, where)
            return (records.parse_record(table, after) for _, after in pairs)
        rows = reading.DoltRows(self._session, self._at)
        if table is DOCUMENTS:
            return map(records.parse_document, rows.read_stored(DOCUMENTS.columns, None, None))
        return rows.read_table(table)

    def has_links(self) -> bool:
        return history.has_links(self._session.connection, self._place)

    def list_links(self) -> Sequence[Link]:
        return history.list_links(self._session.connection, self._place, {})


class DoltInspector(Inspector):
    unreadable = UNREADABLE

    def __init__(self, session: DoltSession) -> None:
        self._session = session
        self.limits = session.limits

    @contextlib.contextmanager
    def open_place(self, revision: str) -> Iterator[InspectedPlace]:
        yield DoltInspectedPlace(self._session, revision)

    def can_compare_with(self, revision: str) -> bool:
        try:
            return bool(self._session.read_version(revision))
        except (SchemaTooNew, KnowledgeRefused):
            return False

    def require_readable_info(self, revision: str) -> None:
        next(history.log(self._session.connection, revision, 1))


def require_sound_heads(
    session: DoltSession, heads: Mapping[str, str], *, checked_heads: Mapping[str, str], whose: str = " of the remote"
) -> None:
    """Check heads before a push, where no branch may have foreign tables.

    See `Inspector.require_sound_heads`.
    """
    DoltInspector(session).require_sound_heads(
        heads, checked_heads=_existing_heads(session, checked_heads), whose=whose
    )


def find_foreign_heads(
    session: DoltSession, heads: Mapping[str, str], *, checked_heads: Mapping[str, str]
) -> dict[str, str]:
    """Check fetched heads and return those with tables of another program.

    Only a branch that is neither in `checked_heads` nor ours may have them. See
    `Inspector.require_sound_heads`.
    """
    checked_heads = _existing_heads(session, checked_heads)
    taken = {branch.name for branch in session.list_branches()} | checked_heads.keys()
    return DoltInspector(session).require_sound_heads(
        heads, checked_heads=checked_heads, may_be_foreign=lambda name: name not in taken and not is_reserved(name)
    )


def _existing_heads(session: DoltSession, heads: Mapping[str, str]) -> dict[str, str]:
    existing = history.find_existing(session.connection, heads.values())
    return {name: head for name, head in heads.items() if head in existing}


def require_valid_rows(session: DoltSession, at: At, since: str) -> None:
    """Check the rows that differ from a sound revision. See `Engine.require_valid_rows`."""
    if not session.read_version(at) or not DoltInspector(session).can_compare_with(since):
        return
    place = DoltInspectedPlace(session, at)
    name = at.branch if isinstance(at, WorkingSet) else at
    with session.connection.snapshot(name) if isinstance(at, WorkingSet) else contextlib.nullcontext():
        if twins := place.describe_twins():
            raise RowsInvalid(f"invalid rows at {name!r}: {twins}.", hint=ROWS_HINT)
        for row in place.read_rows(since):
            inspection.require_valid_row(row)


def find_server_damage(session: DoltSession) -> str:
    """Make the server read all history and every row at every branch.

    Return its error, or an empty text.
    """
    connection = session.connection
    try:
        branches = history.list_branches(connection)
        heads = quote_literals(branch.head for branch in branches)
        connection.query_rows(f"SELECT count(*) AS v, max(length(message)) FROM dolt_log({heads})")
        for branch in branches:
            _read_every_row(session, branch)
    except (ServerUnreachable, LoginRefused, KnowledgeMissing):
        raise  # not a sign of damage
    except EngineFailed as error:
        return error.message
    return ""


def _read_every_row(session: DoltSession, branch: KbBranch) -> None:
    if not session.check_place(branch.name):
        return  # an anchor has no tables
    for table in TABLES:
        read = ", ".join(f"sum(length({quote_identifier(column)}))" for column in table.columns)
        session.connection.query_rows(f"SELECT {read} FROM {quote_identifier(table.name)}", at=branch.name)
