"""Resources: status, collections and documents of the checked-out code's knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Record, json_text
from vmrag_link.suggest import no_collection
from vmrag_mcp.options import ToolSelection
from vmrag_mcp.registry import RESOURCES
from vmrag_mcp.session import Call

STATUS = "vmrag://status"
COLLECTIONS = "vmrag://collections"
DOCUMENTS = "vmrag://documents"
LISTED_DOCUMENTS = 1000
"""So many documents the resource of a collection names."""

JSON, TEXT, MARKDOWN = "application/json", "text/plain", "text/markdown"


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
    Resource(STATUS, "status", "Whether pin, knowledge base and index agree; what is uncommitted.", JSON),
    Resource(COLLECTIONS, "collections", "The collections with their numbers of documents.", JSON),
)
TEMPLATES = (
    Resource(f"{COLLECTIONS}/{{collection}}", "collection", "A collection: its settings and its documents.", JSON),
    Resource(f"{DOCUMENTS}/{{collection}}/{{+doc_id}}", "document", "The whole text of a document.", MARKDOWN),
)


def collection_uri(name: str) -> str:
    return f"{COLLECTIONS}/{quote(name, safe='')}"


def document_uri(collection: str, doc_id: str) -> str:
    return f"{DOCUMENTS}/{quote(collection, safe='')}/{quote(doc_id)}"


def shown(listed: Iterable[Resource], server: ToolSelection | None) -> list[Resource]:
    """The resources that show no more than the server's tools do."""
    return [each for each in listed if server is None or server.reachable(*RESOURCES[each.name])]


def list_resources(call: Call) -> Iterator[Resource]:
    """The fixed ones, and one for each collection, which names the resources of its documents."""
    yield from shown(FIXED, call.tools)
    if not shown(TEMPLATES[:1], call.tools):
        return
    for each in call.ws.engine.collections(call.standing().at):
        yield Resource(collection_uri(each.name), each.name, f"The collection {each.name}.", JSON)


def read(call: Call, uri: str) -> Content:
    """Raises `UsageInvalid` for what is no resource, `CollectionMissing`, `DocumentMissing`, and
    `ToolDisabled` for what shows the same as a tool that clients of this server cannot call.
    """
    name, _, rest = uri.removeprefix("vmrag://").partition("/")
    if uri == STATUS:
        _require(call, uri, "status")
        return _read_status(call)
    if uri == COLLECTIONS:
        _require(call, uri, "collections")
        return _json(call, {"collections": [_collection(call, each.name) for each in _collections(call)]})
    if name == "collections" and rest:
        _require(call, uri, "collection")
        return _json(call, _collection(call, unquote(rest), documents=True))
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

    call.standing()
    return _json(call, msgspec.to_builtins(status(call.ws)))


def _collections(call: Call) -> list[Any]:
    return call.ws.engine.collections(call.standing().at)


def _collection(call: Call, name: str, *, documents: bool = False) -> dict[str, Any]:
    rows = {each.name: each for each in _collections(call)}
    if name not in rows:
        raise no_collection(name, sorted(rows))
    engine, at = call.ws.engine, call.standing().at
    row = rows[name]
    found: dict[str, Any] = msgspec.to_builtins(row) | {
        "metadata": msgspec.json.decode(row.metadata),
        "document_count": engine.count(at, collection=name),
    }
    if documents:
        found["documents"] = [
            {"id": each.doc_id, "title": each.title, "uri": document_uri(name, each.doc_id)}
            for each, _ in zip(engine.headers(at, collection=name), range(LISTED_DOCUMENTS), strict=False)
        ]
    return found


def _document(call: Call, collection: str, doc_id: str) -> Content:
    from vmrag_link.ops.history.document_names import no_document

    at = call.standing().at
    document = call.ws.engine.document(at, collection, doc_id)
    if document is None:
        raise no_document(call.ws.engine, at, collection, doc_id)
    return Content(document.content, TEXT if document.file_type == "text" else MARKDOWN, msgspec.to_builtins(call.kb()))


def _json(call: Call, value: Any) -> Content:
    return Content(json_text(value), JSON, msgspec.to_builtins(call.kb()))
