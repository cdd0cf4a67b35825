"""The options that `vmrag` accepts before and after the name of a command.

The module has only small imports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vmrag_link.errors import GitRepositoryMissing


def common_options() -> list[click.Parameter]:
    """Return new options `-C`, `-q`, `-v` and `--json`."""
    return [
        click.Option(["-C", "directory"], type=click.Path(path_type=Path), help="Run as if started in PATH."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print errors only."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Print more."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."),
    ]


def find_directory(context: click.Context, own_directory: Path | None = None) -> Path:
    """Return the directory of a command.

    `-C` before its name applies first, and then `-C` after it (`own_directory`).
    """
    before = (options["directory"] or Path() for options in list_group_options(context))
    folder = Path().joinpath(*before, own_directory or context.params.get("directory") or Path()).resolve()
    if not folder.is_dir():
        number = f" For lines around a match, use --context {folder.name}." if folder.name.isdecimal() else ""
        raise GitRepositoryMissing(f"no such folder: {folder}.{number}", hint="use -C with an existing folder")
    return folder


def list_group_options(context: click.Context) -> list[dict[str, Any]]:
    """Return the options of the groups around a command, from the outermost inwards."""
    groups: list[dict[str, Any]] = []
    while context.parent:
        context = context.parent
        groups.insert(0, dict.fromkeys(("directory", "as_json", "quiet", "verbose")) | context.params)
    return groups
