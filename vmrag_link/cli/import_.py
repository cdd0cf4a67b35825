"""`vmrag import`."""

from __future__ import annotations

from pathlib import Path

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural
from vmrag_link.ops import documents

SHOWN = 5


@vmrag_command("import")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--collection", required=True, help="The collection to import into; made if it is not there.")
@click.option("--prune", is_flag=True, help="Remove the collection's documents whose file is gone.")
def command(invocation: Invocation, *, sources: tuple[Path, ...], collection: str, prune: bool) -> None:
    """Store files and folders as documents: Markdown, text, reStructuredText and HTML, one document a file.

    What is stored already is left alone. The documents can be found at once; 'vmrag commit' pins them.
    """
    paths = [invocation.directory / source for source in sources]
    with invocation.workspace() as ws:
        report = documents.import_files(ws, paths, collection, prune=prune)
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
