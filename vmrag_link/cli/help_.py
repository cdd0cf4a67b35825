"""`vmrag help`, `completion` and `path`: what there is, and where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from vmrag_link import terminal_text
from vmrag_link.cli import commands, output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid

if TYPE_CHECKING:
    from vmrag_link.ops.index.paths import PathsReport, Place


def _names(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:  # noqa: ARG001
    return [CompletionItem(name) for name in commands.names() if name.startswith(typed)]


@vmrag_command("help")
@click.argument("command", nargs=-1, shell_complete=_names)
def command(invocation: Invocation, *, command: tuple[str, ...]) -> None:
    """Explain a command, as its --help does; without one, list them all."""
    context = click.get_current_context().find_root()
    for name in command:
        group = context.command
        if not isinstance(group, click.Group):
            context.fail(f"'{context.command_path}' has no commands of its own.")
        _, found, _ = group.resolve_command(context, [name])
        if found is None:
            context.fail(f"There is no command '{name}'.")
        context = click.Context(found, info_name=name, parent=context)
    text = context.get_help()
    invocation.emit({"command": context.command_path, "help": text}, text.splitlines())


@vmrag_command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(invocation: Invocation, *, shell: str) -> None:
    """Print the completion script: eval "$(vmrag completion bash)", or 'vmrag completion fish |
    source'.
    """
    from vmrag_link.cli.main import cli

    found = get_completion_class(shell)
    if found is None:
        raise UsageInvalid(f"click knows no completion for {shell}.", hint="vmrag completion bash")
    script = found(cli, {}, "vmrag", "_VMRAG_COMPLETE").source()
    invocation.emit({"shell": shell, "script": script}, terminal_text.lines(script))


@vmrag_command("path")
@click.argument("what", type=click.Choice(["kb", "index", "chroma"]), default="kb")
@click.option("--working", is_flag=True, help="A Chroma store that holds the uncommitted documents, too.")
def path(invocation: Invocation, *, what: Place, working: bool) -> None:
    """Print where the knowledge base, the index, or the Chroma store for other clients lies.

    `vmrag path chroma` waits for Chroma's store. The store holds committed text only: the pinned
    documents, and the files of HEAD that `chroma.sources` selects. It never changes, and stays
    for at least an hour after this command. It uses the names of the collections. Chroma accepts
    only names of three or more characters, so a hash follows a shorter name.
    """
    from vmrag_link.ops.index import paths

    with invocation.workspace() as ws:
        report = paths.paths(ws, what=what, working=working)
    if what == "chroma":
        lines = [f"path      {report.chroma}", f"tenant    {report.tenant}", f"database  {report.database}"]
        lines.append(f"contents  {_describe_contents(report, working=working)}")
    else:
        lines = [(report.kb if what == "kb" else report.index) or ""]
    if what == "chroma" or invocation.as_json or invocation.verbosity < 0:
        invocation.emit(report, lines)
    else:
        output.print_exactly(f"{lines[0]}\n")  # a script takes it as it is


def _describe_contents(report: PathsReport, *, working: bool) -> str:
    """Describe what is in Chroma's store."""
    documents = f"documents of revision {report.revision[:7]}" if report.revision else ""
    files = f"files of commit {report.commit[:7]}" if report.commit else ""
    text = " and ".join(filter(None, (documents, files)))
    return f"{text}, with uncommitted changes" if working else f"{text} (committed text only)"
