"""What the demo tells: the knowledge of its two branches, of which `main` has Python's
documentation and the other's news are made up, its commands, and what a query found, compared with
what it found on the branch before. How that is printed is not decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vmrag_link.demo.library import Module
from vmrag_link.demo.pages import ModulePage
from vmrag_link.errors import FileFailed
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


class AnswerComparison(Record, frozen=True):
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
    compared: AnswerComparison | None = None

    @property
    def documents(self) -> list[str]:
        """Document ids, the best first."""
        return _documents(self.results)


def compare_answers(now: Sequence[AnswerChunk], before: Sequence[AnswerChunk]) -> AnswerComparison:
    old, new = _documents(before), _documents(now)
    old_order = [doc_id for doc_id in old if doc_id in new]
    new_order = [doc_id for doc_id in new if doc_id in old]
    best, best_before = _best_texts(now), _best_texts(before)
    return AnswerComparison(
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


COLLECTION = "python"
MAIN, NEXT = "main", "next-release"

EDITED = {
    "csv": "New in the next release: `csv.reader(file, types=True)` turns columns of numbers into numbers.",
    "json": "New in the next release: `json.loads(text, comments=True)` reads JSON with comments, from `//` to the line's end.",
    "logging": "New in the next release: `logging.basicConfig(colours=True)` colours the levels on a terminal.",
    "shutil": "New in the next release: `shutil.copytree(..., workers=8)` copies files in parallel.",
    "textwrap": "New in the next release: `textwrap.wrap(text, balanced=True)` makes all lines about equally long.",
}
"""Paragraphs that come below a page's title."""

REMOVED = ("getopt", "optparse", "profile")

ADDED = {
    "ratelimit": "Limit how often a function is called.\n\n## `ratelimit.limit(calls, per)`\n\n"
    "Decorator: the function is called at most `calls` times in `per` seconds; whoever calls more often waits.\n"
    "A token bucket refills evenly, so that short bursts pass.",
    "retry": "Call a function again when it failed.\n\n## `retry.retry(times, wait=1.0, on=Exception)`\n\n"
    "Decorator: tries `times` times, and waits twice as long after each failure.",
}


class Question(Record, frozen=True):
    """A query and its expected answer: `first` comes first on the other branch; `never` is only on
    main.
    """

    text: str
    about: str
    first: str = ""
    never: tuple[str, ...] = ()
    says: str = ""


QUESTIONS = (
    Question("read JSON with comments", "an edited page", first="json", says=EDITED["json"]),
    Question("parse short and long command line options", "removed pages", never=("getopt", "optparse")),
    Question("limit how often a function is called", "an added page", first="ratelimit", says="Limit how often"),
)


def check_pages(pages: Sequence[ModulePage]) -> None:
    """Raises `FileFailed` where this Python lacks the pages that the story is about."""
    missing = sorted({*EDITED, *REMOVED} - {page.name for page in pages})
    if missing:
        raise FileFailed(
            f"This Python came without the source of its standard library ({', '.join(missing)}).",
            hint="Run the demo with another Python, for example one from python.org or uv.",
        )


def select_modules(modules: Sequence[Module], number: int) -> list[Module]:
    """At least the modules that the story is about, and others up to `number`."""
    about = {*EDITED, *REMOVED, "argparse"}
    needed = [module for module in modules if module.name in about]
    others = [module for module in modules if module.name not in about]
    return [*needed, *others[: max(0, number - len(needed))]]


def revise_pages(pages: Sequence[ModulePage]) -> list[ModulePage]:
    """The pages of the other branch."""
    kept = [page for page in pages if page.name not in REMOVED]
    edited = [_edit(page) for page in kept]
    return [*edited, *(ModulePage(name, f"# {name}\n\n{text}\n") for name, text in ADDED.items())]


def _edit(page: ModulePage) -> ModulePage:
    if page.name not in EDITED:
        return page
    title, _, rest = page.text.partition("\n")
    return ModulePage(page.name, f"{title}\n\n{EDITED[page.name]}\n{rest}")
