"""`vmrag import --sitemap`: the pages that a site's sitemap names, taken into a library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmrag_link.models import Record
from vmrag_link.toolsets.libraries import page_hosts
from vmrag_link.toolsets.libraries.ingest import check
from vmrag_link.toolsets.libraries.take_pages import TakenPage, take_pages
from vmrag_link.toolsets.libraries.web import sitemap
from vmrag_link.toolsets.libraries.web.limits import limits_of
from vmrag_link.toolsets.libraries.web.pace import Pace
from vmrag_link.toolsets.libraries.web.urls import parse_url
from vmrag_link.workspace import Workspace


class SiteReport(Record, frozen=True):
    """`elsewhere`, `disallowed`, `invalid`, `more` and `failures`: what the sitemap names and was
    left out, as in `web.sitemap.Sitemap`.
    """

    sitemap: str
    library: str
    pages: list[TakenPage]
    elsewhere: int
    disallowed: int
    invalid: int
    more: int
    failures: tuple[str, ...]
    branch: str | None
    pending: str


def take_site(
    ws: Workspace,
    name: str,
    url: str,
    *,
    most: int = sitemap.MOST_PAGES,
    metadata: Mapping[str, Any] | None = None,
) -> SiteReport:
    """Take the pages that a sitemap names and robots.txt allows, as slowly as it asks for.

    Raises as `web.sitemap.urls` and `take_pages`.
    """
    check(name, metadata)
    admit = page_hosts.typed(ws)
    found = sitemap.urls(url, limits=limits_of(ws.config.ingest, admit), most=most)
    if found.delay_s and len(found.pages) > 1:
        ws.progress.note(f"{parse_url(url).site} wants {found.delay_s:g} s between two pages.")
    taken = take_pages(ws, name, found.pages, Pace(lambda _: found.delay_s), admit, metadata=metadata)
    return SiteReport(
        parse_url(url).text,
        name,
        taken.pages,
        found.elsewhere,
        found.disallowed,
        found.invalid,
        found.more,
        found.failures,
        taken.branch,
        taken.pending,
    )
