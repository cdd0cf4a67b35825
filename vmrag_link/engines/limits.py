"""Limits for the data of remotes."""

from __future__ import annotations

from vmrag_link.errors import KnowledgeRefused
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
