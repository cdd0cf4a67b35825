"""The golden queries of a report: which of them differ, the worst first, and both rankings of one,
place by place.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import zip_longest
from typing import NamedTuple

from vmrag_link.errors import shortened
from vmrag_link.golden.queries import RankedChunk
from vmrag_link.ops.report.records import OPAQUE, AnswerChange, ComparedQueries, QueryChange, ReportSummary

PLACES = 20
"""Of a ranking that are shown; `k` may be 1,000."""


def has_worsened(query: QueryChange) -> bool:
    """The answer lacks something that is expected, or could not be had, and was right before."""
    return _lacks_after(query) and not _lacks_before(query)


def has_improved(query: QueryChange) -> bool:
    """The other way round."""
    return _lacks_before(query) and not _lacks_after(query)


def _lacks_before(query: QueryChange) -> bool:
    return bool(query.problem_before or query.missed_before)


def _lacks_after(query: QueryChange) -> bool:
    return bool(query.problem_after or query.missed_after)


def list_changed_rankings(queries: ComparedQueries) -> list[QueryChange]:
    """Those whose ranking differs or whose answer does, the worst first."""
    answers = index_answers(queries)
    found = [each for each in queries.changed if each.change == "ranking" or each.line in answers]
    return sorted(found, key=lambda each: (not has_worsened(each), _lightness(answers.get(each.line))))


def list_changed_scores(queries: ComparedQueries) -> list[QueryChange]:
    """The others: nothing but scores differs."""
    answers = index_answers(queries)
    return [each for each in queries.changed if each.change == "scores" and each.line not in answers]


def index_answers(queries: ComparedQueries) -> dict[int, AnswerChange]:
    return {answer.line: answer for answer in queries.answers}


def _lightness(answer: AnswerChange | None) -> tuple[bool, bool]:
    return (answer is None, answer is not None and answer.below)


def name_differing_text(answer: AnswerChange | None, queries: ComparedQueries) -> str:
    """Name the document with a different text at the same place, if a ranking does not show it."""
    before, after = (answer.before, answer.after) if answer else (None, None)
    if not (answer and before and after) or before.document != after.document or before.text == after.text:
        return ""
    return f"{shorten_name(after.document, queries)} has a different text at place {answer.place}."


def shorten_name(name: str, queries: ComparedQueries) -> str:
    """Return what to print for COLLECTION/DOC."""
    return add_title(queries.shown_name_of(name), queries.titles.get(name, ""))


def add_title(name: str, title: str) -> str:
    telling = choose_title(name, title)
    return f"{name} ({telling})" if telling else name


def choose_title(name: str, title: str) -> str:
    """The title of a document whose id tells a person nothing; empty for others."""
    return shortened(title) if OPAQUE.search(name) else ""


class PreviousPlace(NamedTuple):
    """Where a chunk of the new ranking was in the old one: itself (`same_chunk`), or another one of
    its document.
    """

    place: int
    same_chunk: bool


class RankRow(NamedTuple):
    """What stands at a place of two rankings. `gone`: the old one's is in the new one no more.
    `made_room`: how many of those that stood above where the new one was are gone.
    """

    place: int
    before: RankedChunk | None
    gone: bool
    after: RankedChunk | None
    was: PreviousPlace | None
    made_room: int = 0

    @property
    def climbed(self) -> int:
        """Places up; below zero, down. What only moved up because others vanished did not climb."""
        if self.was is None:
            return 0
        up = self.was.place - self.place
        return max(0, up - self.made_room) if up > 0 else up

    @property
    def mark(self) -> str:
        """How the new one got here: `new`, `▲ 2`, `▼ 1`, `=`, or `≈` by another chunk."""
        if self.was is None:
            return "new"
        if self.climbed:
            return f"{'▲' if self.climbed > 0 else '▼'} {abs(self.climbed)}"
        return "=" if self.was.same_chunk else "≈"


def list_renames(summary: ReportSummary) -> dict[str, str]:
    """The new names of moved documents."""
    return {document.old_name: document.name for document in summary.documents if document.old_name}


def build_rank_rows(query: QueryChange, renamed: Mapping[str, str]) -> list[RankRow]:
    """The first `PLACES` of both rankings side by side. `renamed`: new names of moved documents.

    A document's chunks have other numbers as soon as it grows at its beginning, so what has no
    chunk of the same number is compared with the next one of its document.
    """
    was = _matches(query, renamed)
    kept = {each.place for each in was.values()}
    both = zip_longest(query.before[:PLACES], query.after[:PLACES])
    return [
        RankRow(place, before, place not in kept, after, was.get(place), _made_room(was.get(place), kept))
        for place, (before, after) in enumerate(both, start=1)
    ]


def _made_room(was: PreviousPlace | None, kept: Container[int]) -> int:
    return sum(place not in kept for place in range(1, was.place)) if was else 0


def _matches(query: QueryChange, renamed: Mapping[str, str]) -> dict[int, PreviousPlace]:
    """By place in the new ranking."""
    old = {place: (renamed.get(each.document, each.document), each.chunk) for place, each in enumerate(query.before, 1)}
    new = {place: (each.document, each.chunk) for place, each in enumerate(query.after, 1)}
    found: dict[int, PreviousPlace] = {}
    for same_chunk in (True, False):
        waiting: dict[object, list[int]] = {}
        for place, key in old.items():
            waiting.setdefault(key if same_chunk else key[0], []).append(place)
        for place, key in new.items():
            if place not in found and (places := waiting.get(key if same_chunk else key[0])):
                found[place] = PreviousPlace(places.pop(0), same_chunk)
        taken = {each.place for each in found.values()}
        old = {place: key for place, key in old.items() if place not in taken}
    return found
