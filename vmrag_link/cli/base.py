"""What all commands share: common options, the workspace, and how a report is printed."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vmrag_link.cli import completing, output
from vmrag_link.cli.common import common_options, directory_of, groups_of
from vmrag_link.errors import ConfirmationMissing
from vmrag_link.models import ChangeCounts, Record, json_text
from vmrag_link.progress import QUIET, Progress

if TYPE_CHECKING:  # the MCP server starts without it
    from vmrag_link.workspace import Workspace

R = TypeVar("R")

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

NEXT_COMMIT = 'Next: vmrag commit -m "What changed in the knowledge"'


class Invocation(Record, frozen=True):
    """One run of a command. `verbosity` -1 quiet, 0 normal, 1 verbose."""

    directory: Path
    as_json: bool
    verbosity: int

    @contextlib.contextmanager
    def workspace(self, *, warn: bool = True) -> Iterator[Workspace]:
        """The work tree that the command works on.

        `warn`: what was ignored of its settings goes to standard error.
        """
        from vmrag_link.ops.status import interruption
        from vmrag_link.workspace import Workspace

        with self.progress() as progress:
            workspace = Workspace.open(self.directory, progress)
            before = interruption.stamp(workspace)
            try:
                if warn:
                    self.warn(workspace)
                yield workspace
            except (KeyboardInterrupt, click.Abort):  # click's own, at a question
                raise KeyboardInterrupt(interruption.sentence(workspace, before)) from None
            finally:
                workspace.close()

    def warn(self, workspace: Workspace) -> None:
        """Say what was ignored of the settings, unless quiet."""
        if self.verbosity >= 0:
            for warning in workspace.settings.loaded.warnings:
                output.complain(warning, "warning:")

    def warn_of_push(self, workspace: Workspace) -> None:
        """Say what the next push would not take along, or the last one did not, unless quiet."""
        from vmrag_link.ops.status.cautions import cautions

        if self.verbosity >= 0:
            for each in cautions(workspace, remember=True):
                output.complain(each.sentence, "warning:")

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """Bars on a terminal; notes always, unless quiet."""
        if self.verbosity < 0:
            yield QUIET
            return
        from vmrag_link.cli.terminal import Terminal

        with Terminal(bars=sys.stderr.isatty() and not self.as_json) as terminal:
            yield terminal

    def page(self, workspace: Workspace, lines: Iterable[str]) -> None:
        """Print lines while they are made, by git's pager on a terminal. Nothing when quiet."""
        if self.verbosity >= 0:
            from vmrag_link.cli.pager import paged

            with paged(workspace.places):
                output.print_stream(lines)

    @property
    def attended(self) -> bool:
        """Whether a person sits at the terminal, who can be asked."""
        return sys.stdin.isatty() and sys.stdout.isatty() and not self.as_json

    def ask(self, run: Callable[[bool], R], *, question: str, yes: bool) -> R | None:
        """Run an operation that takes whether it is confirmed; if it has to be, ask the person.

        `yes`: it is. None: the person said no. Raises `ConfirmationMissing` where nobody can be
        asked.
        """
        try:
            return run(yes)
        except ConfirmationMissing as missing:
            if not self.attended:
                raise
            output.complain(missing.message)
        return run(True) if output.agrees(question) else None

    def emit(self, report: Any, lines: Iterable[str] = ()) -> None:
        """Print the report as JSON, or the lines that render it. Nothing when quiet."""
        if self.as_json:
            output.print_json(json_text(report))
        elif self.verbosity >= 0 and (shown := list(lines)):
            output.print_lines(shown)


def command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command whose function gets an `Invocation` first; adds the common options."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def wrapped(*, as_json: bool, directory: Path | None, quiet: bool, verbose: bool, **given: Any) -> Any:
            context = click.get_current_context()
            groups = groups_of(context)  # what stood before the command's name
            said = [*groups, {"as_json": as_json, "quiet": quiet, "verbose": verbose}]
            verbosity = -1 if any(each["quiet"] for each in said) else int(any(each["verbose"] for each in said))
            return function(
                Invocation(directory_of(context, directory), any(each["as_json"] for each in said), verbosity), **given
            )

        made: click.Command = click.command(name, cls=click.Command)(wrapped)
        for each in made.params:
            completing.attach(each)
        made.params += common_options()
        return made

    return decorate


def group(name: str, about: str) -> click.Group:
    """A command that has commands; `about` is its help. It takes the common options, too."""
    made = click.Group(name, help=about)
    made.params += common_options()
    return made


def kept_line(count: int, command: str) -> str:
    """How to get back what was given up and is in no other revision, such as documents."""
    which, them = (f"{count} were", "them") if count > 1 else ("One was" if count else "It was", "it")
    return f"{which} never committed. To get {them} back: {command}"


def rest_line(shown: int, total: int, offset: int) -> str:
    """Below a page of a list that goes on."""
    return f"{shown} of {total}; more: --offset {offset + shown}"


def title_beside(doc_id: str, title: object) -> str:
    """The title of a document whose id tells a person nothing: of libraries, issue logs, agents."""
    return f"  {title}" if isinstance(title, str) and title and _UUID.fullmatch(doc_id) else ""


def headline(message: str) -> str:
    """The first line of a commit message that says something."""
    return next(iter(message.strip().splitlines()), "")


def described(changes: ChangeCounts) -> str:
    return changes.text
