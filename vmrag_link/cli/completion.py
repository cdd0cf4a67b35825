"""`vmrag completion`: print the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vmrag_link import terminal_text
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid


@vmrag_command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(invocation: Invocation, *, shell: str) -> None:
    """Print the completion script of a shell.

    For example: eval "$(vmrag completion bash)", or 'vmrag completion fish | source'.
    """
    from vmrag_link.cli.main import cli

    shell_class = get_completion_class(shell)
    if shell_class is None:
        raise UsageInvalid(f"no completion script for the shell {shell!r}.", hint="run 'vmrag completion bash'")
    script = shell_class(cli, {}, "vmrag", "_VMRAG_COMPLETE").source()
    invocation.emit_report({"shell": shell, "script": script}, terminal_text.split_lines(script))
