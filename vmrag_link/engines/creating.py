"""What making a knowledge base has in common in every engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.errors import AlreadyInitialized, EngineFailed

UNFINISHED = ".creating"
"""The folder in which one is made, until it is moved to its place."""


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
