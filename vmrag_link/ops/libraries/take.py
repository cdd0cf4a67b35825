"""What a person or an agent names, taken into a library: files, and pages by their URLs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from vmrag_link.documents import origin
from vmrag_link.models import Document
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.document_selection import chunks_of
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.libraries import files
from vmrag_link.ops.libraries import library as libraries
from vmrag_link.ops.libraries.converting import converting
from vmrag_link.ops.libraries.ingest import Ingested, checked_metadata, held, ingest
from vmrag_link.ops.libraries.source import Source
from vmrag_link.web.fetching import Fetched, fetch
from vmrag_link.web.limits import limits_of
from vmrag_link.web.urls import parse_url
from vmrag_link.workspace import Workspace

PAGE = "url"
"""The file type of pages."""


def file(ws: Workspace, library: str, path: str, *, metadata: Mapping[str, Any] | None = None) -> Landed[Ingested]:
    """Take the file that an agent names. Raises as `files.find`, `files.read` and `ingest`."""
    return _one(ws, library, files.read(ws, files.find(ws, path)), metadata)


def page(ws: Workspace, library: str, url: str, *, metadata: Mapping[str, Any] | None = None) -> Landed[Ingested]:
    """Take the page at a URL; its server is asked for what it has changed since the last time.

    Raises as `web.fetching.fetch` and `ingest`.
    """
    libraries.check(library)
    checked_metadata(metadata or {}, library)
    key = parse_url(url).text
    at = writing.place(writing.writable(ws))
    collection = libraries.find(ws, at, library)
    before = held(ws, at, library, key)
    fetched = _fetched(ws, url, before)
    if fetched.unchanged and before and collection:
        return Landed(Ingested("skipped", before, len(chunks_of(ws, collection, before))), None)
    return _one(ws, library, _source(key, fetched), metadata)


def _fetched(ws: Workspace, url: str, before: Document | None) -> Fetched:
    known = origin.origin_of(before) if before else None
    limits = limits_of(ws.config.ingest)
    if before is None or known is None:
        return fetch(url, limits=limits)
    return fetch(url, limits=limits, etag=known.etag, last_modified=before.last_modified)


def _source(key: str, fetched: Fetched) -> Source:
    parts = urlsplit(key)
    return Source(
        key=key,
        name=unquote(PurePosixPath(parts.path).name) or parts.netloc,
        data=fetched.data,
        last_modified=fetched.last_modified,
        file_type=PAGE,
        media_type=fetched.media_type,
        charset=fetched.charset,
        etag=fetched.etag,
    )


def _one(ws: Workspace, library: str, source: Source, metadata: Mapping[str, Any] | None) -> Landed[Ingested]:
    with converting(ws) as convert:
        done = ingest(ws, library, [source], convert, metadata=metadata)
    return Landed(done.report[0], done.branch, done.pending, done.chunks)
