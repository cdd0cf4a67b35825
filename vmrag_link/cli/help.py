"""`vmrag help`: the help of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from vmrag_link.cli import commands
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command

if TYPE_CHECKING:
    pass


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
