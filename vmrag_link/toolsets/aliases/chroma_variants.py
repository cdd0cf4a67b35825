"""Tools for collections and documents, one for each case: one document or one filter."""

from __future__ import annotations

from typing import Annotated, Any

from vmrag_link.ops.collection_writes import modify_collection
from vmrag_link.ops.rm import Removal
from vmrag_link.ops.stores import stores
from vmrag_link.ops.update import DocumentUpdate
from vmrag_link.toolsets.aliases import chroma_variants_results as results
from vmrag_link.workspace.documents.document_selection import DocumentPage, PageRequest, Selection
from vmrag_link.workspace.documents.drafts import NewDocument
from vmrag_mcp.arguments import (
    DOCUMENTS,
    FILTER,
    METADATA,
    RESULTS,
    TEXT_FILTER,
    CollectionName,
    Given,
    LongText,
    Offset,
)
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer
from vmrag_mcp.tools import collections, documents, outcome
from vmrag_mcp.tools.document_results import ChromaQueryDocumentsResult, DocumentColumns, QueryMatch
from vmrag_mcp.tools.documents import Parts, Queries, read_page

SAMPLE = 5
"""Number of documents that `chroma_get_collection` shows."""

ALL_DOCUMENTS = 5_000
ALL_CHARACTERS = 2_000_000
"""Maximum number of characters of all documents, unless the call has a limit."""

Id = Annotated[str, Given("id of the document or chunk", wire="id")]
OwnId = Annotated[str, Given("id of the document", wire="id")]
Metadata = Annotated[dict[str, Any], Given(METADATA)]
Filter = Annotated[dict[str, Any], FILTER]
TextFilter = Annotated[dict[str, Any], TEXT_FILTER]
Matches = Annotated[int, Given(RESULTS, low=1, high=100, clamped=True)]
Limit = Annotated[int, Given(f"{DOCUMENTS}; 0 for all", low=0)]
Follow = Annotated[bool, Given("false: update the index later")]


# -- collections


@tool("R", reads_files=True, alias_of="chroma_get_collection_info", includes=("chroma_peek_collection",))
def chroma_get_collection(call: Call, *, collection_name: CollectionName) -> results.ChromaGetCollectionResult:
    """Show a collection and its first documents."""
    info = collections.chroma_get_collection_info(call, collection_name=collection_name)
    page = documents.chroma_peek_collection(call, collection_name=info.name, limit=SAMPLE)
    hnsw = {key: value for key, value in info.metadata.items() if key.startswith("hnsw:")}
    own_metadata = {key: value for key, value in info.metadata.items() if key not in hnsw}
    return results.ChromaGetCollectionResult(
        name=info.name,
        id=info.id,
        metadata=own_metadata | {"settings": hnsw},
        count=page.total_in_collection,
        sample_entries=DocumentColumns(
            ids=[document.id for document in page.documents],
            documents=[document.document for document in page.documents],
            metadatas=[document.metadata for document in page.documents],
        ),
        message=info.message,
    )


@tool("WO", alias_of="chroma_modify_collection", includes=("chroma_get_collection",))
def chroma_rename_collection(
    call: Call,
    *,
    collection_name: CollectionName,
    new_name: Annotated[str, Given("new name such as handbook", blank=True)],
) -> results.ChromaGetCollectionResult:
    """Rename a collection. Its documents and vectors stay."""
    stores.require_stored(call.ws, collection_name)
    renamed = modify_collection(call.ws, collection_name, new_name=new_name)
    call.warn_pending(renamed.pending)
    return chroma_get_collection(call, collection_name=renamed.report.collection.name)


# -- adding


@tool("W", reads_files=True, alias_of="chroma_add_documents")
def chroma_add_document(
    call: Call, *, collection_name: CollectionName, document: LongText, increment_index: Follow = True
) -> results.ChromaAddDocumentResult:
    """Store one document under a generated id."""
    return _add_one(call, collection_name, NewDocument(document), follow=increment_index)


@tool("W", reads_files=True, alias_of="chroma_add_documents")
def chroma_add_document_with_id(
    call: Call, *, collection_name: CollectionName, document: LongText, doc_id: OwnId, increment_index: Follow = True
) -> results.ChromaAddDocumentResult:
    """Store one document under a given id."""
    return _add_one(call, collection_name, NewDocument(document, doc_id), follow=increment_index)


@tool("W", reads_files=True, alias_of="chroma_add_documents")
def chroma_add_document_with_metadata(
    call: Call,
    *,
    collection_name: CollectionName,
    document: LongText,
    metadata: Metadata,
    increment_index: Follow = True,
) -> results.ChromaAddDocumentResult:
    """Store one document with metadata under a generated id."""
    return _add_one(call, collection_name, NewDocument(document, metadata=metadata), follow=increment_index)


@tool("W", title="Add complete document", reads_files=True, alias_of="chroma_add_documents")
def chroma_add_document_with_id_and_metadata(
    call: Call,
    *,
    collection_name: CollectionName,
    document: LongText,
    doc_id: OwnId,
    metadata: Metadata,
    increment_index: Follow = True,
) -> results.ChromaAddDocumentResult:
    """Store one document with metadata under a given id."""
    return _add_one(call, collection_name, NewDocument(document, doc_id, metadata), follow=increment_index)


def _add_one(call: Call, name: str, new: NewDocument, *, follow: bool) -> results.ChromaAddDocumentResult:
    ids, result = documents.store_documents(call, name, [new], follow=follow)
    return results.ChromaAddDocumentResult(
        status="success",
        documents_added=1,
        ids=ids,
        added_id=ids[0],
        message=f"Document {ids[0]!r} added to {result.report.collection!r}{outcome.describe_commit(call, result, 'it')}.",
    )


# -- asking and getting


@tool("R", title="Query by metadata", reads_files=True, alias_of="chroma_query_documents")
def chroma_query_documents_with_where_filter(
    call: Call, *, collection_name: CollectionName, query_texts: Queries, where: Filter, n_results: Matches = 10
) -> results.FilteredQueryResult:
    """Search the chunks of a collection whose metadata matches a filter."""
    answer = documents.chroma_query_documents(
        call, collection_name=collection_name, query_texts=query_texts, n_results=n_results, mode="vector", where=where
    )
    return _build_filtered(answer)


@tool("R", title="Query by text", reads_files=True, alias_of="chroma_query_documents")
def chroma_query_documents_with_document_filter(
    call: Call,
    *,
    collection_name: CollectionName,
    query_texts: Queries,
    where_document: TextFilter,
    n_results: Matches = 10,
) -> results.FilteredQueryResult:
    """Search the chunks of a collection whose text matches a filter."""
    answer = documents.chroma_query_documents(
        call,
        collection_name=collection_name,
        query_texts=query_texts,
        n_results=n_results,
        mode="vector",
        where_document=where_document,
    )
    return _build_filtered(answer)


def _build_filtered(answer: ChromaQueryDocumentsResult) -> results.FilteredQueryResult:
    return results.FilteredQueryResult(
        results=[
            results.FilteredMatches(answer.query, list(map(_build_match, answer.matches)), answer.weak)
            for answer in answer.results
        ],
        ids=answer.ids,
        distances=answer.distances,  # type: ignore[arg-type]  # `include` leaves nothing out
        message=answer.message,
    )


def _build_match(match: QueryMatch) -> results.FilteredMatch:
    # A tool with one filter cannot leave anything out by `include`, so none of these is unset.
    return results.FilteredMatch(**{name: getattr(match, name) for name in results.FilteredMatch.__struct_fields__})


@tool("R", reads_files=True, alias_of="chroma_get_documents")
def chroma_get_documents_by_ids(
    call: Call,
    *,
    collection_name: CollectionName,
    ids: Annotated[list[str], Given("ids of documents or chunks", min_items=1)],
) -> results.ChromaGetDocumentsByIdsResult:
    """Read whole documents or chunks by their ids."""
    page = read_page(call, collection_name, Selection(ids), PageRequest())
    return results.ChromaGetDocumentsByIdsResult(
        **_build_columns(page, ("documents", "metadatas")), missing_ids=page.missing
    )


@tool("R", title="Get by metadata", reads_files=True, alias_of="chroma_get_documents")
def chroma_get_documents_with_where_filter(
    call: Call,
    *,
    collection_name: CollectionName,
    where: Filter,
    limit: Limit = 0,
    offset: Offset = 0,
    include: Parts = ("documents", "metadatas"),  # type: ignore[assignment]
) -> results.DocumentsResult:
    """Read the documents whose metadata matches a filter."""
    page = read_page(call, collection_name, Selection(where=where), _build_request(limit, offset, include))
    return results.DocumentsResult(**_build_columns(page, include))


@tool("R", title="Get by text", reads_files=True, alias_of="chroma_get_documents")
def chroma_get_documents_with_document_filter(
    call: Call,
    *,
    collection_name: CollectionName,
    where_document: TextFilter,
    limit: Limit = 0,
    offset: Offset = 0,
    include: Parts = ("documents", "metadatas"),  # type: ignore[assignment]
) -> results.DocumentsResult:
    """Read the documents whose text matches a filter."""
    page = read_page(
        call, collection_name, Selection(where_document=where_document), _build_request(limit, offset, include)
    )
    return results.DocumentsResult(**_build_columns(page, include))


@tool("R", reads_files=True, alias_of="chroma_get_documents")
def chroma_get_all_documents(
    call: Call,
    *,
    collection_name: CollectionName,
    limit: Annotated[int, Given(f"{DOCUMENTS}; 0 for as many as fit", low=0)] = 0,
    offset: Offset = 0,
    include: Parts = ("documents", "metadatas"),  # type: ignore[assignment]
) -> results.ChromaGetAllDocumentsResult:
    """Read all documents of a collection, page by page."""
    request = _build_request(limit or ALL_DOCUMENTS, offset, include, characters=None if limit else ALL_CHARACTERS)
    page = read_page(call, collection_name, Selection(), request)
    fields = _build_columns(page, include) | {"message": documents.describe_page(page, offset)}
    return results.ChromaGetAllDocumentsResult(**fields, has_more=page.has_more(offset))


def _build_request(limit: int, offset: int, include: list[Any], *, characters: int | None = None) -> PageRequest:
    return PageRequest(limit or None, offset, characters, "documents" in include, "embeddings" in include)


def _build_columns(page: DocumentPage, include: Any) -> dict[str, Any]:
    """Return the fields that contain the documents as lists of equal length."""
    fields: dict[str, Any] = {"ids": [item.name for item in page.items], "total_matching": page.total}
    if "documents" in include:
        fields["documents"] = [item.text for item in page.items]
    if "metadatas" in include:
        fields["metadatas"] = [item.metadata for item in page.items]
    if "embeddings" in include:
        fields["embeddings"] = [item.embeddings for item in page.items]
    return fields | {"message": f"{len(page.items)} of {page.total} documents."}


# -- changing and deleting


@tool("WO", reads_files=True, alias_of="chroma_update_documents")
def chroma_update_document_content(
    call: Call, *, collection_name: CollectionName, doc_id: Id, document: LongText
) -> results.ChromaUpdateDocumentResult:
    """Replace the text of a document. Its metadata stays."""
    return _update_one(call, collection_name, DocumentUpdate(doc_id, text=document))


@tool("WO", reads_files=True, alias_of="chroma_update_documents")
def chroma_update_document_metadata(
    call: Call, *, collection_name: CollectionName, doc_id: Id, metadata: Metadata
) -> results.ChromaUpdateDocumentResult:
    """Replace the metadata of a document. Its text stays."""
    return _update_one(call, collection_name, DocumentUpdate(doc_id, metadata=metadata))


def _update_one(call: Call, name: str, change: DocumentUpdate) -> results.ChromaUpdateDocumentResult:
    result = documents.change_documents(call, name, [change])
    [doc_id] = [*result.report.ids, *result.report.unchanged]
    what = f"is changed{outcome.describe_commit(call, result, 'it')}" if result.report.ids else "was like that already"
    return results.ChromaUpdateDocumentResult(
        status="success", documents_updated_request=1, updated_id=doc_id, message=f"Document {doc_id!r} {what}."
    )


@tool("WD", reads_files=True, alias_of="chroma_delete_documents")
def chroma_delete_document_by_id(
    call: Call, *, collection_name: CollectionName, doc_id: Id
) -> results.ChromaDeleteDocumentByIdResult:
    """Delete one document by its id."""
    answer = documents.chroma_delete_documents(call, collection_name=collection_name, ids=[doc_id])
    return results.ChromaDeleteDocumentByIdResult(
        status="success",
        documents_deleted_request=1,
        documents_deleted=answer.report.documents_deleted,
        message=answer.message,
    )


@tool("WD", title="Delete by metadata", reads_files=True, alias_of="chroma_delete_documents")
def chroma_delete_documents_by_where_filter(
    call: Call, *, collection_name: CollectionName, where: Filter
) -> results.ChromaDeleteDocumentsByFilterResult:
    """Delete the documents whose metadata matches a filter."""
    answer = documents.chroma_delete_documents(call, collection_name=collection_name, where=where)
    return _build_deleted(answer, where)


@tool("WD", title="Delete by text", reads_files=True, alias_of="chroma_delete_documents")
def chroma_delete_documents_by_document_filter(
    call: Call, *, collection_name: CollectionName, where_document: TextFilter
) -> results.ChromaDeleteDocumentsByFilterResult:
    """Delete the documents whose text matches a filter."""
    answer = documents.chroma_delete_documents(call, collection_name=collection_name, where_document=where_document)
    return _build_deleted(answer, where_document)


def _build_deleted(answer: ToolAnswer[Removal], given: dict[str, Any]) -> results.ChromaDeleteDocumentsByFilterResult:
    return results.ChromaDeleteDocumentsByFilterResult(
        status="success", filter_used=given, documents_deleted=answer.report.documents_deleted, message=answer.message
    )
