"""The pins of git's whole history, read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vmrag_link.git import history
from vmrag_link.ops.pinning import parsed
from vmrag_link.paths import Places
from vmrag_link.pin import Pin


def reached(places: Places, commit: str) -> Iterator[tuple[Pin, list[str]]]:
    """As `read`, of a commit and its ancestors."""
    for data, commits in history.reachable_pins(places, [commit]).items():
        if pin := parsed(data):
            yield pin, commits


def read(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> Iterator[tuple[Pin, list[str]]]:
    """Each pin with the commits that introduced it, newest first; what is looked at as `git.history.pins` says.

    What cannot be read pins nothing, and is left out.
    """
    for data, commits in history.pins(places, reflogs=reflogs, also=also).items():
        if pin := parsed(data):
            yield pin, commits
