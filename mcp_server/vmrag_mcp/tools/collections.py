"""Collections: what there is, and making, changing and removing them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from vmrag_link import env
from vmrag_link.chroma.bindings import DATABASE, TENANT
from vmrag_link.errors import plural
from vmrag_link.models import Chunking, Collection, Record
from vmrag_link.ops import collection_writes as writes
from vmrag_link.ops.collection_writes import shown_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.workspace.answers import index_status
from vmrag_link.workspace.answers.index_status import CollectionSize, Status, collection_id, read_indexed
from vmrag_link.workspace.documents import reading
from vmrag_link.workspace.documents.reading import TextSource
from vmrag_link.workspace.follow.provenance import AnswerOrigin
from vmrag_mcp.arguments import CollectionName, Given, Offset
from vmrag_mcp.registry import tool
from vmrag_mcp.results import DerivedRecord, ToolAnswer, ToolResult
from vmrag_mcp.session import Call

CollectionKind = Literal["chroma", "issues", "knowledge", "library", "compounding", "external", "system", "source"]


class CollectionEntry(Record, frozen=True):
    """`tenant` and `database` are Chroma's."""

    name: str
    metadata: dict[str, Any]
    tenant: str
    database: str
    document_count: int
    kind: CollectionKind


class ChromaListCollectionsResult(ToolResult, frozen=True):
    """`total_count` counts all that match, not the page."""

    collections: list[CollectionEntry]
    total_count: int
    has_more: bool
    limit: int
    offset: int


class ChromaGetCollectionInfoResult(ToolResult, frozen=True):
    """`metadata`: the user's own keys, and those that say how the index is made.

    `id`: a UUID made of the name; Chroma's own differs in every store.
    """

    name: str
    id: str
    metadata: dict[str, Any]
    tenant: str
    database: str
    document_count: int
    chunk_count: int
    snapshot: str
    embedding_function: str
    embedding_dimensions: int
    chunking: Chunking
    index_status: Status


class CreatedCollection(Record, frozen=True):
    """`created` is false for one that was there."""

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


@tool("R", of_files=True)
def chroma_list_collections(
    call: Call,
    *,
    limit: Annotated[int, Given("maximum number of collections; 0 for all", low=0)] = 100,
    offset: Offset = 0,
    name_contains: Annotated[str, Given("part of the name")] = "",
) -> ChromaListCollectionsResult:
    """List the collections of the checked-out commit with their numbers of documents."""

    def look(rows: TextSource, here: AnswerOrigin) -> tuple[AnswerOrigin, int, list[CollectionEntry]]:
        found = [
            collection
            for collection in rows.list_collections(here.at)
            if name_contains.lower() in collection.name.lower()
        ]
        page = found[offset:][: limit or None]
        return (
            here,
            len(found),
            [_collection_entry(each, rows.count_documents(here.at, collection=each.name)) for each in page],
        )

    here, total, rows = reading.read_texts(call.ws, None, look)
    call.set_origin(here)
    return ChromaListCollectionsResult(
        collections=rows,
        total_count=total,
        has_more=offset + len(rows) < total,
        limit=limit,
        offset=offset,
        message=f"{len(rows)} of {total} collections.",
    )


def _collection_entry(each: Collection, documents: int) -> CollectionEntry:
    return CollectionEntry(
        name=each.name,
        metadata=shown_metadata(each),
        tenant=TENANT,
        database=DATABASE,
        document_count=documents,
        kind=each.kind,  # type: ignore[arg-type]  # the engine stores no other
    )


Function = Literal["default", "openai", "cohere", "huggingface", "minilm", "ollama", "hash"]


@tool("R", of_files=True)
def chroma_get_collection_info(call: Call, *, collection_name: CollectionName) -> ChromaGetCollectionInfoResult:
    """Show the settings of a collection: metadata, embedding function, chunking and size.
    Searching does not need them.
    """
    at, found = read_indexed(call.find_readable(collection_name), collection_name)
    call.set_origin(at)
    each = found.collection
    effective = {"embedding_model": each.embedding_model, **found.hnsw}
    return ChromaGetCollectionInfoResult(
        name=each.name,
        id=collection_id(each.name),
        metadata=shown_metadata(each) | effective,
        tenant=TENANT,
        database=DATABASE,
        document_count=found.documents,
        chunk_count=found.chunks,
        snapshot=found.snapshot,
        embedding_function=each.embedding_function,
        embedding_dimensions=each.embedding_dimensions,
        chunking=each.chunking,
        index_status=found.status,
        message=f"Collection {each.name!r} has {plural(found.documents, 'document')}.",
    )


@tool("R", of_files=True)
def chroma_get_collection_count(call: Call, *, collection_name: CollectionName) -> ToolAnswer[CollectionSize]:
    """Count the documents of a collection."""
    at, found = index_status.read_size(call.find_readable(collection_name), collection_name)
    call.set_origin(at)
    return ToolAnswer(found, message=f"Collection {found.collection_name!r} has {plural(found.count, 'document')}.")


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
    done = writes.create_collection(
        call.ws,
        collection_name,
        metadata=metadata or {},
        embedding_function=embedding_function or "",
        chunking=chunking,
        get_or_create=get_or_create,
    )
    made = call.accept_write(done)
    each = made.collection
    if not made.created and metadata:
        call.warn("IGNORED_SETTING", f"Collection {each.name!r} exists; the metadata given was not taken over.")
    if made.created and made.ignored:
        call.warn("IGNORED_SETTING", f"Recorded, but of no effect: {', '.join(made.ignored)}.")
    made_id = collection_id(each.name)
    message = f"Collection {each.name!r} exists."
    if made.created:
        message = f"Collection {each.name!r} is created{call.format_tail('dolt_commit keeps it')}."
    return ChromaCreateCollectionResult(
        collection=CreatedCollection(each.name, made_id, made.created),
        name=each.name,
        id=made_id,
        metadata=shown_metadata(each),
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
    landed = writes.modify_collection(call.ws, collection_name, new_name=new_name or None, metadata=new_metadata)
    done = call.accept_write(landed)
    if done.unapplied:
        call.warn(
            "IGNORED_SETTING", f"The index that is there keeps what it was made with: {', '.join(done.unapplied)}."
        )
    changed = [what for what, so in (("name", done.renamed), ("metadata", done.described)) if so]
    return ChromaModifyCollectionResult(
        collection=DescribedCollection(done.collection.name, shown_metadata(done.collection)),
        changes=CollectionChanges.from_report(done),
        message=f"Collection {done.collection.name!r}: changed {' and '.join(changed) or 'nothing'}.",
    )


@tool("WD", includes=("chroma_delete_documents",))
def chroma_delete_collection(
    call: Call, *, collection_name: CollectionName, confirm: Annotated[bool, Given("true if the user agreed")] = False
) -> ChromaDeleteCollectionResult:
    """Delete a collection and all its documents if the user wants that. Other branches keep it."""
    stores.require_stored(call.ws, collection_name)
    landed = writes.delete_collection(call.ws, collection_name, confirmed=confirm or not call.behaviour.require_confirm)
    done = call.accept_write(landed)
    kept = f" What was never committed of it is kept in revision {done.kept}." if done.kept else ""
    count = plural(done.documents, "document")
    return ChromaDeleteCollectionResult(
        deleted_collection=done.name,
        documents_deleted=done.documents,
        status="success",
        message=f"Deleted {done.name!r} with {count}{call.format_tail('dolt_reset restores what was committed')}.{kept}",
    )
