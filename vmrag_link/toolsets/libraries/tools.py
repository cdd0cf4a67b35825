"""Tools for libraries: taking in files and pages, searching, listing; and their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, TypeVar

from vmrag_link.documents import import_base
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
    find_held,
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
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer, ToolResult
from vmrag_mcp.session import Call


def file(
    ws: Workspace, name: str, path: str, *, agreed: Collection[str] = (), metadata: Mapping[str, Any] | None = None
) -> WriteResult[Ingested]:
    """Take a file into the library of this name. `agreed`: as `refuse_ignored`.

    Raises `AccessDenied` for one that git ignores, and as `named_files.find`, `named_files.read`
    and `ingest`.
    """
    found = named_files.find_file(ws, path)
    own = f"vmrag import {quoted(path)} --library {quoted(name)}"
    hint = f"Only the user can take it all the same: {own}"
    refuse_ignored(ws.places, found, hint=hint, accepted=agreed, may_ask=True)
    return _one(ws, name, named_files.read_file(ws, found), metadata)


def ingest_page(
    ws: Workspace, name: str, url: str, *, admit: Admit, metadata: Mapping[str, Any] | None = None
) -> WriteResult[Ingested]:
    """Take the page at a URL into the library of this name; nobody is asked for one that cannot be
    stored. `admit`: as of `pages`.

    Raises as `pages.read` and `ingest`.
    """
    check_library(name, metadata)
    key = pages.key_of(url)
    at = writing.require_writable(ws).at
    find_library(ws, at, name)
    return _one(ws, name, pages.read_page(ws, url, find_held(ws, at, name, key), admit), metadata)


def _one(ws: Workspace, name: str, source: SourceContent, metadata: Mapping[str, Any] | None) -> WriteResult[Ingested]:
    with open_converter(ws) as convert:
        done = ingest_sources(ws, name, [source], convert, metadata=metadata)
    return WriteResult(done.report[0], done.branch, done.pending, done.chunks)


class IngestResult(ToolResult, frozen=True):
    """`source`: the absolute path of the file, or the page's URL without credentials."""

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
    return _ingested(call, file(call.ws, library, path, agreed=call.agreed, metadata=metadata))


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
    return _ingested(call, ingest_page(call.ws, library, url, admit=_admitted(call), metadata=metadata))


def _admitted(call: Call) -> pages.Admit:
    """Which pages this call may ask for, as its arguments or a redirection name them. The person's
    yes counts for this call, and for later ones if they said so as well, for the whole host.
    """

    def admit(page: PageUrl) -> None:
        pages.admit_from_agent(call.ws, agreed=call.agreed)(page)
        if call.agreed.get(page.site):
            pages.trust_host(call.ws, page.site)

    return admit


def _ingested(call: Call, done: WriteResult[Ingested]) -> IngestResult:
    call.warn_pending(done.pending)
    document = done.report.document
    source = named_files.shown_source(call.ws, document)
    said = {
        "indexed": f"{document.title!r} is in library {document.collection!r} now{call.format_tail('dolt_commit keeps it')}.",
        "replaced": f"{document.title!r} in library {document.collection!r} is replaced{call.format_tail('dolt_commit keeps it')}.",
        "skipped": f"{document.title!r} is in library {document.collection!r} already, as it is.",
    }
    return IngestResult(
        status=done.report.status,
        doc_id=document.doc_id,
        source=source,
        library=document.collection,
        chunk_count=len(chunks_of(call.ws, done.report.collection, document)),
        message=said[done.report.status],
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
    found = call.accept_read(searching.search_passages(call.ws, query, k=top_k, name=library, where=where))
    return ToolAnswer(found, message=f"{plural(len(found.results), 'passage')}.")


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
    found = call.accept_read(list_held(call.ws, library, limit=limit, offset=offset, table=table))
    return ToolAnswer(found, message=f"{found.count} of {found.total} documents.")


@tool("R")
def list_libraries(call: Call) -> ToolAnswer[LibraryList]:
    """List the libraries with their numbers of documents and chunks."""
    found = call.accept_read(library_sizes(call.ws))
    return ToolAnswer(found, message=f"{plural(len(found.libraries), 'library')}.")


T = TypeVar("T")

Chunks = Mapping[tuple[str, str], int]
"""Numbers of chunks by collection and document."""


class ListedDocument(Record, frozen=True):
    """`source`: as `named_files.shown_source`; `chunk_count`: as many as the index holds."""

    doc_id: str
    source: str
    title: str
    library: str
    content_hash: str
    created_at: str
    metadata: dict[str, Any]
    chunk_count: int


class DocumentList(Record, frozen=True):
    """A page of `count` documents; `total` counts all."""

    documents: list[ListedDocument]
    count: int
    total: int


class LibrarySize(Record, frozen=True):
    library: str
    document_count: int
    chunk_count: int


class LibraryList(Record, frozen=True):
    libraries: list[LibrarySize]


def list_held(
    ws: Workspace, name: str | None, *, limit: int, offset: int, table: str | None = None
) -> tuple[DocumentList, AnswerOrigin]:
    """The documents of one library or of all, newest first; none of one that is not there.

    `table`: those of all collections of this table instead. Raises `TableMissing`.
    """
    only = None if table is None else require_table(table)

    def look(at: At, chunks: Chunks) -> DocumentList:
        names = [
            collection.name
            for collection in ws.engine.list_collections(at)
            if name in (None, collection.name) and (only is not None or collection.kind == LIBRARY)
        ]
        # Their texts go as they come: only those of the page are kept.
        found = [
            (document.created_at, document.key)
            for one in names
            for document in ws.engine.read_documents(at, collection=one, table=only)
        ]
        found.sort(key=lambda each: each[1])
        found.sort(key=lambda each: each[0], reverse=True)
        rows = (ws.engine.find_document(at, *key) for _, key in found[offset : offset + limit])
        listed = [_listed(ws, row, chunks.get(row.key, 0)) for row in rows if row]
        return DocumentList(listed, len(listed), len(found))

    return _reading(ws, look)


def library_sizes(ws: Workspace) -> tuple[LibraryList, AnswerOrigin]:
    """All libraries by name."""

    def look(at: At, chunks: Chunks) -> LibraryList:
        sizes = [
            LibrarySize(
                library.name,
                ws.engine.count_documents(at, collection=library.name),
                sum(number for (name, _), number in chunks.items() if name == library.name),
            )
            for library in all_libraries(ws, at)
        ]
        return LibraryList(sizes)

    return _reading(ws, look)


def _reading(ws: Workspace, look: Callable[[At, Chunks], T]) -> tuple[T, AnswerOrigin]:
    """What `look` returns of the documents and of the index that holds them.

    If the index cannot be brought there, because a model is missing, of what it holds now.
    """
    try:
        return read_consistently(
            ws,
            lambda: ws.reader.read(
                lambda view: (look(view.at, count_chunks_by_document(view.folder)), find_view_origin(ws, view))
            ),
        )
    except (EmbeddingError, IndexExtraMissing):
        return read_consistently(ws, lambda: _without_index(ws, look), index=False)


def _without_index(ws: Workspace, look: Callable[[At, Chunks], T]) -> tuple[T, AnswerOrigin]:
    here = find_origin(ws)
    return look(here.at, read_held_now(ws, ws.reader.read_moment()).chunks), here


def _listed(ws: Workspace, document: Document, chunks: int) -> ListedDocument:
    return ListedDocument(
        document.doc_id,
        named_files.shown_source(ws, document),
        document.title,
        document.collection,
        document.content_hash,
        document.created_at,
        import_base.read_visible_metadata(document),
        chunks,
    )
