"""`vmrag demo`."""

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

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.demo import play as demo
from vmrag_link.demo import story
from vmrag_link.demo.answers import Answer, Compared
from vmrag_link.demo.narration import SILENT
from vmrag_link.errors import FileFailed, UsageInvalid

FAILED = 3
WIDTH = 96
SHOWN = 5
HOOK_SECONDS = 5.0
"""How long a hook that an interrupted git left behind may still write while the repository is removed."""


@vmrag_command("demo")
@click.option("--into", type=click.Path(path_type=Path), help="Make the repository here (a new or empty folder) and keep it.")
@click.option("--pages", "number", type=click.IntRange(10), help="Import only about this many pages (default: all).")
def command(invocation: Invocation, *, into: Path | None, number: int | None) -> int:
    """See the whole loop on real input: the documentation of Python's library, on two branches that know different things.

    Works in a temporary repository, needs no network, and takes less than a minute.
    """
    silent = invocation.as_json or invocation.verbosity < 0
    told = None if silent else Told()
    with _repository(invocation.directory / into if into else None) as top, invocation.progress() as progress:
        if told:
            told.opening(into)
        bars = told is not None and sys.stderr.isatty()
        report = demo.play(top, told or SILENT, progress, kept=into is not None, bars=bars, number=number)
    invocation.emit(report, _ending(report))
    return 0 if report.ok else FAILED


@contextlib.contextmanager
def _repository(into: Path | None) -> Iterator[Path]:
    """An empty directory: `into`, which stays, or a temporary one. Raises `UsageInvalid` if `into` is in use, `FileFailed`."""
    if into is not None:
        yield _made(into)
        return
    top = Path(tempfile.mkdtemp(prefix="vmrag-demo-")).resolve()
    try:
        yield top
    finally:
        _remove(top)


def _made(into: Path) -> Path:
    try:
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise UsageInvalid(f"{into} is not an empty folder.", hint="Name one that is new or empty.", path=str(into))
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFailed(f"Cannot make {into}: {error.strerror}.", hint="Name another folder.", path=str(into)) from error
    return into.resolve()


def _remove(top: Path) -> None:
    deadline = time.monotonic() + HOOK_SECONDS
    while top.exists():
        shutil.rmtree(top, ignore_errors=time.monotonic() < deadline)


class Told:
    """The demo as a person follows it on a terminal."""

    def __init__(self) -> None:
        self._chapters = 0

    def opening(self, into: Path | None) -> None:
        where = f"in {into}" if into else "in a temporary folder"
        _echo_wrapped(
            f"This makes a git repository {where}, imports the documentation of this Python's standard library as its "
            "knowledge base, and switches between two branches that know different things: each 'git checkout' moves the "
            "documents and their search index with the code. Nothing is downloaded. It takes less than a minute."
        )

    def chapter(self, title: str, text: str = "") -> None:
        self._chapters += 1
        click.echo()
        click.secho(f"{self._chapters}. {title}", bold=True)
        if text:
            _echo_wrapped(text)

    def command(self, line: str) -> None:
        click.echo()
        click.echo(f"  {click.style('$', fg='green')} {click.style(line, fg='cyan')}")

    def output(self, lines: Sequence[str], seconds: float) -> None:
        took = click.style(f"({seconds:.2f} s)", dim=True)
        wrapped = [part for line in lines or ["done"] for part in textwrap.wrap(line, WIDTH - 14) or [""]]
        for line in wrapped[:-1]:
            click.echo(f"    {line}")
        click.echo(f"    {wrapped[-1]}  {took}")

    def answer(self, answer: Answer) -> None:
        took = click.style(f"from {answer.revision[:7]} ({answer.seconds:.2f} s)", dim=True)
        click.echo(f"    {click.style('vmrag query', fg='cyan')} \"{answer.query}\"  {took}")
        names = [_name(doc_id) for doc_id in answer.documents[:SHOWN]]
        click.echo("      " + "  ".join(f"{rank} {click.style(name, bold=True)}" for rank, name in enumerate(names, 1)))
        if answer.compared:
            for line in _changes(answer.compared):
                click.echo(f"      {line}")
