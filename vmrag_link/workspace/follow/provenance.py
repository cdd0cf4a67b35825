"""Describe where an answer comes from: the revision, the commit, and files of the work tree.

Each command that reads documents puts this origin (`KbBlock`) into its report, and prints its notes
as warnings. A command that must not answer from another revision than the pinned one calls
`require_pinned` or `refuse_outdated`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.errors import (
    FAILED_CHECK,
    KnowledgeMoved,
    VmragError,
    first_of,
    plural,
)
from vmrag_link.git import plumbing
from vmrag_link.models import At, Record
from vmrag_link.sync.target import describe_left_behind
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.worktree import STORED, OpenSources

if TYPE_CHECKING:
    from vmrag_link.workspace import LocalStore, ReadableStore, View

INCOMPLETE = "SOURCES_INCOMPLETE"
"""Code of a warning that files did not answer."""
_MAX_NAMED_PATHS = 3


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
    """The KB branch or the revision from which documents are read."""
    revision: str
    """The revision without uncommitted documents."""
    kb: KbBlock
    notes: tuple[str, ...]
    """Why it is not the pinned revision; empty if it is."""


def find_origin(ws: ReadableStore) -> AnswerOrigin:
    """Return the origin of documents that are read from the store now, without an index.

    Raises the errors of `Reader.read_moment`.
    """
    if isinstance(ws, Workspace):
        return _find_documents_origin(ws)
    from vmrag_link.workspace.source_tree import SourceStore

    if not isinstance(ws, SourceStore):
        return _form_unversioned(ws, plumbing.read_head(ws.places).commit)
    with ws.reader.view() as view:
        return find_view_origin(ws, view)


def _find_documents_origin(ws: Workspace) -> AnswerOrigin:
    moment = ws.reader.read_moment()
    if not ws.engine.has_revision(moment.revision):
        raise reasons.explain_unusable(ws, moment.target)
    notes = reasons.explain_difference(ws, moment.target, moment.revision)
    block = KbBlock(
        str(ws.places.top), moment.git_head, moment.branch, moment.revision, moment.dirty, in_sync=not notes
    )
    return AnswerOrigin(moment.at, moment.revision, block, notes)


def find_git_origin(ws: Workspace, error: VmragError | None = None) -> AnswerOrigin:
    """Return the origin of answers from files only: git's HEAD. The knowledge base is not read.

    `error`: why it cannot be read. If the commit has a pin, a note has this reason.
    """
    head = plumbing.read_head(ws.places).commit
    notes = reasons.explain_missing_documents(error) if error else ()
    block = KbBlock(str(ws.places.top), head, branch=None, commit="", dirty=False, in_sync=not notes)
    return AnswerOrigin("", "", block, notes)


def find_view_origin(ws: ReadableStore, view: View) -> AnswerOrigin:
    """Return the origin of answers from an open index."""
    if not isinstance(ws, Workspace):
        from vmrag_link.workspace.local_store import LocalStore

        if isinstance(ws, LocalStore):
            return _form_unversioned(ws, view.git_head)
    sources = None
    if view.sources:
        sources = _form_source_block(view.sources)
    elif view.files_note:
        sources = SourceBlock(view.git_head, (), problem=view.files_note)
    block = KbBlock(
        worktree=str(ws.places.top),
        git_head=view.git_head,
        branch=view.branch,
        commit=view.revision,
        dirty=view.dirty,
        in_sync=not view.notes,
        sources=sources,
        empty=bool(view.sources and view.revision) and _is_empty(view),
    )
    return AnswerOrigin(view.at, view.revision, block, view.notes)


def _is_empty(view: View) -> bool:
    from vmrag_link.index import contents  # imported here, because a log needs no index

    return not any(held.documents for held in contents.read_collections(view.folder).values())


def add_sources(origin: AnswerOrigin, opened: OpenSources | None) -> AnswerOrigin:
    """Return the origin with the files that also answered, if there are any."""
    if opened is None:
        return origin
    block = _form_source_block(opened)
    return msgspec.structs.replace(origin, kb=msgspec.structs.replace(origin.kb, sources=block))


def source_warnings(kb: KbBlock) -> list[str]:
    """Return a sentence for each reason why files of sources did not answer."""
    return [sentence for _, sentence in coded_source_warnings(kb)]


def coded_source_warnings(kb: KbBlock) -> list[tuple[str, str]]:
    """Return the sentences of `source_warnings` as pairs (code, sentence)."""
    block = kb.sources
    if block is None:
        return []
    coded = [(INCOMPLETE, block.problem)] if block.problem else []
    coded += [(INCOMPLETE, _describe_unavailable(name, reason)) for name, reason in block.unavailable.items()]
    submodules = [path for path in block.missing if path.endswith("/")]
    if submodules:
        count = plural(len(submodules), "submodule")
        paths = first_of(submodules, _MAX_NAMED_PATHS)
        coded.append((INCOMPLETE, f"the answer lacks {count} that cannot be read here: {paths}."))
    missing_files = [path for path in block.missing if not path.endswith("/")]
    for files, problem in (
        (missing_files, "this clone does not have"),
        (block.failed, "could not be split into chunks here"),
    ):
        if files:
            count = f"{plural(len(files), 'file')} of sources that {problem}"
            coded.append((INCOMPLETE, f"the answer lacks {count}: {first_of(files, _MAX_NAMED_PATHS)}."))
    if block.indexed < 100:  # noqa: PLR2004  percent
        coded.append((INCOMPLETE, f"indexing: {block.indexed} % of the files answer; the next query continues."))
    return coded


def untracked_notice(kb: KbBlock) -> str:
    """Return the sentence about untracked files that match a query; empty if there are none."""
    matches = kb.sources.untracked_matches if kb.sources else 0
    if not matches:
        return ""
    verb = "matches" if matches == 1 else "match"
    return f"{plural(matches, 'untracked file')} {verb}; run 'vmrag query --untracked' to search untracked files"


def _describe_unavailable(name: str, reason: str) -> str:
    statement = f"the source {name!r} was not searched: {reason}"
    if reason == STORED:
        return f"{statement}, which was searched; run 'vmrag sources dedupe' to search the files instead"
    return f"{statement}{'' if ': ' in reason else '.'}"


def _form_source_block(opened: OpenSources) -> SourceBlock:
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
    """Raise the reason if an answer does not come from the pinned revision.

    `notes`: the notes of the answer (`AnswerOrigin.notes`), which are empty if it does.
    """
    if not notes:
        return
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    if ws.follow_error:
        raise ws.follow_error
    hint = "run 'vmrag sync' to sync to the pin"
    if tuple(notes) == describe_left_behind(target):  # these notes have the commands
        hint = "run 'vmrag status' to see the state"
    raise KnowledgeMoved(" ".join(notes), hint=hint)


def refuse_outdated(ws: Workspace, notes: Sequence[str], *, strict: bool) -> None:
    """If `strict`, raise like `require_pinned`, with the exit code of a failed check.

    `strict`: the user gave the option `--strict`.
    """
    if not strict:
        return
    try:
        require_pinned(ws, notes)
    except VmragError as error:
        if error.exit_code == FAILED_CHECK:
            raise
        raise KnowledgeMoved(error.message, hint=error.hint, cause=error.cause) from error
