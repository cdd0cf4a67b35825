"""Decide what a query searches instead of the documents and files of the work tree.

Two functions decide: `ranked_at` for `--at REF`, which searches the commit of a git ref, and
`answer_from_files` for a work tree whose stored documents cannot be read. Then only its files
answer, if it has any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmrag_link.errors import KnowledgeElsewhere, NotInitialized, PinMissing, PinRevisionMissing, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.settings import Config, RetrievalSettings
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import lazy_fetch

if TYPE_CHECKING:
    from vmrag_link.workspace import SourceStore


class RankedRevision(Record, frozen=True):
    """A commit that a query searches: its documents and files, and the settings of the ranking."""

    revision: str
    """The revision with the stored documents; empty if only files are searched."""
    retrieval: RetrievalSettings
    """The settings for the ranking."""
    commit: str | None = None
    """The commit whose files are also searched."""
    config: Config | None = None
    """The settings of the commit, which name its sources."""
    notes: tuple[str, ...] = ()
    """Why its stored documents are missing; empty if they are not."""


def ranked_at(ws: Workspace, ref: str, *, or_files: bool = False) -> RankedRevision:
    """Return what to search at a git ref, with the settings of its commit.

    Raises the errors of `ranked_commit`, and `ConfigInvalid`.
    """
    return ranked_commit(ws, ref, ws.sources.read_config_at(ref), or_files=or_files)


def ranked_commit(ws: Workspace, ref: str, config: Config, *, or_files: bool = False) -> RankedRevision:
    """Return what to search at a git ref whose commit has the settings `config`.

    The pinned revision is fetched if it is missing. `or_files`: if it cannot be fetched, search
    only the files of the commit, and add a note. Raises the errors of `lazy_fetch.pinned_at`. A
    missing pin is not an error if the commit has sources.
    """
    if not config.sources:
        return RankedRevision(lazy_fetch.pinned_at(ws, ref), config.retrieval)
    commit = plumbing.resolve_commit(ws.places, ref)
    revision = ""
    notes: tuple[str, ...] = ()
    try:
        revision = lazy_fetch.pinned_at(ws, ref)
    except PinMissing:  # files need no pin
        pass
    except (KnowledgeElsewhere, PinRevisionMissing) as error:
        if not or_files:
            raise
        notes = reasons.explain_missing_documents(error)
    return RankedRevision(revision, config.retrieval, commit, config, notes)


def can_files_answer(ws: Workspace, error: VmragError) -> bool:
    """Return whether files of sources can answer alone. `error`: why no documents can be read.

    They can, if this repository never had a knowledge base or pin, and has sources.
    """
    never_stored = isinstance(error, NotInitialized | PinMissing)
    # `KnowledgeElsewhere` is a `NotInitialized`: there are documents, but not in this clone.
    missing = never_stored and not isinstance(error, KnowledgeElsewhere)
    return missing and bool(ws.sources.configured)


def answer_from_files(ws: Workspace, error: VmragError) -> SourceStore:
    """Return the files of sources as a store. `error`: why no documents can be read.

    Its views have notes about missing documents. Raises `error` without sources.
    """
    if not ws.sources.configured:
        raise error
    ws.files.notes = reasons.explain_missing_documents(error)
    return ws.files
