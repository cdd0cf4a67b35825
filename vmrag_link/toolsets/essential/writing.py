"""The tools that write: remember and forget."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.conversion.reading import markdown_title
from vmrag_link.documents.importing import ImportedDocument
from vmrag_link.errors import AccessDenied, NoteExists, UsageInvalid, VmragError, quoted
from vmrag_link.models import LONGEST_TEXT, ChangeCounts, Record
from vmrag_link.ops.documents import listing
from vmrag_link.ops.documents.collections import source_read_only
from vmrag_link.ops.documents.drafts import New, new_documents
from vmrag_link.ops.documents.note_files import NoteFolder
from vmrag_link.ops.documents.note_names import id_of
from vmrag_link.ops.documents.note_writes import NoteDraft, add_note, remove_notes
from vmrag_link.ops.documents.put import PutRequest, put
from vmrag_link.ops.documents.remove import remove_named
from vmrag_link.ops.documents.update import DocumentUpdate, update
from vmrag_link.ops.documents.writing import WriteResult
from vmrag_link.ops.follow.provenance import standing
from vmrag_link.ops.history import document_names
from vmrag_link.ops.history.document_names import DocumentName
from vmrag_link.ops.system import stores
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import notes
from vmrag_link.workspace import Workspace
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome

COLLECTION = "notes"
"""The stored collection of names without a collection, if there is no writable source."""

Mode = Literal["add", "replace", "append"]


class Landing(Record, frozen=True):
    """Place of a change."""

    branch: str | None
    """The KB branch of a stored document; None for a note, which is a file."""
    uncommitted: bool
    pinned: bool
    """True if the git commit that is checked out pins the change of a stored document."""
    then: str
    """How the change becomes part of a git commit."""


class RememberResult(ToolResult, frozen=True):
    name: str
    """The name that read, remember and forget accept."""
    was: str
    """Effect on the document: added, replaced, extended or unchanged."""
    landed: Landing
    file: Annotated[str | UnsetType, Meta(description="the file of a note")] = UNSET
    undo: Annotated[str | UnsetType, Meta(description="restores the text that was replaced")] = UNSET
    commit: Annotated[str | UnsetType, Meta(description="the git commit that holds the note")] = UNSET


class ForgetResult(ToolResult, frozen=True):
    name: str
    landed: Landing
    undo: Annotated[str | UnsetType, Meta(description="the command that restores the document")] = UNSET


@tool(
    "WD",
    of_files=True,
    includes=("chroma_add_documents", "chroma_update_documents", "chroma_create_collection"),
    same_effect=("chroma_add_documents", "chroma_update_documents"),
)
def remember(
    call: Call,
    *,
    text: Annotated[str, Given("Markdown; the first line or heading is its title", longest=LONGEST_TEXT)],
    name: Annotated[str, Given("for example decisions/retry-policy; default: made from the title")] = "",
    mode: Annotated[Mode, Given("effect on an existing note; add refuses it")] = "add",
    commit: Annotated[bool, Given("make a git commit of the note, if the user allows it")] = False,
) -> RememberResult:
    """Store a short note that the user wants to know later and that no file contains: a decision, a
    reason, a finding. An existing note changes only with mode=replace or mode=append.
    """
    if not text.strip():
        raise UsageInvalid("the text is empty.", hint="text=We chose Pagefind, because …", parameter="text")
    document = _document_name(call, name or notes.make_slug(markdown_title(text) or notes.first_line(text)))
    source = call.ws.sources.writable(document.collection)
    if source is None:
        return _remember_stored(call, document, text, mode)
    return _remember_note(call, source, document, text, mode=mode, commit=commit)


def _remember_note(
    call: Call, source: SourceSettings, document: DocumentName, text: str, *, mode: Mode, commit: bool
) -> RememberResult:
    if commit:
        _require_commit_allowed(call, document)
    _, result = add_note(call.ws, source, NoteDraft(text, document.doc_id), "refuse" if mode == "add" else mode)
    outcome.warn_pending(call, result)
    paths = result.notes.paths if result.notes else ()
    undo = ""
    if result.report.changes.modified:
        kept = bool(result.notes and result.notes.kept)
        undo = f"vmrag restore --undo {quoted(str(document))}" if kept else _restore_committed(paths)
    made = _commit_note(call, paths, document) if commit and paths else ""
    then = "`git commit` keeps it." if paths and not made else ""
    was = _describe_change(result.report.changes, mode)
    return RememberResult(
        name=str(document),
        was=was,
        landed=Landing(None, uncommitted=bool(then), pinned=False, then=then),
        file=paths[0] if paths else UNSET,
        undo=undo or UNSET,
        commit=made or UNSET,
        message=f"{document} is {was}. {then}".strip(),
    )


def _describe_change(changes: ChangeCounts, mode: Mode) -> str:
    if changes.added:
        return "added"
    return ("extended" if mode == "append" else "replaced") if changes.modified else "unchanged"


def _make_document(name: DocumentName, text: str) -> ImportedDocument:
    [document] = new_documents([New(text, name.doc_id)])
    return document


def _restore_committed(paths: tuple[str, ...]) -> str:
    return f"git restore --source=HEAD --staged --worktree -- {' '.join(map(quoted, paths))}" if paths else ""


def _require_commit_allowed(call: Call, name: DocumentName) -> None:
    """Raise `AccessDenied`, which lets the server ask the user, unless a commit is allowed."""
    allowed = call.ws.config.mcp.commit
    key = f"commit {name}"
    if allowed == "ask" and key not in call.agreed:
        raise AccessDenied(
            f"an agent may commit the note {name} only if the user agrees.",
            hint="Call again without commit, then ask the user to run: git commit",
            ask=True,
            commit=key,
            otherwise={"commit": False},
        )
    if allowed == "off":
        raise AccessDenied(
            "agents may not make git commits here (mcp.commit: off).",
            hint="Call again without commit, then ask the user to run: git commit",
            otherwise={"commit": False},
        )


def _commit_note(call: Call, paths: tuple[str, ...], name: DocumentName) -> str:
    from vmrag_link.ops.documents.note_commit import commit_notes

    try:
        return commit_notes(call.ws, paths, f"Note {name.doc_id} (remember)").commit[:12]
    except VmragError as error:  # the note is written
        call.warn("NOT_COMMITTED", error.sentence)
        return ""


def _remember_stored(call: Call, target: DocumentName, text: str, mode: Mode) -> RememberResult:
    ws, at = call.ws, call.standing().at
    stores.require_versioned(ws, target.collection, [target.doc_id])
    present = ws.engine.document(at, target.collection, target.doc_id)
    undo = ""
    if present and mode == "add" and present.content != text:
        raise NoteExists(
            f"the document {target} exists. Its text is:\n{present.content[:SHOWN].rstrip()}",
            hint="mode=replace, mode=append, or another name",
            ids=[target.doc_id],
            name=str(target),
            text=present.content[:SHOWN],
        )
    if present:
        before = present.content
        joint = "" if before.endswith("\n") else "\n"
        whole = f"{before}{joint}{text}" if mode == "append" else text
        result = update(ws, target.collection, [DocumentUpdate(target.doc_id, whole)])
        call.pending(result.pending)
        was = _describe_change(ChangeCounts(modified=len(result.report.ids)), mode)
        undo = f"vmrag restore --source {ws.revision()} {quoted(str(target))}" if result.report.ids else ""
    else:
        document = _make_document(target, text)
        call.pending(put(ws, PutRequest(target.collection, [document], create=True, embed_first=True)).pending)
        was = "added"
    landed = _landing(call, target)
    message = f"{target} is {was}. {landed.then}".strip()
    return RememberResult(name=str(target), was=was, landed=landed, undo=undo or UNSET, message=message)


SHOWN = 1000
"""Characters of the present text that a refusal shows."""


@tool("WD", of_files=True, includes=("chroma_delete_documents",), same_effect=("chroma_delete_documents",))
def forget(call: Call, *, name: Annotated[str, Given("of one note or stored document")]) -> ForgetResult:
    """Delete one note that is wrong or outdated. Files of the project are deleted with git instead.
    The answer contains how to restore it.
    """
    document = _document_name(call, name)
    ws = call.ws
    source = ws.sources.writable(document.collection)
    if source and not (ws.initialized and "/" not in name and _is_stored_only(ws, source, name)):
        return _forget_note(call, source, document)
    at = call.standing().at
    stored = document_names.find(ws.engine, [at], str(document) if "/" in name else name)
    stores.require_versioned(ws, stored.collection, [stored.doc_id])
    removal = remove_named(ws, [stored.doc_id], within=stored.collection, confirmed=True)
    restored = removal.report.kept or ws.revision()
    undo = (
        ""
        if removal.report.unsaved and not removal.report.kept
        else f"vmrag restore --source {restored} {quoted(str(stored))}"
    )
    landed = _landing(call, stored)
    return ForgetResult(
        name=str(stored), landed=landed, undo=undo or UNSET, message=f"{stored} is deleted. {landed.then}".strip()
    )


def _is_stored_only(ws: Workspace, source: SourceSettings, doc_id: str) -> bool:
    """Return whether an id without a collection means a stored document, and no note."""
    return NoteFolder(ws, source).find_note(doc_id) is None and bool(
        document_names.candidates(ws.engine, ws.at(), doc_id)
    )


def _forget_note(call: Call, source: SourceSettings, document: DocumentName) -> ForgetResult:
    written = remove_notes(call.ws, source, [document.doc_id])
    outcome.warn_pending(call, WriteResult(None, None, written.pending, notes=written))
    undo = f"vmrag restore --undo {quoted(str(document))}" if written.kept else _restore_committed(written.paths)
    landed = Landing(None, uncommitted=True, pinned=False, then="`git commit` keeps the deletion.")
    return ForgetResult(name=str(document), landed=landed, undo=undo, message=f"{document} is deleted. {landed.then}")


def _document_name(call: Call, name: str) -> DocumentName:
    """Return the document that a name means.

    If its first part names no collection, the whole name is an id in the first writable source, or
    else in the stored collection `notes`. Raises `SourceReadOnly` for a file of another source.
    """
    if name.strip("/") != name or not name.strip():
        raise UsageInvalid(f"{name!r:.80} names no document.", hint="name=decisions/retry-policy", parameter="name")
    ws = call.ws
    configured = ws.sources.configured
    for source in configured:
        if source.write and (doc_id := id_of(ws, source, name)) != name:
            return DocumentName(source.collection, doc_id)
    collection, slash, doc_id = name.partition("/")
    existing = {*(source.collection for source in configured), *ws.stored_collections()}
    document = DocumentName(collection, doc_id) if slash and collection in existing else None
    first = ws.sources.writable()
    if document is None:
        document = DocumentName(first.collection if first else COLLECTION, name)
    if ws.sources.writable(document.collection) or not configured:
        return document
    if document.collection in {source.collection for source in configured} - {*ws.stored_collections()}:
        raise source_read_only(document.collection, document.doc_id)
    file = listing.show_file(ws, name) if ":" not in name else None
    if file and not ws.sources.writable(file.collection):
        raise source_read_only(file.collection, file.doc_id)
    return document


def _landing(call: Call, name: DocumentName) -> Landing:
    """Return where the knowledge base is now, and whether this document differs there."""
    ws = call.ws
    call.stands(standing(ws))
    branch = ws.target().kb_branch
    differs = False
    if branch and branch.dirty:
        found = ws.engine.diff_headers(branch.head, ws.at()).documents
        differs = any(change.key == name.key for change in found)
    if ws.config.mcp.auto_commit == "write":  # when this answer is made; a warning tells of failure
        then = "It is committed with this call, and the next `git commit` also commits the staged pin."
        return Landing(branch.name if branch else None, False, not differs, then if differs else "")
    keep = call.worded("dolt_commit") or "`vmrag commit -m MESSAGE` (or the toolset dolt)"
    then = f"{keep} makes a revision of it and stages the pin, which the next `git commit` commits."
    return Landing(branch.name if branch else None, differs, not differs, then if differs else "")
