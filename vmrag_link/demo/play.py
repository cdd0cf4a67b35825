"""Play the story of the demo: run its commands as a user would, and check their results."""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link import env, proc
from vmrag_link.demo import library
from vmrag_link.errors import DemoFailed, FileFailed, GitFailed
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME

VMRAG = (sys.executable, "-P", "-m", "vmrag_link.cli.main")
_MAX_NAMES = 5
"""Maximum number of documents of an answer that are printed."""

Show = Callable[[Iterable[str]], None]


class StoryStep(Record, frozen=True, forbid_unknown_fields=True):
    """A step of `story.toml`, which describes the fields."""

    title: str = ""
    text: str = ""
    run: str = ""
    library: str = ""
    write: dict[str, str] = msgspec.field(default_factory=dict)
    insert: dict[str, str] = msgspec.field(default_factory=dict)
    query: str = ""
    first: str = ""
    only: str = ""
    documents: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class PlayedStep(Record, frozen=True):
    """A command or another piece of work, its seconds, and the lines that it printed."""

    command: str
    seconds: float
    lines: tuple[str, ...]


class DemoAnswer(Record, frozen=True):
    """The results of a query. `pin` is the content of the checked-out pin."""

    query: str
    pin: str
    revision: str
    in_sync: bool
    results: tuple[dict[str, Any], ...]

    @property
    def documents(self) -> list[str]:
        return list(dict.fromkeys(result["doc_id"] for result in self.results))


class DemoReport(Record, frozen=True):
    """The result of the demo. `problems` is empty if all checks passed."""

    ok: bool
    repository: str | None
    pages: int
    steps: tuple[PlayedStep, ...]
    answers: tuple[DemoAnswer, ...]
    problems: tuple[str, ...]
    seconds: float


def load_story() -> list[StoryStep]:
    text = resources.files(__package__).joinpath("story.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text)["steps"], list[StoryStep])


def list_edited_pages(story: Iterable[StoryStep]) -> list[str]:
    """Return the files of pages that the story edits or removes."""
    return [name for step in story for name in (*step.insert, *shlex.split(step.run)) if name.endswith(".md")]


def play_demo(top: Path, show: Show, *, kept: bool, bars: bool, number: int | None) -> DemoReport:
    """Run the demo in the empty directory `top`, which stays if `kept`.

    `show` prints lines, and `bars` shows the progress of commands on standard error. `number`
    limits the pages. Raises `DemoFailed`, `GitFailed` and `FileFailed`.
    """
    started = time.perf_counter()
    story = load_story()
    player = _Player(top, show, bars=bars)
    for step in story:
        if step.title:
            show(["", step.title, *textwrap.wrap(step.text, 96)])
        elif step.library:
            player.write_library(step.library, list_edited_pages(story), number)
        elif step.query:
            player.ask_query(step)
        elif step.run:
            player.run_command(step.run)
        else:
            player.change_files(step)
    problems = (*player.problems, *list_problems(player.answers))
    return DemoReport(
        ok=not problems,
        repository=str(top) if kept else None,
        pages=player.pages,
        steps=tuple(player.steps),
        answers=tuple(player.answers),
        problems=problems,
        seconds=round(time.perf_counter() - started, 3),
    )


def list_problems(answers: Iterable[DemoAnswer]) -> Iterator[str]:
    """Yield what contradicts the promise that the code decides which documents answer."""
    by_pin: dict[tuple[str, str], DemoAnswer] = {}
    for answer in answers:
        if not answer.in_sync or answer.revision not in answer.pin:
            yield f"{answer.query!r} was not answered from the pinned revision."
        if by_pin.setdefault((answer.pin, answer.query), answer).results != answer.results:
            yield f"{answer.query!r} has other results than at the last checkout of the same branch."


def list_contradictions(step: StoryStep, answer: DemoAnswer) -> Iterator[str]:
    """Yield what a query of the story expects and its results do not have."""
    others = [result for result in answer.results if result["doc_id"] != step.first]
    if (
        (step.first and answer.documents[:1] != [step.first])
        or not {*step.documents} <= {*answer.documents}
        or not {*step.missing}.isdisjoint(answer.documents)
        or (step.only and step.only not in answer.results[0]["text"])
        or (step.only and any(step.only in result["text"] for result in others))
    ):
        yield f"{step.query!r} found {', '.join(answer.documents) or 'nothing'}."


class _Player:
    """Runs the steps in the directory `top`, and collects their results and problems."""

    def __init__(self, top: Path, show: Show, *, bars: bool) -> None:
        self.pages = 0
        self.steps: list[PlayedStep] = []
        self.answers: list[DemoAnswer] = []
        self.problems: list[str] = []
        self._top = top
        self._show = show
        self._bars = bars
        inherited = env.copy_without(env.GIT_SCRUBBED)
        kept = {name: value for name, value in inherited.items() if not name.startswith("VMRAG")}
        # A user's settings could sign commits, or move or disable hooks.
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
        self._environment = kept | settings

    def run_command(self, command: str) -> None:
        self._show(["", f"  $ {command}"])
        result, seconds = self._run_program(command, bars=self._bars and command.startswith("vmrag"))
        lines = [*result.text.splitlines(), *result.error_text.splitlines()]
        self._note_step(command, seconds, [line for line in lines if not line.startswith("hint: ")])

    def ask_query(self, step: StoryStep) -> None:
        command = f'vmrag query "{step.query}"'
        self._show(["", f"  $ {command}"])
        result, seconds = self._run_program(f"{command} --json")
        report = msgspec.json.decode(result.stdout)
        pin = (self._top / PIN_NAME).read_text()
        state = report["kb"]
        answer = DemoAnswer(step.query, pin, state["commit"], state["in_sync"], tuple(report["results"]))
        before = next((earlier for earlier in reversed(self.answers) if earlier.query == step.query), answer)
        self.answers.append(answer)
        self.problems += list_contradictions(step, answer)
        self._note_step(command, seconds, _describe_answer(answer, before))

    def write_library(self, folder: str, needed: list[str], number: int | None) -> None:
        """Write the pages `needed` and others. Raises `FileFailed` if this Python lacks them."""
        started = time.perf_counter()
        (self._top / folder).mkdir()
        for path in library.list_sources(Path(name).stem for name in needed)[:number]:
            name = library.name_module(path)
            page = library.format_page(name, path.read_text("utf-8"))
            if page:
                (self._top / folder / f"{name}.md").write_text(page, "utf-8")
                self.pages += 1
        absent = [name for name in needed if not (self._top / name).exists()]
        if absent:
            raise FileFailed(
                f"this Python lacks the source of its standard library ({', '.join(absent)}).",
                hint="run the demo with another Python, for example one from python.org or uv",
            )
        work = f"Write the documentation of {self.pages} modules of Python's library into {folder}/"
        self._show(["", f"  {work}"])
        self._note_step(work, time.perf_counter() - started, [])

    def change_files(self, step: StoryStep) -> None:
        started = time.perf_counter()
        for name, text in step.write.items():
            (self._top / name).write_text(text.lstrip(), "utf-8")
        for name, text in step.insert.items():
            title, _, rest = (self._top / name).read_text("utf-8").partition("\n")
            (self._top / name).write_text(f"{title}\n\n{text}\n{rest}", "utf-8")
        work = f"{'Write' if step.write else 'Edit'} {', '.join([*step.write, *step.insert])}"
        self._show(["", f"  {work}"])
        self._note_step(work, time.perf_counter() - started, [])

    def _note_step(self, command: str, seconds: float, lines: list[str]) -> None:
        self.steps.append(PlayedStep(command, round(seconds, 3), tuple(lines)))
        wrapped = [part for line in lines or ["done"] for part in textwrap.wrap(line, 82) or [""]]
        self._show(f"    {line}" for line in [*wrapped[:-1], f"{wrapped[-1]}  ({seconds:.2f} s)"])

    def _run_program(self, command: str, *, bars: bool = False) -> tuple[proc.FinishedProcess, float]:
        words = shlex.split(command)
        argv = [*VMRAG, *words[1:]] if words[0] == "vmrag" else words
        started = time.perf_counter()
        try:
            result = proc.run(argv, cwd=self._top, env=self._environment, show_stderr=bars)
        except FileNotFoundError as error:
            raise GitFailed("no git on PATH.", hint="install git (https://git-scm.com)") from error
        if result.returncode != 0:
            message = "see above" if bars else result.error_text or result.text.strip() or result.failure
            raise DemoFailed(f"{command} failed: {message}", command=command)
        return result, time.perf_counter() - started


def _describe_answer(answer: DemoAnswer, before: DemoAnswer) -> list[str]:
    names = [f"{rank} {doc_id.removesuffix('.md')}" for rank, doc_id in enumerate(answer.documents[:_MAX_NAMES], 1)]
    excerpt = textwrap.shorten(answer.results[0]["text"].partition("\n")[2], 80, placeholder=" …") if names else ""
    new = [doc_id.removesuffix(".md") for doc_id in answer.documents if doc_id not in before.documents]
    gone = [doc_id.removesuffix(".md") for doc_id in before.documents if doc_id not in answer.documents]
    changes = [f"{mark} {', '.join(pages)}" for mark, pages in (("+", new), ("-", gone)) if pages]
    return ["  ".join(names), excerpt, *changes, f"from {answer.revision[:7]}"]
