"""The command line by which git's configuration calls our merge driver."""

from __future__ import annotations

import shlex


def command(python: str) -> str:
    """Whatever fails, a missing interpreter included, must look like a plain conflict: from other
    exit codes git's merge would die.
    """
    return f"{shlex.quote(python).replace('%', '%%')} -P -E -m vmrag_hooks.merge_driver %O %A %B %L %P || exit 1"
