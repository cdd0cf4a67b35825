"""Exit codes, and the options that `vmrag` takes before a command as well as behind it.

Imports click only.
"""

from __future__ import annotations

from pathlib import Path

import click

OK, FAILED_CHECK, USAGE, FAILED, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""`FAILED_CHECK`: the command did its work and found drift, or something left to do."""


def common_options() -> list[click.Parameter]:
    """`-C`, `-q`, `-v` and `--json`."""
    return [
        click.Option(["-C", "directory"], type=click.Path(path_type=Path), help="Run as if started there."),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print errors only."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Print more."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON."),
    ]
