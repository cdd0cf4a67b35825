"""`vmrag show`: show one document or revision."""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING, Any, NamedTuple

from vmrag_link.errors import ConfigInvalid, GitReferenceMissing
from vmrag_link.git import plumbing
from vmrag_link.models import At, Record, content_hash, parse_metadata
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.documents import file_texts
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import document_names, named_places, revparse
from vmrag_link.workspace.history.document_names import DocumentName, DocumentPlace, NamedRows
from vmrag_link.workspace.source_tree import FileNames, SourceTree

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore
    from vmrag_link.workspace.history.document_history import LogStep, Revisions


class ShowReport(Record, frozen=True):
    """A shown document. A file of no source has no collection, and its path as `doc_id`."""

    collection: str
    doc_id: str
    title: str
    content: str
    content_hash: str
    metadata: dict[str, Any]
    revision: str


class ShownRevision(NamedTuple):
    """A shown revision. `history` has one step, and reads what it changed on demand."""

    history: Revisions
    step: LogStep


def show_name(ws: Workspace, name: str | None) -> ShowReport | ShownRevision:
    """Return the document or the revision that a name means. A document has priority.

    Without a name, return the current revision. Raises the errors of `document_names.find_at`.
    """
    if name is None:
        follow_and_warn(ws)
        return _show_revision(ws, ws.require_stored_revision())
    file = show_file(ws, name) or _show_tracked(ws, name)
    if file:
        return file
    with named_places.explain_missing_file(ws, name):
        return _show_named(ws, name)


def show_file(ws: Workspace, name: str) -> ShowReport | None:
    """Return the document of a source that `[REF:]NAME` means; None if it means no file."""
    if not ws.sources.configured and ":" not in name:
        return None
    report = _show_file_at(ws, None, name)
    parts = revparse.separate_ref(name)
    if report is None and parts:
        ref, file = parts
        report = _show_file_at(ws, ref, file)
    return report


def _show_file_at(ws: Workspace, ref: str | None, name: str) -> ShowReport | None:
    """Return the document of a source in the work tree (None) or at a ref."""
    tree = _find_tree(ws, ref)
    if tree is None:
        return None
    rows = FileNames(tree)
    commit = tree.commit or plumbing.read_head(ws.places).commit or ""
    for file in dict.fromkeys((name, document_names.without_line(name))):
        note = tree.find_note(file)
        if note:
            return _show_report(rows, "", DocumentName(*note), commit)
        if document_names.find_candidates(rows, "", file):
            return _show_report(rows, "", document_names.find_document(rows, [""], file), commit)
    return None


def show_stored(ws: DocumentStore, name: str) -> ShowReport:
    """Return the stored document `[REF:]NAME`. Raises the errors of `document_names.find_at`."""
    return show_at(ws, *document_names.find_at(ws, name))


def show_at(ws: DocumentStore, place: DocumentPlace, name: DocumentName) -> ShowReport:
    """Return the stored document at a place. Raises `DocumentMissing` and `CollectionMissing`."""
    return _show_report(ws.engine, place.at, name, place.revision)


def _show_named(ws: Workspace, name: str) -> ShowReport | ShownRevision:
    """Return the stored document `[REF:]NAME`, or the revision of that name."""
    try:
        place, rest = document_names.split_ref(ws, name)
    except GitReferenceMissing as error:
        try:
            revision = revparse.resolve_rev(ws, name)  # a git expression may have a colon
        except GitReferenceMissing:
            raise error from None
        return _show_revision(ws, revision)
    if rest == name and not document_names.find_candidates(ws.engine, place.at, name):
        with contextlib.suppress(GitReferenceMissing):
            return _show_revision(ws, revparse.resolve_rev(ws, name))
    return show_at(ws, place, document_names.find_in(ws.engine, place, rest))


def _show_revision(ws: Workspace, revision: str) -> ShownRevision:
    from vmrag_link.workspace.history import log  # imported here, because a list needs no history
    from vmrag_link.workspace.history.document_history import LogStep, Revisions

    (info,) = log.add_pins(ws, [log.read_info(ws.engine, revision)])
    step = LogStep(info, info.parents)
    return ShownRevision(Revisions(ws, [step], more=False), step)


def _find_tree(ws: Workspace, ref: str | None) -> SourceTree | None:
    if ref in (None, revparse.WORKING):
        return source_tree.read_work_tree(ws)
    with contextlib.suppress(ConfigInvalid, GitReferenceMissing):
        return named_places.tree_at(ws, plumbing.resolve_commit(ws.places, ref or ""))
    return None


def _show_report(rows: NamedRows, at: At, name: DocumentName, revision: str) -> ShowReport:
    document = rows.find_document(at, *name.key)
    if document is None:  # another process removed it after the search
        raise document_names.no_document(rows, at, *name.key)
    return ShowReport(
        collection=document.collection,
        doc_id=document.doc_id,
        title=document.title,
        content=document.content,
        content_hash=document.content_hash,
        metadata=parse_metadata(document),
        revision=revision,
    )


def _show_tracked(ws: Workspace, name: str) -> ShowReport | None:
    """Return the tracked text file that `[REF:]PATH` means, which no source names."""
    file = file_texts.find_named(ws, name)
    if file is None:
        return None
    title = posixpath.splitext(posixpath.basename(file.path))[0]
    commit = file.commit or plumbing.read_head(ws.places).commit or ""
    return ShowReport(
        collection="",
        doc_id=file.path,
        title=title,
        content=file.text,
        content_hash=content_hash(file.text),
        metadata={},
        revision=commit,
    )
