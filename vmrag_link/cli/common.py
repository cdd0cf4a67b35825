"""The options that `vmrag` takes before a command as well as behind it.

Imports click only.
"""

from __future__ import annotations

from pathlib import Path

import click


def common_options() -> list[click.Parameter]:
    """`-C`, `-q`, `-v` and `--json`."""
    return [
        click.Option(["-C", "directory"], type=click.Path(path_type=Path), help="Run as if started there."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print errors only."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Print more."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."),
    ]
