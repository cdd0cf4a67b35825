"""Adapt texts to the server that shows them: names of tools, and commands.

Descriptions, errors and warnings are written for a server with all tools, and for a shell that
finds `vmrag`. If a sentence names a tool that this server lacks, an agent would call it in vain, so
`adapt_text` leaves the sentence out. `make_runnable` replaces the name of a program that the shell
does not find.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Container
from functools import cache

from vmrag_link import extras, toolset
from vmrag_link.errors import quoted
from vmrag_mcp.registry import load_catalogue

_SENTENCE_GAP = re.compile(r"(?<=[.;])\s+")
"""The space between sentences, and after a semicolon."""

COMMANDS = (
    "init clone demo trust add import export list show edit rm restore move sources query grep check status commit log diff report blame "
    "fingerprint pin sync branch merge resolve link links verify remote fetch pull push adopt mcp install uninstall doctor migrate gc path "
    "completion help"
).split()
"""The commands of `vmrag`, except commands of toolsets."""

_PIP_COMMAND = re.compile(r"(?<![\w./-])(?<!uv )(?<!-m )pip(?= install )")


def adapt_text(text: str, names: Container[str], prefix: str) -> str:
    """Return a text without the sentences that name missing tools. Other tools get the prefix.

    Empty if nothing remains. `names` contains the names of the server's tools for clients.
    """
    if not find_mentioned(text):
        return text
    sentences: list[str] = []
    for sentence in _SENTENCE_GAP.split(text):
        if all(f"{prefix}{name}" in names for name in find_mentioned(sentence)):
            sentences.append(sentence)
        elif sentences and sentences[-1].endswith(";"):  # replace ";" by the end of the removed part
            removed_end = sentence[-1] if sentence.endswith((".", ";")) else ""
            sentences[-1] = sentences[-1].removesuffix(";") + removed_end
    return _compile_tool_names().sub(lambda match: f"{prefix}{match[0]}", " ".join(sentences))


def find_mentioned(text: str) -> set[str]:
    """Return the tools that a text names, by their names in the catalogue."""
    return {*_compile_tool_names().findall(text)}


@cache
def _compile_tool_names() -> re.Pattern[str]:
    """Return a pattern for names of tools within a text.

    `commit` and `search` are also words, and `create_branch` before `=` or ` (` is a parameter.
    """
    names = "|".join(name for name in load_catalogue() if "_" in name)
    return re.compile(rf"(?<![\w.])(?:{names})(?![\w=]| \()")


def make_runnable(text: str) -> str:
    """Return a text in which a shell of this process finds the commands `vmrag` and `pip`."""
    command = extras.find_shell_command() if "vmrag" in text else "vmrag"
    if command != "vmrag":
        text = _compile_commands().sub(lambda _: command, text)
    if "pip install" in text and not shutil.which("pip"):
        text = _PIP_COMMAND.sub(lambda _: f"{quoted(sys.executable)} -m pip", text)
    return text


@cache
def _compile_commands() -> re.Pattern[str]:
    """Return a pattern for the program's name in a command within a text."""
    names = [*COMMANDS, *(name for _, name, _ in toolset.installed().commands())]
    return re.compile(rf"(?<![\w./-])vmrag(?= (?:-[-\w]|(?:{'|'.join(names)})\b))")
