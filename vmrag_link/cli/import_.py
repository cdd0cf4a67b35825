"""`vmrag import`: store files, folders and web pages as documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.writing import open_for_writing
from vmrag_link.documents import importing
from vmrag_link.documents.import_base import OUTSIDE, ROOT
from vmrag_link.documents.importing import FileSelection, SkippedFile
from vmrag_link.errors import UsageInvalid, enumerated, plural, quoted, shortened
from vmrag_link.models import Record
from vmrag_link.ops.import_ import import_files
from vmrag_link.workspace.documents import leaving_out
from vmrag_link.workspace.documents.import_reports import ImportReport

MAX_SHOWN_NAMES = 5
BASES = {ROOT: "the root of the repository", OUTSIDE: "a folder outside of the repository"}

FILE = "file"
"""The key in `Toolset.imports` for paths, which `vmrag import --library` uses like a scheme."""


class ImportRequest(Record, frozen=True):
    """The arguments for a toolset that imports (`Toolset.imports`). The toolset prints, and returns
    the exit code.
    """

    sources: tuple[str, ...]
    """Addresses and paths as the user typed them."""
    library: str | None
    metadata: Mapping[str, Any] | None
    selection: FileSelection
    max_pages: int | None
    of_site: bool
    copy: bool = False


@vmrag_command("import")
@click.argument("sources", nargs=-1)
@click.option("--collection", help="Collection to import into. It is created if it does not exist.")
@click.option(
    "--library",
    "library_name",
    help="Library to import into (default for pages: 'default'). It is created if it does not exist.",
)
@click.option(
    "--base",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --collection: folder that the ids are relative to (default: the repository's root).",
)
@click.option("--prune", is_flag=True, help="Remove documents whose files no longer exist in the folders.")
@click.option(
    "--replace",
    is_flag=True,
    help="With --collection: replace documents that came from other files.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Skip files that match this .gitignore pattern. Can be repeated.",
)
@click.option("--include-ignored", is_flag=True, help="Include files that git ignores.")
@click.option("--include-generated", is_flag=True, help="Include generated files, such as lock files.")
@click.option("--copy", is_flag=True, help="Store copies of files that git tracks. Copies do not follow their files.")
@click.option("--metadata", metavar="JSON", help="With --library: JSON object to store with each document.")
@click.option("--sitemap", "of_site", is_flag=True, help="Import the pages that the site's sitemap lists.")
@click.option("--most", "max_pages", type=click.IntRange(1), help="With --sitemap: maximum number of pages.")
def command(
    invocation: Invocation,
    *,
    sources: tuple[str, ...],
    collection: str | None,
    library_name: str | None,
    base: Path | None,
    prune: bool,
    replace: bool,
    exclude: tuple[str, ...],
    include_ignored: bool,
    include_generated: bool,
    copy: bool,
    metadata: str | None,
    of_site: bool,
    max_pages: int | None,
) -> int:
    """Store files, folders and web pages as documents.

    It reads Markdown, text, reStructuredText, AsciiDoc, MDX, HTML, CSV, JSON, YAML, XML and
    notebooks. The extra 'pdf' adds PDF, and 'convert' adds Word, PowerPoint, Excel and EPUB. Run
    'vmrag commit' to pin the documents.

    Tracked files that a source can read are not stored; use 'vmrag sources add PATH'. Hidden,
    ignored and generated files are skipped, unless you name them.

    With --collection, the id is the path relative to --base, such as docs/setup.md; 'git mv' keeps
    it. With --library, or for URLs, 'vmrag refresh' can update the documents.
    """
    if not sources:
        raise UsageInvalid(
            "missing argument PATH: 'vmrag import' no longer reads all known files again.",
            hint="run 'vmrag import PATH --collection NAME', or 'vmrag sources add PATH' for files that git tracks",
        )
    if max_pages is not None and not of_site:
        raise UsageInvalid("--most needs --sitemap.", hint="add --sitemap, or leave --most out")
    has_urls = any("://" in source for source in sources)
    selection = FileSelection(exclude, include_ignored=include_ignored, include_generated=include_generated)
    if library_name is not None or of_site or (has_urls and collection is None):
        excluded: dict[str, object] = {
            "--collection": collection,
            "--base": base,
            "--prune": prune,
            "--replace": replace,
        }
        if of_site:
            excluded |= {"--exclude": exclude, "--include-ignored": include_ignored}
            excluded |= {"--include-generated": include_generated, "--copy": copy}
        _refuse_together(excluded, "--sitemap" if of_site else "--library")
        fields = _parse_metadata(metadata)
        request = ImportRequest(sources, library_name, fields, selection, max_pages, of_site=of_site, copy=copy)
        return _call_toolset(invocation, request)
    collection = _require_collection(collection, has_urls=has_urls)
    _refuse_together({"--metadata": metadata}, "--collection")
    paths = [invocation.directory / source for source in sources]
    folder = None if base is None else invocation.directory / base
    with open_for_writing(invocation) as ws:
        report = import_files.import_files(
            ws, paths, collection, base=folder, prune=prune, replace=replace, selection=selection, copy=copy
        )
    invocation.emit_report(report, _describe_import(report, invocation, has_base=base is not None))
    return 0


def _parse_metadata(metadata: str | None) -> Mapping[str, Any] | None:
    if metadata is None:
        return None
    from vmrag_link.cli.texts import parse_metadata_option  # few imports have metadata

    return parse_metadata_option(metadata)


def _require_collection(collection: str | None, *, has_urls: bool) -> str:
    """Return the collection for files. Raises `UsageInvalid` without one, and for pages."""
    if collection is None:
        raise UsageInvalid(
            "missing option '--collection'.",
            hint="add --collection NAME, or --library NAME for files that are identified by their paths",
        )
    if has_urls:
        raise UsageInvalid("pages are stored in a library, not in another collection.", hint="use --library NAME")
    return collection


def _refuse_together(options: Mapping[str, object], other: str) -> None:
    """Raise `UsageInvalid` if one of the options is used together with another one."""
    used_options = [name for name, value in options.items() if value]
    if used_options:
        raise UsageInvalid(f"{used_options[0]} cannot be combined with {other}.", hint=f"remove {used_options[0]}")


def _call_toolset(invocation: Invocation, request: ImportRequest) -> int:
    """Call the toolset that imports such addresses.

    Raises `UsageInvalid` if there is none.
    """
    from vmrag_link import toolset

    handlers: dict[str, Callable[[Invocation, ImportRequest], int]] = {}
    for source in request.sources:
        scheme = source.partition("://")[0].lower() if "://" in source else FILE
        importer = next(
            (candidate for candidate in toolset.installed().toolsets.values() if scheme in candidate.imports), None
        )
        if importer is None:
            ability = "imports files into a library" if scheme == FILE else f"imports {scheme}: addresses"
            raise UsageInvalid(
                f"no installed toolset {ability}: {shortened(source)}",
                hint="save the page as a file, then run 'vmrag import FILE --collection NAME' to import it",
            )
        handlers[importer.absolute(importer.imports[scheme])] = importer.load(importer.imports[scheme])
    if len(handlers) > 1:
        raise UsageInvalid(
            "these addresses belong to different toolsets.", hint="import one kind of addresses at a time"
        )
    return next(iter(handlers.values()))(invocation, request)


def _describe_import(report: ImportReport, invocation: Invocation, *, has_base: bool) -> Iterator[str]:
    yield f"{report.collection}: {report.changes.text}, {report.unchanged} unchanged"
    if report.created or has_base:
        yield f"Ids of new documents are relative to {BASES.get(report.base, report.base)}."
    if report.ignored:
        yield f"Imported although git ignores it, because you named it: {enumerated(report.ignored)}."
    for row in report.renamed:
        yield f"{row.doc_id} follows its file: {row.before} is {row.now} now."
    yield from _describe_missing_files(report)
    yield from describe_skipped_files(report.skipped, invocation, report.hint)
    yield from describe_import_end(report.pending, report.branch)


def _describe_missing_files(report: ImportReport) -> Iterator[str]:
    """Yield lines about documents whose files are missing or are no longer imported."""
    if report.gone:
        documents = enumerated([*report.gone[:MAX_SHOWN_NAMES], *(["others"] if report.gone[MAX_SHOWN_NAMES:] else [])])
        is_one = len(report.gone) == 1
        subject = "The file of 1 document is" if is_one else f"The files of {len(report.gone)} documents are"
        yield f"{subject} gone: {documents}. --prune removes {'it' if is_one else 'them'}."
    if report.left_out:
        names = " ".join(map(quoted, report.left_out[:MAX_SHOWN_NAMES]))
        more = " …" if report.left_out[MAX_SHOWN_NAMES:] else ""
        documents = plural(len(report.left_out), "document")
        pronoun = "it" if len(report.left_out) == 1 else "them"
        yield (
            f"{documents} of skipped files stay{'s' * (len(report.left_out) == 1)}; "
            f"run 'vmrag rm {names}{more} --collection {quoted(report.collection)}' to remove {pronoun}"
        )


def describe_skipped_files(skipped: Sequence[SkippedFile], invocation: Invocation, hint: str = "") -> Iterator[str]:
    """Yield skipped files with their reasons, and `hint` for those that git tracks."""
    if not skipped:
        return
    yield f"Skipped {plural(len(skipped), 'file')}:"
    # Hidden files are last, because each repository has some.
    notable_first = sorted(skipped, key=lambda file: file.reason == importing.HIDDEN)
    shown = skipped if invocation.verbosity > 0 else notable_first[:MAX_SHOWN_NAMES]
    yield from (f"  {file.name}: {file.reason}" for file in shown)
    if len(shown) < len(skipped):
        yield f"  and {len(skipped) - len(shown)} more (-v shows all)"
    reasons = {file.reason for file in skipped}
    options_by_reason = {leaving_out.IGNORED: "--include-ignored", leaving_out.GENERATED: "--include-generated"}
    options = [option for reason, option in options_by_reason.items() if reason in reasons]
    if options:
        yield f"hint: add {' '.join(options)} to import these files too"
    if hint:
        yield f"hint: {hint}"


def describe_import_end(pending: str, branch: str | None) -> Iterator[str]:
    if pending:
        yield f"warning: {pending}"
    if branch:
        yield NEXT_COMMIT
