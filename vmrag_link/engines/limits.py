"""Limits for the data of remotes, and helpers that every engine uses to create a knowledge base."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_link.errors import AlreadyInitialized, EngineFailed, KnowledgeRefused
from vmrag_link.models import Record


class Limits(Record, frozen=True):
    """The limits for a remote's file."""

    file_bytes: int = 1_000_000_000
    """Bytes of the file."""
    revisions: int = 1000
    """Number of new revisions."""
    collections: int = 10_000
    """Number of collections in one revision."""
    documents: int = 1_000_000
    """Number of documents in one revision."""
    text_bytes: int = 64 << 20
    """Bytes of one text."""
    branches: int = 10_000
    """Number of branches of the file."""


USUAL_LIMITS = Limits()
MEGABYTE = 1_000_000


def too_large_error(size: int, limit: int) -> KnowledgeRefused:
    """Return the error for a remote's knowledge base with more bytes than the limit."""
    return KnowledgeRefused(
        f"the remote's knowledge base has {size / MEGABYTE:,.1f} MB, above the limit of {limit / MEGABYTE:,.0f} MB; nothing was fetched.",
        hint=f"run 'git config vmrag.limits.knowledge-mb {-(-size // MEGABYTE)}' if you expect this size",
        bytes=size,
    )


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


def require_parents(revision: str, actual: Sequence[str], expected: Sequence[str]) -> None:
    """Raise `EngineFailed` if an engine gave a revision other parents than requested."""
    if tuple(actual) != tuple(expected):
        raise EngineFailed(
            f"the engine cannot create a revision with the parents {' and '.join(parent[:12] for parent in expected)}:"
            f" {revision[:12]} has {' and '.join(parent[:12] for parent in actual) or 'none'}.",
            hint="run 'vmrag doctor' to find the problem",
            revision=revision,
        )
