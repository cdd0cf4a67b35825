"""Pages for libraries: what a URL leads to now, if that has changed."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from vmrag_link.documents import origin
from vmrag_link.models import Document
from vmrag_link.ops.documents.named_files import Source, hash_of
from vmrag_link.toolsets.libraries.page_hosts import Admit
from vmrag_link.toolsets.libraries.web.fetching import fetch
from vmrag_link.toolsets.libraries.web.limits import limits_of
from vmrag_link.toolsets.libraries.web.urls import parse_url
from vmrag_link.workspace import Workspace

FILE_TYPE = "url"


def key_of(url: str) -> str:
    """By what a library knows the page. Raises `UsageInvalid` for what is no http or https URL."""
    return parse_url(url).text


def read(ws: Workspace, url: str, before: Document | None, admit: Admit) -> Source:
    """The page as it is now; `before`: the document that a library has of it; `admit`: as of
    `page_hosts`.

    Raises as `web.fetching.fetch`.
    """
    known = origin.origin_of(before) if before else None
    limits = limits_of(ws.config.ingest, admit)
    if before and known:
        fetched = fetch(url, limits=limits, etag=known.etag, last_modified=before.last_modified)
    else:
        fetched = fetch(url, limits=limits)
    key = key_of(url)
    parts = urlsplit(key)
    return Source(
        key,
        unquote(PurePosixPath(parts.path).name) or parts.netloc,
        known.hash if known and fetched.unchanged else hash_of(fetched.data),
        fetched.data,
        last_modified=fetched.last_modified,
        file_type=FILE_TYPE,
        media_type=fetched.media_type,
        charset=fetched.charset,
        etag=fetched.etag,
    )
