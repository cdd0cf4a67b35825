"""Checks of the heads of a remote's branches, without executing anything of theirs, and of the
soundness of a server's database.

Older revisions are checked when they are opened (`DoltSession.check`); `vmrag adopt` checks all of
them (`validation`). A server's files are the server's: whoever runs it checks them by `dolt fsck`,
in its folder.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping

import msgspec

from vmrag_link.engines import inspection, records
from vmrag_link.engines.dolt import comparison, history, reading, schema
from vmrag_link.engines.dolt.comparison import WORKING, Comparable
from vmrag_link.engines.dolt.connection import identifier, literals
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.limits import Limits
from vmrag_link.engines.tables import COLLECTIONS, DOCUMENTS, LOGICAL, ROWS_HINT, TABLES, WITH_TEXTS
from vmrag_link.errors import (
    EngineError,
    EngineFailed,
    KnowledgeMissing,
    KnowledgeRefused,
    LoginRefused,
    RowsInvalid,
    SchemaTooNew,
    ServerUnreachable,
)
from vmrag_link.models import At, KbBranch, Row, Working

UNREADABLE = (EngineError, msgspec.DecodeError, UnicodeDecodeError, ValueError)
"""What reading rows raises that are not records."""


def require_sound(
    session: DoltSession, heads: Mapping[str, str], *, known: Mapping[str, str], whose: str = " of the remote"
) -> None:
    """See `engines.inspection.require_sound`."""
    here = history.existing(session.connection, known.values())
    inspection.require_sound(
        heads,
        functools.partial(_require_head, session),
        functools.partial(_require_links, session),
        known={name: head for name, head in known.items() if head in here},
        limits=session.limits,
        whose=whose,
    )


def _require_head(session: DoltSession, head: str, where: str, *, base: str | None) -> bool:
    try:
        with inspection.refusing(where, session.limits, *UNREADABLE):
            odd, version = schema.inspect(session.connection, head)
            if odd:
                raise inspection.not_taken(where, odd)
            if version:
                _require_contents(session, head, where, base)
    except SchemaTooNew:
        return False
    return bool(version)


def _require_links(session: DoltSession, head: str, where: str) -> None:
    """See `engines.inspection.LookAtLinks`."""
    try:
        with inspection.refusing(where, session.limits, *UNREADABLE):
            odd, version = schema.inspect(session.connection, head, also=schema.LINKS)
            if odd:
                raise inspection.not_taken(where, odd)
            if version:
                if much := history.too_much(session.connection, head):
                    raise inspection.not_taken(where, f"it holds {much}")
                for each in history.rows(session.connection, head, {}):
                    inspection.require_link(each)
    except SchemaTooNew:
        return  # nothing reads it here


def _require_contents(session: DoltSession, head: str, where: str, since: str | None) -> None:
    if much := too_many(session, head, session.limits):
        raise inspection.not_taken(where, f"it holds {much}")
    if since and not _has_tables(session, since):
        since = None
    if has_longer(session, head, since, session.limits.text_bytes):
        raise inspection.too_long(where, session.limits)
    if twin := twins(session, head):
        raise inspection.not_taken(where, twin)
    for row in rows(session, since, head):
        inspection.require_ours(row)


def _has_tables(session: DoltSession, revision: str) -> bool:
    try:
        return bool(session.version(revision))
    except (SchemaTooNew, KnowledgeRefused):
        return False


def too_many(session: DoltSession, revision: str, limits: Limits) -> str:
    """What a revision holds too many of, as `more than 10 documents`; empty if nothing."""
    queries = [f"SELECT count(*) AS v FROM {table.name}" for table in TABLES]
    for table, found in zip(TABLES, session.connection.results(queries, at=revision), strict=True):
        most = limits.collections if table is COLLECTIONS else limits.documents
        if int(found[0]["v"]) > most:
            return f"more than {most:,} {table.name.replace('_', ' ')}"
    return ""


def twins(session: DoltSession, revision: str) -> str:
    """What two rows of a revision share a name, as a sentence; empty if none."""
    answers = session.connection.results([inspection.twins_query(each) for each in LOGICAL], at=revision)
    return next((inspection.twins(each) for each, rows in zip(LOGICAL, answers, strict=True) if rows), "")


def has_longer(session: DoltSession, revision: str, since: str | None, most: int) -> bool:
    """Whether a document that a revision holds, or has changed `since`, is longer than so many
    bytes.
    """
    queries = [
        f"SELECT 1 AS v FROM {table.name} WHERE octet_length(content) > {most:d} LIMIT 1"
        if since is None
        else f"SELECT 1 AS v FROM dolt_diff({literals([since, revision, table.name])})"
        f" WHERE octet_length(to_content) > {most:d} LIMIT 1"
        for table in WITH_TEXTS
    ]
    return any(session.connection.results(queries, at=revision))


def require_records(session: DoltSession, at: At, since: str) -> None:
    """See `Engine.require_records`."""
    if not session.version(at) or not _has_tables(session, since):
        return
    place = at.branch if isinstance(at, Working) else at
    with session.connection.snapshot(place) if isinstance(at, Working) else contextlib.nullcontext():
        if twin := twins(session, place):
            raise RowsInvalid(f"What {place!r} holds cannot be taken: {twin}.", hint=ROWS_HINT)
        for each in rows(session, since, at):
            inspection.require_ours(each)


def rows(session: DoltSession, since: str | None, revision: At) -> Iterator[Row]:
    """The rows of a revision, or those that it has changed `since`.

    Raises one of UNREADABLE for one that is no record.
    """
    for table in TABLES:
        if since is not None:
            at, new = (revision.branch, WORKING) if isinstance(revision, Working) else (None, revision)
            step = Comparable(at, since, new)
            pairs = comparison.differing(session.connection, step, table, ((), table.columns), "diff_type <> 'removed'")
            found: Iterator[Row] = (records.record(table, after) for _, after in pairs)
        elif table is DOCUMENTS:
            found = reading.stored_documents(session, revision, None)
        else:
            found = reading.table(session, revision, table)
        for each in found:
            records.row(msgspec.convert(msgspec.structs.asdict(each), type=type(each)))
            yield each


def server_damage(session: DoltSession) -> str:
    """Have the server read all history and every row at every branch; why it cannot, or nothing."""
    connection = session.connection
    try:
        branches = history.branches(connection)
        heads = literals(each.head for each in branches)
        connection.rows(f"SELECT count(*) AS v, max(length(message)) FROM dolt_log({heads})")
        for each in branches:
            _read_every_row(session, each)
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
