"""Where an answer comes from: what every report says that reads documents, and the place that a
query asks instead of the work tree, which is a commit's pin and its files.
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
    """Files of the tree that answered, too: those of `commit` in these `collections`, and how the
    work tree differs from it: `uncommitted` files (`COLLECTION/PATH`, as they stand there),
    `removed` ones, and how many more it has `untracked`, which are left out. `untracked_matches`:
    how many of these would be among the results, if the setting `sources_untracked` is `ask`.

    `indexed`: so many percent of the files answered, because the others are not indexed yet.
    `missing`: paths of which this clone has no contents; `failed`: files that could not be cut
    here. `unavailable`: why collections were not asked, by name. `problem`: why no files answered.
    """

    commit: str | None
    collections: tuple[str, ...]
    uncommitted: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    untracked: int = 0
    indexed: int = 100
    missing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unavailable: Mapping[str, str] = {}
    problem: str = ""
    untracked_matches: int = 0


class KbBlock(Record, frozen=True, omit_defaults=True):
    """`commit` is the revision that was read, with the uncommitted documents if `dirty`; empty:
    none was. `in_sync` False: not the pinned one. `versioned` False: no revision, what this machine
    alone holds. `empty`: files answer, and the revision has no documents.
    """

    worktree: str
    git_head: str | None
    branch: str | None
    commit: str
    dirty: bool
    in_sync: bool
    versioned: bool = True
    sources: SourceBlock | None = None
    empty: bool = False


class AnswerOrigin(Record, frozen=True):
    """`at`: where documents are read; `revision`: the same without uncommitted documents. `notes`
    say why that is not the pinned revision, if so.
    """

    at: At
    revision: str
    kb: KbBlock
    notes: tuple[str, ...]


def find_origin(ws: ReadableStore) -> AnswerOrigin:
    """Where the workspace stands now; nothing is brought anywhere. Raises as `Workspace.moment`."""
    if not isinstance(ws, Workspace):
        from vmrag_link.workspace.source_tree import SourceStore

        if not isinstance(ws, SourceStore):
            return _unversioned(ws, plumbing.read_head(ws.places).commit)
        with ws.reader.view() as view:
            return find_view_origin(ws, view)
    seen = ws.reader.read_moment()
    if not ws.engine.has_revision(seen.revision):
        raise reasons.explain_unusable(ws, seen.target)
    notes = reasons.explain_difference(ws, seen.target, seen.revision)
    block = KbBlock(str(ws.places.top), seen.git_head, seen.branch, seen.revision, seen.dirty, in_sync=not notes)
    return AnswerOrigin(seen.at, seen.revision, block, notes)


def find_git_origin(ws: Workspace, why: VmragError | None = None) -> AnswerOrigin:
    """Return where the files of a work tree are: at git's HEAD. The knowledge base is not read.

    `why`: the error for the knowledge base; a note tells if the commit pins it.
    """
    head, notes = plumbing.read_head(ws.places).commit, reasons.explain_missing_documents(why) if why else ()
    block = KbBlock(str(ws.places.top), head, branch=None, commit="", dirty=False, in_sync=not notes)
    return AnswerOrigin("", "", block, notes)


def find_view_origin(ws: ReadableStore, view: View) -> AnswerOrigin:
    """Where an index that is held open answers from."""
    if not isinstance(ws, Workspace):
        from vmrag_link.workspace.local_store import LocalStore

        if isinstance(ws, LocalStore):
            return _unversioned(ws, view.git_head)
    block = KbBlock(
        worktree=str(ws.places.top),
        git_head=view.git_head,
        branch=view.branch,
        commit=view.revision,
        dirty=view.dirty,
        in_sync=not view.notes,
        sources=_source_block(view.sources, view.git_head, view.files_note),
        empty=bool(view.sources and view.revision) and _is_empty(view),
    )
    return AnswerOrigin(view.at, view.revision, block, view.notes)


def _is_empty(view: View) -> bool:
    from vmrag_link.index import contents  # a log needs no index

    return not any(held.documents for held in contents.read_collections(view.folder).values())


def add_sources(stands: AnswerOrigin, opened: OpenSources | None) -> AnswerOrigin:
    """The same place, where files of its tree answer, too."""
    block = _source_block(opened, None)
    return msgspec.structs.replace(stands, kb=msgspec.structs.replace(stands.kb, sources=block)) if block else stands


def source_warnings(kb: KbBlock) -> list[str]:
    """What of the files of sources did not answer, and why."""
    return [sentence for _, sentence in coded_source_warnings(kb)]


def coded_source_warnings(kb: KbBlock) -> list[tuple[str, str]]:
    """As `source_warnings`, each with its code."""
    found = kb.sources
    if found is None:
        return []
    said = [(INCOMPLETE, found.problem)] if found.problem else []
    said += [(INCOMPLETE, _unavailable(name, why)) for name, why in found.unavailable.items()]
    submodules = [path for path in found.missing if path.endswith("/")]
    if submodules:
        named = first_of(submodules, _NAMED)
        said.append(
            (INCOMPLETE, f"The answer lacks {plural(len(submodules), 'submodule')} that cannot be read here: {named}.")
        )
    files_missing = [path for path in found.missing if not path.endswith("/")]
    for paths, what in ((files_missing, "this clone does not have"), (found.failed, "could not be cut here")):
        if paths:
            files = f"{plural(len(paths), 'file')} of sources that {what}"
            said.append((INCOMPLETE, f"The answer lacks {files}: {first_of(paths, _NAMED)}."))
    if found.indexed < 100:  # noqa: PLR2004  percent
        said.append((INCOMPLETE, f"indexing: {found.indexed} % of the files answer; the next question goes on."))
    return said


def untracked_notice(kb: KbBlock) -> str:
    """Return the sentence about untracked files that match a query; empty if there are none."""
    matches = kb.sources.untracked_matches if kb.sources else 0
    verb = "matches" if matches == 1 else "match"
    return f"{plural(matches, 'untracked file')} {verb}: vmrag query --untracked" if matches else ""


def _unavailable(name: str, why: str) -> str:
    if why == STORED:
        why += ", which answers; to let the files answer: vmrag sources dedupe"
    return f"The source {name!r} was not asked: {why}{'' if ': ' in why else '.'}"


def _source_block(opened: OpenSources | None, head: str | None, problem: str = "") -> SourceBlock | None:
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


def _unversioned(store: LocalStore, git_head: str | None) -> AnswerOrigin:
    from vmrag_link.workspace import local_store

    block = KbBlock(str(store.places.top), git_head, branch=None, commit="", dirty=False, in_sync=True, versioned=False)
    return AnswerOrigin(local_store.AT, store.base, block, ())


def require_pinned(ws: Workspace, notes: Sequence[str]) -> None:
    """Raise why what is read is not the knowledge that the checked-out code pins, if so;
    for callers that must not take another answer for it.

    `notes`: what the answer says about it (`Standing.notes`).
    """
    if not notes:
        return
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    if ws.unbuilt:
        raise ws.unbuilt
    behind = tuple(notes) == describe_left_behind(target)  # which name the commands themselves
    raise KnowledgeMoved(" ".join(notes), hint="vmrag status" if behind else "vmrag sync")


def refuse_outdated(ws: Workspace, notes: Sequence[str], *, strict: bool) -> None:
    """As `require_pinned`, if it is `strict`; the exit code is drift's, whatever the reason."""
    if not strict:
        return
    try:
        require_pinned(ws, notes)
    except VmragError as why:
        if why.exit_code == FAILED_CHECK:
            raise
        raise KnowledgeMoved(why.message, hint=why.hint, cause=why.cause) from why


class RankedRevision(Record, frozen=True):
    """A place that is asked instead of the work tree: a revision, and the settings that rank.

    `commit` and `config`: whose files are asked, too, as its own `sources` say; where the revision
    is empty, they alone are. `notes`: why its documents are missing, if so.
    """

    revision: str
    retrieval: RetrievalSettings
    commit: str | None = None
    config: Config | None = None
    notes: tuple[str, ...] = ()


def can_files_answer(ws: Workspace, why: VmragError) -> bool:
    """Whether files of sources answer by themselves, where that is why no documents can be read."""
    missing = isinstance(why, NotInitialized | PinMissing) and not isinstance(why, KnowledgeElsewhere)
    return missing and bool(ws.sources.configured)


def answer_from_files(ws: Workspace, why: VmragError) -> SourceStore:
    """Return the files of sources, which answer if no stored documents can be read.

    Their views note what is missing. Raises `why` if there are no sources.
    """
    if not ws.sources.configured:
        raise why
    ws.files.notes = reasons.explain_missing_documents(why)
    return ws.files


def ranked_at(ws: Workspace, ref: str, *, or_files: bool = False) -> RankedRevision:
    """What a git ref pins, asked as its own settings say. Raises as `lazy_fetch.pinned_at`, and
    `ConfigInvalid`.

    `or_files`: if the pinned revision is missing, its files answer, and a note tells.
    """
    return ranked_commit(ws, ref, ws.sources.read_config_at(ref), or_files=or_files)


def ranked_commit(ws: Workspace, ref: str, config: Config, *, or_files: bool = False) -> RankedRevision:
    """As `ranked_at`, of a commit whose settings are known."""
    if not config.sources:
        return RankedRevision(lazy_fetch.pinned_at(ws, ref), config.retrieval)
    commit, revision = plumbing.resolve_commit(ws.places, ref), ""
    notes: tuple[str, ...] = ()
    try:
        revision = lazy_fetch.pinned_at(ws, ref)
    except PinMissing:  # its files are there without any pin
        pass
    except (KnowledgeElsewhere, PinRevisionMissing) as why:
        if not or_files:
            raise
        notes = reasons.explain_missing_documents(why)
    return RankedRevision(revision, config.retrieval, commit, config, notes)
