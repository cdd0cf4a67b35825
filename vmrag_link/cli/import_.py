"""`vmrag import`."""

from __future__ import annotations

from pathlib import Path

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural
from vmrag_link.ops.documents import import_files as operation

SHOWN = 5


@vmrag_command("import")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--collection", required=True, help="The collection to import into; made if it is not there.")
@click.option("--prune", is_flag=True, help="Remove the collection's documents whose file is gone.")
@click.option("--replace", is_flag=True, help="Let files take the place of documents that came from other files.")
def command(invocation: Invocation, *, sources: tuple[Path, ...], collection: str, prune: bool, replace: bool) -> None:
    """Store files and folders as documents: Markdown, text, reStructuredText and HTML, one document
    a file.

    What is stored already is left alone. A document's id is its path below the folder that is
    named, so that of another file may have it already: then nothing is stored. The documents can be
    found at once; 'vmrag commit' pins them.
    """
    paths = [invocation.directory / source for source in sources]
    with invocation.workspace() as ws:
        report = operation.import_files(ws, paths, collection, prune=prune, replace=replace)
    lines = [f"{collection}: {described(report.changes)}, {report.unchanged} unchanged"]
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
