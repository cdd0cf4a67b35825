"""Helpers with which every engine creates and opens a knowledge base in a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.errors import AlreadyInitialized, EngineFailed, NotInitialized


def continuation_message(origin: str) -> str:
    """Return the message of the initial commit of a knowledge base that continues another one.

    The engine's own initial commit has a timestamp. With this message it is recreated, so that
    equal knowledge bases are continued by equal ones, and different ones by unrelated ones.
    """
    return f"Continue the knowledge base {origin}"


def already_exists_error(folder: Path) -> AlreadyInitialized:
    return AlreadyInitialized(f"{folder} already holds a knowledge base.", hint="run 'vmrag status' to show its state")


@contextlib.contextmanager
def translate_os_errors(folder: Path) -> Iterator[None]:
    """Raise `EngineFailed` if the operating system refuses an operation in the block."""
    try:
        yield
    except OSError as error:
        raise EngineFailed(
            f"cannot write to the folder {folder}: {error.strerror}.",
            hint="check that you may write there, and that the disk has space",
            path=str(folder),
        ) from error


def not_initialized_error(folder: Path) -> NotInitialized:
    return NotInitialized(
        f"no knowledge base found in {folder}.", hint="run 'vmrag init --knowledge-base' to create a knowledge base"
    )
