"""`vmrag help` and `vmrag completion`."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from vmrag_link import terminal_text
from vmrag_link.cli import commands
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid


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
