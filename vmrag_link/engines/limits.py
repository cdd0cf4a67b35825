"""How much is taken of what remotes hold, and what making a knowledge base has in common in every
engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_link.errors import AlreadyInitialized, EngineFailed, KnowledgeRefused
from vmrag_link.models import Record


class Limits(Record, frozen=True):
    """The limits for a remote's file.

    Bytes and branches of the file, its new revisions, collections and documents in one revision,
    and bytes of one text.
    """

    file_bytes: int = 1_000_000_000
    revisions: int = 1000
    collections: int = 10_000
    documents: int = 1_000_000
    text_bytes: int = 64 << 20
    branches: int = 10_000


USUAL_LIMITS = Limits()
MEGABYTE = 1_000_000


def too_large_error(size: int, most: int) -> KnowledgeRefused:
    """What a remote holds has more bytes than are taken."""
    return KnowledgeRefused(
        f"The remote's knowledge base has {size / MEGABYTE:,.1f} MB; at most {most / MEGABYTE:,.0f} MB are taken. Nothing of it was.",
        hint=f"If that is what you expect: git config vmrag.limits.knowledge-mb {-(-size // MEGABYTE)}",
        bytes=size,
    )


CREATING_NAME = ".creating"
"""The folder in which one is made, until it is moved to its place."""


def continuation_message(origin: str) -> str:
    """The message of an engine's own initial commit where a knowledge base continues another one.

    That commit is timestamped. It is made anew, so that equal knowledge bases are continued by
    equal ones, and different ones by such as have nothing in common.
    """
    return f"Continue the knowledge base {origin}"


def already_exists_error(folder: Path) -> AlreadyInitialized:
    return AlreadyInitialized(f"There is a knowledge base in {folder} already.", hint="See what it holds: vmrag status")


@contextlib.contextmanager
def translate_os_errors(folder: Path) -> Iterator[None]:
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
