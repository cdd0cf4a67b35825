"""`vmrag sources adopt`: what was imported from files that are documents of sources is removed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vmrag_link.engines.base import Write
from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.git import versions
from vmrag_link.models import WITHOUT_FILES, At, Record
from vmrag_link.ops.branches import commit as committing
from vmrag_link.ops.branches.commit import CommitReport
from vmrag_link.ops.documents import remove, writing
from vmrag_link.ops.documents.leaving_out import DerivedFiles
from vmrag_link.ops.documents.writing import Planned
from vmrag_link.ops.history.document_names import DocumentName
from vmrag_link.ops.merge import merge_state
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.workspace import Workspace, twins


class Adoption(Record, frozen=True):
    """`documents` are removed: their files answer. `differing` of them said something else than
    their file says now. `collections` had the name of a source, and nothing else; `occupied` ones
    have so many other documents, which keep the source of that name from being read.

    `kept`: the revision that holds what no other does of them; empty for none. `unsaved`: its
    documents. `uncommitted`: the removal is left to `vmrag commit`. `commit` None: nothing was
    committed. `unstaged`: `.vmrag.yaml` has changes that git has not staged, by which alone these
    files may answer.
    """

    documents: tuple[DocumentName, ...]
    differing: tuple[DocumentName, ...]
    collections: tuple[str, ...]
    occupied: Mapping[str, int]
    unsaved: tuple[DocumentName, ...] = ()
    kept: str = ""
    uncommitted: bool = False
    commit: CommitReport | None = None
    unstaged: bool = False


def adopt(ws: Workspace, *, dry_run: bool = False) -> Adoption:
    """Remove stored documents whose files are documents of sources, and commit that, unless
    something else is uncommitted. Where there are none any more, nothing happens.

    A kill leaves the removal uncommitted. `dry_run` removes nothing. Raises `UsageInvalid` without
    sources, `MergeConflict` while a merge is open, and as `writing.write` and `commit`.
    """
    target = writing.writable(ws)
    merge_state.refuse_if_open(ws)
    if not ws.sources.configured:
        raise UsageInvalid("No sources are configured: no file is a document.", hint="vmrag init")
    clean = not (target.kb_branch and target.kb_branch.dirty)

    def plan(at: At) -> Planned[Adoption]:
        found = _find_adopted(ws, at)
        if dry_run:
            return Planned(None, found)
        keys = {each.key for each in found.documents}
        lost = remove.unsaved_of(ws, at, keys.__contains__, found.collections)
        kept = remove.keep_unsaved(ws, at, lost, before="their files took their place")
        rows = Write(
            remove_collections=found.collections,
            remove_documents=[key for key in sorted(keys) if key[0] not in found.collections],
        )
        never = tuple(DocumentName(*each.key) for each in lost.documents)
        return Planned(None if rows.empty else rows, msgspec.structs.replace(found, unsaved=never, kept=kept))

    done = writing.write(ws, plan, "adopt sources", follow=False)
    if done.branch is None:
        return msgspec.structs.replace(done.report, uncommitted=not (clean or dry_run))
    if not clean:
        return msgspec.structs.replace(done.report, uncommitted=True)
    said = f"Adopt sources: {plural(len(done.report.documents), 'document')} of files that stand for themselves"
    unstaged = versions.unstaged(ws.places, CONFIG_NAME)
    return msgspec.structs.replace(done.report, commit=committing.commit(ws, said), unstaged=unstaged)


def _find_adopted(ws: Workspace, at: At) -> Adoption:
    """What is to be removed at a place."""
    derived = DerivedFiles(ws)
    paths = derived.paths
    files = {key: path for key, path in twins.files_of(ws, ws.engine, at) if path in paths}
    there = derived.documents(set(files.values()))
    files = {key: path for key, path in files.items() if path in there}
    stored: dict[tuple[str, str], str] = {}
    for name in {name for name, _ in files}:
        ids = [doc_id for collection, doc_id in files if collection == name]
        stored |= {each.key: each.content_hash for each in ws.engine.headers(at, collection=name, ids=ids)}
    differing = [key for key, path in files.items() if stored.get(key) != there[path].content_hash]
    left = _left(ws, at, derived, files)
    return Adoption(
        tuple(sorted(DocumentName(*key) for key in files)),
        tuple(sorted(DocumentName(*key) for key in differing)),
        tuple(sorted(name for name, number in left.items() if not number)),
        {name: number for name, number in left.items() if number},
    )


def _left(ws: Workspace, at: At, derived: DerivedFiles, files: Mapping[tuple[str, str], str]) -> dict[str, int]:
    """How many documents are left of the stored collections that have the name of a source."""
    names = {each.collection for each in derived.sources}
    rows = [each for each in ws.engine.collections(at) if each.name in names]
    gone = {row.name: sum(name == row.name for name, _ in files) for row in rows}
    found = {row.name: ws.engine.count(at, collection=row.name) - gone[row.name] for row in rows}
    return {row.name: found[row.name] for row in rows if found[row.name] or row.kind not in WITHOUT_FILES}
