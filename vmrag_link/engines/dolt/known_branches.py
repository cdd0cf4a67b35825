"""The branches of a repository as they were asked for last, for as long as nothing is written.

A checkout asks what its code branch has, and mostly the pin stays: starting `dolt` for that answer
takes longer than all the rest. The note counts only beside the stamp at which it was taken, which
changes with every write, by whatever program (`engines.stamps.dolt`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from vmrag_link.engines import stamps
from vmrag_link.engines.stamps import Stamp
from vmrag_link.models import KbBranch, Record
from vmrag_link.paths import write_atomically

_NAME = "branches.json"


class KnownBranches(Record, frozen=True):
    """All branches at a stamp, and other revisions that are here."""

    stamp: Stamp
    branches: tuple[KbBranch, ...]
    revisions: tuple[str, ...] = ()

    def has(self, revision: str) -> bool:
        return revision in self.revisions or any(each.head == revision for each in self.branches)


def stamp(folder: Path) -> Stamp | None:
    """None where there is no repository in the folder: a server's is written by others."""
    try:
        return stamps.dolt(folder)
    except FileNotFoundError:
        return None


def read(folder: Path) -> KnownBranches | None:
    """What is known, if it still holds."""
    try:
        found = msgspec.json.decode((folder / _NAME).read_bytes(), type=KnownBranches)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    return found if found.stamp == stamp(folder) else None


def note(folder: Path, known: KnownBranches) -> None:
    """Nothing is noted where something was written since it was asked for."""
    if known.stamp == stamp(folder) and read(folder) != known:
        with contextlib.suppress(OSError):  # a courtesy to the next command
            write_atomically(folder / _NAME, msgspec.json.encode(known), durable=False)
