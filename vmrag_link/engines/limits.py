"""How much is taken of what remotes hold."""

from __future__ import annotations

from vmrag_link.errors import KnowledgeRefused
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


def too_large(size: int, most: int) -> KnowledgeRefused:
    """What a remote holds has more bytes than are taken."""
    return KnowledgeRefused(
        f"The remote's knowledge base has {size / MEGABYTE:,.1f} MB; at most {most / MEGABYTE:,.0f} MB are taken. Nothing of it was.",
        hint=f"If that is what you expect: git config vmrag.limits.knowledge-mb {-(-size // MEGABYTE)}",
        bytes=size,
    )
