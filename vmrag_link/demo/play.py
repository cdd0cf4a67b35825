"""The demo in three parts: a pinned knowledge base, a branch with other documents, and
checkouts.
"""

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
"""Opens a display of progress. A bar that stays open would overwrite later output."""


class Visit(Record, frozen=True):
    """A checkout, and the results of the queries after it.

    `seconds` is the time of the checkout with its hook. `revision` is the pinned one. `snapshot`
    shows if its index existed before.
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
    """A promise of the demo, and whether it was kept."""

    what: str
    ok: bool


class DemoReport(Record, frozen=True):
    """The result of the demo.

    `repository` is null if it is removed at the end. `branches` has the revision that each branch
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
    """Run the demo.

    `top` is an empty directory, which stays if `kept`. `number` limits the pages. Raises
    `DemoFailed` and `FileFailed`.
    """
    started = time.perf_counter()
    stage = Stage(top, narrator, bars=bars)
    rendered = _create_branches(stage, narrator, progress, number)
    first = stage.read_pin().dolt_commit
    _branch_off(stage, narrator, rendered)
    branches = {story.MAIN: first, story.NEXT: stage.read_pin().dolt_commit}
    difference = _compare_branches(stage)
    visits = _walk_branches(stage, narrator)
    checks = _list_checks(branches, difference, visits)
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


# -- the parts -------------------------------------------------------------------------------------


def _create_branches(stage: Stage, narrator: Narrator, progress: Shown, number: int | None) -> list[ModulePage]:
    narrator.chapter("A repository whose code pins its documents")
    stage.run_command("git", "init", "-b", story.MAIN)
    for key, value in (("user.name", "Vmrag Demo"), ("user.email", "demo@localhost")):
        stage.set_git(key, value)
    stage.run_command("vmrag", "init", "--knowledge-base", "--no-sources")
    since = time.perf_counter()
    rendered = _render_pages(progress, number)
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


def _render_pages(progress: Shown, number: int | None) -> list[ModulePage]:
    modules = list(library.list_modules())
    with progress() as bars:
        selected = write_pages(modules if number is None else story.select_modules(modules, number), bars)
    story.check_pages(selected)
    return selected


def _branch_off(stage: Stage, narrator: Narrator, rendered: list[ModulePage]) -> None:
    narrator.chapter("A branch whose code needs other documents")
    stage.run_command("git", "checkout", "-b", story.NEXT)
    since = time.perf_counter()
    stage.write_pages(story.revise_pages(rendered))
    edited, removed, added = (", ".join(names) for names in (story.EDITED, story.REMOVED, story.ADDED))
    stage.note_step(f"Edited the pages {edited}; removed {removed}; added {added}", since)
    stage.run_command("vmrag", "import", PAGES, "--collection", story.COLLECTION, "--prune", long=True)
    stage.run_command("vmrag", "commit", "-m", "Changes in the next release", long=True)
    stage.write_file("version.txt", "2.0.dev0\n")
    stage.run_command("git", "commit", "-q", "-a", "-m", "Towards release 2.0")
    stage.run_command("rm", "-r", PAGES)


def _compare_branches(stage: Stage) -> BranchDifference:
    report, _ = stage.run_for_json("vmrag", "diff", story.MAIN, story.NEXT)
    kinds: dict[str, list[str]] = {"added": [], "modified": [], "removed": []}
    for document in report["documents"]:
        kinds[document["kind"]].append(document["doc_id"])
    return BranchDifference(*(tuple(kinds[kind]) for kind in ("added", "modified", "removed")))


def _walk_branches(stage: Stage, narrator: Narrator) -> tuple[Visit, ...]:
    narrator.chapter(
        "Back and forth",
        f"The folder {PAGES}/ is deleted, so the knowledge base gives the answers. Below each answer are the changes "
        "since the last branch: + is new in the answer, - is no longer in it, ~ has another best passage.",
    )
    visits: list[Visit] = []
    for branch in WALK:
        earlier_views = stage.list_views()
        stage.run_command("git", "checkout", branch)
        seconds = stage.steps[-1].seconds
        revision = stage.read_pin().dolt_commit
        bound = [name for name in stage.list_views().items() if name[0].startswith(revision)]
        before = visits[-1].answers if visits else (None,) * len(story.QUESTIONS)
        answers = []
        for question, other in zip(story.QUESTIONS, before, strict=True):
            answers.append(_ask_query(stage, question.text, other))
            narrator.answer(answers[-1])
        how = "reused" if bound and all(item in earlier_views.items() for item in bound) else "made"
        visits.append(Visit(branch, revision, how, seconds, tuple(answers)))
        if any(_has_same_answers(visits[-1], visit) for visit in visits[:-1] if visit.branch == branch):
            narrator.remark(f"The answers and scores are the same as at the last checkout of {branch}.")
    return tuple(visits)


def _ask_query(stage: Stage, text: str, before: QueryAnswer | None) -> QueryAnswer:
    report, seconds = stage.run_for_json("vmrag", "query", text)
    results = msgspec.convert(report["results"], tuple[AnswerChunk, ...])
    difference: AnswerComparison | None = compare_answers(results, before.results) if before else None
    return QueryAnswer(text, report["kb"]["commit"], report["kb"]["in_sync"], seconds, results, difference)


# -- the checks ------------------------------------------------------------------------------


def _list_checks(
    branches: dict[str, str], difference: BranchDifference, visits: tuple[Visit, ...]
) -> tuple[Check, ...]:
    expected = BranchDifference(*(_list_ids(names) for names in (story.ADDED, story.EDITED, story.REMOVED)))
    returns = [(visit, visits[number - 2]) for number, visit in enumerate(visits) if number >= 2]  # noqa: PLR2004  there and back
    answers = [(visit, answer) for visit in visits for answer in visit.answers]
    return (
        Check("The two branches pin two revisions.", branches[story.MAIN] != branches[story.NEXT]),
        Check("They differ only in the changed documents.", difference == expected),
        Check(
            "Each checkout restored the pin of its branch.",
            all(visit.revision == branches[visit.branch] for visit in visits),
        ),
        Check(
            "Every answer came from the revision that the checked-out code pins.",
            all(answer.in_sync and answer.revision == visit.revision for visit, answer in answers),
        ),
        *(_kept_promise(question, visits, number) for number, question in enumerate(story.QUESTIONS)),
        Check(
            "Back on a branch, all answers and scores are the same as before.",
            all(_has_same_answers(*visit) for visit in returns),
        ),
        Check("Back on a branch, its index still existed.", all(visit.snapshot == "reused" for visit, _ in returns)),
    )


def _has_same_answers(visit: Visit, other: Visit) -> bool:
    return [answer.results for answer in visit.answers] == [answer.results for answer in other.answers]


def _kept_promise(question: story.Question, visits: tuple[Visit, ...], number: int) -> Check:
    """Return whether a question shows the difference between the branches."""
    on_main, on_next = (
        {visit.branch: visit.answers[number] for visit in visits}[name] for name in (story.MAIN, story.NEXT)
    )
    gone = set(_list_ids(question.never))
    ok = gone <= set(on_main.documents) and gone.isdisjoint(on_next.documents)
    if question.first:
        best = on_next.results[0] if on_next.results else None
        ok &= best is not None and best.doc_id == f"{question.first}.md" and question.says in best.text
        ok &= all(question.says not in result.text for result in on_main.results)
    return Check(f"{question.text!r} shows {question.about}.", ok)


def _list_ids(names: Any) -> tuple[str, ...]:
    return tuple(sorted(f"{name}.md" for name in names))
