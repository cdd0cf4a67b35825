"""Select the changed golden queries of a report, and compare both rankings of a query.

A *ranking* is the list of chunks that answer a query, and a *place* is a position in it, from 1.
Markdown and HTML use this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from itertools import zip_longest
from typing import NamedTuple

from vmrag_link.errors import shortened
from vmrag_link.golden.queries import RankedChunk
from vmrag_link.ops.report.records import OPAQUE, AnswerChange, ComparedQueries, QueryChange, ReportSummary

MAX_PLACES = 20
"""Maximum number of displayed places of a ranking; `k` may be 1,000."""


def has_worsened(query: QueryChange) -> bool:
    """Return whether the answer was as expected before, and now lacks something or failed."""
    return _lacks_after(query) and not _lacks_before(query)


def has_improved(query: QueryChange) -> bool:
    """Return whether the answer is now as expected, and was not before."""
    return _lacks_before(query) and not _lacks_after(query)


def _lacks_before(query: QueryChange) -> bool:
    return bool(query.problem_before or query.missed_before)


def _lacks_after(query: QueryChange) -> bool:
    return bool(query.problem_after or query.missed_after)


def list_changed_rankings(queries: ComparedQueries) -> list[QueryChange]:
    """Return the queries whose ranking or answer differs, the worst first."""
    answers = index_answers(queries)
    changes = [change for change in queries.changed if change.change == "ranking" or change.line in answers]
    return sorted(changes, key=lambda change: (not has_worsened(change), _rank_severity(answers.get(change.line))))


def list_changed_scores(queries: ComparedQueries) -> list[QueryChange]:
    """Return the queries of which only scores differ."""
    answers = index_answers(queries)
    return [change for change in queries.changed if change.change == "scores" and change.line not in answers]


def index_answers(queries: ComparedQueries) -> dict[int, AnswerChange]:
    """Return the changed answers by the line of their query."""
    return {answer.line: answer for answer in queries.answers}


def _rank_severity(answer: AnswerChange | None) -> tuple[bool, bool]:
    return (answer is None, answer is not None and answer.below)


def name_differing_text(answer: AnswerChange | None, queries: ComparedQueries) -> str:
    """Name the document with a different text at the same place, if a ranking does not show it."""
    if not (answer and answer.before and answer.after):
        return ""
    before, after = answer.before, answer.after
    if before.document != after.document or before.text == after.text:
        return ""
    return f"{shorten_name(after.document, queries)} has a different text at place {answer.place}."


def shorten_name(name: str, queries: ComparedQueries) -> str:
    """Return what to print for COLLECTION/DOC."""
    return add_title(queries.shown_name_of(name), queries.titles.get(name, ""))


def add_title(name: str, title: str) -> str:
    """Return the name, with the title in parentheses if the id is opaque."""
    chosen = choose_title(name, title)
    return f"{name} ({chosen})" if chosen else name


def choose_title(name: str, title: str) -> str:
    """Return the title of a document with an opaque id; empty for other documents."""
    return shortened(title) if OPAQUE.search(name) else ""


class PreviousPlace(NamedTuple):
    """The place of a chunk of the new ranking in the old one."""

    place: int
    same_chunk: bool
    """False if it was another chunk of the same document."""


class RankRow(NamedTuple):
    """The chunks at a place of two rankings."""

    place: int
    before: RankedChunk | None
    gone: bool
    """True if the new ranking does not contain the old chunk."""
    after: RankedChunk | None
    was: PreviousPlace | None
    made_room: int = 0
    """Number of old chunks before the former place of the new chunk that the new ranking does not
    contain.
    """

    @property
    def climbed(self) -> int:
        """The number of places up, negative for down. A chunk that moved up only because others
        were removed did not climb.
        """
        if self.was is None:
            return 0
        up = self.was.place - self.place
        return max(0, up - self.made_room) if up > 0 else up

    @property
    def mark(self) -> str:
        """The movement of the new chunk: `new`, `▲ 2`, `▼ 1`, `=`, or `≈` for another chunk of the
        document.
        """
        if self.was is None:
            return "new"
        if self.climbed:
            return f"{'▲' if self.climbed > 0 else '▼'} {abs(self.climbed)}"
        return "=" if self.was.same_chunk else "≈"


def list_renames(summary: ReportSummary) -> dict[str, str]:
    """Return the new names of moved documents."""
    return {document.old_name: document.name for document in summary.documents if document.old_name}


def build_rank_rows(query: QueryChange, renamed: Mapping[str, str]) -> list[RankRow]:
    """Return the first `MAX_PLACES` places of both rankings side by side.

    `renamed` contains the new names of moved documents.

    The chunks of a document get other numbers when it grows at its beginning. So a chunk without a
    counterpart of the same number is compared with the next chunk of its document.
    """
    previous_places = _match_places(query, renamed)
    kept_places = {previous.place for previous in previous_places.values()}
    chunk_pairs = zip_longest(query.before[:MAX_PLACES], query.after[:MAX_PLACES])
    return [
        RankRow(
            place=place,
            before=before,
            gone=place not in kept_places,
            after=after,
            was=previous_places.get(place),
            made_room=_count_removed(previous_places.get(place), kept_places),
        )
        for place, (before, after) in enumerate(chunk_pairs, start=1)
    ]


def _count_removed(previous: PreviousPlace | None, kept_places: Container[int]) -> int:
    return sum(place not in kept_places for place in range(1, previous.place)) if previous else 0


def _match_places(query: QueryChange, renamed: Mapping[str, str]) -> dict[int, PreviousPlace]:
    """Return the previous place of each place in the new ranking."""
    matches: dict[int, PreviousPlace] = {}
    for same_chunk in (True, False):  # then another chunk of the same document
        matched_places = {previous.place for previous in matches.values()}
        free_places = defaultdict[tuple[str, int | None], list[int]](list)
        for place, chunk in enumerate(query.before, 1):
            if place not in matched_places:
                name = renamed.get(chunk.document, chunk.document)
                free_places[name, chunk.chunk if same_chunk else None].append(place)
        for place, chunk in enumerate(query.after, 1):
            places = free_places[chunk.document, chunk.chunk if same_chunk else None]
            if places and place not in matches:
                matches[place] = PreviousPlace(places.pop(0), same_chunk)
    return matches
