"""Revisions, branches and the table `git_links` in doltlite.

The links are on a branch of their own, which is never pinned or merged into content.
`vmrag_unfinished` is not listed as a branch: a revision that only it reaches may be deleted.

`dolt_commit_ancestors` finds exactly the given commit, reachable or not. `dolt_hashof` also
resolves branch names and expressions, and reports a damaged database for a hash that is not a
commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from vmrag_link.engines.base import missing_revision_error
from vmrag_link.engines.doltlite import schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.schema import parse_objects
from vmrag_link.engines.own_branches import UNFINISHED_BRANCH
from vmrag_link.engines.records import link_row
from vmrag_link.models import Link, RevisionInfo

WORKING = "WORKING"
"""The working set of the connection's branch. Those of other branches have no name."""

_REVISION = r"[0-9a-f]{40}"

_ANCESTRY = """
    WITH RECURSIVE ancestry(revision) AS (
        {start}
        UNION
        SELECT parent_hash FROM dolt_commit_ancestors AS c JOIN ancestry ON c.commit_hash = ancestry.revision
        WHERE parent_hash IS NOT NULL
    )
    SELECT revision FROM ancestry {only}"""
BRANCHES = f"FROM dolt_branches WHERE name <> '{UNFINISHED_BRANCH}'"
FROM_REVISION = _ANCESTRY.format(start="VALUES (?)", only="WHERE revision = ? LIMIT 1")
"""It returns a row if the first revision reaches the second one."""
_FROM_BRANCHES = _ANCESTRY.format(start=f"SELECT hash {BRANCHES} AND name <> ?", only="")
_FROM_HEADS = _ANCESTRY.format(start="SELECT value FROM json_each(?)", only="")

_PARENTS_WITHIN = """
    SELECT commit_hash, parent_hash FROM dolt_commit_ancestors WHERE commit_hash IN ({these}) ORDER BY parent_index"""
PARENTS = _PARENTS_WITHIN.format(these=_FROM_HEADS)
"""The parents of revisions, a JSON list of hashes, and of all their ancestors."""

_LOG = """
    SELECT commit_hash, committer, email, date, message,
           (SELECT group_concat(parent_hash, ' ' ORDER BY parent_index) FROM dolt_commit_ancestors AS c
            WHERE c.commit_hash = log.commit_hash)
    FROM dolt_log(?) AS log LIMIT ?"""


def is_hash(text: str) -> bool:
    """Return whether a text is the full hash of a revision, existing or not.

    No branch has such a name.
    """
    return bool(re.fullmatch(_REVISION, text))


def revision_exists(connection: Connection, revision: str) -> bool:
    if not is_hash(revision):
        return False
    return bool(connection.execute("SELECT 1 FROM dolt_commit_ancestors WHERE commit_hash = ? LIMIT 1", (revision,)))


def log(connection: Connection, revision: str, limit: int | None) -> Iterator[RevisionInfo]:
    if not revision_exists(connection, revision):
        raise missing_revision_error(revision)
    # In SQLite, LIMIT -1 means no limit.
    for row in connection.stream(_LOG, (revision, -1 if limit is None else limit)):
        logged, name, email, date, message, parents = row
        author = f"{name} <{email}>"
        yield RevisionInfo(logged, tuple((parents or "").split()), message, author, f"{date.replace(' ', 'T')}Z")


def find_unreachable(
    connection: Connection, revisions: Iterable[str], *, heads: Iterable[str] | None = None, without: str = ""
) -> list[str]:
    """Return the revisions that none of the heads reaches, in the given order.

    `heads` are by default those of all branches other than `without`. Walks the history once, until
    all are found.
    """
    remaining = dict.fromkeys(revisions)
    if not remaining:
        return []
    query = (_FROM_BRANCHES, without) if heads is None else (_FROM_HEADS, json.dumps(list(heads)))
    for (revision,) in connection.stream(query[0], query[1:]):
        remaining.pop(revision, None)
        if not remaining:
            break
    return list(remaining)


_TABLE = """CREATE TABLE IF NOT EXISTS git_links(
    git_commit VARCHAR(255) PRIMARY KEY, dolt_commit VARCHAR(255), dolt_branch VARCHAR(255),
    git_branch LONGTEXT, git_repo_url LONGTEXT, linked_at VARCHAR(255), source VARCHAR(255),
    superseded_by VARCHAR(255), metadata LONGTEXT) WITHOUT ROWID"""
_INDEX = "CREATE INDEX IF NOT EXISTS git_links_by_revision ON git_links(dolt_commit)"
LINK_OBJECTS = parse_objects(_TABLE, _INDEX)
_COLUMNS = ", ".join(Link.__struct_fields__)
_PUT = f"INSERT OR REPLACE INTO git_links({_COLUMNS}) VALUES ({', '.join('?' * len(Link.__struct_fields__))})"  # noqa: S608  our own names


def create_links_table(connection: Connection) -> None:
    """Create the table if it is missing. Call this in a transaction."""
    connection.execute(_TABLE)
    connection.execute(_INDEX)


def list_links(connection: Connection, where: str = "", args: Sequence[str] = ()) -> list[Link]:
    """Return links sorted by git commit. `where` must be our own SQL."""
    if not has_links(connection):
        return []
    sql = f"SELECT {_COLUMNS} FROM git_links {where} ORDER BY git_commit"  # noqa: S608  our own names
    return [_parse_link(row) for row in connection.stream(sql, args)]


def has_links(connection: Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'git_links'"))


def commit_links(
    connection: Connection, put: Iterable[Link], remove: Iterable[str], *, message: str, author: str, date: str
) -> str:
    """Replace and remove links at the connection's place.

    Return the revision, or an empty text if nothing changed.
    """
    with connection.transaction():
        create_links_table(connection)
        connection.executemany("DELETE FROM git_links WHERE git_commit = ?", ((git_commit,) for git_commit in remove))
        connection.executemany(_PUT, (link_row(link) for link in put))
        return schema.commit(connection, message, author, date) if schema.is_dirty(connection) else ""


def _parse_link(row: Sequence[Any]) -> Link:
    return msgspec.convert(dict(zip(Link.__struct_fields__, row, strict=True)), type=Link)
