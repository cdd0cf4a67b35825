"""Parts of all commands: common options, the workspace, printing of reports, and sentences."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.types import StringParamType

from vmrag_link.cli import output
from vmrag_link.cli.common import common_options, find_directory, list_group_options
from vmrag_link.errors import ConfirmationMissing, first_of
from vmrag_link.models import Record, format_json
from vmrag_link.progress import QUIET, Progress

if TYPE_CHECKING:  # the MCP server starts without it
    from click.shell_completion import CompletionItem

    from vmrag_link.workspace import Workspace

R = TypeVar("R")

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_RELATIVE_NAME = r"(?s)(?P<ref>[^:]+:)?(?P<path>\.{1,2}/.*)"
_LABEL_WIDTH = 30
"""Longer labels of options have their text on the next line."""

NEXT_COMMIT = "hint: run 'vmrag commit -m \"What changed in the documents\"' to commit the documents"


class Invocation(Record, frozen=True):
    """One run of a command."""

    directory: Path
    as_json: bool
    verbosity: int
    """-1 for quiet, 0 for normal and 1 for verbose output."""

    @property
    def is_quiet(self) -> bool:
        return self.verbosity < 0

    @contextlib.contextmanager
    def workspace(self, *, warn: bool = True) -> Iterator[Workspace]:
        """Open the work tree of the command.

        With `warn`, print which settings are ignored and, at the end, which revisions the last push
        did not include. An interruption is raised again with its consequence as the message.
        """
        from vmrag_link.ops.status import interruption
        from vmrag_link.workspace import Workspace

        with self.progress() as progress:
            workspace = Workspace.open(self.directory, progress)
            before = interruption.take_stamp(workspace)
            try:
                if warn:
                    self.warn_about_settings(workspace)
                yield workspace
                if warn:
                    self._warn_about_unpushed(workspace)
            except (KeyboardInterrupt, click.Abort):  # click's own, at a question
                raise KeyboardInterrupt(interruption.describe_interruption(workspace, before)) from None
            finally:
                workspace.close()

    def warn_about_settings(self, workspace: Workspace) -> None:
        """Print which settings were ignored, unless quiet."""
        if not self.is_quiet:
            for warning in workspace.settings.loaded.warnings:
                output.print_warning(warning, "warning:")

    def warn_about_hooks(self, workspace: Workspace) -> None:
        """Print which hooks git does not run, unless quiet."""
        from vmrag_link.ops.status.cautions import find_missing_hooks

        if not self.is_quiet and (caution := find_missing_hooks(workspace)):
            output.print_warning(caution.sentence, "warning:")

    def _warn_about_unpushed(self, workspace: Workspace) -> None:
        """Print which revisions the last push did not include, unless quiet."""
        if self.is_quiet or workspace.stores_nothing:
            return
        from vmrag_link.ops.status.cautions import build_not_pushed, list_unpushed_quietly

        if caution := build_not_pushed(workspace, list_unpushed_quietly(workspace)):
            output.print_warning(caution.sentence, "warning:")

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show bars on a terminal. Notes are always shown, unless quiet."""
        if self.is_quiet:
            yield QUIET
            return
        from vmrag_link.cli.terminal import Terminal

        with Terminal(bars=sys.stderr.isatty() and not self.as_json) as terminal:
            yield terminal

    def print_paged(self, workspace: Workspace, lines: Iterable[str]) -> None:
        """Print lines as they are made, in git's pager on a terminal. Print nothing if quiet."""
        if not self.is_quiet:
            from vmrag_link.cli.terminal import open_pager

            with open_pager(workspace.places):
                output.print_stream(lines)

    @property
    def is_interactive(self) -> bool:
        """True if a user at the terminal can answer questions."""
        return output.has_input_terminal() and sys.stdout.isatty() and not self.as_json

    def run_confirmed(self, run: Callable[[bool], R], *, question: str, yes: bool) -> R | None:
        """Run an operation that takes whether it is confirmed, and ask the user if it must be.

        `yes` confirms it. Returns None if the user answers no. Raises `ConfirmationMissing` without
        a confirmation if no user can answer.
        """
        try:
            return run(yes)
        except ConfirmationMissing as missing:
            if not self.is_interactive:
                raise
            output.print_warning(missing.message)
        return run(True) if output.ask_yes(question) else None

    def emit_report(self, report: Any, lines: Iterable[str] = ()) -> None:
        """Print the report as JSON, or its lines. Print nothing if quiet."""
        if self.as_json:
            output.print_json(format_json(report))
        elif not self.is_quiet and (shown := list(lines)):
            output.print_lines(shown)


class VmragCommand(click.Command):
    """A command whose help has options in sections, and the common options in one line."""

    sections: Mapping[str, Sequence[str]] = {}
    """Headings, with the options below each. Other options are below `Options`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not name the command
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        headings = {option: heading for heading, options in self.sections.items() for option in options}
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*self.sections, "Options")}
        common = {"--help"}.union(*(option.opts for option in common_options()))
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if common.isdisjoint(param.opts) else None
            if record and isinstance(param, click.Option):
                rows[headings.get(param.opts[-1], "Options")].append(record)
        width = max((len(label) for records in rows.values() for label, _ in records), default=0)
        for heading, records in rows.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl([(label.ljust(min(width, _LABEL_WIDTH)), text) for label, text in records])
        formatter.write_paragraph()
        formatter.write_text("Common options ('vmrag --help' explains them): -C, -q, -v, --json, -h")


class VmragGroup(VmragCommand, click.Group):
    """A command that also has commands."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def command(
    name: str,
    *,
    sections: Mapping[str, Sequence[str]] | None = None,
    cls: type[VmragCommand] = VmragCommand,
    **attributes: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a click command with the common options, whose function gets an `Invocation` first.

    `sections` has the headings of the help, with the options below each. `attributes` are those of
    the class.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def wrapped(*, as_json: bool, directory: Path | None, quiet: bool, verbose: bool, **arguments: Any) -> Any:
            context = click.get_current_context()
            before_name = list_group_options(context)
            quiet = quiet or any(options["quiet"] for options in before_name)
            verbose = verbose or any(options["verbose"] for options in before_name)
            as_json = as_json or any(options["as_json"] for options in before_name)
            invocation = Invocation(find_directory(context, directory), as_json, -1 if quiet else int(verbose))
            return function(invocation, **arguments)

        made = click.command(name, cls=cls, **attributes)(wrapped)
        made.sections = sections or {}
        for param in made.params:
            if param.type is click.STRING:
                param.type = _ProposedText(param.metavar)
            _name_value(param)
        made.params += common_options()
        return made

    return decorate


def group(name: str, about: str) -> click.Group:
    """Make a command that has commands, with the common options.

    `about` is its help.
    """
    made = click.Group(name, help=about)
    made.params += common_options()
    return made


_METAVARS = {
    "author": "NAME",
    "collection": "NAME",
    "collections": "NAME",
    "doc_id": "ID",
    "git_commit": "COMMIT",
    "library_name": "NAME",
    "link_file": "FILE",
    "metadata": "JSON",
    "revision": "REVISION",
    "title": "TITLE",
}
"""Names of option values in the help, by the name of the parameter."""


def _name_value(parameter: click.Parameter) -> None:
    """Name the value of an option in the help, if the option has no metavar: `N` or `DIR`."""
    if not isinstance(parameter, click.Option) or parameter.metavar or parameter.is_flag or parameter.count:
        return
    match parameter.type:
        case click.types.IntParamType() | click.types.FloatParamType():
            parameter.metavar = "N"
        case click.Path(file_okay=False):
            parameter.metavar = "DIR"
        case click.Path(dir_okay=False):
            parameter.metavar = "FILE"
        case _:
            parameter.metavar = _METAVARS.get(parameter.name or "")


class _ProposedText(StringParamType):
    """A text for which a shell proposes values, by its metavar or the parameter's name."""

    def __init__(self, metavar: str | None) -> None:
        self._metavar = metavar or ""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from vmrag_link.cli import proposals  # only a shell needs it

        return proposals.complete_text(ctx, self._metavar, param.name or "", incomplete)


# -- texts of several commands


def describe_kept_revision(count: int, command: str) -> str:
    """Return how to recover discarded documents that no other revision has."""
    subject, pronoun = (f"{count} were", "them") if count > 1 else ("One was" if count else "It was", "it")
    return f"{subject} never committed; run '{command}' to restore {pronoun}"


def describe_requirement(version: str) -> str:
    """Return the line about a version that the settings file requires now."""
    return f"The file requires vmrag-link {version} or newer. Older versions print how to upgrade."


def describe_uncovered(counts: Mapping[str, int], needs_extra: str, *, limit: int) -> Iterator[str]:
    """Yield lines about tracked files that are in no source."""
    if not counts:
        return
    names = [f"{number} {ending}" for ending, number in counts.items()]
    yield f"Files that no source covers: {first_of(names, limit)}"
    if needs_extra:
        yield f"hint: run '{needs_extra}' to read the code among these files"


def format_title(doc_id: str, title: object) -> str:
    """Return the title of a document whose id is a UUID, such as an issue log. Otherwise, return an
    empty text.
    """
    return f"  {title}" if isinstance(title, str) and title and re.fullmatch(_UUID, doc_id) else ""


def format_relative_path(directory: Path, file: Path) -> str:
    """Return how to name a file in this directory.

    Unless the directory is the top of the work tree, a path below it begins with `./`, so that
    `name_from_top` finds the file again.
    """
    path = os.path.relpath(file, directory)
    is_top = (directory / ".git").exists()
    return path if is_top or path.startswith("../") else f"./{path}"


def name_from_top(workspace: Workspace, directory: Path, name: str) -> str:
    """Return the name of a document, with a path that begins with `./` or `../` below the top."""
    match = re.fullmatch(_RELATIVE_NAME, name)
    if match is None:
        return name
    path = os.path.relpath(directory / match["path"], workspace.places.top)
    return f"{match['ref'] or ''}{Path(path).as_posix()}"


def read_subject(message: str) -> str:
    """Return the first line of a commit message that is not empty."""
    return next(iter(message.strip().splitlines()), "")
