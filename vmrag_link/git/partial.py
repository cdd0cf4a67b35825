"""Partial clones, which fetch blobs on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vmrag_link.git.configuration import config_entries
from vmrag_link.git.run import demand, git
from vmrag_link.paths import Places

_FETCH = ("fetch", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")

# Without `--missing=print` this would fetch them, too; with it, they come behind a question mark.
_OBJECTS = ("--objects", "--no-object-names", "--no-walk", "--ignore-missing", "--missing=print", "--stdin")


def bring_at(places: Places, commits: Iterable[str], path: str) -> None:
    """As `bring`, of what these commits, by full hash, have at a path."""
    asked = dict.fromkeys(commits)
    remote = _promisor(places)
    if remote is None or not asked:
        return
    said = demand(places, "rev-list", *_OBJECTS, "--", path, stdin=_lines(asked)).text.split()
    _fetch(places, remote, [each.removeprefix("?") for each in said if each.startswith("?")])


def bring(places: Places, blobs: Iterable[str]) -> None:
    """Fetch the missing ones of these blobs at once; git itself would fetch one after the other.

    Does nothing in other clones. If it fails, git tries again when it needs them, and reports why.
    """
    remote = _promisor(places)
    asked = dict.fromkeys(blobs)
    if remote is None or not asked:
        return
    here = set(demand(places, "rev-list", *_OBJECTS, stdin=_lines(asked)).text.split())
    _fetch(places, remote, [each for each in asked if each not in here])


def _fetch(places: Places, remote: str, blobs: Sequence[str]) -> None:
    if blobs:
        git(places, "-c", "fetch.negotiationAlgorithm=noop", *_FETCH, remote, stdin=_lines(blobs))


def _promisor(places: Places) -> str | None:
    """The remote that has what is missing here; None in other clones."""
    keys = [key for key, _ in config_entries(places, r"remote\..*\.promisor")]
    return keys[0].removeprefix("remote.").removesuffix(".promisor") if keys else None


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
