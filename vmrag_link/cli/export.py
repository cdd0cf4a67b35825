"""`vmrag export`: write stored documents to files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import answering
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, enumerated, plural

if TYPE_CHECKING:
    from vmrag_link.ops.export import ExportReport


@vmrag_command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--collection",
    multiple=True,
    help="Only this collection. Can be repeated. Default: all except those that tools write for themselves.",
)
@click.option("--at", "ref", metavar="REF", help="Export the documents of a git ref, a revision or a KB branch.")
@click.option("--force", is_flag=True, help="Overwrite files that have another text.")
@answering.strict_option
def command(
    invocation: Invocation, *, folder: Path, collection: tuple[str, ...], ref: str | None, force: bool, strict: bool
) -> int:
    """Write stored documents to files.

    The files are DIR/COLLECTION/DOC. They contain the text without front matter; 'vmrag list
    --json' prints the metadata. Documents of sources are not exported, because they are files
    already.

    If a file with another text exists, nothing is written. The command writes only inside
    DIR, follows no link below it and removes no file. The exit code is 1 if a document's name
    cannot be a file name.
    """
    from vmrag_link.ops import export as operation

    with invocation.workspace() as ws:
        report = operation.export_documents(
            ws, invocation.directory / folder, requested=collection, ref=ref, force=force, strict=strict
        )
    answering.emit_answer(invocation, report, _export_lines(report, folder), report.notes)
    return FAILED_CHECK if report.left_out else OK


def _export_lines(report: ExportReport, folder: Path) -> Iterator[str]:
    for row in report.left_out:
        yield f"Left out: {row.collection}/{row.doc_id} {row.reason}."
    yield f"{folder}: {plural(report.written, 'file')} written, {report.unchanged} unchanged"
    if report.sources:
        yield f"Not written, because they are files of the repository already: {enumerated(report.sources)}."
    yield answering.describe_position(report.kb)
