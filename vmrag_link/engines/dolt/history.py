"""Revisions, branches and the table `git_links` in Dolt.

The links are on a branch of their own, which is never pinned or merged into content.
`vmrag_unfinished` is not listed as a branch: a revision that only it reaches may be deleted.
`dolt_commit_ancestors` finds exactly the given commit, reachable or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vmrag_link.engines.base import missing_revision_error
from vmrag_link.engines.dolt import schema
from vmrag_link.engines.dolt.connection import (
    SqlConnection,
    SqlRow,
    parse_bool,
    quote_identifier,
    quote_literal,
    quote_literals,
    split_batches,
)
from vmrag_link.engines.own_branches import UNFINISHED_BRANCH
from vmrag_link.engines.records import link_row
from vmrag_link.models import KbBranch, Link, RevisionInfo

_REVISION = r"[0-9a-v]{32}"

_LOGGED = (
    "SELECT commit_hash AS revision, parents, message, author, author_email AS email,"
    " date_format(author_date, '%Y-%m-%dT%H:%i:%sZ') AS date FROM dolt_log({start}, '--parents')"
)
_BRANCHES = f"SELECT name, hash, dirty FROM dolt_branches WHERE name <> '{UNFINISHED_BRANCH}'"


def is_hash(text: str) -> bool:
    """Return whether a text is the full hash of a revision, existing or not.

    No branch has such a name.
    """
    return bool(re.fullmatch(_REVISION, text))


def find_existing(connection: SqlConnection, revisions: Iterable[str]) -> set[str]:
    """Return the texts that are revisions of this knowledge base."""
    hashes = {revision: None for revision in revisions if is_hash(revision)}
    seen = hashes.keys() & connection.seen_revisions
    queries = [
        f"SELECT DISTINCT commit_hash AS v FROM dolt_commit_ancestors WHERE commit_hash IN ({quote_literals(part)})"
        for part in split_batches([revision for revision in hashes if revision not in seen])
    ]
    results = connection.run_queries(queries) if queries else []
    existing = {str(row["v"]) for rows in results for row in rows}
    connection.seen_revisions.update(existing)
    return existing | seen


def require_revisions(connection: SqlConnection, *revisions: str) -> None:
    """Raise `RevisionMissing` for the first revision that does not exist here."""
    existing = find_existing(connection, revisions)
    for revision in revisions:
        if revision not in existing:
            raise missing_revision_error(revision)


def log(connection: SqlConnection, revision: str, limit: int | None) -> Iterator[RevisionInfo]:
    require_revisions(connection, revision)
    query = _LOGGED.format(start=quote_literal(revision)) + ("" if limit is None else f" LIMIT {limit:d}")
    for row in connection.query_rows(query):
        author = f"{row['author']} <{row['email']}>"
        yield RevisionInfo(row["revision"], parse_parents(row["parents"]), row["message"], author, row["date"])


def parse_parents(text: str | None) -> tuple[str, ...]:
    return tuple(re.findall(_REVISION, text or ""))


def map_parents(connection: SqlConnection, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the parents of these revisions and of all their ancestors. Accepts any texts."""
    existing = sorted(find_existing(connection, revisions))
    if not existing:
        return {}
    rows = connection.query_rows(
        f"SELECT commit_hash AS revision, parents FROM dolt_log({quote_literals(existing)}, '--parents')"
    )
    return {str(row["revision"]): parse_parents(row["parents"]) for row in rows}


def find_unreachable(
    connection: SqlConnection, revisions: Iterable[str], *, heads: Iterable[str] | None = None, without: str = ""
) -> list[str]:
    """Return the revisions that none of the heads reaches, in the given order.

    They need not exist here. `heads` are by default those of all branches other than `without`.
    """
    candidates = list(dict.fromkeys(revisions))
    if heads is None:
        heads = [branch.head for branch in list_branches(connection) if branch.name != without]
    reached = map_parents(connection, heads).keys() if candidates else ()
    return [revision for revision in candidates if revision not in reached]


def list_branches(connection: SqlConnection) -> list[KbBranch]:
    rows = connection.query_rows(f"{_BRANCHES} ORDER BY name")
    return sorted((_parse_branch(row) for row in rows), key=lambda branch: branch.name)


def find_branch(connection: SqlConnection, name: str) -> KbBranch | None:
    rows = connection.query_rows(f"{_BRANCHES} AND name = {quote_literal(name)}")
    return _parse_branch(rows[0]) if rows else None


def _parse_branch(row: SqlRow) -> KbBranch:
    return KbBranch(str(row["name"]), str(row["hash"]), parse_bool(row["dirty"]))


_TABLE = "git_links"
_FIELDS = Link.__struct_fields__
_COLUMNS = ", ".join(map(quote_identifier, _FIELDS))


def list_links(connection: SqlConnection, at: str, conditions: Mapping[str, str]) -> list[Link]:
    """Return the links with these values in these columns, sorted by git commit."""
    if not has_links(connection, at):
        return []
    where = " AND ".join(f"{quote_identifier(column)} = {quote_literal(value)}" for column, value in conditions.items())
    query = f"SELECT {_COLUMNS} FROM {_TABLE} {f'WHERE {where}' if where else ''} ORDER BY git_commit"
    return [_parse_link(row) for row in connection.query_rows(query, at=at)]


def has_links(connection: SqlConnection, at: str) -> bool:
    return bool(connection.query_rows(f"SHOW TABLES LIKE {quote_literal(_TABLE)}", at=at))


def commit_links(
    connection: SqlConnection,
    at: str,
    put: Iterable[Link],
    remove: Iterable[str],
    *,
    message: str,
    author: str,
    date: str,
) -> str:
    """Replace and remove links on a branch.

    Return the revision, or an empty text if nothing changed.
    """
    new_rows = [link_row(link) for link in put]
    old_keys = [*remove, *(row[0] for row in new_rows)]
    create_table = schema.LINKS[_TABLE].replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)
    with connection.transaction(at):
        connection.execute([create_table], at=at)
        for keys in split_batches(old_keys):
            connection.execute([f"DELETE FROM {_TABLE} WHERE git_commit IN ({quote_literals(keys)})"], at=at)
        for batch in split_batches(new_rows):
            values = ", ".join(f"({quote_literals(row)})" for row in batch)
            connection.execute([f"INSERT INTO {_TABLE} ({_COLUMNS}) VALUES {values}"], at=at)
        return schema.commit(connection, at, message, author, date) if schema.is_dirty(connection, at) else ""


def _parse_link(row: Mapping[str, Any]) -> Link:
    return msgspec.convert({name: row.get(name) for name in _FIELDS}, type=Link)
