"""Import many pages into a library in one run, from a list or a site's sitemap.

Pages are stored in batches, so a run that ends early keeps the earlier batches. Failures of single
pages are reported, and the other pages are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from vmrag_link import worddiff
from vmrag_link.conversion.converter import ConvertedFile
from vmrag_link.documents import library_origin
from vmrag_link.errors import (
    AccessDenied,
    ConversionFailed,
    FetchFailed,
    FormatUnsupported,
    RemoteNotTrusted,
    UsageInvalid,
    VmragError,
)
from vmrag_link.models import Document, Record
from vmrag_link.toolsets.libraries import pages
from vmrag_link.toolsets.libraries.ingest import Convert, check_library, find_library, ingest_sources, open_converter
from vmrag_link.toolsets.libraries.pages import Admit
from vmrag_link.toolsets.libraries.web import sitemap
from vmrag_link.toolsets.libraries.web.addresses import limits_of
from vmrag_link.toolsets.libraries.web.robots import Pace
from vmrag_link.toolsets.libraries.web.urls import parse_url
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.named_files import SourceContent
from vmrag_link.workspace.history.word_diff import Words, words_of


class SiteReport(Record, frozen=True):
    """The result for a site.

    `elsewhere`, `disallowed`, `invalid`, `more` and `failures` describe what was left out of the
    sitemap, as in `web.sitemap.Sitemap`.
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
    max_pages: int = sitemap.MAX_PAGES,
    metadata: Mapping[str, Any] | None = None,
) -> SiteReport:
    """Import the pages that a sitemap names and robots.txt allows, with its pauses.

    Raises the errors of `web.sitemap.list_pages` and `take_pages`.
    """
    check_library(name, metadata)
    admit = pages.admit_typed(ws)
    site = sitemap.list_pages(url, limits=limits_of(ws.config.ingest, admit), max_pages=max_pages)
    if site.delay_s and len(site.pages) > 1:
        ws.progress.note(f"{parse_url(url).site} wants {site.delay_s:g} s between two pages.")
    result = take_pages(ws, name, site.pages, Pace(lambda _: site.delay_s), admit, metadata=metadata)
    return SiteReport(
        sitemap=parse_url(url).text,
        library=name,
        pages=result.pages,
        elsewhere=site.elsewhere,
        disallowed=site.disallowed,
        invalid=site.invalid,
        more=site.more,
        failures=site.failures,
        branch=result.branch,
        pending=result.pending,
    )


FETCHING_PAGES = "fetching pages"

_FAILURES = (AccessDenied, ConversionFailed, FetchFailed, FormatUnsupported, RemoteNotTrusted, UsageInvalid)
"""Errors of a single page."""

BATCH_PAGES = 50
"""Maximum number of pages of a batch."""

BATCH_BYTES = 20_000_000
"""Size from which a batch is stored."""


class TakenPage(Record, frozen=True):
    """The result for one page.

    A page is also `unchanged` if other bytes make the same document: many pages contain the time or
    a new number. `words` describe the differences of a `replaced` page. `doc_id` is empty if
    nothing is stored. `code`, `problem` and `hint` are for a `failed` page.
    """

    url: str
    library: str
    status: Literal["indexed", "replaced", "unchanged", "failed"]
    doc_id: str = ""
    words: Words | None = None
    code: str = ""
    problem: str = ""
    hint: str = ""


class TakenPages(Record, frozen=True):
    """Results in the order of the URLs. `branch` and `pending` are as in `WriteResult`."""

    pages: list[TakenPage]
    branch: str | None = None
    pending: str = ""


class _ChangedPage(NamedTuple):
    """The new content of a page that differs from its document `before`."""

    source: SourceContent
    converted: ConvertedFile
    before: Document | None


def take_pages(
    ws: Workspace,
    name: str,
    urls: Sequence[str],
    pace: Pace,
    admit: Admit,
    *,
    metadata: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> TakenPages:
    """Store the pages in a library, one batch at a time.

    Stored batches stay if the run ends early.

    `admit` is as in `pages`. With `dry_run`, nothing is stored. Raises the errors of
    `ingest_sources`; the `problem` of a page has errors of this page alone.
    """
    check_library(name, metadata)
    at = ws.locate_documents() if dry_run else writing.require_writable(ws).at
    find_library(ws, at, name)
    ids = {source: doc_id for doc_id, source in reversed(ws.engine.list_sources(at, name))}
    run = _ImportRun(ws, name, metadata, dry_run=dry_run)
    with open_converter(ws) as convert, ws.progress.task(FETCHING_PAGES, len(urls)) as task:
        for url in urls:
            try:
                doc_id = ids.get(parse_url(url).text)
                before = ws.engine.find_document(at, name, doc_id) if doc_id else None
                pace.wait_turn(parse_url(url))
                changed = _convert_changed(ws, url, before, convert, admit)
                if changed:
                    run.add_changed(url, changed)
                else:
                    run.pages[url] = TakenPage(url, name, "unchanged", doc_id or "")
            except _FAILURES as error:
                run.record_failure(url, error)
            task.advance()
        run.store_batch()
    return TakenPages(list(run.pages.values()), run.branch, run.pending)


def _convert_changed(
    ws: Workspace, url: str, before: Document | None, convert: Convert, admit: Admit
) -> _ChangedPage | None:
    """Return the converted page; None if it has the content of the stored document.

    Raises one of `_FAILURES`.
    """
    source = pages.read_page(ws, url, before, admit)
    stored_origin = library_origin.read_origin(before) if before else None
    if stored_origin and stored_origin.hash == source.hash:
        return None
    converted = convert(source)
    return None if before and _is_same(before, source, converted) else _ChangedPage(source, converted, before)


def _is_same(before: Document, source: SourceContent, converted: ConvertedFile) -> bool:
    stored = library_origin.read_visible_metadata(before)
    return (
        before.content == converted.text
        and before.title == (converted.title or source.name)
        and all(stored.get(key) == value for key, value in converted.metadata.items())
    )


class _ImportRun:
    """The results of a run until now, and the batch of pages that are not stored yet."""

    def __init__(self, ws: Workspace, name: str, metadata: Mapping[str, Any] | None, *, dry_run: bool) -> None:
        self._ws = ws
        self._name = name
        self._metadata = metadata
        self._dry_run = dry_run
        self._batch: dict[str, _ChangedPage] = {}
        self.pages: dict[str, TakenPage] = {}
        """The results by URL. A page of the batch has no document yet."""
        self.branch: str | None = None
        self.pending = ""

    def add_changed(self, url: str, changed: _ChangedPage) -> None:
        """Add a page to the batch, and store the batch if it is full."""
        before = changed.before
        if before:
            words = words_of(worddiff.diff_words(before.content, changed.converted.text))
            self.pages[url] = TakenPage(url, self._name, "replaced", before.doc_id, words)
        else:
            self.pages[url] = TakenPage(url, self._name, "indexed")
        self._batch[url] = changed
        size = sum(len(page.source.data) for page in self._batch.values())
        if len(self._batch) == BATCH_PAGES or size > BATCH_BYTES:
            self.store_batch()

    def record_failure(self, url: str, error: VmragError) -> None:
        self.pages[url] = TakenPage(url, self._name, "failed", code=error.code, problem=error.message, hint=error.hint)

    def store_batch(self) -> None:
        """Store the pages of the batch, and begin a new batch."""
        batch = self._batch
        self._batch = {}
        if not batch or self._dry_run:
            return
        converted = {changed.source.key: changed.converted for changed in batch.values()}
        refused: dict[str, VmragError] = {}
        result = ingest_sources(
            self._ws,
            self._name,
            [changed.source for changed in batch.values()],
            lambda source: converted[source.key],
            metadata=self._metadata,
            refused=refused,
        )
        doc_ids = {ingested.document.source_key: ingested.document.doc_id for ingested in result.report}
        for url, changed in batch.items():
            key = changed.source.key
            if key in refused:
                self.record_failure(url, refused[key])
            else:
                self.pages[url] = msgspec.structs.replace(self.pages[url], doc_id=doc_ids[key])
        self.branch = result.branch or self.branch
        self.pending = result.pending or self.pending
