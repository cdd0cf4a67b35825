"""Checks of the heads of a remote's branches, without executing anything of theirs, and of the
soundness of a server's database.

Older revisions are checked when they are opened (`DoltSession.check`); `vmrag adopt` checks all of
them (`transfer.vet`). A server's files are the server's: whoever runs it checks them by
`dolt fsck`, in its folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vmrag_link.engines import inspection, records
from vmrag_link.engines.base import reserved
from vmrag_link.engines.dolt import comparison, history, reading, schema
from vmrag_link.engines.dolt.comparison import WORKING, Comparable
from vmrag_link.engines.dolt.connection import identifier, literals
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.looking import UNREADABLE, Look, Looker
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
from vmrag_link.models import At, KbBranch, Link, Row, Working


class DoltLook(Look):
    def __init__(self, session: DoltSession, at: At) -> None:
        self._session, self._at = session, at
        self._place = at.branch if isinstance(at, Working) else at
        self._version: int | None = None

    def strange(self, *, with_links: bool = False) -> str:
        also = schema.LINKS if with_links else None
        odd, self._version = schema.inspect(self._session.connection, self._place, also=also)
        return odd.text if odd else ""

    def version(self) -> int:
        return self._session.version(self._at) if self._version is None else self._version

    def meta(self) -> list[tuple[Any, ...]]:
        found = self._session.connection.rows("SELECT `key` AS k, value AS v FROM vmrag_meta LIMIT 2", at=self._place)
        return [(row.get("k"), row.get("v")) for row in found]

    def answers(self, queries: Sequence[str]) -> list[Any]:
        found = self._session.connection.results(queries, at=self._place) if queries else []
        return [rows[0].get("v") if rows else None for rows in found]

    def changed(self, table: Table, since: str) -> str:
        return f"dolt_diff({literals([since, self._place, table.name])})"

    def stored(self, table: Table, since: str | None) -> Iterator[Row]:
        if since is not None:
            working = isinstance(self._at, Working)
            step = Comparable(self._place if working else None, since, WORKING if working else self._place)
            columns, where = ((), table.columns), "diff_type <> 'removed'"
            pairs = comparison.differing(self._session.connection, step, table, columns, where)
            return (records.record(table, after) for _, after in pairs)
        rows = reading.DoltRows(self._session, self._at)
        if table is DOCUMENTS:
            return map(records.document, rows.stored(DOCUMENTS.columns, None, None))
        return rows.table(table)

    def has_links(self) -> bool:
        return history.has_links(self._session.connection, self._place)

    def links(self) -> Sequence[Link]:
        return history.link_rows(self._session.connection, self._place, {})


class DoltLooker(Looker):
    unreadable = UNREADABLE

    def __init__(self, session: DoltSession) -> None:
        self._session = session
        self.limits = session.limits

    @contextlib.contextmanager
    def at(self, revision: str) -> Iterator[Look]:
        yield DoltLook(self._session, revision)

    def known(self, revision: str) -> bool:
        try:
            return bool(self._session.version(revision))
        except (SchemaTooNew, KnowledgeRefused):
            return False

    def require_described(self, revision: str) -> None:
        next(history.log(self._session.connection, revision, 1))


def require_sound(
    session: DoltSession, heads: Mapping[str, str], *, known: Mapping[str, str], whose: str = " of the remote"
) -> None:
    """See `Looker.require_sound`. No branch may be foreign."""
    DoltLooker(session).require_sound(heads, known=_known_here(session, known), whose=whose)


def foreign_heads(session: DoltSession, heads: Mapping[str, str], *, known: Mapping[str, str]) -> dict[str, str]:
    """See `Looker.require_sound`. A branch that is neither `known` nor ours may be foreign."""
    known = _known_here(session, known)
    taken = {branch.name for branch in session.branches()} | known.keys()
    return DoltLooker(session).require_sound(
        heads, known=known, may_be_foreign=lambda name: name not in taken and not reserved(name)
    )


def _known_here(session: DoltSession, known: Mapping[str, str]) -> dict[str, str]:
    here = history.existing(session.connection, known.values())
    return {name: head for name, head in known.items() if head in here}


def require_records(session: DoltSession, at: At, since: str) -> None:
    """See `Engine.require_records`."""
    if not session.version(at) or not DoltLooker(session).known(since):
        return
    look, place = DoltLook(session, at), at.branch if isinstance(at, Working) else at
    with session.connection.snapshot(place) if isinstance(at, Working) else contextlib.nullcontext():
        if twins := look.twins():
            raise RowsInvalid(f"What {place!r} holds cannot be taken: {twins}.", hint=ROWS_HINT)
        for row in look.rows(since):
            inspection.require_ours(row)


def server_damage(session: DoltSession) -> str:
    """Have the server read all history and every row at every branch; why it cannot, or nothing."""
    connection = session.connection
    try:
        branches = history.branches(connection)
        heads = literals(branch.head for branch in branches)
        connection.rows(f"SELECT count(*) AS v, max(length(message)) FROM dolt_log({heads})")
        for branch in branches:
            _read_every_row(session, branch)
    except (ServerUnreachable, LoginRefused, KnowledgeMissing):
        raise  # that says nothing of its soundness
    except EngineFailed as error:
        return error.message
    return ""


def _read_every_row(session: DoltSession, branch: KbBranch) -> None:
    if not session.check(branch.name):
        return  # no tables: what is kept for garbage collection
    for table in TABLES:
        read = ", ".join(f"sum(length({identifier(column)}))" for column in table.columns)
        session.connection.rows(f"SELECT {read} FROM {identifier(table.name)}", at=branch.name)
