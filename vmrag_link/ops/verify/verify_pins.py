"""Read the pins in the code's history for `vmrag verify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from vmrag_link.engines import migrated
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import PinMalformed
from vmrag_link.git import history
from vmrag_link.git.history import PinEntry, Walk
from vmrag_link.paths import PIN_NAME, PIN_READ_LIMIT, Places

_KINDS = {"120000": "a symbolic link", "040000": "a directory", "160000": "a submodule"}


class ReadPins(NamedTuple):
    """The pins of a walk, which lists the commits of a range and their changes of the pin file."""

    read: dict[PinEntry, str | PinMalformed]
    """The revision of each pin, or the reason why it cannot be read."""
    ends: dict[str, str]
    """The revisions at the ends of the range, by commit."""
    empty: bool = False
    """True if no commit of the walk, and neither end, has a pin, readable or not."""

    @classmethod
    def from_walk(cls, kb: Path, walk: Walk, ends: Mapping[str, bytes]) -> ReadPins:
        """Read the pins of a walk. `ends` contains the pins at the ends of the range, by commit."""
        entries = {entry for change in walk.changes for entry in (change.after, *change.before) if entry}
        pins_at_ends = {commit: try_read_pin(kb, content) for commit, content in ends.items()}
        return cls(
            read={entry: _read_revision(kb, entry, walk.contents) for entry in entries},
            ends={commit: pin.dolt_commit for commit, pin in pins_at_ends.items() if pin},
            empty=not entries and not ends,
        )

    @property
    def revisions(self) -> Iterator[str]:
        yield from (revision for revision in self.read.values() if isinstance(revision, str))
        yield from self.ends.values()

    def find_revision(self, entry: PinEntry | None) -> str | None:
        """Return the revision of a pin; None without a readable pin."""
        revision = self.read[entry] if entry else None
        return revision if isinstance(revision, str) else None


def _read_revision(kb: Path, entry: PinEntry, contents: Mapping[str, bytes]) -> str | PinMalformed:
    if not entry.is_file:
        return PinMalformed(f"{PIN_NAME} is {_KINDS.get(entry.mode, 'not a file')}; it must be a file.")
    if entry.name not in contents:
        return PinMalformed(f"{PIN_NAME} has more than {PIN_READ_LIMIT} bytes, so it is not a pin.")
    try:
        return migrated.read_pin(kb, contents[entry.name]).dolt_commit
    except PinMalformed as error:
        return error


class PinHistory:
    """The pins of the whole history of a commit, for commits outside the verified range.

    The history is walked on first use.
    """

    def __init__(self, places: Places, tip: str) -> None:
        self._places = places
        self._tip = tip

    def list_revisions(self, commits: Iterable[str]) -> set[str]:
        """Return the revisions that these commits pin, without unreadable pins."""
        entries = (self._pins.get(commit) for commit in commits)
        revisions = (_read_revision(self._places.kb, entry, self._walk.contents) for entry in entries if entry)
        return {revision for revision in revisions if isinstance(revision, str)}

    @cached_property
    def _walk(self) -> Walk:
        return history.walk_range(self._places, self._tip)

    @cached_property
    def _pins(self) -> dict[str, PinEntry | None]:
        changes = {change.commit: change.after for change in self._walk.changes}
        pins: dict[str, PinEntry | None] = {}
        for commit, parents in self._walk.parents.items():
            inherited = pins[parents[0]] if parents and commit not in changes else None
            pins[commit] = changes.get(commit, inherited)
        return pins
