"""Operations that write documents, for the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from vmrag_link.api.results import CommittedRevision, RemovedDocuments, WrittenDocument
from vmrag_link.errors import JsonInvalid, UsageInvalid
from vmrag_link.models import ChangeCounts, encode_canonical_json, parse_user_json
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace

Existing = Literal["refuse", "replace", "append"]


class NewText(NamedTuple):
    """The arguments of `KnowledgeBase.add`."""

    text: str
    doc_id: str
    title: str
    collection: str | None
    metadata: Mapping[str, Any]
    existing: Existing | None
    commit: bool


def add(ws: Workspace, new: NewText) -> WrittenDocument:
    """Write a note, or store a document.

    Raises `UsageInvalid` for invalid arguments, `DocumentExists` for an existing note, and the
    other errors of `add_note` and `put_documents`.
    """
    if not new.text.strip():
        raise UsageInvalid(
            "the text is empty, so nothing was written.", hint="pass a text, such as 'kb.add(\"We chose …\")'"
        )
    if new.existing not in (None, "refuse", "replace", "append"):
        raise UsageInvalid(
            "existing must be refuse, replace or append.", hint="pass 'existing=\"replace\"' to replace the document"
        )
    source = ws.sources.find_writable(new.collection)
    if source:
        return _add_note(ws, source, new)
    if new.collection is None:
        raise UsageInvalid(
            "this repository has no source for notes, and no collection is given.",
            hint="run 'vmrag sources add --write'",
        )
    return _store(ws, new, new.collection)


def _add_note(ws: Workspace, source: SourceSettings, new: NewText) -> WrittenDocument:
    from vmrag_link.ops.add.note_commit import commit_notes
    from vmrag_link.workspace.documents.note_names import find_note_id
    from vmrag_link.workspace.documents.note_writes import NoteDraft, add_note

    doc_id = find_note_id(ws, source, new.doc_id) if new.doc_id else ""
    draft = NoteDraft(new.text, doc_id, new.title, new.metadata)
    doc_id, result = add_note(ws, source, draft, new.existing or "refuse")
    paths = result.notes.paths if result.notes else ()
    note_commit = commit_notes(ws, paths, new.title or doc_id) if new.commit and paths else None
    return WrittenDocument(
        collection=source.collection,
        doc_id=doc_id,
        path=paths[0] if paths else "",
        kind=_kind(result.report.changes),
        commit=note_commit.commit if note_commit else "",
        pending=result.pending,
    )


def _store(ws: Workspace, new: NewText, collection: str) -> WrittenDocument:
    from vmrag_link.conversion.reading import find_markdown_title
    from vmrag_link.workspace.documents.drafts import text_document
    from vmrag_link.workspace.documents.put import PutRequest, put_documents

    if not new.doc_id:
        raise UsageInvalid(
            "a stored document needs an id.",
            hint=f"call 'kb.add(text, collection={collection!r}, id=\"NAME\")' to name it",
        )
    if new.existing == "append" or new.commit:
        raise UsageInvalid(
            "existing='append' and commit=True are for notes.", hint="call 'kb.commit(message)' to commit it"
        )
    title = new.title or find_markdown_title(new.text) or new.doc_id
    document = text_document(new.doc_id, new.text, title=title, metadata=_metadata(new.metadata))
    result = put_documents(ws, PutRequest(collection, [document], new.existing or "replace", create=True))
    return WrittenDocument(
        collection=collection, doc_id=new.doc_id, kind=_kind(result.report.changes), pending=result.pending
    )


def _metadata(metadata: Mapping[str, Any]) -> str:
    """Return canonical JSON. Raises `JsonInvalid` for values that a document cannot have."""
    import json

    try:
        return encode_canonical_json(parse_user_json(json.dumps(metadata)))
    except (TypeError, ValueError) as error:
        raise JsonInvalid(f"the metadata {error}.") from None


def _kind(changes: ChangeCounts) -> Literal["added", "modified", "unchanged"]:
    if changes.added:
        return "added"
    return "modified" if changes.modified else "unchanged"


def remove(ws: Workspace, names: Sequence[str], collection: str | None) -> RemovedDocuments:
    """Remove documents and whole collections.

    Raises `UsageInvalid` without a name, and the errors of `remove_named`.
    """
    from vmrag_link.ops.rm import remove_named
    from vmrag_link.ops.stores import stores

    if not names:
        raise UsageInvalid(
            "remove needs the name of a document.", hint="pass a name, such as 'kb.remove(\"handbook/faq.md\")'"
        )
    store = stores.find_common_store(ws, [collection or name.partition("/")[0] for name in names])
    removed = remove_named(store, names, within=collection, confirmed=True).report
    return RemovedDocuments(names=tuple(map(str, removed.documents)), collections=removed.collections)


def commit(ws: Workspace, message: str, *, git: bool, author: str | None) -> CommittedRevision:
    """Commit and pin the documents. The errors are those of `commit` and `commit_to_git`."""
    import contextlib

    from vmrag_link.ops.commit import commit as operation
    from vmrag_link.ops.commit.git_commit import commit_to_git, prepare_git_commit

    with prepare_git_commit(ws, message) if git else contextlib.nullcontext():
        signed = operation.resolve_author(ws, author) if author else None
        report = operation.commit(ws, message, author=author)
    git_commit = ""
    if git:
        ws.close()  # git's hooks can open the knowledge base
        git_commit = commit_to_git(ws.places, report, message, file=None, author=signed, show=False)
    return CommittedRevision(
        revision=report.revision,
        parent=report.parent,
        branch=report.branch,
        added=report.changes.added,
        modified=report.changes.modified,
        removed=report.changes.removed,
        pinned=report.pin is not None,
        commit=git_commit,
        pending=report.pending,
    )
