"""`vmrag import` of web pages, and of files into a library.

`vmrag_link.cli.import_` calls `take` for URLs and for the option `--library`. Files and pages are
stored in batches, and one that cannot be stored does not stop the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vmrag_link import terminal_text
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.import_ import ImportRequest, describe_import_end, describe_skipped_files
from vmrag_link.cli.writing import open_for_writing
from vmrag_link.documents import import_base, importing
from vmrag_link.documents.importing import FileSelection, SkippedFile
from vmrag_link.errors import FAILED_CHECK, AccessDenied, FetchFailed, FileFailed, UsageInvalid, VmragError, enumerated
from vmrag_link.models import ChangeCounts, Record
from vmrag_link.toolsets.libraries import pages
from vmrag_link.toolsets.libraries.ingest import (
    DEFAULT,
    Ingested,
    check_library,
    find_by_source,
    find_library,
    ingest_sources,
    open_converter,
)
from vmrag_link.toolsets.libraries.take_pages import SiteReport, take_site
from vmrag_link.toolsets.libraries.web.sitemap import MAX_LOCATIONS, MAX_PAGES
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files, writing
from vmrag_link.workspace.documents.leaving_out import ImportFilter
from vmrag_link.workspace.documents.named_files import SourceContent
from vmrag_link.workspace.documents.tracked_files import TrackedFiles

BATCH_SOURCES = 200
"""Maximum number of sources of a batch. Their bytes and texts are in memory together."""

BATCH_BYTES = 32_000_000
"""Size from which a batch is stored."""

_READ_ERRORS = (FileFailed, FetchFailed, AccessDenied)


class TakenSource(Record, frozen=True):
    """The result for one source. `source` is in the form of `named_files.shown_source`."""

    status: str
    doc_id: str
    source: str
    title: str


class RefusedSource(Record, frozen=True):
    """A file or page that the command named and that could not be imported."""

    source: str
    code: str
    message: str
    hint: str


class LibraryImport(Record, frozen=True):
    """The result of an import into a library.

    `skipped` are files in folders that cannot become documents. `branch` is None if nothing was
    stored. `pending` is the reason why the index is not up to date. `hint` is as in `ImportReport`.
    """

    library: str
    taken: list[TakenSource]
    refused: list[RefusedSource]
    skipped: list[SkippedFile]
    branch: str | None
    pending: str = ""
    hint: str = ""


class _NamedSource(NamedTuple):
    """A file or page to import."""

    location: Path | str
    """The absolute path of a file, or the URL of a page."""
    shown: str
    """The path or URL in messages."""
    in_folder: bool = False
    """True if the command names a folder around the file, and not the file."""


def import_sources(
    ws: Workspace,
    sources: Sequence[Path | str],
    name: str,
    *,
    metadata: Mapping[str, Any] | None = None,
    selection: FileSelection | None = None,
    copy: bool = False,
) -> LibraryImport:
    """Import files and folders (absolute paths) and pages (URLs) into the library of this name.

    Files that git tracks and that sources can read are refused; `copy` stores them. A file or page
    that cannot be stored does not stop the others; the error of a single file or page is raised.
    Raises `SourceReadOnly` if all files are refused, `UsageInvalid` for a missing path, and the
    errors of `ingest_sources`.
    """
    check_library(name, metadata)
    skipped: list[SkippedFile] = []
    paths = [importing.require_existing(source) for source in sources if isinstance(source, Path)]
    tracked = None if copy else TrackedFiles(ws, paths, None)
    named_sources = list(_list_files(ws, sources, selection or FileSelection(), skipped, tracked))
    if tracked and tracked.hint and not named_sources:
        raise tracked.form_refusal()
    find_library(ws, writing.require_writable(ws).at, name)
    failed: dict[_NamedSource, VmragError] = {}
    ingested: list[Ingested] = []
    branch: str | None = None
    pending = ""
    with ws.progress.task("taking in", len(named_sources)) as task, open_converter(ws) as convert:
        for batch in _split_batches(_read_sources(ws, name, named_sources, failed)):
            refused: dict[str, VmragError] = {}
            result = ingest_sources(ws, name, list(batch.values()), convert, metadata=metadata, refused=refused)
            failed |= {item: refused[source.key] for item, source in batch.items() if source.key in refused}
            ingested += result.report
            branch = result.branch or branch
            pending = result.pending or pending
            task.advance(len(batch))
    skipped += [
        SkippedFile(terminal_text.escape_line(item.shown), _describe_reason(error))
        for item, error in failed.items()
        if item.in_folder
    ]
    failed_alone = {item.shown: error for item, error in failed.items() if not item.in_folder}
    if failed_alone and len(sources) == 1:
        raise next(iter(failed_alone.values()))
    return LibraryImport(
        library=name,
        taken=[_build_taken(ws, item) for item in ingested],
        refused=[RefusedSource(shown, why.code, why.message, why.hint) for shown, why in failed_alone.items()],
        skipped=sorted(skipped, key=lambda item: item.name),
        branch=branch,
        pending=pending,
        hint=tracked.hint if tracked else "",
    )


def _list_files(
    ws: Workspace,
    sources: Sequence[Path | str],
    selection: FileSelection,
    skipped: list[SkippedFile],
    tracked: TrackedFiles | None,
) -> Iterator[_NamedSource]:
    """Yield the sources that are URLs, the files, and the files in the folders.

    Adds files that are left out to `skipped`. `tracked` refuses files that git tracks.
    """
    top = import_base.locate_path(ws.places.top)
    for source in sources:
        if isinstance(source, str):
            yield _NamedSource(source, pages.key_of(source))
            continue
        path = importing.require_existing(source)
        if not path.is_dir():
            reason = tracked.find_reasons([path]).get(path) if tracked else None
            if reason:
                skipped.append(SkippedFile(terminal_text.escape_line(str(source)), reason))
            else:
                yield _NamedSource(path, str(source))
            continue
        base = import_base.make_base(path, top)
        reasons = tracked.find_reasons if tracked else None
        scan = importing.scan_sources(
            [path], base, ImportFilter(ws.places, selection, base.source_folder, derived=reasons)
        )
        skipped += scan.skipped
        yield from (_NamedSource(file.path, file.doc_id, in_folder=True) for file in scan.files)


def _read_sources(
    ws: Workspace, name: str, named: Iterable[_NamedSource], failed: dict[_NamedSource, VmragError]
) -> Iterator[tuple[_NamedSource, SourceContent]]:
    """Read each source once, even if it is named several times. Adds errors to `failed`."""
    seen: set[str] = set()
    for item in named:
        try:
            source = _read_source(ws, name, item.location)
        except _READ_ERRORS as error:
            failed[item] = error
            continue
        if source.key not in seen:
            seen.add(source.key)
            yield item, source


def _read_source(ws: Workspace, name: str, location: Path | str) -> SourceContent:
    if isinstance(location, Path):
        return named_files.read_file(ws, named_files.resolve_file(location))
    before = find_by_source(ws, writing.require_writable(ws).at, name, pages.key_of(location))
    return pages.read_page(ws, location, before, pages.admit_typed(ws))


def _split_batches(read: Iterable[tuple[_NamedSource, SourceContent]]) -> Iterator[dict[_NamedSource, SourceContent]]:
    batch: dict[_NamedSource, SourceContent] = {}
    size = 0
    for named, source in read:
        batch[named] = source
        size += len(source.data)
        if len(batch) == BATCH_SOURCES or size >= BATCH_BYTES:
            yield batch
            batch = {}
            size = 0
    if batch:
        yield batch


def _describe_reason(why: VmragError) -> str:
    """Return the text after the name of a skipped file."""
    return str(why.details.get("reason", why.message))


def _build_taken(ws: Workspace, item: Ingested) -> TakenSource:
    document = item.document
    return TakenSource(item.status, document.doc_id, named_files.shown_source(ws, document), document.title)


def take(invocation: Invocation, request: ImportRequest) -> int:
    """Import files and pages, or a whole site, into a library."""
    name = request.library or DEFAULT
    if request.of_site:
        return _import_site(invocation, request, name)
    named = [source if "://" in source else invocation.directory / source for source in request.sources]
    with open_for_writing(invocation) as ws:
        report = import_sources(
            ws, named, name, metadata=request.metadata, selection=request.selection, copy=request.copy
        )
    counts = Counter(item.status for item in report.taken)
    changes = ChangeCounts(added=counts["indexed"], modified=counts["replaced"])
    lines = [f"{name}: {changes.text}, {counts['skipped']} unchanged"]
    lines += [f"Not taken: {refusal.message} {refusal.hint}" for refusal in report.refused]
    lines += describe_skipped_files(report.skipped, invocation, report.hint)
    invocation.emit_report(report, [*lines, *describe_import_end(report.pending, report.branch)])
    return FAILED_CHECK if report.refused else 0


def _import_site(invocation: Invocation, request: ImportRequest, name: str) -> int:
    if len(request.sources) != 1:
        raise UsageInvalid("--sitemap takes one sitemap at a time.", hint="name one URL")
    max_pages = request.max_pages or MAX_PAGES
    if max_pages > MAX_LOCATIONS:
        raise UsageInvalid(
            f"--most is {max_pages:,}, and sitemaps are read for {MAX_LOCATIONS:,} pages.",
            hint=f"use '--most {MAX_LOCATIONS}'",
        )
    with open_for_writing(invocation) as ws:
        report = take_site(ws, name, request.sources[0], max_pages=max_pages, metadata=request.metadata)
    invocation.emit_report(report, _format_site(report, max_pages))
    failed = report.failures or any(page.status == "failed" for page in report.pages)
    return FAILED_CHECK if failed else 0


def _format_site(report: SiteReport, max_pages: int) -> Iterator[str]:
    counts = Counter(page.status for page in report.pages)
    changes = ChangeCounts(added=counts["indexed"], modified=counts["replaced"])
    yield f"{report.library}: {changes.text}, {counts['unchanged']} unchanged"
    yield from (f"Not taken: {page.problem}" for page in report.pages if page.status == "failed")
    yield from (f"Not read: {failure}" for failure in report.failures)
    left_out = {
        "of other hosts": report.elsewhere,
        "that robots.txt disallows": report.disallowed,
        "that are not URLs": report.invalid,
        f"beyond --most {max_pages}": report.more,
    }
    parts = [f"{number} {what}" for what, number in left_out.items() if number]
    if parts:
        yield f"Left out: {enumerated(parts)}."
    yield from describe_import_end(report.pending, report.branch)
