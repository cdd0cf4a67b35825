"""The pins of git's whole history, read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from vmrag_link.git import history, refs
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.paths import Places
from vmrag_link.pin import Pin


def reached(places: Places, commit: str) -> Iterator[tuple[Pin, list[str]]]:
    """As `read`, of a commit and its ancestors."""
    return _readable(places, history.reachable_pins(places, [commit]))


def after(places: Places, commit: str) -> Iterator[Pin]:
    """The pins that descendants of a commit introduce, oldest first."""
    return filter(None, (parsed(places.kb, data) for data in history.pins_after(places, commit).values()))


def read(places: Places, *, reflogs: bool = True, also: Iterable[str] = ()) -> Iterator[tuple[Pin, list[str]]]:
    """Each pin with the commits that introduced it, newest first, of the refs in
    `git.history.pins`.

    Unreadable pins are left out.
    """
    return _readable(places, history.pins(places, reflogs=reflogs, also=also))


def everywhere(places: Places) -> list[str]:
    """The revisions that something of git's pins, here or not, latest first: its refs, reflogs,
    work trees, and what it is in the middle of.
    """
    uncommitted = (parsed(places.kb, data) for data in refs.uncommitted_pins(places))
    committed = (pin for pin, _ in read(places, also=refs.noted_commits(places)))
    return [pin.dolt_commit for pin in (*filter(None, uncommitted), *committed)]


def _readable(places: Places, found: Mapping[bytes, list[str]]) -> Iterator[tuple[Pin, list[str]]]:
    for data, commits in found.items():
        if pin := parsed(places.kb, data):
            yield pin, commits
