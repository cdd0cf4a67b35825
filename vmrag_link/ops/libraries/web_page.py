"""A page of the web as a source of a library."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from vmrag_link.documents import origin
from vmrag_link.models import Document
from vmrag_link.ops.libraries.source import Source
from vmrag_link.web.fetching import fetch
from vmrag_link.web.limits import limits_of
from vmrag_link.web.urls import parse_url
from vmrag_link.workspace import Workspace

FILE_TYPE = "url"


def ask(ws: Workspace, url: str, before: Document | None) -> Source | None:
    """The page at a URL; None if `before`, which was made of it, is up to date still.

    Its server is asked for what has changed since then. Raises as `web.fetching.fetch`.
    """
    known = origin.origin_of(before) if before else None
    limits = limits_of(ws.config.ingest)
    if before is None or known is None:
        found = fetch(url, limits=limits)
    else:
        found = fetch(url, limits=limits, etag=known.etag, last_modified=before.last_modified)
    if found.unchanged:
        return None
    key = parse_url(url).text
    parts = urlsplit(key)
    return Source(
        key=key,
        name=unquote(PurePosixPath(parts.path).name) or parts.netloc,
        data=found.data,
        last_modified=found.last_modified,
        file_type=FILE_TYPE,
        media_type=found.media_type,
        charset=found.charset,
        etag=found.etag,
    )
