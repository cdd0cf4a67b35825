"""`vmrag sources`: show which files are documents, and which are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import (
    NEXT_COMMIT,
    Invocation,
    describe_kept_revision,
    describe_requirement,
    describe_uncovered,
)
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, enumerated, first_of, plural, quoted
from vmrag_link.ops.sources.dedupe_sources import Deduplication, dedupe_sources
from vmrag_link.ops.sources.sources_report import LeftOutRow, SourceRow, SourcesReport, report_sources
from vmrag_link.paths import CONFIG_NAME, PIN_NAME
from vmrag_link.settings.flaws import NOTES, NOTES_FOLDER

if TYPE_CHECKING:
    from vmrag_link.ops.sources.add_source import SourceAddition
    from vmrag_link.workspace import Workspace

MAX_ROWS = 10
"""Maximum number of lines of a list."""

MAX_NAMES = 5
"""Maximum number of names in a line."""

NO_COPIES = "No stored document is a copy of a file that a source reads."


@vmrag_command("sources")
@click.argument(
    "action", type=click.Choice(["show", "add", "dedupe", "adopt"]), metavar="[show|add|dedupe]", default="show"
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--collection", metavar="NAME", help="add: the source to add the paths to. Default: the first one of the kind."
)
@click.option("--kind", type=click.Choice(["document", "code"]), help="add: what the files are. Default: document.")
@click.option("--write", is_flag=True, help="add: a folder in which vmrag may write notes (default: .vmrag/notes/).")
@click.option("--at", "ref", metavar="REF", help="show: the sources and files of this commit.")
@click.option("-n", "--dry-run", is_flag=True, help="dedupe: only list what would be removed.")
def command(
    invocation: Invocation,
    *,
    action: str,
    paths: tuple[str, ...],
    collection: str | None,
    kind: Literal["document", "code"] | None,
    write: bool,
    ref: str | None,
    dry_run: bool,
) -> None:
    """Show which files are documents, and which are not.

    'sources:' in .vmrag.yaml names the files. If it names none, a proposal is shown. 'left out'
    lists files of a source that are not read, with the reason. The last line counts tracked files
    in no source. -v and --json list all of them.

    'vmrag sources add PATH' adds the files of a path or quoted pattern as documents, for example
    'vmrag sources add docs/ --collection handbook' or 'vmrag sources add src/ --kind code'. It
    edits 'sources:' in .vmrag.yaml and keeps everything else in the file.

    'vmrag sources add --write docs/adr/' lets 'vmrag add' and agents write notes to this folder, as
    files. This trusts no other folder.

    'vmrag sources dedupe' removes stored copies of these files, so that a file is a document once.
    The removal is committed, unless other documents are uncommitted: then 'vmrag commit' commits
    both. Golden queries get the new names of documents.
    """
    _require_options(
        action,
        {
            "add": {"PATH": paths, "--collection": collection, "--kind": kind, "--write": write},
            "show": {"--at": ref},
            "dedupe": {"--dry-run": dry_run},
        },
    )
    if action == "adopt":
        raise UsageInvalid(
            "'vmrag sources adopt' is now called 'vmrag sources dedupe'.",
            hint="run 'vmrag sources dedupe' to remove the stored copies",
        )
    if write and (kind or len(paths) > 1):
        raise UsageInvalid(
            "--write needs exactly one folder, and cannot be combined with --kind.",
            hint="run 'vmrag sources add --write docs/adr/'",
        )
    if action == "add" and not (paths or write):
        raise UsageInvalid("missing argument PATH.", hint="run 'vmrag sources add docs/'")
    with invocation.workspace() as ws:
        if action == "add":
            addition = _add_source(invocation, ws, paths, collection=collection, kind=kind, write=write)
            invocation.emit_report(addition, _addition_lines(addition))
            return
        if action == "dedupe":
            dedupe = dedupe_sources(ws, dry_run=dry_run)
            invocation.emit_report(dedupe, _dry_run_lines(dedupe) if dry_run else _dedupe_lines(dedupe))
        else:
            report = report_sources(ws, ref=ref)
            invocation.emit_report(report, _format_report(report, None if invocation.verbosity > 0 else MAX_ROWS, ref))


def _add_source(
    invocation: Invocation,
    ws: Workspace,
    paths: Sequence[str],
    *,
    collection: str | None,
    kind: Literal["document", "code"] | None,
    write: bool,
) -> SourceAddition:
    from vmrag_link.ops.sources.add_source import add_source, add_writable_source

    if not write:
        return add_source(ws, invocation.directory, paths, collection=collection, kind=kind)
    folder = Path(paths[0]) if paths else ws.places.top / NOTES_FOLDER
    name = collection or (folder.name if paths else NOTES)
    return add_writable_source(ws, invocation.directory, str(folder), collection=name)


def _require_options(action: str, options: Mapping[str, Mapping[str, object]]) -> None:
    """Raise `UsageInvalid` for options of another action."""
    for other, values in options.items():
        option = next((name for name, value in values.items() if value), None)
        if option and other != action:
            raise UsageInvalid(
                f"'vmrag sources {action}' has no option {option}.",
                hint=f"run 'vmrag sources {other} --help' to see its options",
            )


def _addition_lines(addition: SourceAddition) -> Iterator[str]:
    name = addition.collection
    paths = " ".join(addition.paths)
    number = plural(addition.files, "file")
    if not addition.paths:
        yield f"The source {name} already has these paths ({number})."
    elif addition.created:
        yield f"Added the source {name}: {paths} ({number})."
    else:
        yield f"Added to the source {name}: {paths} ({number})."
    if addition.requires:
        yield describe_requirement(addition.requires)
    if addition.unavailable:
        yield f"warning: {name} cannot be read here: {addition.unavailable}"
    if addition.stored:
        yield f"The stored collection {name} answers until its copies are removed."
        yield "hint: run 'vmrag sources dedupe' to remove the stored copies"
    elif not addition.staged:
        yield f"hint: run 'git add {CONFIG_NAME}' to stage it"
    elif addition.paths:
        yield "hint: run 'git commit -m \"…\"'"


def _format_report(report: SourcesReport, limit: int | None, ref: str | None) -> Iterator[str]:
    if not report.sources:
        if ref is None:
            yield from _format_proposal(report)
        else:
            yield f"No sources: {ref} has none in its .vmrag.yaml, and no file that could be a document of one."
        yield from _describe_uncovered(report, limit)
        yield from _describe_folders(report, limit)
        return
    for source in report.sources:
        yield from _format_source(source)
    if report.removed:
        yield f"Removed from the working tree, not committed: {first_of(report.removed, MAX_NAMES)}"
    if report.untracked:
        subject = (
            "1 file that git does not track is"
            if report.untracked == 1
            else f"{report.untracked} files that git does not track are"
        )
        yield f"{subject} left out; run 'git add FILE' to include it"
    if report.missing:
        yield f"Not in this clone: {first_of(report.missing, MAX_NAMES)}"
        if any(path.endswith("/") for path in report.missing):
            yield "hint: run 'git submodule update --init --recursive' to fetch the submodules"
        else:
            yield "hint: run 'git fetch --refetch' in a partial clone, or 'git fetch --unshallow' in a shallow one"
    yield from _format_left_out(report.left_out, limit)
    yield from _describe_uncovered(report, limit)
    yield from _describe_folders(report, limit)
    yield from _describe_next_step(report)


def _describe_uncovered(report: SourcesReport, limit: int | None) -> Iterator[str]:
    """Yield the lines about files, except those of `_describe_next_step`."""
    uncovered = {ending: number - report.unnamed.get(ending, 0) for ending, number in report.uncovered.items()}
    uncovered = {ending: number for ending, number in uncovered.items() if number}
    yield from describe_uncovered(uncovered, report.needs_extra, limit=len(uncovered) if limit is None else limit)


def _describe_folders(report: SourcesReport, limit: int | None) -> Iterator[str]:
    rows = [
        f"submodule {row.path}: {_describe_count(row.files, 'not in this clone')}"
        for row in report.submodules
        if not row.is_read
    ]
    rows += [
        f"linked folder {row.path} -> {row.target}: {_describe_count(row.files, 'outside the repository')}"
        for row in report.linked_folders
    ]
    if rows:
        yield "Not read:"
        yield from (f"  {row}" for row in rows[:limit])
        if limit is not None and len(rows) > limit:
            yield f"  and {len(rows) - limit} more (-v shows all)"
    if any(row.files is not None and not row.is_read for row in report.submodules):
        yield "hint: write 'sources_submodules: true' into .vmrag.yaml to read submodules"


def _describe_count(files: int | None, unknown: str) -> str:
    return unknown if files is None else plural(files, "file")


def _describe_next_step(report: SourcesReport) -> Iterator[str]:
    if report.proposed:
        yield "Nothing is set up yet: these are what 'vmrag init' would write into .vmrag.yaml:"
        yield from _indent_lines(report.proposal)
        yield "hint: run 'vmrag init' to set up this repository"
    elif report.unnamed:
        yield f"In no source: {first_of([f'{number} {ending}' for ending, number in report.unnamed.items()], MAX_NAMES)}"
        yield f"  to have them, in 'sources:' of {CONFIG_NAME}:"
        yield from _indent_lines(report.addition)


def _format_source(row: SourceRow) -> Iterator[str]:
    kind = ", notes are written here" if row.write else ""
    if row.kind == "code":
        kind = ", code"
    number = "not read" if row.unavailable else plural(row.documents, "document")
    yield f"{output.style_text(row.collection, bold=True)}  {number}{kind}"
    without = f", without {' '.join(row.exclude)}" if row.exclude else ""
    yield f"  {' '.join(row.paths)}{without}"
    if row.unmatched:
        match = "matches" if len(row.unmatched) == 1 else "match"
        yield f"  paths: {first_of(row.unmatched, MAX_NAMES)} {match} no tracked file"
    if row.unmatched_exclude:
        match = "matches" if len(row.unmatched_exclude) == 1 else "match"
        yield f"  exclude: {first_of(row.unmatched_exclude, MAX_NAMES)} {match} no file of this source"
    if row.unavailable:
        yield f"  {row.unavailable}"
        yield f"  hint: {row.hint}"
    if row.write and not row.trusted:
        yield "  writing is not trusted on this machine"
        yield "  hint: run 'vmrag trust' to allow it"
    if row.by_lines:
        yield f"  cut by lines, too hard or too large to parse: {first_of(row.by_lines, MAX_NAMES)}"
    for path, doc_id in row.disputed.items():
        yield f"  warning: {path} states the id {doc_id}, which another note has"
    if row.uncommitted:
        yield f"  not committed: {first_of([f'{path} ({how})' for path, how in row.uncommitted.items()], MAX_NAMES)}"


def _format_left_out(rows: tuple[LeftOutRow, ...], limit: int | None) -> Iterator[str]:
    """Yield omitted files by their reasons, so that a few of each reason are shown."""
    if not rows:
        return
    yield f"{plural(len(rows), 'file')} left out:"
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row.reason, []).append(row.path)
    for reason, paths in sorted(reasons.items()):
        first_paths = paths if limit is None else paths[:limit]
        yield f"  {reason}:"
        yield from (f"    {path}" for path in first_paths)
        if len(first_paths) < len(paths):
            yield f"    and {len(paths) - len(first_paths)} more (-v shows all)"


def _format_proposal(report: SourcesReport) -> Iterator[str]:
    if not report.proposal:
        yield "No sources, and no tracked file that could be a document of one."
        return
    yield "No sources. These files could be documents of each commit; in .vmrag.yaml:"
    yield from _indent_lines(report.proposal)
    yield "hint: run 'vmrag init' to write these lines"


def _indent_lines(text: str) -> Iterator[str]:
    yield from (f"  {line}" for line in text.splitlines())


def _dry_run_lines(report: Deduplication) -> Iterator[str]:
    differing = set(report.differing)
    for name in report.documents:
        yield f"rm {name}{'  (differs from its file)' if name in differing else ''}"
    yield from (f"rm {name}/ (the collection)" for name in report.collections)
    if not report.documents and not report.collections:
        yield NO_COPIES
    yield from _remaining_lines(report)


def _dedupe_lines(report: Deduplication) -> Iterator[str]:
    if not report.documents and not report.collections:
        yield NO_COPIES
    else:
        yield f"Removed {plural(len(report.documents), 'stored copy')}: their files answer."
    if report.collections:
        noun = "collection" if len(report.collections) == 1 else "collections"
        yield f"Removed the stored {noun} {enumerated(report.collections)}."
    if report.differing:
        yield f"These copies differed from their files: {first_of(list(map(str, report.differing)), MAX_NAMES)}"
        if report.commit:
            name = quoted(str(report.differing[0]))
            yield f"hint: run 'vmrag show {report.commit.parent[:12]}:{name}' to see the text of a copy"
    if report.kept:
        names = " ".join(quoted(str(name)) for name in report.unsaved[:MAX_NAMES])
        yield describe_kept_revision(len(report.unsaved), f"vmrag restore --source {report.kept[:12]} {names}")
    yield from _remaining_lines(report)
    if report.commit:
        yield f"Committed as {report.commit.revision[:7]}"
        if report.commit.pending:
            yield f"warning: {report.commit.pending}"
        if report.commit.pin:
            files = [] if report.commit.staged else [PIN_NAME]
            add = f"git add {' '.join([*files, *report.unstaged])} && " if files or report.unstaged else ""
            yield f"hint: run '{add}git commit -m \"…\"'"
    elif report.uncommitted:
        yield NEXT_COMMIT


def _remaining_lines(report: Deduplication) -> Iterator[str]:
    for name, number in report.occupied.items():
        yield (
            f"The stored collection {name} has {plural(number, 'other document')}, so the source of that name is not "
            f"read; rename the source in .vmrag.yaml, or run 'vmrag rm {quoted(name)}' to remove the collection"
        )
    if report.uncovered:
        paths = sorted({copy.path for copy in report.uncovered})
        yield f"No source reads the files of {plural(len(report.uncovered), 'other stored copy')}: {first_of(paths, MAX_NAMES)}"
        yield f"hint: run 'vmrag sources add {' '.join(map(quoted, paths[:MAX_NAMES]))}' to search the files instead"
