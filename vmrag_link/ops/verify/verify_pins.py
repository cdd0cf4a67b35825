"""The pins of git's history, as `vmrag verify` reads them."""

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
    """The pins of a walk.

    The revision of each, or why it cannot be read, and the revisions at the ends of the range, by
    commit.
    """

    read: dict[PinEntry, str | PinMalformed]
    ends: dict[str, str]
    empty: bool = False
    """No commit of the walk, and neither end, has a pin, readable or not."""

    @classmethod
    def from_walk(cls, kb: Path, walk: Walk, ends: Mapping[str, bytes]) -> ReadPins:
        entries = {entry for change in walk.changes for entry in (change.after, *change.before) if entry}
        found = ((commit, try_read_pin(kb, content)) for commit, content in ends.items())
        return cls(
            {entry: _revision(kb, entry, walk.contents) for entry in entries},
            {commit: pin.dolt_commit for commit, pin in found if pin},
            not entries and not ends,
        )

    @property
    def revisions(self) -> Iterator[str]:
        yield from (each for each in self.read.values() if isinstance(each, str))
        yield from self.ends.values()

    def find_revision(self, entry: PinEntry | None) -> str | None:
        found = self.read[entry] if entry else None
        return found if isinstance(found, str) else None


def _revision(kb: Path, entry: PinEntry, contents: Mapping[str, bytes]) -> str | PinMalformed:
    if not entry.is_file:
        return PinMalformed(f"{PIN_NAME} is {_KINDS.get(entry.mode, 'no file')}; it must be a file.")
    if entry.name not in contents:
        return PinMalformed(f"{PIN_NAME} has more than {PIN_READ_LIMIT} bytes: that is no pin.")
    try:
        return migrated.read_pin(kb, contents[entry.name]).dolt_commit
    except PinMalformed as error:
        return error


class PinHistory:
    """The whole history of a commit, for what is outside of the range that is looked at.

    Walked only if something is asked.
    """

    def __init__(self, places: Places, tip: str) -> None:
        self._places = places
        self._tip = tip

    def list_revisions(self, commits: Iterable[str]) -> set[str]:
        """What these commits pin, as far as it can be read."""
        entries = (self._pins.get(commit) for commit in commits)
        found = (_revision(self._places.kb, entry, self._walk.contents) for entry in entries if entry)
        return {each for each in found if isinstance(each, str)}

    @cached_property
    def _walk(self) -> Walk:
        return history.walk_range(self._places, self._tip)

    @cached_property
    def _pins(self) -> dict[str, PinEntry | None]:
        changes = {change.commit: change.after for change in self._walk.changes}
        pins: dict[str, PinEntry | None] = {}
        for commit, parents in self._walk.parents.items():
            pins[commit] = changes[commit] if commit in changes else pins[parents[0]] if parents else None
        return pins
