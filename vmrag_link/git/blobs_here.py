"""Blobs that this clone has: their sizes and contents. Nothing is fetched for want of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vmrag_link.git.beside import look
from vmrag_link.paths import Places

# What `--missing=print` would print are the missing ones that another object names; of the names
# themselves those are left out that are missing.
_HERE = ("rev-list", "--objects", "--no-object-names", "--no-walk", "--ignore-missing", "--missing=print", "--stdin")


def sizes(places: Places, blobs: Iterable[str]) -> dict[str, int]:
    """In bytes, of those of these blobs that are here. Raises as `beside.look`."""
    asked = [*dict.fromkeys(blobs)]
    if not asked:
        return {}
    answer = _asked(places, "--batch-check", asked)
    found = (line.split(b" ") for line in answer.splitlines())
    return {each[0].decode(): int(each[2]) for each in found if len(each) == 3 and each[1] == b"blob"}  # noqa: PLR2004


def contents(places: Places, blobs: Iterable[str]) -> dict[str, bytes]:
    """Of those of these blobs that are here; all are in memory at once. Raises as
    `beside.look`.
    """
    asked = [*dict.fromkeys(blobs)]
    if not asked:
        return {}
    answer = _asked(places, "--batch", asked)
    found: dict[str, bytes] = {}
    at = 0
    while (end := answer.find(b"\n", at)) >= 0:
        match answer[at:end].split(b" "):
            case [name, kind, size]:
                at = end + 1 + int(size)
                if kind == b"blob":
                    found[name.decode()] = answer[end + 1 : at]
                at += 1
            case _:  # `NAME missing`
                at = end + 1
    return found


def _asked(places: Places, how: str, names: Sequence[str]) -> bytes:
    """In a partial clone the first missing object ends git, so the others are found first."""
    done = look(places, "cat-file", how, stdin=_lines(names), fine=(0, _FATAL))
    if done.returncode == 0:
        return done.stdout
    here = set(look(places, *_HERE, stdin=_lines(names)).text.split())
    left = [name for name in names if name in here]
    return look(places, "cat-file", how, stdin=_lines(left)).stdout if left else b""


_FATAL = 128


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
