"""What the topics of `vmrag doctor` are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from vmrag_link.models import Record
from vmrag_link.workspace import Workspace

Level = Literal["ok", "note", "warning", "error"]

DOCTOR = "vmrag doctor --fix"
"""The `fix` of what no other command mends."""


class Finding(Record, frozen=True):
    """Something that is not as it should be.

    `note`: nothing fails because of it; `warning`: something is worse than it could be, or will
    fail; `error`: something fails now. `fix` is a command line that mends it, or a sentence where
    only a person can. `subject`: the path or name that it is about.
    """

    code: str
    level: Level
    message: str
    fix: str
    subject: str = ""


Check = Callable[[Workspace], Iterator[Finding]]
"""Looks for findings, and changes nothing.

A `VmragError` or an `OSError` that stops it becomes a finding.
"""

Repair = Callable[[Workspace, Finding], str]
"""Mends a finding, and returns what was done. Can be run again; removes only what can be remade.

Raises as a check does.
"""


class Topic(NamedTuple):
    """`repairs` by the code of the finding: all others are left to the user."""

    name: str
    check: Check
    repairs: Mapping[str, Repair] = {}
