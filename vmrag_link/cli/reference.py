"""Write docs/commands.md: `python -m vmrag_link.cli.reference > docs/commands.md`."""

from __future__ import annotations

import sys

import click

from vmrag_link.cli import commands

_HEAD = """\
# Commands

<!-- Written by: python -m vmrag_link.cli.reference > docs/commands.md -->

Look up a command and its options. For example, `vmrag query "how do requests time out" --json` searches and prints JSON.
`vmrag add --help` prints the same as this page. Each command has these options, before or after its name:

{common}

Exit codes are 0 (success), 1 (a difference, or a failed check), 2 (usage or configuration), 3 (the operation failed), 4 (a bug, with
a log to send) and 130 (interrupted). With `--json`, an error is `{{"error": {{"code", "message", "hint", "details"}}}}` on standard
error, and standard output is empty.
"""


def format_reference() -> str:
    """Return the whole page."""
    commands_by_name = {name: command for name in commands.list_names() if (command := commands.find_command(name))}
    first = next(iter(commands_by_name.values()))
    common = [
        option
        for option in _list_options(first)
        if all(option in _list_options(other) for other in commands_by_name.values())
    ]
    parts = [_HEAD.format(common=_format_list(common))]
    for name, command in commands_by_name.items():
        parts.append(_format_section(name, command, common))
        if isinstance(command, click.Group):
            parts += [_format_section(f"{name} {below}", other, common) for below, other in command.commands.items()]
    return "\n".join([*parts, "Next: [configuration](configuration.md), [git operations](git-operations.md).\n"])


def _format_section(name: str, command: click.Command, common: list[tuple[str, str]]) -> str:
    own_options = [option for option in _list_options(command) if option not in common]
    arguments = [_format_parameter(param) for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join(["vmrag", name, *(["[OPTIONS]"] if own_options else []), *arguments])
    if isinstance(command, click.Group):
        usage += f" {'|'.join(command.commands)}"
    paragraphs = [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")]
    parts = [f"## vmrag {name}", f"`{usage}`", *paragraphs]
    if own_options:
        parts.append(_format_list(own_options))
    return "\n\n".join(parts) + "\n"


def _list_options(command: click.Command) -> list[tuple[str, str]]:
    """Return each option and its help. Versions of click format options differently."""
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    return [
        (_format_parameter(option), f"{option.help or ''}{' Required.' * option.required}".strip())
        for option in options
    ]


def _format_parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter.type, click.Choice):
        value = "|".join(str(choice) for choice in parameter.type.choices)
    else:
        value = parameter.metavar or {"integer range": "NUMBER", "path": "PATH"}.get(parameter.type.name, "TEXT")
    if isinstance(parameter, click.Option):
        return ", ".join(parameter.opts) + ("" if parameter.is_flag else f" {value}")
    if not isinstance(parameter.type, click.Choice):
        value = parameter.metavar or (parameter.name or "").upper()
    value += "..." if parameter.nargs == -1 else ""
    bracketed = value.startswith("[") and value.endswith("]")
    return value if parameter.required or bracketed else f"[{value}]"


def _format_list(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"* `{written}`: {text}" for written, text in rows)


if __name__ == "__main__":
    sys.stdout.write(format_reference())
