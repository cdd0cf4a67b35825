"""The commands of the core, with their topics and a line about each.

Commands of toolsets are only added to the list of all commands, and only if the core has no command
of that name. A command is the function `command` of the module in `vmrag_link.cli` with its name.
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
    "Start": {
        "init": "Choose which files of the repository vmrag searches.",
        "install": "Install the git hooks and the merge driver.",
        "clone": "Fetch the knowledge base of a cloned repository.",
        "sync": "Fetch and build everything that the commit needs.",
        "mcp": "Serve documents and code to agents (MCP).",
        "trust": "Review and trust the settings of a clone.",
        "demo": "Run a demo on the documentation of Python's library.",
    },
    "Documents": {
        "add": "Write a note, or store a document.",
        "import": "Store files, folders and web pages as documents.",
        "list": "List the documents.",
        "show": "Print a document, a file, or the changes of a revision.",
        "edit": "Change a note or a stored document in git's editor.",
        "rm": "Remove documents, folders or collections.",
        "restore": "Discard uncommitted changes, or bring documents back.",
        "move": "Move documents between the knowledge base and files.",
        "export": "Write stored documents to files.",
        "sources": "Show which files are documents, and which are not.",
    },
    "Search": {
        "query": "Search the documents and code of the commit.",
        "grep": "Find the lines that a regular expression matches.",
        "check": "Check that golden queries find the expected documents.",
        "fingerprint": "Print a hash of everything that decides answers.",
    },
    "Versions": {
        "status": "Show the state of the pin, the documents and the index.",
        "commit": "Commit stored documents and pin the new revision.",
        "log": "Show the revisions and the git commits that pin them.",
        "diff": "Show the documents that differ between two revisions.",
        "blame": "Show the revision that wrote each line of a document.",
        "branch": "List KB branches, or switch to another one.",
        "merge": "Merge the documents of another ref, revision or KB branch.",
        "resolve": "Resolve conflicts in documents.",
        "pin": "Pin a revision in .dolt-version.",
    },
    "Share": {
        "pull": "Fetch, and merge the documents of the upstream branch.",
        "push": "Push the revisions that the code pins.",
        "fetch": "Fetch the knowledge base of a remote.",
        "remote": "Show the remotes of the knowledge base.",
        "adopt": "Import the revisions that a fork's code pins.",
        "report": "Report what a pull request changes in the documents.",
        "verify": "Find git commits whose pin drops documents.",
        "link": "Link a git commit to a revision.",
        "links": "Show the revision of each git commit.",
    },
    "This machine": {
        "uninstall": "Remove the git hooks and restore the earlier ones.",
        "doctor": "Find problems, and print the commands that fix them.",
        "migrate": "Move the knowledge base to another engine.",
        "gc": "Delete unused revisions, indexes and vectors.",
        "path": "Print the path of the knowledge base or the index.",
        "completion": "Print the completion script of a shell.",
        "help": "Explain a command.",
    },
}

EVERYDAY = (
    "init", "install", "clone", "sync", "mcp",
    "add", "import", "list", "show", "edit", "rm", "restore", "sources",
    "query", "grep", "check",
    "status", "commit", "log", "diff", "merge", "resolve",
    "pull", "push", "report",
)  # fmt: skip
"""The commands that `vmrag --help` lists."""

COMMANDS = {name: line for commands in TOPICS.values() for name, line in commands.items()}


def list_everyday() -> Mapping[str, Mapping[str, str]]:
    """Return the lines of everyday commands, by topic and name."""
    lines = {
        topic: {name: line for name, line in topic_lines.items() if name in EVERYDAY}
        for topic, topic_lines in TOPICS.items()
    }
    return {topic: topic_lines for topic, topic_lines in lines.items() if topic_lines}


def list_all() -> Mapping[str, Mapping[str, str]]:
    """Return the lines of all commands, also those of toolsets, by topic and name."""
    lines = {topic: dict(topic_lines) for topic, topic_lines in TOPICS.items()}
    for name, (_, command) in _find_toolset_commands().items():
        lines.setdefault(command.topic, {})[name] = command.about
    return lines


def list_names() -> list[str]:
    """Return the names of all commands, sorted."""
    return sorted((*COMMANDS, *_find_toolset_commands()))


def find_command(name: str) -> click.Command | None:
    """Import the command of this name; None if it does not exist."""
    command: click.Command
    if name in COMMANDS:
        module = f"{name}_" if keyword.iskeyword(name) else name  # Python cannot import a module named `import`
        command = importlib.import_module(f"vmrag_link.cli.{module}").command
        return command
    declared_command = _find_toolset_commands().get(name)
    if declared_command is None:
        return None
    toolset, declared = declared_command
    command = toolset.load(declared.command)
    return command


def _find_toolset_commands() -> Mapping[str, tuple[Toolset, ToolsetCommand]]:
    from vmrag_link import toolset  # no command of the core waits for it

    commands_by_name: dict[str, tuple[Toolset, ToolsetCommand]] = {}
    for owner, name, command in toolset.installed().commands():
        if name not in COMMANDS:
            commands_by_name.setdefault(name, (owner, command))
    return commands_by_name
