"""Both rankings of a golden query, place by place, as a reviewer reads them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

from vmrag_link.golden.queries import RankedChunk
from vmrag_link.ops.report.records import QueryChange, ReportSummary

PLACES = 20
"""Of a ranking that are shown; `k` may be 1,000."""


class Was(NamedTuple):
    """Where a chunk of the new ranking was in the old one: itself (`same_chunk`), or another one of
    its document.
    """

    place: int
    same_chunk: bool


class RankRow(NamedTuple):
    """What stands at a place of two rankings. `gone`: the old one's is in the new one no more."""

    place: int
    before: RankedChunk | None
    gone: bool
    after: RankedChunk | None
    was: Was | None

    @property
    def climbed(self) -> int:
        """Places up; below zero, down."""
        return self.was.place - self.place if self.was else 0

    @property
    def mark(self) -> str:
        """How the new one got here: `new`, `▲ 2`, `▼ 1`, `=`, or `≈` by another chunk."""
        if self.was is None:
            return "new"
        if self.climbed:
            return f"{'▲' if self.climbed > 0 else '▼'} {abs(self.climbed)}"
        return "=" if self.was.same_chunk else "≈"


def renamed(summary: ReportSummary) -> dict[str, str]:
    """The new names of moved documents."""
    return {each.old_name: each.name for each in summary.documents if each.old_name}


def rank_rows(query: QueryChange, renamed: Mapping[str, str]) -> list[RankRow]:
    """The first `PLACES` of both rankings side by side. `renamed`: new names of moved documents.

    A document's chunks have other numbers as soon as it grows at its beginning, so what has no
    chunk of the same number is compared with the next one of its document.
    """
    was = _matches(query, renamed)
    kept = {each.place for each in was.values()}
    both = zip_longest(query.before[:PLACES], query.after[:PLACES])
    return [
        RankRow(place, before, place not in kept, after, was.get(place))
        for place, (before, after) in enumerate(both, start=1)
    ]


def _matches(query: QueryChange, renamed: Mapping[str, str]) -> dict[int, Was]:
    """By place in the new ranking."""
    old = {place: (renamed.get(each.document, each.document), each.chunk) for place, each in enumerate(query.before, 1)}
    new = {place: (each.document, each.chunk) for place, each in enumerate(query.after, 1)}
    found: dict[int, Was] = {}
    for same_chunk in (True, False):
        waiting: dict[object, list[int]] = {}
        for place, key in old.items():
            waiting.setdefault(key if same_chunk else key[0], []).append(place)
        for place, key in new.items():
            if place not in found and (places := waiting.get(key if same_chunk else key[0])):
                found[place] = Was(places.pop(0), same_chunk)
        taken = {each.place for each in found.values()}
        old = {place: key for place, key in old.items() if place not in taken}
    return found
