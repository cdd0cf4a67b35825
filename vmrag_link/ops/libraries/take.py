"""What a person or an agent names, taken into a library: files, and pages by their URLs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.document_selection import chunks_of
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.libraries import files, web_page
from vmrag_link.ops.libraries import library as libraries
from vmrag_link.ops.libraries.converting import converting
from vmrag_link.ops.libraries.ingest import Held, Ingested, checked_metadata, ingest
from vmrag_link.ops.libraries.source import Source
from vmrag_link.web.urls import parse_url
from vmrag_link.workspace import Workspace


def file(ws: Workspace, library: str, path: str, *, metadata: Mapping[str, Any] | None = None) -> Landed[Ingested]:
    """Take the file that an agent names. Raises as `files.find`, `files.read` and `ingest`."""
    return _one(ws, library, files.read(ws, files.find(ws, path)), metadata)


def page(ws: Workspace, library: str, url: str, *, metadata: Mapping[str, Any] | None = None) -> Landed[Ingested]:
    """Take the page at a URL; its server is asked for what it has changed since the last time.

    Raises as `web.fetching.fetch` and `ingest`.
    """
    libraries.check(library)
    checked_metadata(metadata or {}, library)
    at = writing.place(writing.writable(ws))
    collection = libraries.find(ws, at, library)
    before = Held(ws, at, library).document(parse_url(url).text)
    source = web_page.ask(ws, url, before)
    if source is not None:
        return _one(ws, library, source, metadata)
    if before is None or collection is None:
        raise AssertionError  # only for a document that is there a server is asked for changes
    return Landed(Ingested("skipped", before, len(chunks_of(ws, collection, before))), None)


def _one(ws: Workspace, library: str, source: Source, metadata: Mapping[str, Any] | None) -> Landed[Ingested]:
    with converting(ws) as convert:
        done = ingest(ws, library, [source], convert, metadata=metadata)
    return Landed(done.report[0], done.branch, done.pending, done.chunks)
