"""`vmrag export`: write the documents back as files."""

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
    from vmrag_link.ops.documents.export import ExportReport


@vmrag_command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--collection",
    multiple=True,
    help="Only this collection; may be given several times. By default all but those of `learning` and thoughts.",
)
@click.option("--at", "ref", metavar="REF", help="As of a git ref, a revision, or a branch of the knowledge base.")
@click.option("--force", is_flag=True, help="Overwrite files that have another text.")
@answering.strict_option
def command(
    invocation: Invocation, *, folder: Path, collection: tuple[str, ...], ref: str | None, force: bool, strict: bool
) -> int:
    """Write the documents back as files: DIR/COLLECTION/DOC.

    A file holds the text as it is stored, without front matter; metadata is in vmrag list --json.
    Documents of sources are files of the repository already, of which nothing is written. Files
    that have another text stop the command before anything is written. Nothing outside of DIR is
    touched, no link below it followed, and no file removed. Exit code 1 if a document's name can be
    no file.
    """
    from vmrag_link.ops.documents import export as operation

    with invocation.workspace() as ws:
        report = operation.export(
            ws, invocation.directory / folder, wanted=collection, ref=ref, force=force, strict=strict
        )
    answering.emit(invocation, report, _export_lines(report, folder), report.notes)
    return FAILED_CHECK if report.left_out else OK


def _export_lines(report: ExportReport, folder: Path) -> Iterator[str]:
    for each in report.left_out:
        yield f"Left out: {each.collection}/{each.doc_id} {each.reason}."
    yield f"{folder}: {plural(report.written, 'file')} written, {report.unchanged} unchanged"
    if report.sources:
        yield f"Not written, because they are files of the repository already: {enumerated(report.sources)}."
    yield answering.standing_line(report.kb)
