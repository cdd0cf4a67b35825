"""Cut the lists of an answer that is longer than a client accepts.

Tools with pages limit their pages themselves. This module is for all other tools, and for
unexpected cases. Texts are never cut: a client that asks for one document gets the whole document.

Lists of equal length in one object are columns of a table, such as `ids` and `documents`, so they
are cut to the same length. The largest table is cut first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

SLACK_CHARACTERS = 4_000
"""Characters of JSON above the maximum, for the fields that every answer has."""

_WARNING_CHARACTERS = 1_000
"""Characters of `SLACK_CHARACTERS` that the warning about cut lists needs."""

_NEVER_CUT = ("warnings", "suggestions", "kb")
"""Keys whose lists are never cut."""


class _Table(NamedTuple):
    """The lists of an object that have the same length, as columns of one table."""

    path: str
    """The path of the object in the answer."""
    columns: dict[str, list[Any]]

    def count_row_characters(self) -> list[int]:
        return [sum(map(_count_json, row)) for row in zip(*self.columns.values(), strict=True)]


def cut_lists(answer: dict[str, Any], max_characters: int) -> dict[str, int]:
    """Cut the ends of lists until the answer's JSON is short enough.

    It then has at most `max_characters` and `SLACK_CHARACTERS`. Returns the number of items that
    are left out, by the path of the list.
    """
    left_out: dict[str, int] = {}
    if _count_json(answer) <= max_characters + SLACK_CHARACTERS:
        return left_out
    limit = max_characters + SLACK_CHARACTERS - _WARNING_CHARACTERS
    while (excess := _count_json(answer) - limit) > 0:
        largest = max(_list_tables(answer, ""), key=lambda table: sum(table.count_row_characters()), default=None)
        if largest is None:
            break
        row_characters = largest.count_row_characters()
        row_count, saved = len(row_characters), 0
        while row_count > 1 and saved < excess:
            row_count -= 1
            saved += row_characters[row_count] + 1
        for name, items in largest.columns.items():
            path = f"{largest.path}.{name}" if largest.path else name
            left_out[path] = left_out.get(path, 0) + len(items) - row_count
            del items[row_count:]
    return left_out


def _list_tables(value: Any, path: str) -> Iterator[_Table]:
    """Yield the tables in a value that have several rows, also tables within rows."""
    if isinstance(value, list):
        for item in value:
            yield from _list_tables(item, path)
    if not isinstance(value, dict):
        return
    by_length: dict[int, dict[str, list[Any]]] = {}
    for name, member in value.items():
        if name in _NEVER_CUT:
            continue
        yield from _list_tables(member, f"{path}.{name}" if path else name)
        if isinstance(member, list) and len(member) > 1:
            by_length.setdefault(len(member), {})[name] = member
    for columns in by_length.values():
        if any(isinstance(items[0], dict | str) for items in columns.values()):
            yield _Table(path, columns)


def _count_json(value: Any) -> int:
    """Return the number of characters of a value as JSON.

    A path that is not UTF-8 is escaped later, which makes it longer.
    """
    try:
        return len(msgspec.json.encode(value).decode())
    except UnicodeEncodeError:
        return len(json.dumps(value, ensure_ascii=False))
