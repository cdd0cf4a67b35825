"""The tools that write notes: remember and forget.

A *note* is a Markdown file in the folder of a writable source, so a git commit saves it. If the
project has no writable source, both tools write documents of the knowledge base instead. Each
answer shows how to restore the former text, and which commands commit the change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from vmrag_link import terminal_text
from vmrag_link.conversion.reading import find_markdown_title
from vmrag_link.errors import (
    AccessDenied,
    DocumentMissing,
    NoteExists,
    NotInitialized,
    UsageInvalid,
    VmragError,
    quoted,
)
from vmrag_link.git import plumbing
from vmrag_link.models import LONGEST_TEXT, ChangeCounts
from vmrag_link.ops import show
from vmrag_link.ops.rm import remove_named
from vmrag_link.ops.status.changes import SourcesStatus, list_uncommitted, read_sources_status
from vmrag_link.ops.status.status import is_pinned
from vmrag_link.ops.stores import stores
from vmrag_link.ops.update import DocumentUpdate, update_documents
from vmrag_link.paths import PIN_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import notes, rules
from vmrag_link.toolsets.essential import texts
from vmrag_link.toolsets.essential.state import StateText, describe_steps, show_uncommitted
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.collections import source_read_only
from vmrag_link.workspace.documents.drafts import NewDocument, new_documents
from vmrag_link.workspace.documents.note_files import NoteFolder, NotesWritten
from vmrag_link.workspace.documents.note_names import find_note_id
from vmrag_link.workspace.documents.note_writes import NoteDraft, add_note, quoted_text, remove_notes
from vmrag_link.workspace.documents.put import PutRequest, put_documents
from vmrag_link.workspace.documents.unsaved import find_unsaved, keep_unsaved
from vmrag_link.workspace.documents.writing import WriteResult
from vmrag_link.workspace.follow.provenance import find_origin
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_mcp.arguments import Given
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.tools import outcome

DEFAULT_COLLECTION = "notes"
"""The stored collection for names without a collection, if there is no writable source."""

MAX_EXISTING_CHARS = 1000
"""Maximum number of characters of the existing text in an error."""

MAX_FORMER_CHARS = 80
"""Maximum number of characters of the replaced or deleted text in an answer."""

Mode = Literal["add", "replace", "append"]


@tool(
    "WD",
    title="Store note",
    reads_files=True,
    includes=("chroma_add_documents", "chroma_update_documents", "chroma_create_collection"),
    same_effect=("chroma_add_documents", "chroma_update_documents"),
)
def remember(
    call: Call,
    *,
    text: Annotated[str, Given("Markdown that begins with the title", longest=LONGEST_TEXT)],
    name: Annotated[str, Given("name such as decisions/retry-policy; default: from the title")] = "",
    mode: Annotated[Mode, Given("effect on an existing note")] = "add",
    commit: Annotated[bool, Given("make a git commit, if the user allows it")] = False,
) -> StateText:
    """Store a short note that the user wants to know later and that no file contains: a decision, a
    reason, a finding. mode=replace or mode=append changes an existing note.
    """
    if not text.strip():
        raise UsageInvalid(
            "the text is empty.", hint="pass a text, such as 'text=We chose Pagefind, because …'", parameter="text"
        )
    document = _document_name(call, name or notes.make_slug(find_markdown_title(text) or notes.first_line(text)))
    source = call.ws.sources.find_writable(document.collection)
    if source is None:
        return _remember_stored(call, document, text, mode)
    return _remember_note(call, source, document, text, mode=mode, commit=commit)


def _remember_note(
    call: Call, source: SourceSettings, document: DocumentName, text: str, *, mode: Mode, commit: bool
) -> StateText:
    if commit:
        _require_commit_allowed(call, document)
    head = plumbing.read_head(call.ws.places).commit
    _, result = add_note(call.ws, source, NoteDraft(text, document.doc_id), "refuse" if mode == "add" else mode)
    outcome.warn_pending(call, result)
    verb = _describe_change(result.report.changes, mode)
    return _note_result(call, document, verb, result.notes or NotesWritten(), head, commit=commit)


def _note_result(
    call: Call, document: DocumentName, verb: str, written: NotesWritten, head: str | None, *, commit: bool = False
) -> StateText:
    """Return the answer about a note that was written or deleted.

    `head` is the commit before the call. With `commit`, the note is committed.
    """
    [path] = written.paths or [""]
    lines = [terminal_text.escape_line(f"{verb} {document}{f' ({path})' if path else ''}")]
    for change in written.changes:
        if change.before is not None:
            former = notes.parse_note(change.before.decode(errors="replace"), change.doc_id).content
            undo = f"vmrag restore --undo {quoted(str(document))}"
            restore = undo if written.kept or head is None else _restore_committed(head, path)
            lines += _former_lines(former, restore)
    sources = read_sources_status(call.ws) or SourcesStatus()
    pending = next((change for change in sources.changed if path == change.path or str(document) == change.name), None)
    committed = _commit_note(call, pending.path, document) if commit and pending else ""
    if committed:
        return StateText(text="\n".join(lines), message=f"committed as {committed[:7]}.")
    lines += [show_uncommitted(pending)] if pending else []
    if not pending and not sources.problem:
        return StateText(text="\n".join(lines), message="nothing to commit.")
    steps = describe_steps(call, files=[pending.path] if pending else written.paths)
    return StateText(text="\n".join(lines), message=f"next: {steps}")


def _former_lines(text: str, restore: str) -> list[str]:
    """Return the lines that show the replaced or deleted text, and how to restore it."""
    first = terminal_text.cut_text(terminal_text.escape_line(notes.first_line(text)), MAX_FORMER_CHARS)
    return [f"former text: {first}", f"to restore it: {terminal_text.escape_line(restore)}"]


def _describe_change(changes: ChangeCounts, mode: Mode) -> str:
    if changes.added:
        return "added"
    if changes.modified:
        return "extended" if mode == "append" else "replaced"
    return "unchanged"


def _restore_committed(commit: str, path: str) -> str:
    """Return the git command that restores a file from a commit, in any folder."""
    magic = ":/" if re.fullmatch(r"[\w./ -]+", path) else ":(top,literal)"
    return f"git restore --source={commit[:12]} --staged --worktree -- {quoted(magic + path)}"


def _require_commit_allowed(call: Call, name: DocumentName) -> None:
    """Raise `AccessDenied`, which lets the server ask the user, unless a commit is allowed."""
    allowed = call.ws.config.mcp.commit
    key = f"commit {name}"
    if allowed == "ask" and key not in call.agreed:
        raise AccessDenied(
            f"an agent may commit the note {name} only if the user agrees.",
            hint="call again without commit, then ask the user to run 'git commit'",
            ask=True,
            commit=key,
            otherwise={"commit": False},
        )
    if allowed == "off":
        raise AccessDenied(
            "agents may not make git commits here (mcp.commit: off).",
            hint="call again without commit, then ask the user to run 'git commit'",
            otherwise={"commit": False},
        )


def _commit_note(call: Call, path: str, name: DocumentName) -> str:
    """Return the commit with the note; empty, with a warning, if it cannot be made."""
    from vmrag_link.ops.add.note_commit import commit_notes

    try:
        message = terminal_text.escape_line(f"Note {name} (remember)")
        return commit_notes(call.ws, [path], message).commit
    except VmragError as error:  # the note is written
        call.warn("NOT_COMMITTED", error.sentence)
        return ""


def _remember_stored(call: Call, target: DocumentName, text: str, mode: Mode) -> StateText:
    ws = call.ws
    if ws.stores_nothing and not ws.places.config.exists():
        raise NotInitialized(
            "this repository has no place for notes yet.", hint="run 'vmrag init' to set up this repository"
        )
    at = call.find_origin().at
    stores.require_versioned(ws, target.collection, [target.doc_id])
    present = ws.engine.find_document(at, target.collection, target.doc_id)
    if present is None:
        documents = new_documents([NewDocument(text, target.doc_id)])
        request = PutRequest(target.collection, documents, create=True, embed_first=True)
        call.warn_pending(put_documents(ws, request).pending)
        return _stored_result(call, target, "added")
    if mode == "add" and present.content != text:
        raise NoteExists(
            f"the document {target} exists. Its text is:\n{quoted_text(present.content[:MAX_EXISTING_CHARS])}",
            hint="pass 'mode=replace' or 'mode=append', or use another name",
            ids=[target.doc_id],
            name=str(target),
            text=present.content[:MAX_EXISTING_CHARS],
        )
    joint = "" if present.content.endswith("\n") else "\n"
    whole = f"{present.content}{joint}{text}" if mode == "append" else text
    if whole == present.content:
        return _stored_result(call, target, "unchanged")
    lost = find_unsaved(ws, at, lambda key: key == target.key)
    revision = keep_unsaved(ws, at, lost, before="one was replaced") or ws.require_revision()
    result = update_documents(ws, target.collection, [DocumentUpdate(target.doc_id, whole)])
    call.warn_pending(result.pending)
    verb = _describe_change(ChangeCounts(modified=1), mode)
    return _stored_result(call, target, verb, _former_lines(present.content, _restore_stored(revision, target)))


def _restore_stored(revision: str, name: DocumentName) -> str:
    return f"vmrag restore --source {revision[:12]} {quoted(str(name))}"


def _stored_result(call: Call, name: DocumentName, verb: str, former: Sequence[str] = ()) -> StateText:
    """Return the answer about a stored document that was written or deleted."""
    ws = call.ws
    call.commit_written()
    call.set_origin(find_origin(ws))
    target = ws.resolve_target()
    pending = [
        document
        for document in list_uncommitted(ws, target.kb_branch)
        if (document.collection, document.doc_id) == name.key
    ]
    branch = f" (knowledge base, branch {target.kb_branch.name})" if target.kb_branch else ""
    lines = [terminal_text.escape_line(f"{verb} {name}{branch}"), *former, *map(show_uncommitted, pending)]
    committed = not pending and is_pinned(ws, target)
    files = [] if pending else [PIN_NAME]
    steps = "nothing to commit." if committed else f"next: {describe_steps(call, documents=not files, files=files)}"
    return StateText(text="\n".join(lines), message=steps)


@tool(
    "WD",
    title="Delete note",
    reads_files=True,
    includes=("chroma_delete_documents",),
    same_effect=("chroma_delete_documents",),
)
def forget(call: Call, *, name: Annotated[str, Given("note or stored document")]) -> StateText:
    """Delete one note that is wrong or outdated. The answer contains how to restore it."""
    document = _document_name(call, name)
    ws = call.ws
    source = ws.sources.find_writable(document.collection)
    means_stored = ws.is_initialized and "/" not in name and source and _is_stored_only(ws, source, name)
    if source and not means_stored:
        head = plumbing.read_head(ws.places).commit
        written = remove_notes(ws, source, [document.doc_id])
        outcome.warn_pending(call, WriteResult(None, None, written.pending, notes=written))
        return _note_result(call, document, "deleted", written, head)
    if ws.stores_nothing:
        raise DocumentMissing(f"no note and no stored document {name!r} here.", hint=texts.HOW_TO_FIND, doc_id=name)
    at = call.find_origin().at
    stored = document_names.find_document(ws.engine, [at], str(document) if "/" in name else name)
    stores.require_versioned(ws, stored.collection, [stored.doc_id])
    present = ws.engine.find_document(at, stored.collection, stored.doc_id)
    removal = remove_named(ws, [stored.doc_id], within=stored.collection, confirmed=True)
    restore = _restore_stored(removal.report.kept or ws.require_revision(), stored)
    former = _former_lines(present.content if present else "", restore)
    return _stored_result(call, stored, "deleted", former)


def _is_stored_only(ws: Workspace, source: SourceSettings, doc_id: str) -> bool:
    """Return whether an id without a collection means a stored document, and not a note."""
    return NoteFolder(ws, source).find_note(doc_id) is None and bool(
        document_names.find_candidates(ws.engine, ws.locate_documents(), doc_id)
    )


def _document_name(call: Call, name: str) -> DocumentName:
    """Return the document that a name means.

    If its first part is not a collection, the whole name is an id in the first writable source, or
    else in the stored collection `notes`. Raises `SourceReadOnly` for a file of another source.
    """
    if name.strip("/") != name or not name.strip():
        raise UsageInvalid(
            f"{name!r:.80} is not the name of a document.",
            hint="pass a name, such as 'name=decisions/retry-policy'",
            parameter="name",
        )
    ws = call.ws
    configured = ws.sources.configured
    for source in configured:
        if source.write and (doc_id := find_note_id(ws, source, name)) != name:
            return DocumentName(source.collection, doc_id)
    collection, slash, doc_id = name.partition("/")
    file_collections = {source.collection for source in configured}
    stored = _stored_collections(call)
    if slash and collection in file_collections | stored:
        document = DocumentName(collection, doc_id)
    else:
        first = ws.sources.find_writable()
        document = DocumentName(first.collection if first else DEFAULT_COLLECTION, name)
    if ws.sources.find_writable(document.collection) or not configured:
        return document
    if document.collection in file_collections - stored:
        paths = [path for path in (name, document.doc_id) if rules.find_source(configured, path)]
        existing = [path for path in paths if (ws.places.top / path).is_file()]
        raise source_read_only(document.collection, next(iter([*existing, *paths]), ""))
    file = show.show_file(ws, name) if ":" not in name else None
    if file and not ws.sources.find_writable(file.collection):
        raise source_read_only(file.collection, file.doc_id)
    return document


def _stored_collections(call: Call) -> set[str]:
    """Return the collections of the knowledge base, or of the index if it cannot be read."""
    ws = call.ws
    if not ws.is_initialized:
        return set()
    try:
        return {row.name for row in ws.engine.list_collections(call.find_origin().at)}
    except VmragError:  # notes are written without it
        return {*ws.list_stored_collections()}
