"""Tools for libraries: import files and pages, search and list; and their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, TypeVar

from vmrag_link.documents import library_origin
from vmrag_link.errors import EmbeddingError, IndexExtraMissing, plural, quoted
from vmrag_link.git.listing import refuse_ignored
from vmrag_link.index.contents import count_chunks_by_document
from vmrag_link.models import LIBRARY, At, Document, Record
from vmrag_link.ops.stores import stores
from vmrag_link.toolsets.libraries import pages
from vmrag_link.toolsets.libraries import search as searching
from vmrag_link.toolsets.libraries.ingest import (
    DEFAULT,
    Ingested,
    all_libraries,
    check_library,
    find_by_source,
    find_library,
    ingest_sources,
    open_converter,
)
from vmrag_link.toolsets.libraries.pages import Admit
from vmrag_link.toolsets.libraries.search import LibraryPassages
from vmrag_link.toolsets.libraries.web.urls import PageUrl
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.index_status import read_held_now
from vmrag_link.workspace.documents import named_files, writing
from vmrag_link.workspace.documents.collections import TABLES, require_table
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.documents.named_files import SourceContent
from vmrag_link.workspace.documents.writing import WriteResult
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin, find_view_origin
from vmrag_mcp.arguments import DOCUMENTS, EXISTING_FILE, METADATA, RESULTS, Given, Offset, QueryText
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer, ToolResult


def ingest_path(
    ws: Workspace, name: str, path: str, *, agreed: Collection[str] = (), metadata: Mapping[str, Any] | None = None
) -> WriteResult[Ingested]:
    """Import a file into the library of this name. `agreed` is as in `refuse_ignored`.

    Raises `AccessDenied` for a file that git ignores, and the errors of `find_file`, `read_file`
    and `ingest_sources`.
    """
    file = named_files.find_file(ws, path)
    command = f"vmrag import {quoted(path)} --library {quoted(name)}"
    hint = f"ask the user to run '{command}'"
    refuse_ignored(ws.places, file, hint=hint, accepted=agreed, may_ask=True)
    return _ingest_one(ws, name, named_files.read_file(ws, file), metadata)


def ingest_page(
    ws: Workspace, name: str, url: str, *, admit: Admit, metadata: Mapping[str, Any] | None = None
) -> WriteResult[Ingested]:
    """Import the page at a URL into the library of this name. `admit` is as in `pages`.

    vmrag does not contact the host if the page cannot be stored. Raises the errors of `read_page`
    and `ingest_sources`.
    """
    check_library(name, metadata)
    at = writing.require_writable(ws).at
    find_library(ws, at, name)
    before = find_by_source(ws, at, name, pages.key_of(url))
    return _ingest_one(ws, name, pages.read_page(ws, url, before, admit), metadata)


def _ingest_one(
    ws: Workspace, name: str, source: SourceContent, metadata: Mapping[str, Any] | None
) -> WriteResult[Ingested]:
    with open_converter(ws) as convert:
        result = ingest_sources(ws, name, [source], convert, metadata=metadata)
    return WriteResult(result.report[0], result.branch, result.pending, result.chunks)


class IngestResult(ToolResult, frozen=True):
    """The result of an import.

    `source` is the file's absolute path, or the page's URL without credentials.
    """

    status: Literal["indexed", "replaced", "skipped"]
    doc_id: str
    source: str
    library: str
    chunk_count: int


Metadata = Annotated[dict[str, Any] | None, Given(f"{METADATA}; default: unchanged")]
Library = Annotated[str, Given("library such as handbook")]
AnyLibrary = Annotated[str | None, Given("library; default: all")]


@tool("WO", idempotent=True)
def ingest_file(
    call: Call,
    *,
    path: Annotated[str, Given(EXISTING_FILE)],
    library: Library = DEFAULT,
    metadata: Metadata = None,
) -> IngestResult:
    """Store a file in a library as Markdown, so that searches find it. A changed file replaces
    its document. dolt_commit makes a revision of it.
    """
    stores.require_stored(call.ws, library)
    return _build_result(call, ingest_path(call.ws, library, path, agreed=call.agreed, metadata=metadata))


@tool("WNO", idempotent=True)
def ingest_url(
    call: Call,
    *,
    url: Annotated[str, Given("http or https URL", address=True)],
    library: Library = DEFAULT,
    metadata: Metadata = None,
) -> IngestResult:
    """Store a web page or a file from a URL in a library, so that searches find it. The user
    must agree to each new host. dolt_commit makes a revision of it.
    """
    stores.require_stored(call.ws, library)
    return _build_result(call, ingest_page(call.ws, library, url, admit=_admit_pages(call), metadata=metadata))


def _admit_pages(call: Call) -> pages.Admit:
    """Return the check for pages that the arguments or a redirection name.

    The user's consent applies to this call. If the user asked to remember it, it also applies to
    later calls, for the whole host.
    """

    def admit_page(page: PageUrl) -> None:
        pages.admit_from_agent(call.ws, agreed=call.agreed)(page)
        if call.agreed.get(page.site):
            pages.trust_host(call.ws, page.site)

    return admit_page


def _build_result(call: Call, result: WriteResult[Ingested]) -> IngestResult:
    call.warn_pending(result.pending)
    document = result.report.document
    source = named_files.shown_source(call.ws, document)
    messages = {
        "indexed": f"{document.title!r} is in library {document.collection!r} now{call.format_tail('dolt_commit keeps it')}.",
        "replaced": f"{document.title!r} in library {document.collection!r} is replaced{call.format_tail('dolt_commit keeps it')}.",
        "skipped": f"{document.title!r} is in library {document.collection!r} already, as it is.",
    }
    return IngestResult(
        status=result.report.status,
        doc_id=document.doc_id,
        source=source,
        library=document.collection,
        chunk_count=len(chunks_of(call.ws, result.report.collection, document)),
        message=messages[result.report.status],
    )


@tool("R", title="Search libraries")
def search(
    call: Call,
    *,
    query: QueryText,
    top_k: Annotated[int, Given(RESULTS, low=1, high=100)] = 5,
    library: AnyLibrary = None,
    where: Annotated[dict[str, Any] | None, Given('equal metadata such as {"file_type": "pdf"}', wire="filter")] = None,
) -> ToolAnswer[LibraryPassages]:
    """Search libraries of files and web pages by meaning and words."""
    passages = call.accept_read(searching.search_passages(call.ws, query, k=top_k, name=library, where=where))
    return ToolAnswer(passages, message=f"{plural(len(passages.results), 'passage')}.")


@tool("R")
def list_documents(
    call: Call,
    *,
    library: AnyLibrary = None,
    limit: Annotated[int, Given(DOCUMENTS, low=1, high=1000)] = 20,
    offset: Offset = 0,
    table: Annotated[str | None, Given(f"{', '.join(TABLES)} instead of libraries")] = None,
) -> ToolAnswer[DocumentList]:
    """List the documents of libraries, newest first."""
    page = call.accept_read(list_library_documents(call.ws, library, limit=limit, offset=offset, table=table))
    return ToolAnswer(page, message=f"{page.count} of {page.total} documents.")


@tool("R")
def list_libraries(call: Call) -> ToolAnswer[LibraryList]:
    """List the libraries with their numbers of documents and chunks."""
    sizes = call.accept_read(library_sizes(call.ws))
    return ToolAnswer(sizes, message=f"{plural(len(sizes.libraries), 'library')}.")


T = TypeVar("T")

Chunks = Mapping[tuple[str, str], int]
"""Numbers of chunks by collection and document."""


class ListedDocument(Record, frozen=True):
    """A document.

    `source` is in the form of `named_files.shown_source`. `chunk_count` counts the chunks in the
    index.
    """

    doc_id: str
    source: str
    title: str
    library: str
    content_hash: str
    created_at: str
    metadata: dict[str, Any]
    chunk_count: int


class DocumentList(Record, frozen=True):
    """A page of `count` documents. `total` counts all documents."""

    documents: list[ListedDocument]
    count: int
    total: int


class LibrarySize(Record, frozen=True):
    library: str
    document_count: int
    chunk_count: int


class LibraryList(Record, frozen=True):
    libraries: list[LibrarySize]


def list_library_documents(
    ws: Workspace, name: str | None, *, limit: int, offset: int, table: str | None = None
) -> tuple[DocumentList, AnswerOrigin]:
    """Return the documents of one library or of all, newest first; none for an unknown library.

    With `table`, return the documents of all collections of this table. Raises `TableMissing`.
    """
    only = None if table is None else require_table(table)

    def list_entries(at: At, chunks: Chunks) -> DocumentList:
        names = [
            collection.name
            for collection in ws.engine.list_collections(at)
            if name in (None, collection.name) and (only is not None or collection.kind == LIBRARY)
        ]
        # Only keys are collected, because all texts together can be larger than the memory.
        entries = [
            (document.created_at, document.key)
            for collection_name in names
            for document in ws.engine.read_documents(at, collection=collection_name, table=only)
        ]
        entries.sort(key=lambda entry: entry[1])
        entries.sort(key=lambda entry: entry[0], reverse=True)
        rows = (ws.engine.find_document(at, *key) for _, key in entries[offset : offset + limit])
        listed = [_build_listed(ws, row, chunks.get(row.key, 0)) for row in rows if row]
        return DocumentList(listed, len(listed), len(entries))

    return _read_with_index(ws, list_entries)


def library_sizes(ws: Workspace) -> tuple[LibraryList, AnswerOrigin]:
    """Return all libraries by name."""

    def count_sizes(at: At, chunks: Chunks) -> LibraryList:
        sizes = [
            LibrarySize(
                library.name,
                ws.engine.count_documents(at, collection=library.name),
                sum(number for (name, _), number in chunks.items() if name == library.name),
            )
            for library in all_libraries(ws, at)
        ]
        return LibraryList(sizes)

    return _read_with_index(ws, count_sizes)


def _read_with_index(ws: Workspace, read: Callable[[At, Chunks], T]) -> tuple[T, AnswerOrigin]:
    """Return the result of `read` for the documents and the chunks of their index.

    If the index cannot be updated because a model is missing, its current content is used.
    """
    try:
        return read_consistently(
            ws,
            lambda: ws.reader.read(
                lambda view: (read(view.at, count_chunks_by_document(view.folder)), find_view_origin(ws, view))
            ),
        )
    except (EmbeddingError, IndexExtraMissing):
        return read_consistently(ws, lambda: _read_without_index(ws, read), index=False)


def _read_without_index(ws: Workspace, read: Callable[[At, Chunks], T]) -> tuple[T, AnswerOrigin]:
    origin = find_origin(ws)
    return read(origin.at, read_held_now(ws, ws.reader.read_moment()).chunks), origin


def _build_listed(ws: Workspace, document: Document, chunks: int) -> ListedDocument:
    return ListedDocument(
        doc_id=document.doc_id,
        source=named_files.shown_source(ws, document),
        title=document.title,
        library=document.collection,
        content_hash=document.content_hash,
        created_at=document.created_at,
        metadata=library_origin.read_visible_metadata(document),
        chunk_count=chunks,
    )
