"""Write docs/commands.md: `python -m vmrag_link.cli.reference > docs/commands.md`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import click

from vmrag_link.cli import commands

_HEAD = """\
# Commands

<!-- Written by: python -m vmrag_link.cli.reference > docs/commands.md -->

Here you look up commands and options. For example, `vmrag query "retries" --json` prints results as JSON.
For special cases, run the command with `--help`. You can type these options before or after the name of each command:

{common}

Exit codes are 0 (success), 1 (a difference, or a failed check), 2 (usage or configuration), 3 (the operation failed), 4 (a bug, with
a log to send) and 130 (interrupted). With `--json`, an error is `{{"error": {{"code", "message", "hint", "details"}}}}` on standard
error, and standard output is empty. In every result, `hint` and `fix` are sentences with commands in single quotes, such as
`run 'vmrag sync' to sync to the pin`. `next` is one command without quotes.

## Shared options

After "Also", a command lists options by name only. Unless the section of the command explains them, they have this meaning:

{shared}
"""

_SAME_AS_TOOLS = {"doc": "knowledge", "issue": "knowledge", "learning": "learning"}
"""Groups whose options are parameters of MCP tools in a toolset, which docs/tools.md explains."""

_MAX_SENTENCES = 2
"""Number of sentences of a help text on the page, besides those that `_ARGUMENT` matches. Special
cases are in the help alone.
"""

_ARGUMENT = re.compile(r"[A-Z]{3,}\b|Without ")
"""The beginning of a sentence that explains an argument, or what its absence means."""

_MIN_SHARING = 2
"""Number of commands with an option from which the option is described once."""

_MAX_CHOICES = 8
"""Maximum number of choices that the page lists. The help of an option lists more choices."""

_Rows = list[tuple[str, str]]


def format_reference() -> str:
    """Return the whole page."""
    commands_by_name = _find_commands()
    options = {name: _list_options(command) for name, command in commands_by_name.items()}
    common = [option for option in next(iter(options.values())) if all(option in rows for rows in options.values())]
    specific = {name: [option for option in rows if option not in common] for name, rows in options.items()}
    groups: dict[str, list[str]] = {}
    for name in specific:
        groups.setdefault(name.partition(" ")[0], []).append(name)
    shared = _find_shared(
        [
            list(chain(*(specific[name] for name in names)))
            for group, names in groups.items()
            if group not in _SAME_AS_TOOLS
        ]
    )
    parts = [_HEAD.format(common=_format_list(common), shared=_format_list(shared))]
    for group, names in groups.items():
        inside = [] if group in _SAME_AS_TOOLS else _find_shared([specific[name] for name in names], shared)
        parts += [_format_section(name, commands_by_name[name], specific[name], inside, shared) for name in names]
        parts += [""] * (group in _SAME_AS_TOOLS)
    return "\n".join([*parts, "Next: [configuration](configuration.md), [git operations](git-operations.md).\n"])


def _find_commands() -> dict[str, click.Command]:
    """Return all commands by their names. Subcommands follow their group."""
    commands_by_name: dict[str, click.Command] = {}
    for name in commands.list_names():
        command = commands.find_command(name)
        if command:
            commands_by_name[name] = command
            if isinstance(command, click.Group):
                commands_by_name |= {f"{name} {below}": other for below, other in command.commands.items()}
    return commands_by_name


def _find_shared(owners: list[_Rows], listed: Iterable[tuple[str, str]] = ()) -> _Rows:
    """Return the options that several owners have with the same help, one for each name."""
    counts = Counter(chain.from_iterable(set(rows) - set(listed) for rows in owners))
    by_name: dict[str, tuple[str, str]] = {}
    for option, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if number >= _MIN_SHARING:
            by_name.setdefault(_option_name(option), option)
    return [by_name[name] for name in sorted(by_name, key=lambda name: name.lstrip("-").lower())]


def _format_section(name: str, command: click.Command, specific: _Rows, inside: _Rows, shared: _Rows) -> str:
    """Format a command, or an item of a list for a subcommand that a tool also has.

    `inside` are the options that subcommands of a group share.
    """
    group, _, below = name.partition(" ")
    is_tool = bool(below) and group in _SAME_AS_TOOLS
    if is_tool:
        return f"* `{_format_usage(below, command, specific)}`: {_shorten_help(command, 1)}"
    parts = [f"`vmrag {_format_usage(name, command, [])}`: {_shorten_help(command, _MAX_SENTENCES)}"]
    if not below:
        parts.insert(0, f"## vmrag {name}")
        if group in _SAME_AS_TOOLS:
            parts.append(f"Each option has the name of a parameter of [the tools](tools.md#{_SAME_AS_TOOLS[group]}).")
    if specific:
        explained = [*shared, *(inside if below else [])]
        also = ", ".join(f"`{_option_name(option)}`" for option in specific if option in explained)
        own_lines = _format_list([option for option in specific if option not in explained])
        parts.append("\n".join(filter(None, (own_lines, f"* Also {also}." if also else ""))))
    rest = [option for option in inside if option not in specific]
    if rest and not below:
        parts += ["Options of several of these commands:", _format_list(rest)]
    return "\n\n".join(parts) + "\n"


def _shorten_help(command: click.Command, max_sentences: int) -> str:
    """Return the first sentences of the help, and those about arguments."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z'(-])", " ".join((command.help or "").split()))
    return " ".join([*sentences[:max_sentences], *filter(_ARGUMENT.match, sentences[max_sentences:])])


def _format_usage(name: str, command: click.Command, options: _Rows) -> str:
    words = [name]
    words += [re.sub(r", --\S+", "", written) for written, text in options if text.endswith("Required.")]
    words += ["[OPTIONS]"] * any(not text.endswith("Required.") for _, text in options)
    words += [_format_parameter(param) for param in command.params if isinstance(param, click.Argument)]
    if isinstance(command, click.Group):
        words.append("COMMAND" if name in _SAME_AS_TOOLS else "|".join(command.commands))
    return " ".join(words)


def _option_name(option: tuple[str, str]) -> str:
    """Return the name of an option without its value."""
    return option[0].split()[0].rstrip(",")


def _list_options(command: click.Command) -> list[tuple[str, str]]:
    """Return each option and its help. Versions of click format options differently."""
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    return [
        (_format_parameter(option), f"{option.help or ''}{' Required.' * option.required}".strip())
        for option in options
    ]


def _format_parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter.type, click.Choice) and len(parameter.type.choices) <= _MAX_CHOICES:
        value = "|".join(str(choice) for choice in parameter.type.choices)
    else:
        value = parameter.metavar or {"integer range": "NUMBER", "path": "PATH", "choice": "NAME"}.get(
            parameter.type.name, "TEXT"
        )
    if isinstance(parameter, click.Option):
        return ", ".join(parameter.opts) + ("" if parameter.is_flag else f" {value}")
    if not isinstance(parameter.type, click.Choice):
        value = parameter.metavar or (parameter.name or "").upper()
    if parameter.nargs == -1 and not value.endswith("..."):
        value += "..."
    bracketed = value.startswith("[") and value.endswith(("]", "]..."))
    return value if parameter.required or bracketed else f"[{value}]"


def _format_list(rows: list[tuple[str, str]]) -> str:
    return "\n".join(f"* `{written}`: {text}" for written, text in rows)


if __name__ == "__main__":
    sys.stdout.write(format_reference())
