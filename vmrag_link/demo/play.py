"""The demo in three acts: a pinned knowledge base, a branch with other knowledge, and checkouts."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link.demo import library, story
from vmrag_link.demo.pages import ModulePage, write_pages
from vmrag_link.demo.stage import PAGES, Stage, Step
from vmrag_link.demo.story import AnswerChunk, AnswerComparison, Narrator, QueryAnswer, compare_answers
from vmrag_link.models import Record
from vmrag_link.progress import Progress

WALK = (story.MAIN, story.NEXT, story.MAIN)
"""The branches that are checked out, one after the other."""

Shown = Callable[[], contextlib.AbstractContextManager[Progress]]
"""Where progress is shown; a bar that is left open would draw over what comes after it."""


class Visit(Record, frozen=True):
    """One checkout and the queries' results after it; `seconds` are the checkout's, hook included.

    `revision` is the pinned one; `snapshot` says whether its index existed already.
    """

    branch: str
    revision: str
    snapshot: str
    seconds: float
    answers: tuple[QueryAnswer, ...]


class BranchDifference(Record, frozen=True):
    """Document ids that differ on the other branch."""

    added: tuple[str, ...]
    modified: tuple[str, ...]
    removed: tuple[str, ...]


class Check(Record, frozen=True):
    """Something that the demo promises, and whether it came out so."""

    what: str
    ok: bool


class DemoReport(Record, frozen=True):
    """`repository` is None if it is removed at the end; `branches` gives the revision that each
    pins.
    """

    ok: bool
    python: str
    repository: str | None
    pages: int
    characters: int
    branches: dict[str, str]
    difference: BranchDifference
    steps: tuple[Step, ...]
    visits: tuple[Visit, ...]
    checks: tuple[Check, ...]
    seconds: float


def play_demo(
    top: Path, narrator: Narrator, progress: Shown, *, kept: bool, bars: bool = False, number: int | None = None
) -> DemoReport:
    """`top` is an empty directory, which stays if `kept`. `number` limits the pages.

    Raises `DemoFailed`, `FileFailed`.
    """
    started = time.perf_counter()
    stage = Stage(top, narrator, bars=bars)
    rendered = _begin(stage, narrator, progress, number)
    first = stage.read_pin().dolt_commit
    _branch_off(stage, narrator, rendered)
    branches = {story.MAIN: first, story.NEXT: stage.read_pin().dolt_commit}
    difference = _difference(stage)
    visits = _walk(stage, narrator)
    checks = _checks(branches, difference, visits)
    return DemoReport(
        ok=all(check.ok for check in checks),
        python=platform.python_version(),
        repository=str(top) if kept else None,
        pages=len(rendered),
        characters=sum(len(page.text) for page in rendered),
        branches=branches,
        difference=difference,
        steps=tuple(stage.steps),
        visits=visits,
        checks=checks,
        seconds=round(time.perf_counter() - started, 3),
    )


# -- the acts --------------------------------------------------------------------------------------


def _begin(stage: Stage, narrator: Narrator, progress: Shown, number: int | None) -> list[ModulePage]:
    narrator.chapter("A repository whose code pins its knowledge")
    stage.run_command("git", "init", "-b", story.MAIN)
    for key, value in (("user.name", "Vmrag Demo"), ("user.email", "demo@localhost")):
        stage.set_git(key, value)
    stage.run_command("vmrag", "init", "--knowledge-base", "--no-sources")
    since = time.perf_counter()
    rendered = _render(progress, number)
    stage.write_pages(rendered)
    size = sum(len(page.text) for page in rendered) / 1e6
    stage.note_step(
        f"Wrote {len(rendered)} pages ({size:.1f} MB) into {PAGES}/, read from this Python's own library", since
    )
    stage.run_command("vmrag", "import", PAGES, "--collection", story.COLLECTION, "--base", PAGES, long=True)
    stage.run_command("vmrag", "commit", "-m", f"The library of Python {platform.python_version()}", long=True)
    stage.write_file("version.txt", "1.0\n")
    stage.run_command("git", "add", "version.txt")
    stage.run_command("git", "commit", "-q", "-m", "Release 1.0")
    return rendered


def _render(progress: Shown, number: int | None) -> list[ModulePage]:
    modules = list(library.list_modules())
    with progress() as bars:
        found = write_pages(modules if number is None else story.select_modules(modules, number), bars)
    story.check_pages(found)
    return found


def _branch_off(stage: Stage, narrator: Narrator, rendered: list[ModulePage]) -> None:
    narrator.chapter("A branch whose code needs other knowledge")
    stage.run_command("git", "checkout", "-b", story.NEXT)
    since = time.perf_counter()
    stage.write_pages(story.revise_pages(rendered))
    edited, removed, added = (", ".join(names) for names in (story.EDITED, story.REMOVED, story.ADDED))
    stage.note_step(f"Edited the pages {edited}; removed {removed}; added {added}", since)
    stage.run_command("vmrag", "import", PAGES, "--collection", story.COLLECTION, "--prune", long=True)
    stage.run_command("vmrag", "commit", "-m", "What the next release changes", long=True)
    stage.write_file("version.txt", "2.0.dev0\n")
    stage.run_command("git", "commit", "-q", "-a", "-m", "Towards release 2.0")
    stage.run_command("rm", "-r", PAGES)


def _difference(stage: Stage) -> BranchDifference:
    report, _ = stage.run_for_json("vmrag", "diff", story.MAIN, story.NEXT)
    kinds: dict[str, list[str]] = {"added": [], "modified": [], "removed": []}
    for each in report["documents"]:
        kinds[each["kind"]].append(each["doc_id"])
    return BranchDifference(*(tuple(kinds[kind]) for kind in ("added", "modified", "removed")))


def _walk(stage: Stage, narrator: Narrator) -> tuple[Visit, ...]:
    narrator.chapter(
        "Back and forth",
        f"The folder {PAGES}/ is gone: what answers from here on is the knowledge base. Below each answer stands what changed "
        "against the branch before: + came into the answer, - left it, ~ is found by another passage.",
    )
    visits: list[Visit] = []
    for branch in WALK:
        known = stage.list_views()
        stage.run_command("git", "checkout", branch)
        seconds = stage.steps[-1].seconds
        revision = stage.read_pin().dolt_commit
        bound = [name for name in stage.list_views().items() if name[0].startswith(revision)]
        before = visits[-1].answers if visits else (None,) * len(story.QUESTIONS)
        answers = []
        for question, other in zip(story.QUESTIONS, before, strict=True):
            answers.append(_answer(stage, question.text, other))
            narrator.answer(answers[-1])
        how = "reused" if bound and all(item in known.items() for item in bound) else "made"
        visits.append(Visit(branch, revision, how, seconds, tuple(answers)))
        if any(_same(visits[-1], visit) for visit in visits[:-1] if visit.branch == branch):
            narrator.remark(f"The answers are the same as when {branch} was checked out before, score for score.")
    return tuple(visits)


def _answer(stage: Stage, text: str, before: QueryAnswer | None) -> QueryAnswer:
    report, seconds = stage.run_for_json("vmrag", "query", text)
    results = msgspec.convert(report["results"], tuple[AnswerChunk, ...])
    difference: AnswerComparison | None = compare_answers(results, before.results) if before else None
    return QueryAnswer(text, report["kb"]["commit"], report["kb"]["in_sync"], seconds, results, difference)


# -- what it promises ------------------------------------------------------------------------------


def _checks(branches: dict[str, str], difference: BranchDifference, visits: tuple[Visit, ...]) -> tuple[Check, ...]:
    expected = BranchDifference(*(_ids(names) for names in (story.ADDED, story.EDITED, story.REMOVED)))
    returns = [(visit, visits[number - 2]) for number, visit in enumerate(visits) if number >= 2]  # noqa: PLR2004  there and back
    answers = [(visit, answer) for visit in visits for answer in visit.answers]
    return (
        Check("The two branches pin two revisions.", branches[story.MAIN] != branches[story.NEXT]),
        Check("They differ in the documents that were changed, and in no others.", difference == expected),
        Check(
            "Each checkout brought back its branch's pin.",
            all(visit.revision == branches[visit.branch] for visit in visits),
        ),
        Check(
            "Every answer came from the revision that the checked-out code pins.",
            all(answer.in_sync and answer.revision == each.revision for each, answer in answers),
        ),
        *(_kept_promise(question, visits, number) for number, question in enumerate(story.QUESTIONS)),
        Check("Back on a branch, every answer is as before, score for score.", all(_same(*each) for each in returns)),
        Check("Back on a branch, its index was still there.", all(each.snapshot == "reused" for each, _ in returns)),
    )


def _same(each: Visit, other: Visit) -> bool:
    return [answer.results for answer in each.answers] == [answer.results for answer in other.answers]


def _kept_promise(question: story.Question, visits: tuple[Visit, ...], number: int) -> Check:
    """What a question must show of the difference between the branches."""
    on_main, on_next = (
        {visit.branch: visit.answers[number] for visit in visits}[name] for name in (story.MAIN, story.NEXT)
    )
    gone = set(_ids(question.never))
    ok = gone <= set(on_main.documents) and gone.isdisjoint(on_next.documents)
    if question.first:
        best = on_next.results[0] if on_next.results else None
        ok &= best is not None and best.doc_id == f"{question.first}.md" and question.says in best.text
        ok &= all(question.says not in result.text for result in on_main.results)
    return Check(f"{question.text!r} shows {question.about}.", ok)


def _ids(names: Any) -> tuple[str, ...]:
    return tuple(sorted(f"{name}.md" for name in names))
