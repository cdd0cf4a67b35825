"""What is refused of a remote's branches, whichever engine looks at them.

Every head has our tables and nothing else, is within the limits, and holds rows that we could have
written. What differs from a head that was looked at before is enough to look at.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from vmrag_link import terminal_text
from vmrag_link.engines import records, tables
from vmrag_link.engines.limits import MEGABYTE, Limits
from vmrag_link.engines.tables import ROWS_HINT
from vmrag_link.errors import KnowledgeRefused, LimitExceeded, RowsInvalid, SchemaTooNew, StatementGivenUp
from vmrag_link.models import Document, Link, Row, content_hash, metadata_from_row
from vmrag_link.pin_values import REVISION, TIME

_MOST_SHOWN = 300

MOST_LINKS = 100_000
"""How many links are taken: one for each commit that introduces a pin."""

LONGEST_LINK = 4096
"""Bytes of all columns of one link."""

_COMMIT = "[0-9a-f]{40}(?:[0-9a-f]{24})?"

MOST_DOCUMENT_MB = 900
"""What `limits.document_mb` may be at most: doltlite stores a gigabyte."""

_HINT = (
    "Ask who pushed that; until it is mended, what is here goes on answering. To put there what was last fetched: "
    "vmrag gc --remote --apply"
)

RowCheck = Callable[[Row], None]
"""Raises an `EngineError` for a row that must not be taken."""


def require_few_branches(heads: Mapping[str, str], limits: Limits) -> None:
    if len(heads) > limits.branches:
        raise KnowledgeRefused(f"It has more than {limits.branches:,} branches. Nothing of it was taken.", hint=_HINT)


def require_valid_row(row: Row) -> None:
    """Raises `RowsInvalid` for a row that is a record, but that none of our commands writes.

    The embedding model may be unknown: a newer program may have more of them.
    """
    key = row.key if isinstance(row, Document) else (row.key,)
    try:
        metadata_from_row(row.metadata)
    except ValueError as error:
        why = str(error).removeprefix("its metadata ")
        raise records.invalid_row_error(tables.find_table(row), key, "metadata", why) from error
    if isinstance(row, Document) and row.content_hash != content_hash(row.content):
        raise records.invalid_row_error(tables.find_table(row), key, "content_hash", "is not that of its content")


@contextlib.contextmanager
def translate_push_refusal() -> Iterator[None]:
    """What is refused of heads that are about to be pushed, as whoever fetches them would refuse
    it, becomes the refusal of the push.
    """
    try:
        yield
    except KnowledgeRefused as error:
        row = error.__cause__ if isinstance(error.__cause__, RowsInvalid) else None
        raise KnowledgeRefused(
            f"Nothing was pushed, because nobody could fetch it. {row.message if row else error.message}",
            hint=row.hint if row else ROWS_HINT,
            **(row.details if row else error.details),
        ) from error


def require_valid_link(link: Link) -> None:
    """Raises `ValueError` for a row that none of our commands writes: it is shown, and git is asked
    about its commits.
    """
    for name in ("git_commit", "superseded_by"):
        if not re.fullmatch(_COMMIT, getattr(link, name)) and (name == "git_commit" or link.superseded_by):
            raise ValueError(f"a link's {name} is not the hash of a commit")
    if not re.fullmatch(REVISION, link.dolt_commit):
        raise ValueError(f"the link of {link.git_commit} names no revision")
    if link.linked_at and not re.fullmatch(TIME, link.linked_at):
        raise ValueError(f"the link of {link.git_commit} has a linked_at that is no time")
    if not all(each.isprintable() for each in (link.dolt_branch, link.git_branch, link.git_repo_url)):
        raise ValueError(f"the link of {link.git_commit} holds what cannot be printed")
    metadata_from_row(link.metadata)
    if sum(len(each.encode()) for each in msgspec.structs.astuple(link)) > LONGEST_LINK:
        raise ValueError(f"the link of {link.git_commit} has more than {LONGEST_LINK:,} bytes")


def foreign_place_error(where: str, odd: str) -> KnowledgeRefused:
    """The refusal of a place that holds anything but our tables; `odd` is safe to show."""
    return KnowledgeRefused(f"{where} is neither read nor written on: {odd}.", hint=ROWS_HINT)


def refused_head_error(where: str, why: str) -> KnowledgeRefused:
    """The refusal of a head. A stranger's words may be in `why`."""
    return KnowledgeRefused(f"{where} is not taken: {_one_line(why)}.", hint=_HINT)


@contextlib.contextmanager
def refusing_head(where: str, limits: Limits, *unreadable: type[Exception]) -> Iterator[None]:
    """What reading a head raises becomes the refusal of that head. `unreadable`: what reading rows
    raises that are not records. A newer program's schema is no refusal: `SchemaTooNew` passes.
    """
    try:
        yield
    except SchemaTooNew:
        raise
    except StatementGivenUp as error:
        raise refused_head_error(where, f"it cannot be looked at. {error.message}") from error
    except LimitExceeded as error:
        raise long_text_error(where, limits) from error
    except unreadable as error:
        raise refused_head_error(where, str(error)) from error


class ForeignTables(KnowledgeRefused):
    """The head of a branch has tables of another program."""


def long_text_error(where: str, limits: Limits) -> KnowledgeRefused:
    """The refusal of a head with a longer text than is taken."""
    size = limits.text_bytes // MEGABYTE
    return KnowledgeRefused(
        f"{where} is not taken: it holds a document of more than {size:,} MB.",
        hint=f"If that is what you expect: git config vmrag.limits.document-mb {min(4 * size, MOST_DOCUMENT_MB)}",
    )


def vetting_error(why: str, revision: str = "") -> KnowledgeRefused:
    """The refusal of all that `Engine.vet` was asked for. A stranger's words may be in `why`."""
    what = f"Revision {revision[:12]}" if revision else "The knowledge base"
    return KnowledgeRefused(
        f"{what} was refused, and nothing of it was taken: {_one_line(why)}.",
        hint="Ask who pushed it what that is. The code can be merged without its knowledge: git checkout BASE -- .dolt-version",
        **({"revision": revision} if revision else {}),
    )


def _one_line(why: str) -> str:
    return terminal_text.escape_line(why)[:_MOST_SHOWN].rstrip(".")


def require_descent(parents: Mapping[str, tuple[str, ...]], limits: Limits) -> None:
    """Require that new revisions, by which their parents are named, descend from known ones."""
    if len(parents) > limits.revisions:
        raise vetting_error(f"it has more than {limits.revisions:,} new revisions")
    if not all(parents.values()):
        raise vetting_error(UNRELATED)


UNRELATED = "it has no history in common with ours: it is another one"
