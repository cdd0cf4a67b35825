"""Prints docs/commands.md: `python -m vmrag_link.cli.reference > docs/commands.md`."""

from __future__ import annotations

import sys

import click

from vmrag_link.cli import commands

_HEAD = """\
# Commands

<!-- Written by: python -m vmrag_link.cli.reference > docs/commands.md -->

Every command takes these options, before its name or behind it:

{common}

Exit codes: 0 done · 1 drift, or a failed check · 2 usage or configuration · 3 the operation failed · 4 a bug, with a log to
send · 130 interrupted. With `--json`, an error is `{{"error": {{"code", "message", "hint", "details"}}}}` on standard error, and
standard output stays empty.
"""


def format_reference() -> str:
    """The whole page."""
    found = {name: command for name in commands.list_names() if (command := commands.find_command(name))}
    first = next(iter(found.values()))
    common = [option for option in _options(first) if all(option in _options(each) for each in found.values())]
    parts = [_HEAD.format(common=_table(common))]
    for name, command in found.items():
        parts.append(_section(name, command, common))
        if isinstance(command, click.Group):
            parts += [_section(f"{name} {below}", each, common) for below, each in command.commands.items()]
    return "\n".join(parts)


def _section(name: str, command: click.Command, common: list[tuple[str, str]]) -> str:
    own = [option for option in _options(command) if option not in common]
    arguments = [_written(param) for param in command.params if isinstance(param, click.Argument)]
    usage = " ".join(["vmrag", name, *(["[OPTIONS]"] if own else []), *arguments])
    if isinstance(command, click.Group):
        usage += f" {'|'.join(command.commands)}"
    paragraphs = [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")]
    return "\n\n".join([f"## vmrag {name}", f"```\n{usage}\n```", *paragraphs, *([_table(own)] if own else [])]) + "\n"


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


def _table(rows: list[tuple[str, str]]) -> str:
    cells = [(written.replace("|", "\\|"), text.replace("|", "\\|")) for written, text in rows]
    return "\n".join(["| option | |", "|---|---|", *(f"| `{written}` | {text} |" for written, text in cells)])


if __name__ == "__main__":
    sys.stdout.write(format_reference())
