"""Read or delete one document of any table by its id: of libraries, issue logs and tools."""

from __future__ import annotations

from typing import Annotated, Literal

from vmrag_link.models import DocumentTable
from vmrag_link.ops import by_id
from vmrag_link.ops.by_id import WholeDocument
from vmrag_link.workspace.documents.collections import TABLES
from vmrag_mcp.arguments import Given
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer, ToolResult
from vmrag_mcp.tools import outcome


class DeleteDocumentResult(ToolResult, frozen=True):
    status: Literal["deleted"]
    doc_id: str
    deleted_chunks: int
    table: DocumentTable


DocId = Annotated[str, Given("id of the document", aliases=("id",))]
Table = Annotated[str | None, Given(f"{', '.join(TABLES)}; default: all")]


@tool("R", reads_files=True, alias_of="chroma_get_documents")
def get_document(call: Call, *, doc_id: DocId, table: Table = None) -> ToolAnswer[WholeDocument]:
    """Read a whole document of a library, issue log or tool by its id."""
    document = call.accept_read(by_id.get_document(call.ws, doc_id, table))
    call.add_quoted([(document.library, document.doc_id)])
    return ToolAnswer(document, message=f"{document.title!r} in {document.library!r}.")


@tool("WD", reads_files=True, alias_of="chroma_delete_documents")
def delete_document(call: Call, *, doc_id: DocId, table: Table = None) -> DeleteDocumentResult:
    """Delete a document of a library, issue log or tool by its id. chroma_delete_documents
    deletes several.
    """
    result = by_id.delete_document(call.ws, doc_id, table)
    deleted = outcome.stored_report(call, result)
    return DeleteDocumentResult(
        status="deleted",
        doc_id=deleted.doc_id,
        deleted_chunks=deleted.chunks,
        table=deleted.table,
        message=f"Deleted {deleted.doc_id!r} from {deleted.collection!r}{outcome.describe_commit(call, result, 'that')}.",
    )
