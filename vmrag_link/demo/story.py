"""The knowledge of the demo's two branches.

`main` has Python's documentation; the other's news are made up.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.demo.library import Module
from vmrag_link.demo.pages import ModulePage
from vmrag_link.errors import FileFailed
from vmrag_link.models import Record

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


def check(pages: Sequence[ModulePage]) -> None:
    """Raises `FileFailed` where this Python lacks the pages that the story is about."""
    missing = sorted({*EDITED, *REMOVED} - {page.name for page in pages})
    if missing:
        raise FileFailed(
            f"This Python came without the source of its standard library ({', '.join(missing)}).",
            hint="Run the demo with another Python, for example one from python.org or uv.",
        )


def selection(modules: Sequence[Module], number: int) -> list[Module]:
    """At least the modules that the story is about, and others up to `number`."""
    about = {*EDITED, *REMOVED, "argparse"}
    needed = [module for module in modules if module.name in about]
    others = [module for module in modules if module.name not in about]
    return [*needed, *others[: max(0, number - len(needed))]]


def revise(pages: Sequence[ModulePage]) -> list[ModulePage]:
    """The pages of the other branch."""
    kept = [page for page in pages if page.name not in REMOVED]
    edited = [_edit(page) for page in kept]
    return [*edited, *(ModulePage(name, f"# {name}\n\n{text}\n") for name, text in ADDED.items())]


def _edit(page: ModulePage) -> ModulePage:
    if page.name not in EDITED:
        return page
    title, _, rest = page.text.partition("\n")
    return ModulePage(page.name, f"{title}\n\n{EDITED[page.name]}\n{rest}")
