"""The options that `vmrag` takes before a command as well as behind it.

Imports nothing of weight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vmrag_link.errors import GitRepositoryMissing


def common_options() -> list[click.Parameter]:
    """`-C`, `-q`, `-v` and `--json`."""
    return [
        click.Option(["-C", "directory"], type=click.Path(path_type=Path), help="Run as if started there."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print errors only."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Print more."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."),
    ]


def find_directory(context: click.Context, own: Path | None = None) -> Path:
    """Where a command works: `-C` before its name counts, and then `-C` behind it (`own`)."""
    before = (each["directory"] or Path() for each in list_group_options(context))
    folder = Path().joinpath(*before, own or context.params.get("directory") or Path()).resolve()
    if not folder.is_dir():
        number = f" Lines around a match: --context {folder.name}." if folder.name.isdecimal() else ""
        raise GitRepositoryMissing(f"There is no folder {folder}.{number}", hint="-C is the folder to work in.")
    return folder


def list_group_options(context: click.Context) -> list[dict[str, Any]]:
    """The options of the groups that a command is in, from the outermost inwards."""
    found: list[dict[str, Any]] = []
    while context.parent:
        context = context.parent
        found.insert(0, dict.fromkeys(("directory", "as_json", "quiet", "verbose")) | context.params)
    return found
