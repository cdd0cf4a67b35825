"""The tools that write: remember and forget; and where what they wrote stands."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.models import LONGEST_TEXT, Record
from vmrag_link.ops.documents import listing
from vmrag_link.ops.documents.collections import source_read_only
from vmrag_link.ops.documents.drafts import New, new_documents
from vmrag_link.ops.documents.put import PutRequest, put
from vmrag_link.ops.documents.remove import remove_named
from vmrag_link.ops.documents.update import DocumentUpdate, update
from vmrag_link.ops.follow.provenance import standing
from vmrag_link.ops.history import document_names
from vmrag_link.ops.history.document_names import DocumentName
from vmrag_link.ops.system import stores
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call

COLLECTION = "notes"
"""Where a document lands whose name says no collection."""


class Landing(Record, frozen=True):
    """Where a change stands: on a KB branch, `uncommitted` in it, and `pinned` by the code's commit
    or not yet; `then` says how it becomes part of that.
    """

    branch: str | None
    uncommitted: bool
    pinned: bool
    then: str


class RememberResult(ToolResult, frozen=True):
    """`name`: by which read, remember and forget know it. `was`: what it changed."""

    name: str
    was: str
    landed: Landing


class ForgetResult(ToolResult, frozen=True):
    """`undo`: the command that brings the document back."""

    name: str
    landed: Landing
    undo: Annotated[str | UnsetType, Meta(description="it was committed, or its text was kept")] = UNSET


Name = Annotated[str, Given("COLLECTION/ID, e.g. decisions/retry-policy; an ID alone lands in notes")]


@tool(
    "W",
    idempotent=True,
    includes=("chroma_add_documents", "chroma_update_documents", "chroma_create_collection"),
    same_effect=("chroma_add_documents", "chroma_update_documents"),
)
def remember(
    call: Call, *, name: Name, text: Annotated[str, Given("Markdown; whole: it replaces", longest=LONGEST_TEXT)]
) -> RememberResult:
    """Write down what should be known later and no file says: decisions, reasons, findings. A
    document of that name is replaced, so search first. Found at once; the answer says how it gets
    into the next commit.
    """
    _refuse_file(call, name)
    ws, at = call.ws, call.standing().at
    if document_names.candidates(ws.engine, at, name):
        found = document_names.find(ws.engine, [at], name)
        stores.require_versioned(ws, found.collection, [found.doc_id])
        done = update(ws, found.collection, [DocumentUpdate(found.doc_id, text)])
        call.pending(done.pending)
        was = "replaced" if done.report.ids else "unchanged"
    else:
        found, was = _new_name(name), "added"
        stores.require_versioned(ws, found.collection, [found.doc_id])
        document = new_documents([New(text, found.doc_id)])
        call.pending(put(ws, PutRequest(found.collection, document, create=True, embed_first=True)).pending)
    landed = _landing(call, found)
    return RememberResult(name=str(found), was=was, landed=landed, message=f"{found} is {was}. {landed.then}".strip())


def _new_name(name: str) -> DocumentName:
    collection, slash, doc_id = name.partition("/")
    return DocumentName(collection, doc_id) if slash else DocumentName(COLLECTION, name)


@tool("WD", includes=("chroma_delete_documents",), same_effect=("chroma_delete_documents",))
def forget(call: Call, *, name: Annotated[str, Given("COLLECTION/ID of one document")]) -> ForgetResult:
    """Delete one document that is wrong or outdated; where only a part is, remember replaces it.
    The answer says how it comes back.
    """
    _refuse_file(call, name)
    ws, at = call.ws, call.standing().at
    found = document_names.find(ws.engine, [at], name)
    stores.require_versioned(ws, found.collection, [found.doc_id])
    done = remove_named(ws, [found.doc_id], within=found.collection, confirmed=True)
    source = done.report.kept or ws.revision()
    undo = (
        "" if done.report.unsaved and not done.report.kept else f"vmrag restore --source {source} {quoted(str(found))}"
    )
    landed = _landing(call, found)
    return ForgetResult(
        name=str(found), landed=landed, undo=undo or UNSET, message=f"{found} is deleted. {landed.then}".strip()
    )


def _refuse_file(call: Call, name: str) -> None:
    """Raises `SourceReadOnly` for a file, whose text is not stored."""
    if name.strip("/") != name or not name.strip():
        raise UsageInvalid(f"{name!r:.80} names no document.", hint="name=decisions/retry-policy", parameter="name")
    if not call.ws.sources.configured:
        return
    file = listing.show_file(call.ws, name) if ":" not in name else None
    if file:
        raise source_read_only(file.collection, file.doc_id)


def _landing(call: Call, name: DocumentName) -> Landing:
    """Where the knowledge base stands now, and whether this document differs there."""
    ws = call.ws
    call.stands(standing(ws))
    target = ws.target()
    branch = target.kb_branch
    differs = False
    if branch and branch.dirty:
        found = ws.engine.diff_headers(branch.head, ws.at()).documents
        differs = any(each.key == name.key for each in found)
    if ws.config.mcp.auto_commit == "write":  # when this answer is made; a warning tells of failure
        then = "It is committed with this call, and the next `git commit` takes the staged pin along."
        return Landing(branch.name if branch else None, False, not differs, then if differs else "")
    keep = call.worded("dolt_commit") or "`vmrag commit -m MESSAGE` (or the toolset dolt)"
    then = f"{keep} makes a revision of it and stages the pin, which the next `git commit` takes along."
    return Landing(branch.name if branch else None, differs, not differs, then if differs else "")
