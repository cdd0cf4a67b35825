"""Resources: status, collections and documents of the checked-out code's knowledge."""

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
from vmrag_mcp.envelope import runnable_advice
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.registry import RESOURCES

if TYPE_CHECKING:  # a server answers `tools/list` before this is imported
    from vmrag_link.workspace import ReadableStore
    from vmrag_link.workspace.follow.provenance import AnswerOrigin
    from vmrag_mcp.session import Call

STATUS = "vmrag://status"
COLLECTIONS = "vmrag://collections"
DOCUMENTS = "vmrag://documents"
LISTED_DOCUMENTS = 1000
"""So many documents the resource of a collection names."""

LONGEST_URI = 6 * LONGEST_NAME
"""A collection and an id, each character of which may be escaped as three."""

JSON, TEXT, MARKDOWN = "application/json", "text/plain", "text/markdown"
_MARKDOWN = ("markdown", "mdx")


class Resource(Record, frozen=True):
    """As clients list it; `uri` of a template holds `{variables}`."""

    uri: str
    name: str
    about: str
    mime: str


class Content(Record, frozen=True):
    """What a resource holds now; `kb` says which knowledge that comes from."""

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


def select_shown(listed: Iterable[Resource], server: ToolSelection | None) -> list[Resource]:
    """The resources that show no more than the server's tools do."""
    return [each for each in listed if server is None or server.is_reachable(*RESOURCES[each.name])]


def template_entries(server: ToolSelection) -> list[dict[str, str]]:
    """Return the entries of `resources/templates/list`, with keys in the order of the SDK's."""
    return [
        {"description": row.about, "mimeType": row.mime, "name": row.name, "uriTemplate": row.uri}
        for row in select_shown(TEMPLATES, server)
    ]


def list_resources(call: Call) -> Iterator[Resource]:
    """The fixed ones, and one for each collection, which names the resources of its documents."""
    yield from select_shown(FIXED, call.tools)
    if not select_shown(TEMPLATES[:1], call.tools):
        return
    for collection, _ in list_collections(call):
        yield Resource(collection_uri(collection.name), collection.name, f"The collection {collection.name}.", JSON)


def read_resource(call: Call, uri: str) -> Content:
    """Raises `UsageInvalid` for what is no resource, `CollectionMissing`, `DocumentMissing`, and
    `ToolDisabled` for what shows the same as a tool that clients of this server cannot call.
    """
    require_text(uri, "uri", longest=LONGEST_URI)
    name, _, rest = uri.removeprefix("vmrag://").partition("/")
    if uri == STATUS:
        _require(call, uri, "status")
        return _read_status(call)
    if uri == COLLECTIONS:
        _require(call, uri, "collections")
        return _json(call, {"collections": [_described(*each) for each in list_collections(call)]})
    if name == "collections" and rest:
        _require(call, uri, "collection")
        return _json(call, _collection(call, unquote(rest)))
    if name == "documents" and "/" in rest:
        _require(call, uri, "document")
        collection, _, doc_id = rest.partition("/")
        return _document(call, unquote(collection), unquote(doc_id))
    raise UsageInvalid(
        f"There is no resource {uri!r}.",
        hint=f"{STATUS}, {COLLECTIONS}, {TEMPLATES[0].uri}, {TEMPLATES[1].uri}",
        uri=uri,
    )


def _require(call: Call, uri: str, resource: str) -> None:
    if call.tools:
        call.tools.require_reachable(f"The resource {uri}", *RESOURCES[resource])


def _read_status(call: Call) -> Content:
    from vmrag_link.ops.status.status import status

    call.find_origin()
    return _json(call, runnable_advice(msgspec.to_builtins(status(call.ws))))


def list_collections(call: Call) -> list[tuple[Collection, int]]:
    """Those of the knowledge base and of sources, with their numbers of documents; where there is
    no knowledge base, the latter alone.
    """
    from vmrag_link.workspace.documents.reading import TextSource, read_texts

    def look(rows: TextSource, here: AnswerOrigin) -> list[tuple[Collection, int]]:
        call.set_origin(here)
        return [
            (collection, rows.count_documents(here.at, collection=collection.name))
            for collection in rows.list_collections(here.at)
        ]

    return read_texts(call.ws, None, look)


def locate_collection(call: Call, collection: str) -> tuple[ReadableStore, At]:
    """Where a collection of that name is read."""
    from vmrag_link.workspace.follow.follow_pin import read_consistently
    from vmrag_link.workspace.follow.provenance import find_origin

    store = call.find_readable(collection)
    here = read_consistently(store, lambda: find_origin(store), index=False)
    call.set_origin(here)
    return store, here.at


def _collection(call: Call, name: str) -> dict[str, Any]:
    store, at = locate_collection(call, name)
    rows = {collection.name: collection for collection in store.engine.list_collections(at)}
    if name not in rows:
        raise no_collection(name, sorted(rows))
    headers = store.engine.read_headers(at, collection=name)
    return _described(rows[name], store.engine.count_documents(at, collection=name)) | {
        "documents": [
            {"id": each.doc_id, "title": each.title, "uri": document_uri(name, each.doc_id)}
            for each in islice(headers, LISTED_DOCUMENTS)
        ]
    }


def _described(row: Collection, documents: int) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(row)
    return found | {"metadata": msgspec.json.decode(row.metadata), "document_count": documents}


def _document(call: Call, collection: str, doc_id: str) -> Content:
    from vmrag_link.workspace.history.document_names import no_document

    store, at = locate_collection(call, collection)
    document = store.engine.find_document(at, collection, doc_id)
    if document is None:
        raise no_document(store.engine, at, collection, doc_id)
    return Content(document.content, _mime(document), msgspec.to_builtins(call.build_kb()))


def _mime(document: Document) -> str:
    if document.file_type or not document.source:
        return TEXT if document.file_type == "text" else MARKDOWN
    known = formats.find_by_suffix(document.source)  # of a source, whose documents are their files
    return MARKDOWN if known and known.file_type in _MARKDOWN else TEXT


def _json(call: Call, value: Any) -> Content:
    return Content(format_json(value), JSON, msgspec.to_builtins(call.build_kb()))
