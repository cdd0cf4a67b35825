"""The narration of the demo, apart from its output: its commands, and what a query found, compared
with what it found on the branch before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vmrag_link.models import Record


class AnswerChunk(Record, frozen=True):
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
    """An answer, compared with the same query's on the branch before.

    `moved`: in another order among those that are in both. `reworded`: in both, with another best
    passage.
    """

    came: tuple[str, ...]
    went: tuple[str, ...]
    moved: tuple[Move, ...]
    reworded: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.came or self.went or self.moved or self.reworded)


class QueryAnswer(Record, frozen=True):
    """`revision`, `in_sync` and `results` of `vmrag query --json`; `compared` is None on the first
    visit.
    """

    query: str
    revision: str
    in_sync: bool
    seconds: float
    results: tuple[AnswerChunk, ...]
    compared: Compared | None = None

    @property
    def documents(self) -> list[str]:
        """Document ids, the best first."""
        return _documents(self.results)


def compare(now: Sequence[AnswerChunk], before: Sequence[AnswerChunk]) -> Compared:
    old, new = _documents(before), _documents(now)
    old_order = [doc_id for doc_id in old if doc_id in new]
    new_order = [doc_id for doc_id in new if doc_id in old]
    best, best_before = _best_texts(now), _best_texts(before)
    return Compared(
        came=tuple(doc_id for doc_id in new if doc_id not in old),
        went=tuple(doc_id for doc_id in old if doc_id not in new),
        moved=tuple(
            Move(each, old.index(each) + 1, new.index(each) + 1)
            for each, other in zip(new_order, old_order, strict=True)
            if each != other
        ),
        reworded=tuple(doc_id for doc_id in new_order if best[doc_id] != best_before[doc_id]),
    )


def _best_texts(found: Sequence[AnswerChunk]) -> dict[str, str]:
    return {each.doc_id: each.text for each in reversed(found)}


def _documents(found: Sequence[AnswerChunk]) -> list[str]:
    return list(dict.fromkeys(each.doc_id for each in found))


class Narrator(Protocol):
    def chapter(self, title: str, text: str = "") -> None:
        """A part begins."""

    def command(self, line: str) -> None:
        """A command starts; what it says follows."""

    def output(self, lines: Sequence[str], seconds: float) -> None:
        """What the command said, and how long it took."""

    def work(self, what: str, seconds: float) -> None:
        """The demo did something itself."""

    def answer(self, answer: QueryAnswer) -> None:
        """What a query found."""

    def remark(self, line: str) -> None:
        """A sentence about what was just seen."""


class Silent:
    """Tells nothing: for programs."""

    def chapter(self, title: str, text: str = "") -> None:
        pass

    def command(self, line: str) -> None:
        pass

    def output(self, lines: Sequence[str], seconds: float) -> None:
        pass

    def work(self, what: str, seconds: float) -> None:
        pass

    def answer(self, answer: QueryAnswer) -> None:
        pass

    def remark(self, line: str) -> None:
        pass


SILENT: Narrator = Silent()
