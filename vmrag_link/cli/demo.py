"""`vmrag demo`: run a demo on the documentation of Python's library."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.demo.play import DemoReport, play_demo
from vmrag_link.errors import FileFailed, UsageInvalid

FAILED = 3
WIDTH = 96
OPENING = (
    "The demo imports the documentation of this Python's standard library as a knowledge base. Then it switches between two "
    "branches with different documents: each 'git checkout' moves the documents and their search index with the code. "
    "Nothing is downloaded. The git repository is in"
)

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
    silent = invocation.as_json or invocation.is_quiet
    show = _print_nothing if silent else output.print_lines
    with _open_repository(invocation.directory / into if into else None) as top:
        show(textwrap.wrap(f"{OPENING} {into or 'a temporary folder'}.", WIDTH))
        bars = not silent and sys.stderr.isatty()
        report = play_demo(top, show, kept=into is not None, bars=bars, number=number)
    invocation.emit_report(report, _describe_ending(report))
    return 0 if report.ok else FAILED


def _print_nothing(lines: Iterable[str]) -> None:
    pass


@contextlib.contextmanager
def _open_repository(into: Path | None) -> Iterator[Path]:
    """Yield an empty directory: `into`, which stays, or a temporary one.

    Raises `UsageInvalid` if `into` is in use, and `FileFailed`.
    """
    if into is not None:
        yield _create_folder(into)
        return
    top = Path(tempfile.mkdtemp(prefix="vmrag-demo-")).resolve()
    try:
        yield top
    finally:
        _remove_repository(top)


def _create_folder(into: Path) -> Path:
    try:
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise UsageInvalid(f"{into} is not an empty folder.", hint="use a new or an empty folder", path=str(into))
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileFailed(
            f"cannot create {into}: {error.strerror}.", hint="use another folder", path=str(into)
        ) from error
    return into.resolve()


def _remove_repository(top: Path) -> None:
    deadline = time.monotonic() + HOOK_SECONDS
    while top.exists():
        shutil.rmtree(top, ignore_errors=time.monotonic() < deadline)


def _describe_ending(report: DemoReport) -> Iterator[str]:
    yield ""
    if report.problems:
        yield output.style_text("These checks failed:", fg="red", bold=True)
        yield from (f"  {problem}" for problem in report.problems)
    else:
        yield f"Every answer came from the revision that the checked-out code pins ({report.seconds:.0f} s)."
    if report.repository:
        yield f"The repository is yours to try: cd {report.repository} && vmrag status"
    else:
        yield "Removed the temporary repository. 'vmrag demo --into DIR' makes one that stays."
    yield "In your own repository:"
    yield "  cd your-repo && vmrag init"
    yield '  vmrag query "…"'
