"""`vmrag import` of web pages, and of files into a library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vmrag_link.cli.base import Invocation, described
from vmrag_link.cli.import_ import ImportRequest, end_lines, skipped_lines
from vmrag_link.errors import FAILED_CHECK, UsageInvalid, enumerated
from vmrag_link.models import ChangeCounts
from vmrag_link.toolsets.libraries import import_sources, library
from vmrag_link.toolsets.libraries.take_site import SiteReport, take_site
from vmrag_link.toolsets.libraries.web.sitemap import MOST_PAGES
from vmrag_link.toolsets.libraries.web.sitemap_file import MOST_LOCATIONS


def take(invocation: Invocation, request: ImportRequest) -> int:
    """Take files and pages, or a whole site's, into a library."""
    name = request.library or library.DEFAULT
    if request.of_site:
        return _site_into_library(invocation, request, name)
    named = [source if "://" in source else invocation.directory / source for source in request.sources]
    with invocation.workspace() as ws:
        report = import_sources.import_sources(ws, named, name, metadata=request.metadata, selection=request.selection)
    counts = Counter(each.status for each in report.taken)
    changes = ChangeCounts(added=counts["indexed"], modified=counts["replaced"])
    lines = [f"{name}: {described(changes)}, {counts['skipped']} unchanged"]
    lines += [f"Not taken: {each.message} {each.hint}" for each in report.refused]
    lines += skipped_lines(report.skipped, invocation)
    invocation.emit(report, [*lines, *end_lines(report.pending, report.branch)])
    return FAILED_CHECK if report.refused else 0


def _site_into_library(invocation: Invocation, request: ImportRequest, name: str) -> int:
    if len(request.sources) != 1:
        raise UsageInvalid("--sitemap takes one sitemap at a time.", hint="Name one URL.")
    most = request.most or MOST_PAGES
    if most > MOST_LOCATIONS:
        raise UsageInvalid(
            f"--most is {most:,}, and sitemaps are read for {MOST_LOCATIONS:,} pages.", hint=f"--most {MOST_LOCATIONS}"
        )
    with invocation.workspace() as ws:
        report = take_site(ws, name, request.sources[0], most=most, metadata=request.metadata)
    invocation.emit(report, _site(report, most))
    failed = report.failures or any(each.status == "failed" for each in report.pages)
    return FAILED_CHECK if failed else 0


def _site(report: SiteReport, most: int) -> Iterator[str]:
    counts = Counter(each.status for each in report.pages)
    changes = ChangeCounts(added=counts["indexed"], modified=counts["replaced"])
    yield f"{report.library}: {described(changes)}, {counts['unchanged']} unchanged"
    yield from (f"Not taken: {each.problem}" for each in report.pages if each.status == "failed")
    yield from (f"Not read: {each}" for each in report.failures)
    left_out = {
        "of other hosts": report.elsewhere,
        "that robots.txt disallows": report.disallowed,
        "that are no URLs": report.invalid,
        f"beyond --most {most}": report.more,
    }
    if parts := [f"{number} {what}" for what, number in left_out.items() if number]:
        yield f"Left out: {enumerated(parts)}."
    yield from end_lines(report.pending, report.branch)
