"""`vmrag sources dedupe`: remove stored copies of files that sources read.

Such a copy is a document that was imported from a file before a source had the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from vmrag_link.engines.base import Write
from vmrag_link.errors import UsageInvalid
from vmrag_link.file_access import read_regular, require_folders, write_atomically
from vmrag_link.git import versions
from vmrag_link.golden import file, rewrite
from vmrag_link.models import WITHOUT_FILES, At, Record
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.commit.commit import CommitReport
from vmrag_link.paths import CONFIG_NAME, QUERIES_NAME
from vmrag_link.sources import rules
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.documents import copies, writing
from vmrag_link.workspace.documents.copies import StoredCopy
from vmrag_link.workspace.documents.leaving_out import DerivedFiles
from vmrag_link.workspace.documents.unsaved import find_unsaved, keep_unsaved
from vmrag_link.workspace.documents.writing import Planned
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.merge import merge_state


class Deduplication(Record, frozen=True):
    """The stored copies that were removed, or would be."""

    documents: tuple[DocumentName, ...]
    """Removed documents: their files answer."""
    differing: tuple[DocumentName, ...]
    """Removed documents whose text differed from their files."""
    collections: tuple[str, ...]
    """Removed collections: each had the name of a source, and no other documents."""
    occupied: Mapping[str, int]
    """Number of other documents by collection: the source of that name is not read."""
    uncovered: tuple[StoredCopy, ...] = ()
    """Copies of tracked files that no source reads; they stay."""
    renamed: Mapping[str, str] = {}
    """New names of removed documents, and of collections of which nothing else remains, if their
    files have other names as documents."""
    unsaved: tuple[DocumentName, ...] = ()
    """Removed documents that no revision had."""
    kept: str = ""
    """Revision that keeps the `unsaved` documents; empty if there are none."""
    uncommitted: bool = False
    """True if the removal is left to `vmrag commit`."""
    commit: CommitReport | None = None
    """The commit of the removal; None if nothing was committed."""
    unstaged: tuple[str, ...] = ()
    """Files with changes that git has not staged and that belong to the next git commit."""


def dedupe_sources(ws: Workspace, *, dry_run: bool = False) -> Deduplication:
    """Remove stored copies of files that sources read, and commit that.

    If other documents are uncommitted, the removal also stays uncommitted. Golden queries get the
    new names of documents. After a kill, run it again. `dry_run` changes nothing. Raises
    `UsageInvalid` without sources, `MergeConflict` during a merge, and the errors of
    `writing.write_rows` and `commit`.
    """
    target = writing.require_writable(ws)
    merge_state.refuse_if_open(ws)
    if not ws.sources.configured:
        raise UsageInvalid("no sources are configured, so no file is a document.", hint="run 'vmrag sources add PATH'")
    clean = not (target.kb_branch and target.kb_branch.dirty)
    renamed = not dry_run and _rename_in_queries(ws, _find_copies(ws, target.at))

    def plan_removal(at: At) -> Planned[Deduplication]:
        report = _find_copies(ws, at)
        if dry_run:
            return Planned(None, report)
        keys = {name.key for name in report.documents}
        unsaved_difference = find_unsaved(ws, at, keys.__contains__, report.collections)
        kept = keep_unsaved(ws, at, unsaved_difference, before="their files took their place")
        rows = Write(
            remove_collections=report.collections,
            remove_documents=[key for key in sorted(keys) if key[0] not in report.collections],
        )
        unsaved = tuple(DocumentName(*document.key) for document in unsaved_difference.documents)
        return Planned(None if rows.is_empty else rows, msgspec.structs.replace(report, unsaved=unsaved, kept=kept))

    result = writing.write_rows(ws, plan_removal, "remove stored copies", follow=False)
    if result.branch is None:
        return msgspec.structs.replace(result.report, uncommitted=not (clean or dry_run))
    names = [CONFIG_NAME, *([QUERIES_NAME] if renamed else [])]
    unstaged = tuple(name for name in names if versions.has_unstaged_changes(ws.places, name))
    if not clean:
        return msgspec.structs.replace(result.report, uncommitted=True, unstaged=unstaged)
    number = len(result.report.documents)
    noun = "copy" if number == 1 else "copies"
    commit = committing.commit(ws, f"Remove {number} stored {noun} of files that sources read")
    return msgspec.structs.replace(result.report, commit=commit, unstaged=unstaged)


def _find_copies(ws: Workspace, at: At) -> Deduplication:
    """Return the copies to remove among the documents that are stored at `at`."""
    derived = DerivedFiles(ws)
    paths = derived.paths
    candidates = {key: path for key, path in twins.list_files(ws, ws.engine, at) if path in paths}
    documents = derived.read_documents(set(candidates.values()))
    files = {key: path for key, path in candidates.items() if path in documents}  # the file of each copy
    stored: dict[tuple[str, str], str] = {}
    for name in {name for name, _ in files}:
        ids = [doc_id for collection, doc_id in files if collection == name]
        stored |= {header.key: header.content_hash for header in ws.engine.read_headers(at, collection=name, ids=ids)}
    differing = [key for key, path in files.items() if stored.get(key) != documents[path].content_hash]
    remaining = _count_remaining(ws, at, derived, files)
    sources = {key: _find_source(derived, key[0], path) for key, path in files.items()}
    return Deduplication(
        documents=tuple(sorted(DocumentName(*key) for key in files)),
        differing=tuple(sorted(DocumentName(*key) for key in differing)),
        collections=tuple(sorted(name for name, number in remaining.items() if not number)),
        occupied={name: number for name, number in remaining.items() if number},
        uncovered=tuple(copy for copy in copies.list_copies(ws, at) if (copy.collection, copy.doc_id) not in files),
        renamed=_find_new_names(ws, at, files, sources),
    )


def _find_new_names(
    ws: Workspace, at: At, files: Mapping[tuple[str, str], str], sources: Mapping[tuple[str, str], str]
) -> dict[str, str]:
    """Return what documents, and collections without other documents, are called as files."""
    names = {"/".join(key): f"{source}/{files[key]}" for key, source in sorted(sources.items())}
    for collection, number in Counter(name for name, _ in files).items():
        new = {source for (name, _), source in sources.items() if name == collection}
        if len(new) == 1 and ws.engine.count_documents(at, collection=collection) == number:
            names[collection] = new.pop()
    return {before: after for before, after in names.items() if before != after}


def _find_source(derived: DerivedFiles, collection: str, path: str) -> str:
    """Return the name of the source that reads a file, by preference that of the collection."""
    sources = sorted(derived.sources, key=lambda source: source.collection != collection)
    source = rules.find_source(sources, path)
    return source.collection if source else collection


def _count_remaining(
    ws: Workspace, at: At, derived: DerivedFiles, files: Mapping[tuple[str, str], str]
) -> dict[str, int]:
    """Return how many documents remain in the stored collections that have the name of a source."""
    names = {source.collection for source in derived.sources}
    rows = [row for row in ws.engine.list_collections(at) if row.name in names]
    removed = Counter(name for name, _ in files)
    numbers = {row.name: ws.engine.count_documents(at, collection=row.name) - removed[row.name] for row in rows}
    return {row.name: numbers[row.name] for row in rows if numbers[row.name] or row.kind not in WITHOUT_FILES}


def _rename_in_queries(ws: Workspace, report: Deduplication) -> bool:
    """Write the new names into the golden queries; return whether the file changed."""
    if not report.renamed:
        return False
    require_folders(ws.places.queries.parent)
    try:
        data = read_regular(ws.places.queries, file.MAX_BYTES + 1)
    except FileNotFoundError:
        return False
    written = rewrite.rename_documents(data, report.renamed, QUERIES_NAME)
    if written != data:
        write_atomically(ws.places.queries, written)
    return written != data
