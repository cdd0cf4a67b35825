"""The filter of a search in libraries: keys, each with the one value that a passage must have."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vmrag_link import clock
from vmrag_link.errors import FilterInvalid
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import At, Document
from vmrag_link.ops.libraries import library
from vmrag_link.retrieval.query import Query
from vmrag_link.workspace import Workspace

Filter = Mapping[str, str | int]

_TIMES = ("created_at", "last_modified")
_OF_DOCUMENT = ("doc_id", "source", "content_hash", "title", "file_type", *_TIMES)
_NUMBERS = ("chunk_index", "page")
KEYS = ("id", *_OF_DOCUMENT, "library", "content", *_NUMBERS)

NO_PAGE = 0
"""The page of a passage of which no page is known."""


def parse(given: Mapping[str, Any]) -> Filter:
    """Raises `FilterInvalid` for another key than `KEYS`, and a value that is no text and no whole
    number.
    """
    return {key: _value(key, value) for key, value in given.items()}


def narrow(ws: Workspace, at: At, asked: Query, wanted: Filter) -> Query | None:
    """The query of libraries with the filter in it; None if no passage can pass.

    What the index does not hold of a document is looked up in the knowledge base.
    """
    names = tuple(each for each in asked.collections or () if wanted.get("library", each) == each)
    if not names or wanted.get("page", NO_PAGE) != NO_PAGE:
        return None
    where: list[dict[str, Any]] = []
    if "id" in wanted:
        where += _of_chunk(ws, at, names, str(wanted["id"]))
    if "chunk_index" in wanted:
        where.append({"chunk_index": wanted["chunk_index"]})
    if any(key in wanted for key in _OF_DOCUMENT):
        ids = [each.doc_id for each in _documents(ws, at, names) if _passes(ws, each, wanted)]
        if not ids:
            return None
        where.append({"source_id": {"$in": ids}})
    text = {"$regex": rf"\A{re.escape(str(wanted['content']))}\z"} if "content" in wanted else None
    return msgspec.structs.replace(
        asked, collections=names, where={"$and": where} if where else None, where_document=text
    )


def _value(key: str, value: Any) -> str | int:
    if key not in KEYS:
        raise FilterInvalid(
            f"The filter asks for {key!r}, which a search cannot filter by.",
            hint=f"It takes {', '.join(sorted(KEYS))}.",
            key=key,
        )
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise FilterInvalid(
            f"The filter compares {key!r} with {json.dumps(value)}, which is neither a text nor a whole number.",
            hint='For example: {"file_type": "pdf"}',
            key=key,
        )
    if key in _NUMBERS and isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        return int(value)
    if key in _TIMES:
        return _moment(str(value))
    return value if key in _NUMBERS else str(value)


def _moment(text: str) -> str:
    """A time in whatever zone, as it is stored; what is no time stays, and equals nothing."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return text
    return clock.at((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())


def _of_chunk(ws: Workspace, at: At, names: tuple[str, ...], name: str) -> list[dict[str, Any]]:
    """What a chunk's name means: a document that has it, else a chunk of one."""
    found = parse_chunk_id(name)
    if found is None or any(ws.engine.document(at, each, name) for each in names):
        return [{"source_id": name}]
    doc_id, number = found
    return [{"source_id": doc_id}, {"chunk_index": number}]


def _documents(ws: Workspace, at: At, names: tuple[str, ...]) -> Iterator[Document]:
    for name in names:
        yield from ws.engine.documents(at, collection=name)


def _passes(ws: Workspace, document: Document, wanted: Filter) -> bool:
    """A source may be given as it is shown, or as it is stored."""
    for key in _OF_DOCUMENT:
        values = (getattr(document, key), *((library.shown_source(ws, document),) if key == "source" else ()))
        if key in wanted and wanted[key] not in values:
            return False
    return True
