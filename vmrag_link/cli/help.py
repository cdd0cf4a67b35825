"""`vmrag help`: explain a command."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from vmrag_link.cli import commands
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid


def _complete_names(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:  # noqa: ARG001
    return [CompletionItem(name) for name in commands.list_names() if name.startswith(typed)]


@vmrag_command("help")
@click.argument("command", nargs=-1, shell_complete=_complete_names)
@click.option("--all", "list_all", is_flag=True, help="List all commands.")
def command(invocation: Invocation, *, command: tuple[str, ...], list_all: bool) -> None:
    """Explain a command.

    Without a command, it lists the everyday commands.
    """
    if list_all and command:
        raise UsageInvalid(
            "--all cannot be combined with a command.", hint="run 'vmrag help --all' to list all commands"
        )
    context = click.get_current_context().find_root()
    for name in command:
        group = context.command
        if not isinstance(group, click.Group):
            context.fail(f"'{context.command_path}' has no subcommands.")
        _, subcommand, _ = group.resolve_command(context, [name])
        if subcommand is None:
            context.fail(f"no such command: '{name}'.")
        context = click.Context(subcommand, info_name=name, parent=context)
    text = _list_commands(context) if list_all else context.get_help()
    invocation.emit_report({"command": context.command_path, "help": text}, text.splitlines())


def _list_commands(context: click.Context) -> str:
    from vmrag_link.cli.main import write_commands

    formatter = context.make_formatter()
    write_commands(formatter, commands.list_all())
    return formatter.getvalue().strip("\n")
