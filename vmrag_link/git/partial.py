"""Partial clones, which have no blobs until somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.git.run import demand, git
from vmrag_link.paths import Places

_FETCH = ("fetch", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")


def bring(places: Places, blobs: Iterable[str]) -> None:
    """Fetch those of these blobs that are not here all at once; git itself would fetch one after the other.

    In other clones nothing happens. If it fails, git tries again when it needs them, and says why not.
    """
    found = git(places, "config", "--get-regexp", "-z", r"^remote\..*\.promisor$").text.split("\0")
    remotes = [
        key.removeprefix("remote.").removesuffix(".promisor") for key, _, _ in (each.partition("\n") for each in found)
    ]
    asked = dict.fromkeys(blobs)
    if not remotes[0] or not asked:
        return
    # Without `--missing=print` this would fetch them, too.
    options = ("--objects", "--no-object-names", "--no-walk", "--ignore-missing", "--missing=print", "--stdin")
    here = set(demand(places, "rev-list", *options, stdin=_lines(asked)).text.split())
    if missing := [each for each in asked if each not in here]:
        git(places, "-c", "fetch.negotiationAlgorithm=noop", *_FETCH, remotes[0], stdin=_lines(missing))


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
