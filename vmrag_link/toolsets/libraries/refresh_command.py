"""`vmrag refresh`: fetch the pages of libraries again, and store changed pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import (
    FAILED_CHECK,
    CollectionMissing,
    DocumentMissing,
    RemoteNotTrusted,
    UsageInvalid,
    plural,
    quoted,
)
from vmrag_link.models import At, Record
from vmrag_link.toolsets.libraries.ingest import all_libraries
from vmrag_link.toolsets.libraries.pages import Admit, admit_stored, admit_typed
from vmrag_link.toolsets.libraries.take_pages import TakenPage, take_pages
from vmrag_link.toolsets.libraries.web.addresses import limits_of
from vmrag_link.toolsets.libraries.web.robots import Pace, Robots
from vmrag_link.toolsets.libraries.web.urls import PageUrl, parse_url
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files, writing
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.word_diff import hidden_suffix


class RefreshReport(Record, frozen=True):
    """Numbers of `replaced`, `unchanged` and `failed` pages.

    After a `dry_run`, nothing is stored.
    """

    pages: list[TakenPage]
    replaced: int
    unchanged: int
    failed: int
    dry_run: bool
    branch: str | None
    pending: str


def refresh_libraries(ws: Workspace, names: Sequence[str] = (), *, dry_run: bool = False) -> RefreshReport:
    """Fetch the pages that came from URLs, and leave changed pages uncommitted.

    `names` are libraries, documents as `LIBRARY/DOC`, or URLs, whose hosts become trusted. By
    default, all libraries are refreshed. vmrag does not contact a host from which no page was
    imported here, because the knowledge base that names it may be untrusted. Raises
    `CollectionMissing`, `DocumentMissing`, `UsageInvalid` for documents that did not come from a
    URL, and the errors of `take_pages`.
    """
    if dry_run:
        follow_and_warn(ws)
        at = ws.locate_documents()
    else:
        at = writing.require_writable(ws).at
    urls_by_library = _select_urls(ws, at, names)
    for url in filter(named_files.is_url, names):
        admit_typed(ws)(parse_url(url))
    admit = admit_stored(ws)
    pace = _make_pace(ws, [url for urls in urls_by_library.values() for url in urls], admit)
    results = [take_pages(ws, name, urls, pace, admit, dry_run=dry_run) for name, urls in urls_by_library.items()]
    pages = [page for result in results for page in result.pages]
    numbers = Counter(page.status for page in pages)
    return RefreshReport(
        pages=pages,
        replaced=numbers["replaced"],
        unchanged=numbers["unchanged"],
        failed=numbers["failed"],
        dry_run=dry_run,
        branch=next((result.branch for result in results if result.branch), None),
        pending=next((result.pending for result in results if result.pending), ""),
    )


def _select_urls(ws: Workspace, at: At, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the distinct URLs by library."""
    pages_by_library = {library.name: _list_pages(ws, at, library.name) for library in all_libraries(ws, at)}
    if not names:
        return {name: list(pages.values()) for name, pages in pages_by_library.items() if pages}
    urls_by_library: dict[str, dict[str, None]] = {}
    for name in names:
        for collection, url in _resolve_name(ws, at, pages_by_library, name):
            urls_by_library.setdefault(collection, {})[url] = None
    return {collection: list(urls) for collection, urls in urls_by_library.items()}


def _list_pages(ws: Workspace, at: At, name: str) -> dict[str, str]:
    """Return the URLs by the ids of their documents."""
    return {doc_id: source for doc_id, source in ws.engine.list_sources(at, name) if named_files.is_url(source)}


def _resolve_name(
    ws: Workspace, at: At, pages_by_library: dict[str, dict[str, str]], name: str
) -> list[tuple[str, str]]:
    """Return the libraries and URLs that a name on the command line means."""
    if named_files.is_url(name):
        url = parse_url(name).text
        matches = [(library, url) for library, pages in pages_by_library.items() if url in pages.values()]
        if not matches:
            raise DocumentMissing(
                f"no library has a document from {url}.",
                hint=f"run 'vmrag import {quoted(url)} --library NAME'",
                source=url,
            )
        return matches
    if name.rstrip("/") in pages_by_library:
        collection = name.rstrip("/")
        return [(collection, url) for url in pages_by_library[collection].values()]
    if not document_names.find_candidates(ws.engine, at, name) and name.partition("/")[0] not in pages_by_library:
        raise _build_no_library(ws, at, name.partition("/")[0])
    document = document_names.find_document(ws.engine, [at], name)
    if document.collection not in pages_by_library:
        raise _build_no_library(ws, at, document.collection)
    url = pages_by_library[document.collection].get(document.doc_id, "")
    if not url:
        raise UsageInvalid(
            f"{document} came from a file, not from a URL.",
            hint=f"run 'vmrag import FILE --library {quoted(document.collection)}'",
            doc_id=document.doc_id,
        )
    return [(document.collection, url)]


def _build_no_library(ws: Workspace, at: At, name: str) -> CollectionMissing | UsageInvalid:
    if any(collection.name == name for collection in ws.engine.list_collections(at)):
        return UsageInvalid(
            f"collection {name!r} is not a library: its documents did not come from URLs.",
            hint="run 'vmrag list' to list the collections",
            collection_name=name,
        )
    return CollectionMissing(
        f"no such library: {name!r}.", hint="run 'vmrag list' to list the collections", collection_name=name
    )


def _make_pace(ws: Workspace, urls: Sequence[str], admit: Admit) -> Pace:
    """Return the pauses that robots.txt demands, for hosts with several pages."""
    robots = Robots(limits_of(ws.config.ingest, admit))
    hosts = Counter(url.partition("://")[2].partition("/")[0] for url in urls)

    def choose_delay(page: PageUrl) -> float:
        return robots.find_delay(page) if hosts[page.site] > 1 else 0.0

    return Pace(choose_delay)


@vmrag_command("refresh")
@click.argument("names", nargs=-1, metavar="[LIBRARY | [LIBRARY/]DOC | URL]...")
@click.option("--dry-run", is_flag=True, help="List the changes, but store nothing.")
def command(invocation: Invocation, *, names: tuple[str, ...], dry_run: bool) -> int:
    """Update documents that were imported from web pages.

    It downloads only changed pages and stores them. Run 'vmrag diff' to see the changes, and
    'vmrag commit' to pin them. If a page is gone or fails, its document stays. Pages of hosts
    from which you never imported on this machine are skipped. The exit code is 1 if a page
    failed.
    """
    with invocation.workspace() as ws:
        report = refresh_libraries(ws, names, dry_run=dry_run)
    invocation.emit_report(report, _format_lines(report))
    return FAILED_CHECK if report.failed else 0


def _format_lines(report: RefreshReport) -> Iterator[str]:
    yield from page_lines(report.pages)
    if not report.pages:
        yield "No document of a library is from the web."
        yield "hint: run 'vmrag import URL --library NAME' to import a page"
        return
    yield f"{plural(report.replaced, 'page')} changed, {report.unchanged} unchanged, {report.failed} failed"
    hints = dict.fromkeys(page.hint for page in report.pages if page.code == RemoteNotTrusted.code)
    yield from (f"hint: {hint}" for hint in hints)
    if report.pending:
        yield f"warning: {report.pending}"
    if report.dry_run and report.replaced:
        yield "Nothing was stored."
        yield "hint: run the command without --dry-run to store the changes"
    elif report.replaced:
        yield "hint: run 'vmrag diff' to see the changes"
        yield NEXT_COMMIT


def page_lines(pages: Iterable[TakenPage]) -> Iterator[str]:
    """Yield a line for each page that is new, changed or failed."""
    for page in pages:
        if page.status == "indexed":
            yield f"{output.style_text('A', fg='green')}  {page.url}"
        elif page.status == "replaced":
            words = f" | +{page.words.inserted} -{page.words.deleted}{hidden_suffix(page.words)}" if page.words else ""
            yield f"{output.style_text('M', fg='yellow')}  {page.url}{words}"
        elif page.status == "failed":
            yield f"{output.style_text('!', fg='red')}  {page.problem}"
