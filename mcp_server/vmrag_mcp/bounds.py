"""No answer is longer than a client can take: lists are cut, and what is left out is counted.

Tools that read page by page end their pages by themselves. This is for all others, and for what
they could not foresee. A text is never cut here: one document that was asked for comes whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

SLACK = 4_000
"""Characters of JSON beyond the bound, for what every answer says besides."""

_TOLD = 1_000
"""Of these, what an answer needs to say that something is left out."""

_KEPT = ("warnings", "suggestions", "kb")
"""Never cut."""


class _Column(NamedTuple):
    """A list of an answer, and the lists beside it that are as long: columns of one table."""

    path: str
    beside: dict[str, list[Any]]

    @property
    def weights(self) -> list[int]:
        return [sum(map(_weight, row)) for row in zip(*self.beside.values(), strict=True)]


def cut(answer: dict[str, Any], most: int) -> dict[str, int]:
    """Cut the ends of an answer's lists until its JSON has no more than `most` characters and
    `SLACK`; returns how many items of which list are left out.
    """
    left: dict[str, int] = {}
    if _weight(answer) <= most + SLACK:
        return left
    room = most + SLACK - _TOLD
    while (over := _weight(answer) - room) > 0:
        heaviest = max(_columns(answer, ""), key=lambda each: sum(each.weights), default=None)
        if heaviest is None:
            break
        weights = heaviest.weights
        kept, saved = len(weights), 0
        while kept > 1 and saved < over:
            kept -= 1
            saved += weights[kept] + 1
        for name, items in heaviest.beside.items():
            path = f"{heaviest.path}.{name}" if heaviest.path else name
            left[path] = left.get(path, 0) + len(items) - kept
            del items[kept:]
    return left


def _columns(value: Any, path: str) -> Iterator[_Column]:
    """The tables in a value that have several rows, those within their rows, too."""
    if isinstance(value, list):
        for each in value:
            yield from _columns(each, path)
    if not isinstance(value, dict):
        return
    by_length: dict[int, dict[str, list[Any]]] = {}
    for name, below in value.items():
        if name in _KEPT:
            continue
        yield from _columns(below, f"{path}.{name}" if path else name)
        if isinstance(below, list) and len(below) > 1:
            by_length.setdefault(len(below), {})[name] = below
    for beside in by_length.values():
        if any(isinstance(each, dict | str) for items in beside.values() for each in items[:1]):
            yield _Column(path, beside)


def _weight(value: Any) -> int:
    """Characters of its JSON. A path that is not UTF-8 is escaped later, which makes it longer."""
    try:
        return len(msgspec.json.encode(value).decode())
    except UnicodeEncodeError:
        return len(json.dumps(value, ensure_ascii=False))
