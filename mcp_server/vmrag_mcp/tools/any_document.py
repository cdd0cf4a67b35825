"""One document of any table by its id: for libraries, issue logs and documents about tools."""

from __future__ import annotations

from typing import Annotated, Literal

from vmrag_link.models import DocumentTable
from vmrag_link.ops import by_id
from vmrag_link.ops.by_id import WholeDocument
from vmrag_link.workspace.documents.collections import TABLES
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer, ToolResult
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome


class DeleteDocumentResult(ToolResult, frozen=True):
    status: Literal["deleted"]
    doc_id: str
    deleted_chunks: int
    table: DocumentTable


DocId = Annotated[str, Given("id of the document", aliases=("id",))]
Table = Annotated[str | None, Given(f"{', '.join(TABLES)}; default: all")]


@tool("R", of_files=True, alias_of="chroma_get_documents")
def get_document(call: Call, *, doc_id: DocId, table: Table = None) -> ToolAnswer[WholeDocument]:
    """Read a whole document of a library, issue log or tool by its id."""
    found = call.accept_read(by_id.get_document(call.ws, doc_id, table))
    call.add_quoted([(found.library, found.doc_id)])
    return ToolAnswer(found, message=f"{found.title!r} in {found.library!r}.")


@tool("WD", of_files=True, alias_of="chroma_delete_documents")
def delete_document(call: Call, *, doc_id: DocId, table: Table = None) -> DeleteDocumentResult:
    """Delete a document of a library, issue log or tool by its id. chroma_delete_documents
    deletes several.
    """
    done = by_id.delete_document(call.ws, doc_id, table)
    gone = outcome.stored_report(call, done)
    return DeleteDocumentResult(
        status="deleted",
        doc_id=gone.doc_id,
        deleted_chunks=gone.chunks,
        table=gone.table,
        message=f"{gone.doc_id!r} is deleted from {gone.collection!r}{outcome.describe_commit(call, done, 'that')}.",
    )
