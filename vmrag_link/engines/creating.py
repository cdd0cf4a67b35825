"""What making a knowledge base has in common in every engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_link.errors import AlreadyInitialized, EngineFailed

UNFINISHED = ".creating"
"""The folder in which one is made, until it is moved to its place."""


def first_message(origin: str) -> str:
    """The message of an engine's own initial commit where a knowledge base continues another one.

    That commit is timestamped. It is made anew, so that equal knowledge bases are continued by
    equal ones, and different ones by such as have nothing in common.
    """
    return f"Continue the knowledge base {origin}"


def already_there(folder: Path) -> AlreadyInitialized:
    return AlreadyInitialized(f"There is a knowledge base in {folder} already.", hint="See what it holds: vmrag status")


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """What the machine refuses in the block is raised as `EngineFailed`."""
    try:
        yield
    except OSError as error:
        raise EngineFailed(
            f"The folder {folder} cannot be written: {error.strerror}.",
            hint="Check that you may write there and that the disk has space.",
            path=str(folder),
        ) from error


def require_parents(revision: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise `EngineFailed` where an engine gave a revision other parents than it should have."""
    if tuple(found) != tuple(wanted):
        raise EngineFailed(
            f"The engine cannot make a revision whose parents are {' and '.join(each[:12] for each in wanted)}:"
            f" {revision[:12]} has {' and '.join(each[:12] for each in found) or 'none'}.",
            hint="vmrag doctor",
            revision=revision,
        )
