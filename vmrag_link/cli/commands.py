"""The core's commands: topic, name, and what each does in a line. Those of toolsets come beside
them where all commands are meant, or one that the core does not have.

A command is the function `command` of the module in `vmrag_link.cli` that has its name.
"""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

    from vmrag_link.toolset import Toolset, ToolsetCommand

TOPICS = {
    "Begin": {
        "init": "Make the files of this repository searchable.",
        "clone": "Fetch the knowledge base of a repository that was just cloned.",
        "demo": "See the whole loop on the documentation of Python's library.",
        "trust": "Agree to what a clone's settings ask for.",
    },
    "Documents": {
        "add": "Write a note, or store one document.",
        "import": "Store files and folders as documents.",
        "export": "Write the documents back as files.",
        "list": "List the documents.",
        "show": "Print a document, or what a revision changed.",
        "edit": "Change a note or a stored document in git's editor.",
        "rm": "Remove documents, folders or collections.",
        "restore": "Discard uncommitted changes, or bring documents back.",
        "move": "Move documents between the knowledge base and files.",
        "sources": "Show which files of the repository are documents, and why others are not.",
    },
    "Search": {
        "query": "Search the knowledge of the code that is checked out.",
        "grep": "Find the lines of the documents that match a pattern.",
        "check": "Ask the golden queries, and compare the answers.",
    },
    "History": {
        "status": "Show whether pin, knowledge base and index agree.",
        "commit": "Commit the documents and pin the new revision.",
        "log": "Show the history of the knowledge base.",
        "diff": "Show which documents differ between two places.",
        "report": "Show what a pull request does to the knowledge.",
        "blame": "Show which revision wrote each line of a document.",
        "fingerprint": "Print the hash that decides how queries rank.",
    },
    "Code and knowledge": {
        "pin": "Let .dolt-version name a revision.",
        "sync": "Bring knowledge base and index to the pin.",
        "branch": "List the branches of the knowledge base, or write on another one.",
        "merge": "Take other knowledge into that of the checked-out code.",
        "resolve": "Decide about what both sides of a merge changed.",
        "link": "Link a code commit to the revision of the knowledge.",
        "links": "Show which revision belongs to which code commit.",
        "verify": "Find the code commits that drop knowledge.",
    },
    "With others": {
        "remote": "Show where the knowledge base travels.",
        "fetch": "Bring what a remote's knowledge base holds.",
        "pull": "Fetch, and merge what others wrote on this branch.",
        "push": "Push the knowledge that the code pins.",
        "adopt": "Take the knowledge that a fork's code pins.",
    },
    "Agents and tests": {"mcp": "Serve the knowledge to agents (MCP), or tell a client of the server."},
    "This machine": {
        "install": "Install the git hooks.",
        "uninstall": "Remove the git hooks.",
        "doctor": "Find out what is wrong, and mend it.",
        "migrate": "Move the knowledge base to another engine.",
        "gc": "Give back the space of what nothing needs.",
        "path": "Print where things lie.",
        "completion": "Print the shell completion script for bash, zsh or fish.",
        "help": "Explain a command.",
    },
}

COMMANDS = {name: line for commands in TOPICS.values() for name, line in commands.items()}


def every() -> Mapping[str, Mapping[str, str]]:
    """The line of each command, the toolsets' included, by topic and name."""
    found = {topic: dict(commands) for topic, commands in TOPICS.items()}
    for name, (_, command) in _of_toolsets().items():
        found.setdefault(command.topic, {})[name] = command.about
    return found


def names() -> list[str]:
    """Of all commands, sorted."""
    return sorted((*COMMANDS, *_of_toolsets()))


def find(name: str) -> click.Command | None:
    """The command of this name, imported; None if there is none."""
    command: click.Command
    if name in COMMANDS:
        module = f"{name}_" if keyword.iskeyword(name) else name  # Python cannot import a module named `import`
        command = importlib.import_module(f"vmrag_link.cli.{module}").command
        return command
    found = _of_toolsets().get(name)
    if found is None:
        return None
    toolset, declared = found
    command = toolset.load(declared.command)
    return command


def _of_toolsets() -> Mapping[str, tuple[Toolset, ToolsetCommand]]:
    from vmrag_link import toolset  # no command of the core waits for it

    found: dict[str, tuple[Toolset, ToolsetCommand]] = {}
    for each, name, command in toolset.installed().commands():
        if name not in COMMANDS:
            found.setdefault(name, (each, command))
    return found
