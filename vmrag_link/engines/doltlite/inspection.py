"""What the branches of a remote lead to: looked at before anything of it is taken, and never executed.

Every head has our tables and nothing else, is within the limits, and holds rows that we could have written. What lies behind
the heads is looked at when it is opened (`DoltliteEngine`), and all of it by `validation`, for `vmrag adopt`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link import terminal_text
from vmrag_link.engines.base import MEGABYTE, Limits, too_large
from vmrag_link.engines.doltlite import history, remotes, schema, validation
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import EngineError, KnowledgeRefused, LimitExceeded, SchemaTooNew, StatementGivenUp
from vmrag_link.models import Collection, Document, content_hash, metadata_from_row
from vmrag_link.paths import require_space

PATIENCE = 60.0
"""Seconds that one statement may take: what is looked at is what differs from the last time."""

_MOST_SHOWN = 300

MOST_DOCUMENT_MB = 900
"""What `limits.document_mb` may be at most: the engine stores a gigabyte."""

_HINT = (
    "Ask who pushed that; until it is mended, what is here goes on answering. To put there what was last fetched: "
    "vmrag gc --remote --apply"
)


def require_room(url: str, into: Path, limits: Limits) -> None:
    """Before a remote's file is fetched into ours: it is not too large, and there is room for what ours may lack of it. Nothing for a
    server, which does not say.

    Raises `KnowledgeRefused`, `FileFailed`; leaves it to the fetch to say that there is no file.
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
    """Look at the heads of a file's branches, but for those that were `known` (looked at) before.

    Raises `KnowledgeRefused`. A schema of a newer program's is no reason to refuse the rest: nothing reads it here.
    """
    if len(heads) > limits.branches:
        raise KnowledgeRefused(f"It has more than {limits.branches:,} branches. Nothing of it was taken.", hint=_HINT)
    seen = set(known.values())
    nearby = next(iter(known.values()), None)
    for name, head in heads.items():
        if head not in seen:
            seen.add(head)
            where = f"Revision {head[:12]} (KB branch {name[:80]!a} of the remote)"
            if _require_head(file, head, where, base=known.get(name) or nearby, limits=limits):
                nearby = nearby or head  # what the next one shares with it is not looked at twice


def _require_head(file: Path, head: str, where: str, *, base: str | None, limits: Limits) -> bool:
    """Whether it has our tables. Only what differs from `base`, which was looked at, is read."""
    try:
        with Connection(file, at=head, access="read", longest=limits.text_bytes, longest_step=PATIENCE) as connection:
            if not _has_tables(connection, where):
                return False
            since = base if base and history.exists(connection, base) else None
            _require_contents(connection, where, head, since, limits)
            return True
    except StatementGivenUp as error:
        raise _endless(where, error) from error
    except LimitExceeded as error:
        raise _too_long(where, limits) from error


def _has_tables(connection: Connection, where: str) -> bool:
    """False for a revision without tables, and for one that only a newer program can read."""
    try:
        if odd := schema.strange(connection):
            raise KnowledgeRefused(f"{where} is not taken: {odd}.", hint=_HINT)
        return bool(schema.version(connection))
    except SchemaTooNew:
        return False


def _require_contents(connection: Connection, where: str, head: str, since: str | None, limits: Limits) -> None:
    for table, most in (("collections", limits.collections), ("documents", limits.documents)):
        if connection.execute(f"SELECT count(*) FROM {table}")[0][0] > most:  # noqa: S608  our own names
            raise KnowledgeRefused(f"{where} is not taken: it holds more than {most:,} {table}.", hint=_HINT)
    _require_texts(connection, where, head, since, limits)
    for name, columns in (("collections", schema.COLLECTION_COLUMNS), ("documents", schema.DOCUMENT_COLUMNS)):
        if _has_other_types(connection, name, columns, head, since):
            raise KnowledgeRefused(f"{where} is not taken: {name} hold something else than texts.", hint=_HINT)
    _require_records(connection, where, head, since)


def _require_texts(connection: Connection, where: str, head: str, base: str | None, limits: Limits) -> None:
    if base is None:
        sql, args = "SELECT 1 FROM documents WHERE octet_length(content) > ? LIMIT 1", (limits.text_bytes,)
    else:
        sql = "SELECT 1 FROM dolt_diff_documents(?, ?) WHERE octet_length(to_content) > ? LIMIT 1"
        args = (base, head, limits.text_bytes)  # type: ignore[assignment]
    if connection.execute(sql, args):
        raise _too_long(where, limits)


def _has_other_types(connection: Connection, table: str, columns: Sequence[str], head: str, since: str | None) -> bool:
    """Whether a row, or (`since` another revision) one that has changed, holds bytes, NULL or a number where a text belongs."""
    kinds = {column: "integer" if column == "embedding_dimensions" else "text" for column in columns}
    prefix = "to_" if since else ""
    odd = " OR ".join(f"typeof({prefix}{column}) <> '{kind}'" for column, kind in kinds.items())
    if since is None:
        return bool(connection.execute(f"SELECT 1 FROM {table} WHERE {odd} LIMIT 1"))  # noqa: S608  our own names
    sql = f"SELECT 1 FROM dolt_diff_{table}(?, ?) WHERE diff_type <> 'removed' AND ({odd}) LIMIT 1"  # noqa: S608  our own names
    return bool(connection.execute(sql, (since, head)))


def _require_records(connection: Connection, where: str, head: str, since: str | None) -> None:
    """Every row, or (`since` another revision) every one that has changed, says what we could have written.

    Which embedding models there are is not asked: a newer program may know more of them.
    """
    try:
        for row in validation.rows(connection, since, head):
            _require_ours(row)
    except LimitExceeded:
        raise
    except (EngineError, msgspec.ValidationError, ValueError) as error:
        told = terminal_text.one_line(str(error))[:_MOST_SHOWN].rstrip(".")
        raise KnowledgeRefused(f"{where} is not taken: {told}.", hint=_HINT) from error


def _require_ours(row: Collection | Document) -> None:
    metadata_from_row(row.metadata)
    if isinstance(row, Document) and row.content_hash != content_hash(row.content):
        raise ValueError(f"the content_hash of {row.collection}/{row.doc_id} is not that of its content")


def _endless(where: str, error: LimitExceeded) -> KnowledgeRefused:
    return KnowledgeRefused(f"{where} is not taken: it cannot be looked at. {error.message}", hint=_HINT)


def _too_long(where: str, limits: Limits) -> KnowledgeRefused:
    size = limits.text_bytes // MEGABYTE
    return KnowledgeRefused(
        f"{where} is not taken: it holds a document of more than {size:,} MB.",
        hint=f"If that is what you expect: git config vmrag.limits.document-mb {min(4 * size, MOST_DOCUMENT_MB)}",
    )
