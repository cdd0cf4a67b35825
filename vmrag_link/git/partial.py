"""Partial clones, which fetch blobs on demand."""

from __future__ import annotations

from collections.abc import Iterable

from vmrag_link.git.run import demand, git
from vmrag_link.git.settings import config_entries
from vmrag_link.paths import Places

_FETCH = ("fetch", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin")


def bring(places: Places, blobs: Iterable[str]) -> None:
    """Fetch the missing ones of these blobs at once; git itself would fetch one after the other.

    Does nothing in other clones. If it fails, git tries again when it needs them, and reports why.
    """
    keys = [key for key, _ in config_entries(places, r"remote\..*\.promisor")]
    asked = dict.fromkeys(blobs)
    if not keys or not asked:
        return
    remote = keys[0].removeprefix("remote.").removesuffix(".promisor")
    # Without `--missing=print` this would fetch them, too.
    options = ("--objects", "--no-object-names", "--no-walk", "--ignore-missing", "--missing=print", "--stdin")
    here = set(demand(places, "rev-list", *options, stdin=_lines(asked)).text.split())
    if missing := [each for each in asked if each not in here]:
        git(places, "-c", "fetch.negotiationAlgorithm=noop", *_FETCH, remote, stdin=_lines(missing))


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
