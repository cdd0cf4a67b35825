"""What is refused of a remote's branches, whichever engine looks at them.

Every head has our tables and nothing else, is within the limits, and holds rows that we could have
written. What differs from a head that was looked at before is enough to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from vmrag_link import terminal_text
from vmrag_link.engines import logical
from vmrag_link.engines.limits import MEGABYTE, Limits
from vmrag_link.engines.records import ROWS_HINT
from vmrag_link.engines.tables import Table
from vmrag_link.errors import KnowledgeRefused
from vmrag_link.models import Document, Row, content_hash, metadata_from_row

_MOST_SHOWN = 300

MOST_DOCUMENT_MB = 900
"""What `limits.document_mb` may be at most: doltlite stores a gigabyte."""

_HINT = (
    "Ask who pushed that; until it is mended, what is here goes on answering. To put there what was last fetched: "
    "vmrag gc --remote --apply"
)

Sound = Callable[[Row], None]
"""Raises an `EngineError` for a row that must not be taken."""


class Look(Protocol):
    def __call__(self, head: str, where: str, *, base: str | None) -> bool:
        """Raise `KnowledgeRefused`, or return whether the head has our tables.

        Only what differs from `base` need be read. `where` names the head in messages.
        """


def require_sound(heads: Mapping[str, str], look: Look, *, known: Mapping[str, str], limits: Limits) -> None:
    """Look at the heads of a remote's branches, except those that were looked at before (`known`).

    Raises `KnowledgeRefused`. A newer program's schema is no reason to refuse the rest, because
    nothing reads it here.
    """
    if len(heads) > limits.branches:
        raise KnowledgeRefused(f"It has more than {limits.branches:,} branches. Nothing of it was taken.", hint=_HINT)
    seen = set(known.values())
    nearby = next(iter(known.values()), None)
    for name, head in heads.items():
        if head not in seen:
            seen.add(head)
            where = f"Revision {head[:12]} (KB branch {name[:80]!a} of the remote)"
            if look(head, where, base=known.get(name) or nearby):
                nearby = nearby or head  # what the next one shares with it is not looked at twice


def require_ours(row: Row) -> None:
    """Raises `ValueError` for a row that is a record, but that none of our commands writes.

    The embedding model may be unknown: a newer program may have more of them.
    """
    metadata_from_row(row.metadata)
    if isinstance(row, Document) and row.content_hash != content_hash(row.content):
        raise ValueError(f"the content_hash of {'/'.join(row.key)} is not that of its content")


def twins_query(table: Table) -> str:
    """SQL that finds an id of a `tables.LOGICAL` table in `documents`, in a collection of its kind.

    Two documents of one name could not be told apart. None of our programs makes such an id twice.
    """
    prefix = logical.collections_prefix(table)
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return (
        f"SELECT 1 AS v FROM documents WHERE collection_name >= '{prefix}' AND collection_name < '{after}'"  # noqa: S608  our own names
        f" AND doc_id IN (SELECT {table.columns[0]} FROM {table.name}) LIMIT 1"
    )


def twins(table: Table) -> str:
    """What is said where that finds something."""
    return f"a row of {table.name} has the name of a document"


def not_ours(where: str, odd: str) -> KnowledgeRefused:
    """The refusal of a place that holds anything but our tables; `odd` is safe to show."""
    return KnowledgeRefused(f"{where} is neither read nor written on: {odd}.", hint=ROWS_HINT)


def not_taken(where: str, why: str) -> KnowledgeRefused:
    """The refusal of a head. A stranger's words may be in `why`."""
    return KnowledgeRefused(f"{where} is not taken: {_shown(why)}.", hint=_HINT)


def too_long(where: str, limits: Limits) -> KnowledgeRefused:
    """The refusal of a head with a longer text than is taken."""
    size = limits.text_bytes // MEGABYTE
    return KnowledgeRefused(
        f"{where} is not taken: it holds a document of more than {size:,} MB.",
        hint=f"If that is what you expect: git config vmrag.limits.document-mb {min(4 * size, MOST_DOCUMENT_MB)}",
    )


def refused(why: str, revision: str = "") -> KnowledgeRefused:
    """The refusal of all that `Engine.vet` was asked for. A stranger's words may be in `why`."""
    what = f"Revision {revision[:12]}" if revision else "The knowledge base"
    return KnowledgeRefused(
        f"{what} was refused, and nothing of it was taken: {_shown(why)}.",
        hint="Ask who pushed it what that is. The code can be merged without its knowledge: git checkout BASE -- .dolt-version",
        **({"revision": revision} if revision else {}),
    )


def _shown(why: str) -> str:
    return terminal_text.one_line(why)[:_MOST_SHOWN].rstrip(".")


def require_descent(parents: Mapping[str, tuple[str, ...]], limits: Limits) -> None:
    """Require that new revisions, by which their parents are named, descend from known ones."""
    if len(parents) > limits.revisions:
        raise refused(f"it has more than {limits.revisions:,} new revisions")
    if not all(parents.values()):
        raise refused(STRANGE)


STRANGE = "it has no history in common with ours: it is another one"
