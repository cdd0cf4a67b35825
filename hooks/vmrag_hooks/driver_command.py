"""The command line by which git's configuration calls our merge driver."""

from __future__ import annotations

import shlex


def command(python: str) -> str:
    """The command line. Every failure, a missing interpreter included, ends with 1, a plain
    conflict: git's merge dies from other exit codes.
    """
    return f"{shlex.quote(python).replace('%', '%%')} -P -E -m vmrag_hooks.merge_driver %O %A %B %L %P || exit 1"
