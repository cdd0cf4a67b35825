"""Describe where an answer comes from, and resolve the place that a query searches.

Each report of a command that reads documents has this origin. The place is the work tree, or a
commit with its pin and its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.errors import (
    FAILED_CHECK,
    KnowledgeElsewhere,
    KnowledgeMoved,
    NotInitialized,
    PinMissing,
    PinRevisionMissing,
    VmragError,
    first_of,
    plural,
)
from vmrag_link.git import plumbing
from vmrag_link.models import At, Record
from vmrag_link.settings import Config, RetrievalSettings
from vmrag_link.sync.target import describe_left_behind
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.worktree import STORED, OpenSources

if TYPE_CHECKING:
    from vmrag_link.workspace import LocalStore, ReadableStore, SourceStore, View

INCOMPLETE = "SOURCES_INCOMPLETE"
_NAMED = 3


class SourceBlock(Record, frozen=True, omit_defaults=True):
    """The files of the tree that answered, and how the work tree differs from the commit."""

    commit: str | None
    """The commit of the files."""
    collections: tuple[str, ...]
    """Collections of the files."""
    uncommitted: tuple[str, ...] = ()
    """Changed files of the work tree (`COLLECTION/PATH`), which answer with their present text."""
    removed: tuple[str, ...] = ()
    """Files of the commit that the work tree does not have."""
    untracked: int = 0
    """Number of untracked files, which are left out."""
    indexed: int = 100
    """Percentage of the files that answered. The others are not indexed yet."""
    missing: tuple[str, ...] = ()
    """Paths whose contents this clone does not have."""
    failed: tuple[str, ...] = ()
    """Files that could not be cut into chunks here."""
    unavailable: Mapping[str, str] = {}
    """Why collections were not searched, by name."""
    problem: str = ""
    """Why no files answered; empty if some did."""
    untracked_matches: int = 0
    """Number of untracked files that would be among the results, if the setting `sources_untracked`
    is `ask`.
    """


class KbBlock(Record, frozen=True, omit_defaults=True):
    """The state of the knowledge base that answered."""

    worktree: str
    git_head: str | None
    branch: str | None
    commit: str
    """The revision that was read; empty if none was read."""
    dirty: bool
    """True if uncommitted documents were also read."""
    in_sync: bool
    """False if the revision is not the pinned one."""
    versioned: bool = True
    """False for documents without versions, which only this machine has."""
    sources: SourceBlock | None = None
    empty: bool = False
    """True if files answer and the revision has no documents."""


class AnswerOrigin(Record, frozen=True):
    """The origin of an answer."""

    at: At
    """The place in which documents are read."""
    revision: str
    """The same place without uncommitted documents."""
    kb: KbBlock
    notes: tuple[str, ...]
    """Why it is not the pinned revision; empty if it is."""


def find_origin(ws: ReadableStore) -> AnswerOrigin:
    """Return the present origin of answers in the workspace. Nothing is moved.

    Raises the errors of `Reader.read_moment`.
    """
    if not isinstance(ws, Workspace):
        from vmrag_link.workspace.source_tree import SourceStore

        if not isinstance(ws, SourceStore):
            return _form_unversioned(ws, plumbing.read_head(ws.places).commit)
        with ws.reader.view() as view:
            return find_view_origin(ws, view)
    moment = ws.reader.read_moment()
    if not ws.engine.has_revision(moment.revision):
        raise reasons.explain_unusable(ws, moment.target)
    notes = reasons.explain_difference(ws, moment.target, moment.revision)
    block = KbBlock(
        str(ws.places.top), moment.git_head, moment.branch, moment.revision, moment.dirty, in_sync=not notes
    )
    return AnswerOrigin(moment.at, moment.revision, block, notes)


def find_git_origin(ws: Workspace, error: VmragError | None = None) -> AnswerOrigin:
    """Return the origin of the files of a work tree: git's HEAD. The knowledge base is not read.

    `error`: the error for the knowledge base. A note tells if the commit pins it.
    """
    head, notes = plumbing.read_head(ws.places).commit, reasons.explain_missing_documents(error) if error else ()
    block = KbBlock(str(ws.places.top), head, branch=None, commit="", dirty=False, in_sync=not notes)
    return AnswerOrigin("", "", block, notes)


def find_view_origin(ws: ReadableStore, view: View) -> AnswerOrigin:
    """Return the origin of answers from an open index."""
    if not isinstance(ws, Workspace):
        from vmrag_link.workspace.local_store import LocalStore

        if isinstance(ws, LocalStore):
            return _form_unversioned(ws, view.git_head)
    block = KbBlock(
        worktree=str(ws.places.top),
        git_head=view.git_head,
        branch=view.branch,
        commit=view.revision,
        dirty=view.dirty,
        in_sync=not view.notes,
        sources=_form_source_block(view.sources, view.git_head, view.files_note),
        empty=bool(view.sources and view.revision) and _is_empty(view),
    )
    return AnswerOrigin(view.at, view.revision, block, view.notes)


def _is_empty(view: View) -> bool:
    from vmrag_link.index import contents  # imported here, because a log needs no index

    return not any(held.documents for held in contents.read_collections(view.folder).values())


def add_sources(origin: AnswerOrigin, opened: OpenSources | None) -> AnswerOrigin:
    """Return the origin with the files of its tree."""
    block = _form_source_block(opened, None)
    return msgspec.structs.replace(origin, kb=msgspec.structs.replace(origin.kb, sources=block)) if block else origin


def source_warnings(kb: KbBlock) -> list[str]:
    """Return sentences about files of sources that did not answer, with reasons."""
    return [sentence for _, sentence in coded_source_warnings(kb)]


def coded_source_warnings(kb: KbBlock) -> list[tuple[str, str]]:
    """Return the sentences of `source_warnings`, each with its code."""
    block = kb.sources
    if block is None:
        return []
    coded = [(INCOMPLETE, block.problem)] if block.problem else []
    coded += [(INCOMPLETE, _describe_unavailable(name, reason)) for name, reason in block.unavailable.items()]
    submodules = [path for path in block.missing if path.endswith("/")]
    if submodules:
        named = first_of(submodules, _NAMED)
        lacking = plural(len(submodules), "submodule")
        coded.append((INCOMPLETE, f"the answer lacks {lacking} that cannot be read here: {named}."))
    files_missing = [path for path in block.missing if not path.endswith("/")]
    for paths, problem in (
        (files_missing, "this clone does not have"),
        (block.failed, "could not be split into chunks here"),
    ):
        if paths:
            files = f"{plural(len(paths), 'file')} of sources that {problem}"
            coded.append((INCOMPLETE, f"the answer lacks {files}: {first_of(paths, _NAMED)}."))
    if block.indexed < 100:  # noqa: PLR2004  percent
        coded.append((INCOMPLETE, f"indexing: {block.indexed} % of the files answer; the next query continues."))
    return coded


def untracked_notice(kb: KbBlock) -> str:
    """Return the sentence about untracked files that match a query; empty if there are none."""
    matches = kb.sources.untracked_matches if kb.sources else 0
    verb = "matches" if matches == 1 else "match"
    return (
        f"{plural(matches, 'untracked file')} {verb}; run 'vmrag query --untracked' to search untracked files"
        if matches
        else ""
    )


def _describe_unavailable(name: str, reason: str) -> str:
    statement = f"the source {name!r} was not searched: {reason}"
    if reason == STORED:
        return f"{statement}, which was searched; run 'vmrag sources dedupe' to search the files instead"
    return f"{statement}{'' if ': ' in reason else '.'}"


def _form_source_block(opened: OpenSources | None, head: str | None, problem: str = "") -> SourceBlock | None:
    if opened is None:
        return SourceBlock(head, (), problem=problem) if problem else None
    return SourceBlock(
        commit=opened.commit,
        collections=opened.collections,
        uncommitted=tuple(f"{name}/{path}" for name, files in opened.uncommitted.items() for path in files),
        removed=opened.removed,
        untracked=opened.untracked,
        indexed=opened.indexed,
        missing=opened.missing,
        failed=opened.failed,
        unavailable=opened.unavailable,
    )


def _form_unversioned(store: LocalStore, git_head: str | None) -> AnswerOrigin:
    from vmrag_link.workspace import local_store

    block = KbBlock(str(store.places.top), git_head, branch=None, commit="", dirty=False, in_sync=True, versioned=False)
    return AnswerOrigin(local_store.AT, store.base, block, ())


def require_pinned(ws: Workspace, notes: Sequence[str]) -> None:
    """Raise the reason if the documents that are read are not those of the pinned revision.

    This is for callers that must not use another answer. `notes`: the notes of the answer
    (`AnswerOrigin.notes`).
    """
    if not notes:
        return
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    if ws.follow_error:
        raise ws.follow_error
    is_behind = tuple(notes) == describe_left_behind(target)  # these notes have the commands
    raise KnowledgeMoved(
        " ".join(notes),
        hint="run 'vmrag status' to see the state" if is_behind else "run 'vmrag sync' to sync to the pin",
    )


def refuse_outdated(ws: Workspace, notes: Sequence[str], *, strict: bool) -> None:
    """Raise the reason as `require_pinned` does, if `strict`.

    The exit code is always that of drift.
    """
    if not strict:
        return
    try:
        require_pinned(ws, notes)
    except VmragError as error:
        if error.exit_code == FAILED_CHECK:
            raise
        raise KnowledgeMoved(error.message, hint=error.hint, cause=error.cause) from error


class RankedRevision(Record, frozen=True):
    """A place to search instead of the work tree."""

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


def can_files_answer(ws: Workspace, error: VmragError) -> bool:
    """Return whether files of sources can answer alone, if `error` is why no documents
    can be read.
    """
    missing = isinstance(error, NotInitialized | PinMissing) and not isinstance(error, KnowledgeElsewhere)
    return missing and bool(ws.sources.configured)


def answer_from_files(ws: Workspace, error: VmragError) -> SourceStore:
    """Return the files of sources, which answer if no stored documents can be read.

    Notes of their views list missing documents. Raises `error` if there are no sources.
    """
    if not ws.sources.configured:
        raise error
    ws.files.notes = reasons.explain_missing_documents(error)
    return ws.files


def ranked_at(ws: Workspace, ref: str, *, or_files: bool = False) -> RankedRevision:
    """Return the place to search at a git ref, with the settings of its commit.

    `or_files`: if the pinned revision is missing, search its files, and add a note. Raises the
    errors of `lazy_fetch.pinned_at`, and `ConfigInvalid`.
    """
    return ranked_commit(ws, ref, ws.sources.read_config_at(ref), or_files=or_files)


def ranked_commit(ws: Workspace, ref: str, config: Config, *, or_files: bool = False) -> RankedRevision:
    """Return the place to search at a git ref whose settings are known."""
    if not config.sources:
        return RankedRevision(lazy_fetch.pinned_at(ws, ref), config.retrieval)
    commit, revision = plumbing.resolve_commit(ws.places, ref), ""
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
