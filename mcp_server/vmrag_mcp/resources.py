"""Resources: the status, collections and documents of the checked-out commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from vmrag_link.conversion import formats
from vmrag_link.errors import UsageInvalid, no_collection
from vmrag_link.models import LONGEST_NAME, At, Collection, Document, Record, format_json
from vmrag_mcp.arguments import require_text
from vmrag_mcp.envelope import make_advice_runnable
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.registry import RESOURCES

if TYPE_CHECKING:  # a server answers `tools/list` before this is imported
    from vmrag_link.workspace import ReadableStore
    from vmrag_link.workspace.follow.provenance import AnswerOrigin
    from vmrag_mcp.call import Call

STATUS = "vmrag://status"
COLLECTIONS = "vmrag://collections"
DOCUMENTS = "vmrag://documents"
MAX_LISTED_DOCUMENTS = 1000
"""Maximum number of documents in the resource of a collection."""

MAX_URI_CHARACTERS = 6 * LONGEST_NAME
"""Room for a collection and an id, each character of which can be escaped as three."""

JSON = "application/json"
TEXT = "text/plain"
MARKDOWN = "text/markdown"
_MARKDOWN = ("markdown", "mdx")


class Resource(Record, frozen=True):
    """A resource in the form that clients list. The `uri` of a template contains `{variables}`."""

    uri: str
    name: str
    about: str
    mime: str


class Content(Record, frozen=True):
    """The content of a resource. `kb` shows its origin."""

    text: str
    mime: str
    kb: dict[str, Any]


FIXED = (
    Resource(STATUS, "status", "Comparison of pin, knowledge base and index, with uncommitted documents.", JSON),
    Resource(COLLECTIONS, "collections", "Collections with their numbers of documents.", JSON),
)
TEMPLATES = (
    Resource(f"{COLLECTIONS}/{{collection}}", "collection", "Settings and documents of a collection.", JSON),
    Resource(f"{DOCUMENTS}/{{collection}}/{{+doc_id}}", "document", "Whole text of a document.", MARKDOWN),
)


def collection_uri(name: str) -> str:
    return f"{COLLECTIONS}/{quote(name, safe='')}"


def document_uri(collection: str, doc_id: str) -> str:
    return f"{DOCUMENTS}/{quote(collection, safe='')}/{quote(doc_id)}"


def select_shown(resources: Iterable[Resource], server: ToolSelection | None) -> list[Resource]:
    """Return the resources that show only data which the server's tools also show."""
    return [resource for resource in resources if server is None or server.is_reachable(*RESOURCES[resource.name])]


def template_entries(server: ToolSelection) -> list[dict[str, str]]:
    """Return the entries of `resources/templates/list`, with keys in the order of the SDK's."""
    return [
        {"description": row.about, "mimeType": row.mime, "name": row.name, "uriTemplate": row.uri}
        for row in select_shown(TEMPLATES, server)
    ]


def list_resources(call: Call) -> Iterator[Resource]:
    """Yield the fixed resources, and one for each collection, which names the resources of its
    documents.
    """
    yield from select_shown(FIXED, call.tools)
    if not select_shown(TEMPLATES[:1], call.tools):
        return
    for collection, _ in list_collections(call):
        yield Resource(collection_uri(collection.name), collection.name, f"The collection {collection.name}.", JSON)


def read_resource(call: Call, uri: str) -> Content:
    """Return the content of a resource.

    Raises `UsageInvalid` for an invalid URI, `CollectionMissing`, `DocumentMissing`, and
    `ToolDisabled` if clients of this server cannot call the tools that show the same data.
    """
    require_text(uri, "uri", longest=MAX_URI_CHARACTERS)
    name, _, rest = uri.removeprefix("vmrag://").partition("/")
    if uri == STATUS:
        _require_reachable(call, uri, "status")
        return _read_status(call)
    if uri == COLLECTIONS:
        _require_reachable(call, uri, "collections")
        return _build_json(call, {"collections": [_describe_row(*row) for row in list_collections(call)]})
    if name == "collections" and rest:
        _require_reachable(call, uri, "collection")
        return _build_json(call, _describe_collection(call, unquote(rest)))
    if name == "documents" and "/" in rest:
        _require_reachable(call, uri, "document")
        collection, _, doc_id = rest.partition("/")
        return _read_document(call, unquote(collection), unquote(doc_id))
    raise UsageInvalid(
        f"no such resource: {uri!r}.",
        hint=f"use {STATUS}, {COLLECTIONS}, {TEMPLATES[0].uri} or {TEMPLATES[1].uri}",
        uri=uri,
    )


def _require_reachable(call: Call, uri: str, resource: str) -> None:
    if call.tools:
        call.tools.require_reachable(f"the resource {uri}", *RESOURCES[resource])


def _read_status(call: Call) -> Content:
    from vmrag_link.ops.status.status import status

    call.find_origin()
    return _build_json(call, make_advice_runnable(msgspec.to_builtins(status(call.ws))))


def list_collections(call: Call) -> list[tuple[Collection, int]]:
    """Return the collections of the knowledge base and of sources, with their numbers of documents.

    Without a knowledge base, these are the collections of sources.
    """
    from vmrag_link.workspace.documents.reading import TextSource, read_texts

    def count_documents(rows: TextSource, origin: AnswerOrigin) -> list[tuple[Collection, int]]:
        call.set_origin(origin)
        return [
            (collection, rows.count_documents(origin.at, collection=collection.name))
            for collection in rows.list_collections(origin.at)
        ]

    return read_texts(call.ws, None, count_documents)


def locate_collection(call: Call, collection: str) -> tuple[ReadableStore, At]:
    """Return what reads a collection, and the revision or work tree to read at."""
    from vmrag_link.ops.stores import stores
    from vmrag_link.workspace.follow.follow_pin import read_consistently
    from vmrag_link.workspace.follow.provenance import find_origin

    store = stores.find_readable(call.ws, collection)
    origin = read_consistently(store, lambda: find_origin(store), index=False)
    call.set_origin(origin)
    return store, origin.at


def _describe_collection(call: Call, name: str) -> dict[str, Any]:
    store, at = locate_collection(call, name)
    collections = {collection.name: collection for collection in store.engine.list_collections(at)}
    if name not in collections:
        raise no_collection(name, sorted(collections))
    headers = store.engine.read_headers(at, collection=name)
    return _describe_row(collections[name], store.engine.count_documents(at, collection=name)) | {
        "documents": [
            {"id": header.doc_id, "title": header.title, "uri": document_uri(name, header.doc_id)}
            for header in islice(headers, MAX_LISTED_DOCUMENTS)
        ]
    }


def _describe_row(row: Collection, documents: int) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return fields | {"metadata": msgspec.json.decode(row.metadata), "document_count": documents}


def _read_document(call: Call, collection: str, doc_id: str) -> Content:
    from vmrag_link.workspace.history.document_names import no_document

    store, at = locate_collection(call, collection)
    document = store.engine.find_document(at, collection, doc_id)
    if document is None:
        raise no_document(store.engine, at, collection, doc_id)
    return Content(document.content, _choose_mime(document), msgspec.to_builtins(call.build_kb()))


def _choose_mime(document: Document) -> str:
    if document.file_type or not document.source:
        return TEXT if document.file_type == "text" else MARKDOWN
    file_format = formats.find_by_suffix(document.source)  # documents of sources are files
    return MARKDOWN if file_format and file_format.file_type in _MARKDOWN else TEXT


def _build_json(call: Call, value: Any) -> Content:
    return Content(format_json(value), JSON, msgspec.to_builtins(call.build_kb()))
