"""The table `git_links`, on a branch of its own that is never pinned or merged into content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vmrag_link.engines.dolt import schema
from vmrag_link.engines.dolt.connection import SqlConnection, identifier, literal, literals, parts
from vmrag_link.engines.inspection import LONGEST_LINK, MOST_LINKS
from vmrag_link.engines.records import link_row
from vmrag_link.engines.tables import TABLES
from vmrag_link.models import Link

_TABLE = "git_links"
_FIELDS = Link.__struct_fields__
_COLUMNS = ", ".join(map(identifier, _FIELDS))


def rows(connection: SqlConnection, at: str, asked: Mapping[str, str]) -> list[Link]:
    """The links in which these columns have these values; sorted by git commit."""
    if not _there(connection, at):
        return []
    where = " AND ".join(f"{identifier(column)} = {literal(value)}" for column, value in asked.items())
    query = f"SELECT {_COLUMNS} FROM {_TABLE} {f'WHERE {where}' if where else ''} ORDER BY git_commit"
    return [_link(row) for row in connection.rows(query, at=at)]


def too_much(connection: SqlConnection, at: str) -> str:
    """What stands beside links at a place whose schema was checked, or what is too large there;
    empty if nothing.
    """
    found = connection.results([f"SELECT 1 AS v FROM {each.name} LIMIT 1" for each in TABLES], at=at)
    if beside := next((table for table, rows in zip(TABLES, found, strict=True) if rows), None):
        return f"{beside.name.replace('_', ' ')} beside links"
    if not _there(connection, at):
        return ""
    size = " + ".join(f"ifnull(octet_length({identifier(each)}), 0)" for each in _FIELDS)
    (row,) = connection.rows(f"SELECT count(*) AS n, ifnull(max({size}), 0) AS longest FROM {_TABLE}", at=at)
    if int(row["n"]) > MOST_LINKS:
        return f"more than {MOST_LINKS:,} links"
    return f"a link of more than {LONGEST_LINK:,} bytes" if int(row["longest"]) > LONGEST_LINK else ""


def _there(connection: SqlConnection, at: str) -> bool:
    return bool(connection.rows(f"SHOW TABLES LIKE {literal(_TABLE)}", at=at))


def commit(
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
        connection.change([made], at=at)
        for keys in parts(gone):
            connection.change([f"DELETE FROM {_TABLE} WHERE git_commit IN ({literals(keys)})"], at=at)
        for rows_of_one in parts(replaced):
            values = ", ".join(f"({literals(row)})" for row in rows_of_one)
            connection.change([f"INSERT INTO {_TABLE} ({_COLUMNS}) VALUES {values}"], at=at)
        return schema.commit(connection, at, message, author, date) if schema.is_dirty(connection, at) else ""


def _link(row: Mapping[str, Any]) -> Link:
    return msgspec.convert({name: row.get(name) for name in _FIELDS}, type=Link)
