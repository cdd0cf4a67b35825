"""Collections: list, create, change and delete them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from vmrag_link import env
from vmrag_link.chroma.bindings import DATABASE, TENANT
from vmrag_link.errors import plural
from vmrag_link.models import Chunking, Collection, Record
from vmrag_link.ops import collection_writes as writes
from vmrag_link.ops.collection_metadata import shown_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.workspace.answers import index_status
from vmrag_link.workspace.answers.index_status import CollectionSize, Status, collection_id, read_indexed
from vmrag_link.workspace.documents import reading
from vmrag_link.workspace.documents.reading import TextSource
from vmrag_link.workspace.follow.provenance import AnswerOrigin
from vmrag_mcp.arguments import CollectionName, Given, Offset
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import DerivedRecord, ToolAnswer, ToolResult
from vmrag_mcp.tools import outcome

CollectionKind = Literal["chroma", "issues", "knowledge", "library", "compounding", "external", "system", "source"]


class CollectionEntry(Record, frozen=True):
    """A collection. `tenant` and `database` are Chroma's."""

    name: str
    metadata: dict[str, Any]
    tenant: str
    database: str
    document_count: int
    kind: CollectionKind


class ChromaListCollectionsResult(ToolResult, frozen=True):
    """Collections. `total_count` counts all matches, not only the page."""

    collections: list[CollectionEntry]
    total_count: int
    has_more: bool
    limit: int
    offset: int


class ChromaGetCollectionInfoResult(ToolResult, frozen=True, rename={"view": "snapshot"}):
    """The settings of a collection.

    `metadata` has the user's own keys, and keys about the index. `id` is a UUID derived from the
    name; Chroma's own id differs in every store.
    """

    name: str
    id: str
    metadata: dict[str, Any]
    tenant: str
    database: str
    document_count: int
    chunk_count: int
    view: str
    embedding_function: str
    embedding_dimensions: int
    chunking: Chunking
    index_status: Status


class CreatedCollection(Record, frozen=True):
    """A collection. `created` is false if it already existed."""

    name: str
    id: str
    created: bool


class ChromaCreateCollectionResult(ToolResult, frozen=True):
    collection: CreatedCollection
    name: str
    id: str
    metadata: dict[str, Any]


class DescribedCollection(Record, frozen=True):
    name: str
    metadata: dict[str, Any]


class CollectionChanges(
    DerivedRecord, frozen=True, rename={"renamed": "name_changed", "described": "metadata_changed"}
):
    renamed: bool
    described: bool


class ChromaModifyCollectionResult(ToolResult, frozen=True):
    collection: DescribedCollection
    changes: CollectionChanges


class ChromaDeleteCollectionResult(ToolResult, frozen=True):
    deleted_collection: str
    documents_deleted: int
    status: Literal["success"]


@tool("R", reads_files=True)
def chroma_list_collections(
    call: Call,
    *,
    limit: Annotated[int, Given("maximum number of collections; 0 for all", low=0)] = 100,
    offset: Offset = 0,
    name_contains: Annotated[str, Given("part of the name")] = "",
) -> ChromaListCollectionsResult:
    """List the collections of the checked-out commit with their numbers of documents."""

    def list_page(rows: TextSource, origin: AnswerOrigin) -> ChromaListCollectionsResult:
        call.set_origin(origin)
        matching = [
            collection
            for collection in rows.list_collections(origin.at)
            if name_contains.lower() in collection.name.lower()
        ]
        page = [
            _collection_entry(collection, rows.count_documents(origin.at, collection=collection.name))
            for collection in matching[offset:][: limit or None]
        ]
        return ChromaListCollectionsResult(
            collections=page,
            total_count=len(matching),
            has_more=offset + len(page) < len(matching),
            limit=limit,
            offset=offset,
            message=f"{len(page)} of {len(matching)} collections.",
        )

    return reading.read_texts(call.ws, None, list_page)


def _collection_entry(collection: Collection, documents: int) -> CollectionEntry:
    return CollectionEntry(
        name=collection.name,
        metadata=shown_metadata(collection),
        tenant=TENANT,
        database=DATABASE,
        document_count=documents,
        kind=collection.kind,  # type: ignore[arg-type]  # the engine stores no other
    )


Function = Literal["default", "openai", "cohere", "huggingface", "minilm", "ollama", "hash"]


@tool("R", reads_files=True)
def chroma_get_collection_info(call: Call, *, collection_name: CollectionName) -> ChromaGetCollectionInfoResult:
    """Show the settings of a collection: metadata, embedding function, chunking and size.
    Searching does not need them.
    """
    origin, indexed = read_indexed(stores.find_readable(call.ws, collection_name), collection_name)
    call.set_origin(origin)
    collection = indexed.collection
    effective = {"embedding_model": collection.embedding_model, **indexed.hnsw}
    return ChromaGetCollectionInfoResult(
        name=collection.name,
        id=collection_id(collection.name),
        metadata=shown_metadata(collection) | effective,
        tenant=TENANT,
        database=DATABASE,
        document_count=indexed.documents,
        chunk_count=indexed.chunks,
        view=indexed.view,
        embedding_function=collection.embedding_function,
        embedding_dimensions=collection.embedding_dimensions,
        chunking=collection.chunking,
        index_status=indexed.status,
        message=f"Collection {collection.name!r} has {plural(indexed.documents, 'document')}.",
    )


@tool("R", reads_files=True)
def chroma_get_collection_count(call: Call, *, collection_name: CollectionName) -> ToolAnswer[CollectionSize]:
    """Count the documents of a collection."""
    origin, size = index_status.read_size(stores.find_readable(call.ws, collection_name), collection_name)
    call.set_origin(origin)
    return ToolAnswer(size, message=f"Collection {size.collection_name!r} has {plural(size.count, 'document')}.")


@tool("W")
def chroma_create_collection(
    call: Call,
    *,
    collection_name: Annotated[str, Given("name such as handbook", blank=True)],
    metadata: Annotated[
        dict[str, Any] | None,
        Given('metadata such as {"description": "API docs", "hnsw:space": "cosine"}'),
    ] = None,
    embedding_function: Annotated[
        Function | None,
        Given(
            "embedding function; default: the project's",
            aliases=("embedding_function_name",),
            spelled=env.OTHER_MODEL_NAMES,
        ),
    ] = None,
    get_or_create: Annotated[bool, Given("accept an existing collection")] = False,
    chunking: Annotated[
        dict[str, Any] | None, Given('sizes in characters such as {"size": 1000, "overlap": 100}')
    ] = None,
) -> ChromaCreateCollectionResult:
    """Create a collection for documents that fit into no existing collection."""
    stores.require_versioned(call.ws, collection_name)
    result = writes.create_collection(
        call.ws,
        collection_name,
        metadata=metadata or {},
        embedding_function=embedding_function or "",
        chunking=chunking,
        get_or_create=get_or_create,
    )
    report = outcome.stored_report(call, result)
    collection = report.collection
    if not report.created and metadata:
        call.warn("IGNORED_SETTING", f"Collection {collection.name!r} already exists; its metadata was not changed.")
    if report.created and report.ignored:
        call.warn("IGNORED_SETTING", f"Stored, but without effect: {', '.join(report.ignored)}.")
    new_id = collection_id(collection.name)
    message = f"Collection {collection.name!r} already exists."
    if report.created:
        message = f"Created collection {collection.name!r}{call.format_tail('dolt_commit keeps it')}."
    return ChromaCreateCollectionResult(
        collection=CreatedCollection(collection.name, new_id, report.created),
        name=collection.name,
        id=new_id,
        metadata=shown_metadata(collection),
        message=message,
    )


@tool("WO")
def chroma_modify_collection(
    call: Call,
    *,
    collection_name: CollectionName,
    new_name: Annotated[str, Given("new name such as handbook")] = "",
    new_metadata: Annotated[dict[str, Any] | None, Given("metadata that replaces the old metadata")] = None,
) -> ChromaModifyCollectionResult:
    """Rename a collection or replace its metadata. Its documents stay."""
    stores.require_stored(call.ws, collection_name)
    result = writes.modify_collection(call.ws, collection_name, new_name=new_name or None, metadata=new_metadata)
    report = outcome.stored_report(call, result)
    if report.unapplied:
        call.warn("IGNORED_SETTING", f"The existing index keeps its old settings: {', '.join(report.unapplied)}.")
    changed = ["name"] if report.renamed else []
    if report.described:
        changed.append("metadata")
    return ChromaModifyCollectionResult(
        collection=DescribedCollection(report.collection.name, shown_metadata(report.collection)),
        changes=CollectionChanges.from_report(report),
        message=f"Collection {report.collection.name!r}: changed {' and '.join(changed) or 'nothing'}.",
    )


@tool("WD", includes=("chroma_delete_documents",))
def chroma_delete_collection(
    call: Call, *, collection_name: CollectionName, confirm: Annotated[bool, Given("true if the user agreed")] = False
) -> ChromaDeleteCollectionResult:
    """Delete a collection and all its documents if the user wants that. Other branches keep it."""
    stores.require_stored(call.ws, collection_name)
    result = writes.delete_collection(call.ws, collection_name, confirmed=confirm or not call.behaviour.require_confirm)
    report = outcome.stored_report(call, result)
    kept = f" Its uncommitted documents are kept in revision {report.kept}." if report.kept else ""
    count = plural(report.documents, "document")
    return ChromaDeleteCollectionResult(
        deleted_collection=report.name,
        documents_deleted=report.documents,
        status="success",
        message=f"Deleted {report.name!r} with {count}{call.format_tail('dolt_reset restores what was committed')}.{kept}",
    )
