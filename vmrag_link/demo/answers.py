"""What a query of the demo found, and how that differs from what it found on the branch before."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.models import Record


class Found(Record, frozen=True):
    """A chunk of an answer."""

    doc_id: str
    chunk: int
    score: float
    text: str


class Move(Record, frozen=True):
    """A document's places in two answers; ranks count documents, from 1."""

    doc_id: str
    before: int
    now: int


class Compared(Record, frozen=True):
    """An answer against the same query's on the branch before. `rewritten`: in both, with another text."""

    came: tuple[str, ...]
    went: tuple[str, ...]
    moved: tuple[Move, ...]
    rewritten: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.came or self.went or self.moved or self.rewritten)


class Answer(Record, frozen=True):
    """`revision`, `in_sync` and `results` as `vmrag query --json` gave them; `compared` is None on the first visit."""

    query: str
    revision: str
    in_sync: bool
    seconds: float
    results: tuple[Found, ...]
    compared: Compared | None = None

    @property
    def documents(self) -> list[str]:
        """Document ids, the best first."""
        return list(dict.fromkeys(found.doc_id for found in self.results))


def compared(now: Sequence[Found], before: Sequence[Found]) -> Compared:
    places = {doc_id: rank for rank, doc_id in enumerate(_documents(before), start=1)}
    places_now = {doc_id: rank for rank, doc_id in enumerate(_documents(now), start=1)}
    both = [doc_id for doc_id in places_now if doc_id in places]
    texts = {(found.doc_id, found.chunk): found.text for found in before}
    changed = [each.doc_id for each in now if texts.get((each.doc_id, each.chunk), each.text) != each.text]
    return Compared(
        came=tuple(doc_id for doc_id in places_now if doc_id not in places),
        went=tuple(doc_id for doc_id in places if doc_id not in places_now),
        moved=tuple(Move(each, places[each], places_now[each]) for each in both if places[each] != places_now[each]),
        rewritten=tuple(dict.fromkeys(changed)),
    )


def _documents(found: Sequence[Found]) -> list[str]:
    return list(dict.fromkeys(each.doc_id for each in found))
