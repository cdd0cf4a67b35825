"""The table `git_links`, on a branch of its own that is never pinned or merged into content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vmrag_link.engines.base import LINKS_BRANCH
from vmrag_link.engines.dolt import schema
from vmrag_link.engines.dolt.connection import SqlConnection
from vmrag_link.engines.dolt.literals import identifier, literal, literals, parts
from vmrag_link.engines.records import link_row
from vmrag_link.models import Link

_TABLE = "git_links"
_FIELDS = Link.__struct_fields__
_COLUMNS = ", ".join(map(identifier, _FIELDS))


def prepare(connection: SqlConnection) -> None:
    """Make the table where it is missing; call it in a transaction."""
    made = schema.LINKS[_TABLE].replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)
    connection.change([made], at=LINKS_BRANCH)


def rows(connection: SqlConnection, asked: Mapping[str, str]) -> list[Link]:
    """The links in which these columns have these values; sorted by git commit."""
    if not connection.rows(f"SHOW TABLES LIKE {literal(_TABLE)}", at=LINKS_BRANCH):
        return []
    where = " AND ".join(f"{identifier(column)} = {literal(value)}" for column, value in asked.items())
    query = f"SELECT {_COLUMNS} FROM {_TABLE} {f'WHERE {where}' if where else ''} ORDER BY git_commit"
    return [_link(row) for row in connection.rows(query, at=LINKS_BRANCH)]


def store(connection: SqlConnection, put: Iterable[Link], remove: Iterable[str]) -> None:
    """Replace and remove links, by git commit."""
    replaced = [link_row(each) for each in put]
    gone = [*remove, *(row[0] for row in replaced)]
    for keys in parts(gone):
        connection.change([f"DELETE FROM {_TABLE} WHERE git_commit IN ({literals(keys)})"], at=LINKS_BRANCH)
    for rows_of_one in parts(replaced):
        values = ", ".join(f"({literals(row)})" for row in rows_of_one)
        connection.change([f"INSERT INTO {_TABLE} ({_COLUMNS}) VALUES {values}"], at=LINKS_BRANCH)


def _link(row: Mapping[str, Any]) -> Link:
    return msgspec.convert({name: row.get(name) for name in _FIELDS}, type=Link)
