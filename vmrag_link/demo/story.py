"""The content of the demo: the documents of its two branches, its commands, and comparisons of
answers.

`main` has Python's documentation, and the news of the other branch are invented. Other modules
print the story.
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
    """The ranks of a document in two answers. Ranks count documents, from 1."""

    doc_id: str
    before: int
    now: int


class AnswerComparison(Record, frozen=True):
    """An answer, compared with that to the same query on the branch before.

    Documents in `moved` have another order among those that are in both answers. Documents in
    `reworded` are in both, with another best passage.
    """

    came: tuple[str, ...]
    went: tuple[str, ...]
    moved: tuple[Move, ...]
    reworded: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not (self.came or self.went or self.moved or self.reworded)


class QueryAnswer(Record, frozen=True):
    """`revision`, `in_sync` and `results` of `vmrag query --json`.

    On the first visit, `compared` is null.
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
        return _list_documents(self.results)


def compare_answers(now: Sequence[AnswerChunk], before: Sequence[AnswerChunk]) -> AnswerComparison:
    old, new = _list_documents(before), _list_documents(now)
    old_order = [doc_id for doc_id in old if doc_id in new]
    new_order = [doc_id for doc_id in new if doc_id in old]
    best, best_before = _best_texts(now), _best_texts(before)
    return AnswerComparison(
        came=tuple(doc_id for doc_id in new if doc_id not in old),
        went=tuple(doc_id for doc_id in old if doc_id not in new),
        moved=tuple(
            Move(document, old.index(document) + 1, new.index(document) + 1)
            for document, other in zip(new_order, old_order, strict=True)
            if document != other
        ),
        reworded=tuple(doc_id for doc_id in new_order if best[doc_id] != best_before[doc_id]),
    )


def _best_texts(chunks: Sequence[AnswerChunk]) -> dict[str, str]:
    return {chunk.doc_id: chunk.text for chunk in reversed(chunks)}


def _list_documents(chunks: Sequence[AnswerChunk]) -> list[str]:
    return list(dict.fromkeys(chunk.doc_id for chunk in chunks))


class Narrator(Protocol):
    def chapter(self, title: str, text: str = "") -> None:
        """Begin a part."""

    def command(self, line: str) -> None:
        """Show a command that starts. Its output follows."""

    def output(self, lines: Sequence[str], seconds: float) -> None:
        """Show the output of the command, and how long it took."""

    def work(self, what: str, seconds: float) -> None:
        """Show work of the demo itself."""

    def answer(self, answer: QueryAnswer) -> None:
        """Show the results of a query."""

    def remark(self, line: str) -> None:
        """Show a sentence about the last output."""


class Silent:
    """A narrator that shows nothing, for programs."""

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
"""Paragraphs below the title of a page."""

REMOVED = ("getopt", "optparse", "profile")

ADDED = {
    "ratelimit": "Limit how often a function is called.\n\n## `ratelimit.limit(calls, per)`\n\n"
    "Decorator: the function is called at most `calls` times in `per` seconds; further calls wait.\n"
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
    """Raise `FileFailed` if this Python lacks the pages of the story."""
    missing = sorted({*EDITED, *REMOVED} - {page.name for page in pages})
    if missing:
        raise FileFailed(
            f"this Python lacks the source of its standard library ({', '.join(missing)}).",
            hint="Run the demo with another Python, for example one from python.org or uv.",
        )


def select_modules(modules: Sequence[Module], number: int) -> list[Module]:
    """Return at least the modules of the story, and others up to `number`."""
    about = {*EDITED, *REMOVED, "argparse"}
    needed = [module for module in modules if module.name in about]
    others = [module for module in modules if module.name not in about]
    return [*needed, *others[: max(0, number - len(needed))]]


def revise_pages(pages: Sequence[ModulePage]) -> list[ModulePage]:
    """Return the pages of the other branch."""
    kept = [page for page in pages if page.name not in REMOVED]
    edited = [_edit_page(page) for page in kept]
    return [*edited, *(ModulePage(name, f"# {name}\n\n{text}\n") for name, text in ADDED.items())]


def _edit_page(page: ModulePage) -> ModulePage:
    if page.name not in EDITED:
        return page
    title, _, rest = page.text.partition("\n")
    return ModulePage(page.name, f"{title}\n\n{EDITED[page.name]}\n{rest}")
