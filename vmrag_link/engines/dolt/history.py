"""Revisions and branches as Dolt stores them, and the table `git_links`, which stands on a branch
of its own that is never pinned or merged into content.

`vmrag_unfinished` counts as no branch: a revision that only it reaches is as good as gone.
`dolt_commit_ancestors` answers for exactly the given commit, reachable or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vmrag_link.engines.base import UNFINISHED_BRANCH
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
from vmrag_link.engines.records import link_row
from vmrag_link.errors import RevisionMissing
from vmrag_link.models import KbBranch, Link, RevisionInfo

_REVISION = r"[0-9a-v]{32}"

_LOGGED = (
    "SELECT commit_hash AS revision, parents, message, author, author_email AS email,"
    " date_format(author_date, '%Y-%m-%dT%H:%i:%sZ') AS date FROM dolt_log({start}, '--parents')"
)
_BRANCHES = f"SELECT name, hash, dirty FROM dolt_branches WHERE name <> '{UNFINISHED_BRANCH}'"


def is_hash(text: str) -> bool:
    """Whether it is the full hash of a revision, here or not: no branch is called so."""
    return bool(re.fullmatch(_REVISION, text))


def find_existing(connection: SqlConnection, revisions: Iterable[str]) -> set[str]:
    """Those of any texts that are revisions here."""
    asked = {revision: None for revision in revisions if is_hash(revision)}
    seen = asked.keys() & connection.seen_revisions
    queries = [
        f"SELECT DISTINCT commit_hash AS v FROM dolt_commit_ancestors WHERE commit_hash IN ({quote_literals(part)})"
        for part in split_batches([each for each in asked if each not in seen])
    ]
    here = {str(row["v"]) for rows in (connection.run_queries(queries) if queries else []) for row in rows}
    connection.seen_revisions.update(here)
    return here | seen


def require_revisions(connection: SqlConnection, *revisions: str) -> None:
    """Raises `RevisionMissing` for the first that is not here."""
    here = find_existing(connection, revisions)
    for revision in revisions:
        if revision not in here:
            raise RevisionMissing(
                f"The knowledge base has no revision {revision[:60]!r}.",
                hint="vmrag log (shows the revisions that are here)",
                revision=revision,
            )


def log(connection: SqlConnection, revision: str, limit: int | None) -> Iterator[RevisionInfo]:
    require_revisions(connection, revision)
    query = _LOGGED.format(start=quote_literal(revision)) + ("" if limit is None else f" LIMIT {limit:d}")
    for row in connection.query_rows(query):
        author = f"{row['author']} <{row['email']}>"
        yield RevisionInfo(row["revision"], _parents(row["parents"]), row["message"], author, row["date"])


def _parents(text: str | None) -> tuple[str, ...]:
    return tuple(re.findall(_REVISION, text or ""))


def is_ancestor(connection: SqlConnection, ancestor: str, descendant: str) -> bool:
    require_revisions(connection, ancestor, descendant)
    return parse_bool(connection.query_value(f"has_ancestor({quote_literals([descendant, ancestor])})"))


def map_parents(connection: SqlConnection, revisions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The parents of these revisions and of all their ancestors. Takes any texts."""
    here = sorted(find_existing(connection, revisions))
    if not here:
        return {}
    rows = connection.query_rows(
        f"SELECT commit_hash AS revision, parents FROM dolt_log({quote_literals(here)}, '--parents')"
    )
    return {str(row["revision"]): _parents(row["parents"]) for row in rows}


def find_unreachable(
    connection: SqlConnection, revisions: Iterable[str], *, heads: Iterable[str] | None = None, without: str = ""
) -> list[str]:
    """Those that none of the heads reaches, in the given order; not all need to be here.

    `heads`: by default those of all branches other than `without`.
    """
    asked = list(dict.fromkeys(revisions))
    if heads is None:
        heads = [each.head for each in list_branches(connection) if each.name != without]
    reached = map_parents(connection, heads).keys() if asked else ()
    return [each for each in asked if each not in reached]


def read_parents(connection: SqlConnection, revision: str) -> tuple[str, ...]:
    """The parents of a revision that is here."""
    # A server fails where `dolt_commit_ancestors` is asked for one revision that has two parents.
    rows = connection.query_rows(f"SELECT parents AS v FROM dolt_log({quote_literal(revision)}, '--parents') LIMIT 1")
    return _parents(rows[0].get("v"))


def merge_base(connection: SqlConnection, one: str, other: str) -> str | None:
    require_revisions(connection, one, other)
    base: str | None = connection.query_value(f"dolt_merge_base({quote_literals([one, other])})")
    return base


def list_branches(connection: SqlConnection) -> list[KbBranch]:
    rows = connection.query_rows(f"{_BRANCHES} ORDER BY name")
    return sorted((_branch(row) for row in rows), key=lambda each: each.name)


def find_branch(connection: SqlConnection, name: str) -> KbBranch | None:
    rows = connection.query_rows(f"{_BRANCHES} AND name = {quote_literal(name)}")
    return _branch(rows[0]) if rows else None


def _branch(row: SqlRow) -> KbBranch:
    return KbBranch(str(row["name"]), str(row["hash"]), parse_bool(row["dirty"]))


_TABLE = "git_links"
_FIELDS = Link.__struct_fields__
_COLUMNS = ", ".join(map(quote_identifier, _FIELDS))


def list_links(connection: SqlConnection, at: str, asked: Mapping[str, str]) -> list[Link]:
    """The links in which these columns have these values; sorted by git commit."""
    if not has_links(connection, at):
        return []
    where = " AND ".join(f"{quote_identifier(column)} = {quote_literal(value)}" for column, value in asked.items())
    query = f"SELECT {_COLUMNS} FROM {_TABLE} {f'WHERE {where}' if where else ''} ORDER BY git_commit"
    return [_link(row) for row in connection.query_rows(query, at=at)]


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
    """Replace and remove links on a branch; the revision, empty if nothing changed."""
    replaced = [link_row(each) for each in put]
    gone = [*remove, *(row[0] for row in replaced)]
    made = schema.LINKS[_TABLE].replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)
    with connection.transaction(at):
        connection.execute([made], at=at)
        for keys in split_batches(gone):
            connection.execute([f"DELETE FROM {_TABLE} WHERE git_commit IN ({quote_literals(keys)})"], at=at)
        for rows_of_one in split_batches(replaced):
            values = ", ".join(f"({quote_literals(row)})" for row in rows_of_one)
            connection.execute([f"INSERT INTO {_TABLE} ({_COLUMNS}) VALUES {values}"], at=at)
        return schema.commit(connection, at, message, author, date) if schema.is_dirty(connection, at) else ""


def _link(row: Mapping[str, Any]) -> Link:
    return msgspec.convert({name: row.get(name) for name in _FIELDS}, type=Link)
