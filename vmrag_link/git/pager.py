"""The pager of the person at the terminal, as git finds and starts it."""

from __future__ import annotations

import re

from vmrag_link import env, proc
from vmrag_link.git.run import git
from vmrag_link.paths import Places

_DEFAULTS = {"LESS": "FRX", "LV": "-c"}
"""What git sets where the person has not: colours get through, and what fits on the screen needs no
key to end it.
"""
_PLAIN = r"[\w./+-]+"
"""The name of a program in which a shell reads nothing else."""


def start(places: Places) -> proc.Started | None:
    """The pager, which shows what is written to its standard input; None where git uses none, or
    where there is no such program: small containers have no `less`.

    `GIT_PAGER`, `core.pager`, `PAGER`, in that order.
    """
    command = git(places, "var", "GIT_PAGER").text.strip()
    program = command.partition(" ")[0]
    if program in ("", "cat") or (re.fullmatch(_PLAIN, program) and not proc.find(program, places.top)):
        return None
    # As git does, a shell reads the command, which may have arguments.
    return proc.fed(["sh", "-c", command], cwd=places.top, env=_DEFAULTS | env.without(env.GIT_SCRUBBED))
