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
    """The whole page."""
    found = {name: command for name in commands.list_names() if (command := commands.find_command(name))}
    first = next(iter(found.values()))
    common = [option for option in _options(first) if all(option in _options(each) for each in found.values())]
    parts = [_HEAD.format(common=_list(common))]
    for name, command in found.items():
        parts.append(_section(name, command, common))
        if isinstance(command, click.Group):
            parts += [_section(f"{name} {below}", each, common) for below, each in command.commands.items()]
    return "\n".join([*parts, "Next: [configuration](configuration.md), [git operations](git-operations.md).\n"])


def _section(name: str, command: click.Command, common: list[tuple[str, str]]) -> str:
    own = [option for option in _options(command) if option not in common]
    arguments = [_written(param) for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join(["vmrag", name, *(["[OPTIONS]"] if own else []), *arguments])
    if isinstance(command, click.Group):
        usage += f" {'|'.join(command.commands)}"
    paragraphs = [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")]
    return "\n\n".join([f"## vmrag {name}", f"`{usage}`", *paragraphs, *([_list(own)] if own else [])]) + "\n"


def _options(command: click.Command) -> list[tuple[str, str]]:
    """How each option is written, and its help. click's versions format options differently."""
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    return [(_written(option), f"{option.help or ''}{' Required.' * option.required}".strip()) for option in options]


def _written(parameter: click.Parameter) -> str:
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


def _list(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"* `{written}`: {text}" for written, text in rows)


if __name__ == "__main__":
    sys.stdout.write(format_reference())
