"""`vmrag import`."""

from __future__ import annotations

from pathlib import Path

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.documents.import_base import OUTSIDE, ROOT
from vmrag_link.errors import plural
from vmrag_link.ops.documents import import_files as operation

SHOWN = 5
BASES = {ROOT: "the root of the repository", OUTSIDE: "a folder outside of the repository"}


@vmrag_command("import")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--collection", required=True, help="The collection to import into; made if it is not there.")
@click.option(
    "--base",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder from which ids count, from now on; by default the repository's root.",
)
@click.option("--prune", is_flag=True, help="Remove the collection's documents whose file is gone.")
@click.option("--replace", is_flag=True, help="Let files take the place of documents that came from other files.")
def command(
    invocation: Invocation,
    *,
    sources: tuple[Path, ...],
    collection: str,
    base: Path | None,
    prune: bool,
    replace: bool,
) -> None:
    """Store files and folders as documents: Markdown, text, reStructuredText and HTML, one document
    a file.

    A document's id is the path of its file below the collection's import base: docs/setup.md where
    that is the repository's root, setup.md with --base docs. The base is recorded with the
    collection, so a file gets the same id whether it is named itself or a folder above it, from
    whatever directory, on whatever machine. A file that is a document already stays that document.
    Files outside the repository need a --base there, once on each machine.

    What is stored already is left alone. Nothing is stored where another file has an id already.
    The documents can be found at once; 'vmrag commit' pins them.
    """
    paths = [invocation.directory / source for source in sources]
    folder = None if base is None else invocation.directory / base
    with invocation.workspace() as ws:
        report = operation.import_files(ws, paths, collection, base=folder, prune=prune, replace=replace)
    lines = [f"{collection}: {described(report.changes)}, {report.unchanged} unchanged"]
    if report.created or base is not None:
        lines.append(f"Ids of new documents count from {BASES.get(report.base, report.base)}.")
    if report.skipped:
        lines.append(f"Skipped {plural(len(report.skipped), 'file')}:")
        shown = report.skipped if invocation.verbosity > 0 else report.skipped[:SHOWN]
        lines += [f"  {each.name} {each.reason}" for each in shown]
        if len(shown) < len(report.skipped):
            lines.append(f"  and {len(report.skipped) - len(shown)} more (see them with -v)")
    if report.pending:
        lines.append(f"warning: {report.pending}")
    if report.branch:
        lines.append(NEXT_COMMIT)
    invocation.emit(report, lines)
