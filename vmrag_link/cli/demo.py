"""`vmrag demo`: run a demo on the documentation of Python's library."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.demo import play as demo
from vmrag_link.demo import story
from vmrag_link.demo.story import SILENT, AnswerComparison, QueryAnswer
from vmrag_link.errors import FileFailed, UsageInvalid

FAILED = 3
WIDTH = 96
SHOWN = 5
MIN_SHOWN_SECONDS = 0.1
"""Seconds from which a step is in the summary."""

HOOK_SECONDS = 5.0
"""Seconds for which a hook of an interrupted git can still write while the repository is
removed.
"""


@vmrag_command("demo")
@click.option(
    "--into", type=click.Path(path_type=Path), help="Create the repository in this new or empty folder, and keep it."
)
@click.option("--pages", "number", type=click.IntRange(10), help="Import only about this many pages (default: all).")
def command(invocation: Invocation, *, into: Path | None, number: int | None) -> int:
    """Run a demo on the documentation of Python's library.

    The demo creates a temporary repository with two branches that have different documents.
    It needs no network and takes less than a minute.
    """
    silent = invocation.as_json or invocation.verbosity < 0
    narrator = None if silent else TerminalNarrator()
    with _open_repository(invocation.directory / into if into else None) as top:
        if narrator:
            narrator.opening(into)
        bars = narrator is not None and sys.stderr.isatty()
        report = demo.play_demo(
            top, narrator or SILENT, invocation.progress, kept=into is not None, bars=bars, number=number
        )
    invocation.emit_report(report, _describe_ending(report))
    return 0 if report.ok else FAILED


@contextlib.contextmanager
def _open_repository(into: Path | None) -> Iterator[Path]:
    """Yield an empty directory: `into`, which stays, or a temporary one.

    Raises `UsageInvalid` if `into` is in use, and `FileFailed`.
    """
    if into is not None:
        yield _created(into)
        return
    top = Path(tempfile.mkdtemp(prefix="vmrag-demo-")).resolve()
    try:
        yield top
    finally:
        _remove_repository(top)


def _created(into: Path) -> Path:
    try:
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise UsageInvalid(f"{into} is not an empty folder.", hint="Use a new or an empty folder.", path=str(into))
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFailed(
            f"cannot create {into}: {error.strerror}.", hint="Use another folder.", path=str(into)
        ) from error
    return into.resolve()


def _remove_repository(top: Path) -> None:
    deadline = time.monotonic() + HOOK_SECONDS
    while top.exists():
        shutil.rmtree(top, ignore_errors=time.monotonic() < deadline)


class TerminalNarrator:
    """Print the demo for a user at a terminal."""

    def __init__(self) -> None:
        self._chapters = 0

    def opening(self, into: Path | None) -> None:
        where = f"in {into}" if into else "in a temporary folder"
        _echo_wrapped(
            f"This makes a git repository {where}, imports the documentation of this Python's standard library as its "
            "knowledge base, and switches between two branches with different documents: each 'git checkout' moves the "
            "documents and their search index with the code. Nothing is downloaded. It takes less than a minute."
        )

    def chapter(self, title: str, text: str = "") -> None:
        self._chapters += 1
        output.print_lines(["", output.style_text(f"{self._chapters}. {title}", bold=True)])
        if text:
            _echo_wrapped(text)

    def command(self, line: str) -> None:
        output.print_lines(["", f"  {output.style_text('$', fg='green')} {output.style_text(line, fg='cyan')}"])

    def output(self, lines: Sequence[str], seconds: float) -> None:
        took = output.style_text(f"({seconds:.2f} s)", dim=True)
        wrapped = [part for line in lines or ["done"] for part in textwrap.wrap(line, WIDTH - 14) or [""]]
        output.print_lines(f"    {line}" for line in [*wrapped[:-1], f"{wrapped[-1]}  {took}"])

    def work(self, what: str, seconds: float) -> None:
        output.print_lines([""])
        self.output([what], seconds)

    def answer(self, answer: QueryAnswer) -> None:
        self.command(f'vmrag query "{answer.query}"')
        names = [f"{rank} {_format_name(doc_id)}" for rank, doc_id in enumerate(answer.documents[:SHOWN], 1)]
        source = output.style_text(f"from {answer.revision[:7]} ({answer.seconds:.2f} s)", dim=True)
        lines = [f"{output.style_text('  '.join(names), bold=True)}  {source}"]
        if answer.results:
            lines.append(output.style_text(_cut_excerpt(answer.results[0].text), italic=True))
        if answer.compared:
            lines += _describe_changes(answer.compared)
        output.print_lines(f"    {line}" for line in lines)

    def remark(self, line: str) -> None:
        output.print_lines(["", f"  {line}"])


def _describe_changes(compared: AnswerComparison) -> list[str]:
    """Return how the checkout changed an answer, with a line for each kind of change."""
    if compared.equal:
        return [output.style_text("same as on the other branch", dim=True)]
    lines = []
    if compared.came:
        lines.append(output.style_text(f"+ {_list_names(compared.came)}", fg="green"))
    if compared.went:
        lines.append(output.style_text(f"- {_list_names(compared.went)}", fg="red"))
    if compared.reworded:
        lines.append(output.style_text(f"~ {_list_names(compared.reworded)}", fg="yellow"))
    moves = ", ".join(f"{_format_name(move.doc_id)} from {move.before} to {move.now}" for move in compared.moved)
    return [*lines, output.style_text(f"moved: {moves}", dim=True)] if moves else lines


def _describe_ending(report: demo.DemoReport) -> Iterator[str]:
    yield ""
    yield output.style_text("Time", bold=True)
    for description, seconds in _format_summary(report):
        yield f"  {description:<{WIDTH - 16}}{seconds:>6.2f} s"
    yield ""
    failed = [check.what for check in report.checks if not check.ok]
    if failed:
        yield output.style_text("These checks failed:", fg="red", bold=True)
        yield from (f"  {description}" for description in failed)
    else:
        yield output.style_text(f"Passed checks ({len(report.checks)})", bold=True)
        yield from (f"  {check.what}" for check in report.checks)
    yield ""
    yield from _describe_next_steps(report)


def _format_summary(report: demo.DemoReport) -> list[tuple[str, float]]:
    visits = re.compile(rf"vmrag (query|diff)|git checkout {story.MAIN}|git checkout {story.NEXT}|rm ")
    rows = [
        (textwrap.shorten(step.what, WIDTH - 18, placeholder=" …"), step.seconds)
        for step in report.steps
        if step.seconds >= MIN_SHOWN_SECONDS and not visits.match(step.what)
    ]
    checkouts = [visit.seconds for visit in report.visits]
    queries = [answer.seconds for visit in report.visits for answer in visit.answers]
    rows.append(
        (f"git checkout, with knowledge base and index (mean of {len(checkouts)})", sum(checkouts) / len(checkouts))
    )
    rows.append((f"vmrag query (mean of {len(queries)})", sum(queries) / len(queries)))
    return [*rows, ("everything", report.seconds)]


def _describe_next_steps(report: demo.DemoReport) -> Iterator[str]:
    if report.repository:
        yield output.style_text("The repository is yours to try", bold=True)
        yield f"  cd {report.repository}"
        yield f'  git checkout {story.MAIN} && vmrag query "{story.QUESTIONS[0].text}"'
        yield "  vmrag status"
    else:
        yield "Removed the temporary repository. 'vmrag demo --into DIR' makes one that stays."
    yield ""
    yield output.style_text("In your own repository", bold=True)
    yield "  cd your-repo && vmrag init"
    yield "  vmrag import PATH --collection NAME   (a folder of documents that git does not track)"
    yield '  vmrag commit -m "What we know" && git commit -m "Pin the knowledge"'
    yield '  git checkout …, and then: vmrag query "…"'


def _cut_excerpt(text: str) -> str:
    """Return the beginning of a passage, on one line, without the title of the page."""
    return textwrap.shorten(re.sub(r"\A# .*\n", "", text), WIDTH - 6, placeholder=" …")


def _list_names(doc_ids: Sequence[str]) -> str:
    return ", ".join(_format_name(doc_id) for doc_id in doc_ids)


def _format_name(doc_id: str) -> str:
    return doc_id.removesuffix(".md")


def _echo_wrapped(text: str) -> None:
    output.print_lines(textwrap.wrap(text, WIDTH, break_on_hyphens=False))
