"""The rules by which a remote's branches are refused. They are the same for every engine.

Every head must have our tables and nothing else, be within the limits, and hold only rows that
vmrag could have written. If an earlier head was checked, only the difference is checked.
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

_MAX_SHOWN_CHARACTERS = 300

MAX_LINKS = 100_000
"""Maximum number of links: one for each commit that introduces a pin."""

MAX_LINK_BYTES = 4096
"""Bytes of all columns of one link."""

_COMMIT = "[0-9a-f]{40}(?:[0-9a-f]{24})?"

MAX_DOCUMENT_MB = 900
"""Maximum value of `limits.document_mb`: doltlite stores texts up to a gigabyte."""

_HINT = "ask who pushed it, or run 'vmrag gc --remote --apply' to push the state of your last fetch instead"

RowCheck = Callable[[Row], None]
"""A function that raises an `EngineError` for a row that must be refused."""


def require_few_branches(heads: Mapping[str, str], limits: Limits) -> None:
    if len(heads) > limits.branches:
        raise KnowledgeRefused(
            f"the remote has more than {limits.branches:,} branches; nothing was fetched.", hint=_HINT
        )


def require_valid_row(row: Row) -> None:
    """Raise `RowsInvalid` for a row that is a record, but that no vmrag command writes.

    The embedding model may be unknown, because a newer program may have more models.
    """
    key = row.key if isinstance(row, Document) else (row.key,)
    try:
        metadata_from_row(row.metadata)
    except ValueError as error:
        why = str(error).removeprefix("its metadata ")
        raise records.invalid_row_error(tables.find_table(row), key, "metadata", why) from error
    if isinstance(row, Document) and row.content_hash != content_hash(row.content):
        raise records.invalid_row_error(tables.find_table(row), key, "content_hash", "does not match its content")


@contextlib.contextmanager
def translate_push_refusal() -> Iterator[None]:
    """Turn the refusal of a head in the block into the refusal of the push.

    Every clone that fetches the head would refuse it.
    """
    try:
        yield
    except KnowledgeRefused as error:
        row = error.__cause__ if isinstance(error.__cause__, RowsInvalid) else None
        raise KnowledgeRefused(
            f"nothing was pushed, because no clone could fetch it: {row.message if row else error.message}",
            hint=row.hint if row else ROWS_HINT,
            **(row.details if row else error.details),
        ) from error


def require_valid_link(link: Link) -> None:
    """Raise `ValueError` for a link that no vmrag command writes.

    This is necessary because links are shown, and git looks up their commits.
    """
    for name in ("git_commit", "superseded_by"):
        if not re.fullmatch(_COMMIT, getattr(link, name)) and (name == "git_commit" or link.superseded_by):
            raise ValueError(f"a link's {name} is not the hash of a commit")
    if not re.fullmatch(REVISION, link.dolt_commit):
        raise ValueError(f"the link of {link.git_commit} has an invalid revision")
    if link.linked_at and not re.fullmatch(TIME, link.linked_at):
        raise ValueError(f"the link of {link.git_commit} has an invalid linked_at")
    if not all(text.isprintable() for text in (link.dolt_branch, link.git_branch, link.git_repo_url)):
        raise ValueError(f"the link of {link.git_commit} contains unprintable characters")
    metadata_from_row(link.metadata)
    if sum(len(value.encode()) for value in msgspec.structs.astuple(link)) > MAX_LINK_BYTES:
        raise ValueError(f"the link of {link.git_commit} has more than {MAX_LINK_BYTES:,} bytes")


def foreign_place_error(where: str, odd: str) -> KnowledgeRefused:
    """Return the error for a place with other tables than ours. `odd` must be safe to show."""
    return KnowledgeRefused(f"refusing to use {where}: {odd}.", hint=ROWS_HINT)


def refused_head_error(where: str, why: str) -> KnowledgeRefused:
    """Return the error for a refused head. `why` may contain untrusted text."""
    return KnowledgeRefused(f"refusing to fetch {where}: {_one_line(why)}.", hint=_HINT)


@contextlib.contextmanager
def refusing_head(where: str, limits: Limits, *unreadable: type[Exception]) -> Iterator[None]:
    """Turn an error that reading a head raises into the refusal of that head.

    `unreadable` are the errors of rows that are not records. `SchemaTooNew` passes through: a newer
    program's schema is not refused.
    """
    try:
        yield
    except SchemaTooNew:
        raise
    except StatementGivenUp as error:
        raise refused_head_error(where, f"it cannot be checked: {error.message}") from error
    except LimitExceeded as error:
        raise long_text_error(where, limits) from error
    except unreadable as error:
        raise refused_head_error(where, str(error)) from error


class ForeignTables(KnowledgeRefused):
    """The head of a branch has tables of another program."""


def long_text_error(where: str, limits: Limits) -> KnowledgeRefused:
    """Return the error for a head with a longer text than the limits allow."""
    size = limits.text_bytes // MEGABYTE
    return KnowledgeRefused(
        f"refusing to fetch {where}: it holds a document of more than {size:,} MB.",
        hint=f"run 'git config vmrag.limits.document-mb {min(4 * size, MAX_DOCUMENT_MB)}' if you expect such documents",
    )


def vetting_error(why: str, revision: str = "") -> KnowledgeRefused:
    """Return the error that refuses everything `Engine.vet_revisions` was called for.

    `why` may contain untrusted text.
    """
    what = f"revision {revision[:12]}" if revision else "the knowledge base"
    return KnowledgeRefused(
        f"refused {what}, nothing was imported: {_one_line(why)}.",
        hint="ask who pushed it, or run 'git checkout BASE -- .dolt-version' to merge the code without these documents",
        **({"revision": revision} if revision else {}),
    )


def _one_line(why: str) -> str:
    return terminal_text.escape_line(why)[:_MAX_SHOWN_CHARACTERS].rstrip(".")


UNRELATED = "it has no common history with yours"


def require_descent(parents: Mapping[str, tuple[str, ...]], limits: Limits) -> None:
    """Require that new revisions descend from known ones.

    `parents` maps each one to its parents.
    """
    if len(parents) > limits.revisions:
        raise vetting_error(f"it has more than {limits.revisions:,} new revisions")
    if not all(parents.values()):
        raise vetting_error(UNRELATED)
