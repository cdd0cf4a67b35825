"""The form of a hint: what the user does next.

A hint is an imperative sentence in lower case without a full stop. Commands are in single quotes,
and it has at most two alternatives: `run 'git fetch' to fetch it, or 'vmrag pin' to write a pin`.
`tests/unit/test_hint_form.py` checks all hints of the code.
"""

from __future__ import annotations

import re

_COMMAND = re.compile(r"""(?<![\w'])'((?:[^'"]|"(?:[^"\\]|\\.)*"|(?<=[ =])'[^']*')+)'(?![\w'])""")
"""A command in single quotes.

Its words can be in double quotes or, after a space, in single ones.
"""

_OR = ", or "
_RUN = "run "


def suggest_command(command: str, purpose: str = "") -> str:
    """Return the hint to run a command. `purpose` is a verb in its base form with its object."""
    return f"{_RUN}'{command}'" + (f" to {purpose}" if purpose else "")


def join_alternatives(first: str, second: str) -> str:
    """Return a hint with two alternatives, the first one of each hint."""
    return _join_hints(_OR, first, second)


def join_steps(first: str, second: str) -> str:
    """Return a hint with two steps, the first alternative of each hint."""
    return _join_hints(", then ", first, second)


def append_to(statement: str, hint: str) -> str:
    """Return a statement and its hint as one sentence, for lists of warnings."""
    return f"{statement.rstrip('.')}; {hint}" if hint else statement


def list_commands(hint: str) -> list[str]:
    """Return the commands of a hint, without their quotes."""
    return _COMMAND.findall(hint)


def list_alternatives(hint: str) -> list[str]:
    """Return the alternatives of a hint, each as a hint."""
    commands = [match.span() for match in _COMMAND.finditer(hint)]
    separators = [match.span() for match in re.finditer(_OR, hint)]
    parts = []
    part_start = 0
    for start, end in [*separators, (len(hint), len(hint))]:
        if not any(command_start < start < command_end for command_start, command_end in commands):
            parts.append(hint[part_start:start])
            part_start = end
    parts = [part for part in parts if part]
    return [f"{_RUN}{part}" if part.startswith("'") else part for part in parts]


def _join_hints(separator: str, *given: str) -> str:
    first, *others = [list_alternatives(hint)[0] for hint in given if hint] or [""]
    is_short = first.startswith(f"{_RUN}'")
    rest = [hint.removeprefix(_RUN) if is_short and hint.startswith(f"{_RUN}'") else hint for hint in others]
    return separator.join([first, *rest])
