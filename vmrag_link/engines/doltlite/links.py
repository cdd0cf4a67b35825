"""The table `git_links`, on a branch of its own that is never pinned or merged into content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from vmrag_link.engines.doltlite import schema
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.schema import objects
from vmrag_link.engines.inspection import LONGEST_LINK, MOST_LINKS
from vmrag_link.engines.records import link_row
from vmrag_link.engines.tables import TABLES
from vmrag_link.models import Link

_TABLE = """CREATE TABLE IF NOT EXISTS git_links(
    git_commit VARCHAR(255) PRIMARY KEY, dolt_commit VARCHAR(255), dolt_branch VARCHAR(255),
    git_branch LONGTEXT, git_repo_url LONGTEXT, linked_at VARCHAR(255), source VARCHAR(255),
    superseded_by VARCHAR(255), metadata LONGTEXT) WITHOUT ROWID"""
_INDEX = "CREATE INDEX IF NOT EXISTS git_links_by_revision ON git_links(dolt_commit)"
OBJECTS = objects(_TABLE, _INDEX)
_COLUMNS = ", ".join(Link.__struct_fields__)
_PUT = f"INSERT OR REPLACE INTO git_links({_COLUMNS}) VALUES ({', '.join('?' * len(Link.__struct_fields__))})"  # noqa: S608  our own names


def prepare(connection: Connection) -> None:
    """Make the table where it is missing; call it in a transaction."""
    connection.execute(_TABLE)
    connection.execute(_INDEX)


def rows(connection: Connection, where: str = "", args: Sequence[str] = ()) -> list[Link]:
    """Sorted by git commit; `where` is our own SQL."""
    if not _there(connection):
        return []
    sql = f"SELECT {_COLUMNS} FROM git_links {where} ORDER BY git_commit"  # noqa: S608  our own names
    return [_link(row) for row in connection.stream(sql, args)]


def too_much(connection: Connection) -> str:
    """What stands beside links at a place whose schema was checked, or what is too large there;
    empty if nothing.
    """
    found = schema.version(connection)
    for table in (each for each in TABLES if each.since <= found):
        if connection.execute(f"SELECT 1 FROM {table.name} LIMIT 1"):  # noqa: S608  our own names
            return f"{table.name.replace('_', ' ')} beside links"
    if not _there(connection):
        return ""
    size = " + ".join(f"ifnull(octet_length({each}), 0)" for each in Link.__struct_fields__)
    ((count, longest),) = connection.execute(f"SELECT count(*), max({size}) FROM git_links")  # noqa: S608  our own names
    if count > MOST_LINKS:
        return f"more than {MOST_LINKS:,} links"
    return f"a link of more than {LONGEST_LINK:,} bytes" if count and longest > LONGEST_LINK else ""


def _there(connection: Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'git_links'"))


def commit(
    connection: Connection, put: Iterable[Link], remove: Iterable[str], *, message: str, author: str, date: str
) -> str:
    """Replace and remove links where the connection stands; the revision, empty if nothing
    changed.
    """
    with connection.transaction():
        prepare(connection)
        connection.executemany("DELETE FROM git_links WHERE git_commit = ?", ((each,) for each in remove))
        connection.executemany(_PUT, (link_row(each) for each in put))
        return schema.commit(connection, message, author, date) if schema.is_dirty(connection) else ""


def _link(row: Sequence[Any]) -> Link:
    return msgspec.convert(dict(zip(Link.__struct_fields__, row, strict=True)), type=Link)
