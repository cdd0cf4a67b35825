"""Checks of the heads of a remote's branches, before anything is taken and without executing
anything.

Every head has our tables and nothing else, is within the limits, and holds rows that we could have
written. Older revisions are checked when they are opened (`Session`); `vmrag adopt` checks all of
them (`validation`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vmrag_link.engines import inspection
from vmrag_link.engines.doltlite import history, remotes, schema, validation
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.limits import Limits, too_large
from vmrag_link.engines.tables import WITH_TEXTS, Table
from vmrag_link.errors import EngineError, LimitExceeded, SchemaTooNew
from vmrag_link.paths import require_space

PATIENCE = 60.0
"""Seconds that one statement may take: what is looked at is what differs from the last time."""


def require_room(url: str, into: Path, limits: Limits) -> None:
    """Require that a remote's file is not too large, and that the disk has room for it.

    A server does not tell its size, and a missing file is left to the fetch. Raises
    `KnowledgeRefused`, `FileFailed`.
    """
    file = remotes.file_of(url)
    if file is None or not file.exists():
        return
    size = file.stat().st_size
    if size > limits.file_bytes:
        raise too_large(size, limits.file_bytes)
    held = into.stat().st_size if into.exists() else 0
    require_space(into.parent, max(0, size - held), "the remote's knowledge base")


def require_sound(file: Path, heads: Mapping[str, str], *, known: Mapping[str, str], limits: Limits) -> None:
    """See `engines.inspection.require_sound`."""
    look = functools.partial(_require_head, file, limits=limits)
    look_at_links = functools.partial(_require_links, file, limits=limits)
    inspection.require_sound(heads, look, look_at_links, known=known, limits=limits)


def require_records(connection: Connection, at: str, since: str) -> None:
    """See `Engine.require_records`; `at`: a revision, or WORKING of the connection's branch."""
    if schema.version(connection):
        for row in validation.rows(connection, since, at):
            inspection.require_ours(row)


def _require_head(file: Path, head: str, where: str, *, base: str | None, limits: Limits) -> bool:
    """Whether it has our tables. Only what differs from `base`, which was looked at, is read."""
    with inspection.refusing(where, limits), _opened(file, head, limits) as connection:
        if not _has_tables(connection, where):
            return False
        since = base if base and history.exists(connection, base) else None
        _require_contents(connection, where, head, since, limits)
        return True


def _require_links(file: Path, head: str, where: str, *, limits: Limits) -> None:
    """See `engines.inspection.LookAtLinks`."""
    try:
        with (
            inspection.refusing(where, limits, EngineError, ValueError),
            _opened(file, head, limits) as connection,
        ):
            if odd := schema.strange(connection, also=history.OBJECTS):
                raise inspection.not_taken(where, odd)
            if much := history.too_much(connection):
                raise inspection.not_taken(where, f"it holds {much}")
            for each in history.rows(connection):
                inspection.require_link(each)
    except SchemaTooNew:
        return  # nothing reads it here


def _opened(file: Path, head: str, limits: Limits) -> Connection:
    return Connection(file, at=head, access="read", longest=limits.text_bytes, longest_step=PATIENCE)


def _has_tables(connection: Connection, where: str) -> bool:
    """False for a revision without tables, and for one that only a newer program can read."""
    try:
        if odd := schema.strange(connection):
            raise inspection.not_taken(where, odd)
        return bool(schema.version(connection))
    except SchemaTooNew:
        return False


def _require_contents(connection: Connection, where: str, head: str, since: str | None, limits: Limits) -> None:
    if much := validation.too_many(connection, limits):
        raise inspection.not_taken(where, f"it holds {much}")
    if twins := validation.twins(connection):
        raise inspection.not_taken(where, twins)
    _require_texts(connection, where, head, since, limits)
    for table, version in validation.tables(connection):
        if _has_other_types(connection, table, version, head, since):
            raise inspection.not_taken(where, f"{table.name} hold something else than texts")
    _require_records(connection, where, head, since)


def _require_texts(connection: Connection, where: str, head: str, base: str | None, limits: Limits) -> None:
    for table in (each for each, _ in validation.tables(connection) if each in WITH_TEXTS):
        if base is None:
            sql, args = f"{table.name} WHERE octet_length(content) > ?", (limits.text_bytes,)
        else:
            sql = f"dolt_diff_{table.name}(?, ?) WHERE octet_length(to_content) > ?"
            args = (base, head, limits.text_bytes)  # type: ignore[assignment]
        if connection.execute(f"SELECT 1 FROM {sql} LIMIT 1", args):  # noqa: S608  our own names
            raise inspection.too_long(where, limits)


def _has_other_types(connection: Connection, table: Table, version: int, head: str, since: str | None) -> bool:
    """Whether a row holds bytes, NULL or a number in place of a text. `since`: only rows that
    changed.
    """
    kinds = ["integer" if each in table.numbers else "text" for each in table.columns]
    columns = table.selected(version, "to_" if since else "")
    odd = " OR ".join(f"typeof({column}) <> '{kind}'" for column, kind in zip(columns, kinds, strict=True))
    if since is None:
        return bool(connection.execute(f"SELECT 1 FROM {table.name} WHERE {odd} LIMIT 1"))  # noqa: S608  our own names
    sql = f"SELECT 1 FROM dolt_diff_{table.name}(?, ?) WHERE diff_type <> 'removed' AND ({odd}) LIMIT 1"  # noqa: S608  our own names
    return bool(connection.execute(sql, (since, head)))


def _require_records(connection: Connection, where: str, head: str, since: str | None) -> None:
    """Require rows that we could have written. `since`: only those that changed."""
    try:
        for row in validation.rows(connection, since, head):
            inspection.require_ours(row)
    except LimitExceeded:
        raise
    except (EngineError, msgspec.ValidationError, ValueError) as error:
        raise inspection.not_taken(where, str(error)) from error
