"""`vmrag move`: move documents between the knowledge base and files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.writing import open_for_writing
from vmrag_link.errors import UsageInvalid, plural, quoted
from vmrag_link.ops.move import CollectionMove, move_to_files, move_to_store
from vmrag_link.paths import CONFIG_NAME


@vmrag_command("move")
@click.argument("collection")
@click.option(
    "--to", "target", type=click.Choice(["files", "store"]), required=True, help="Where to keep the documents."
)
@click.option("--folder", metavar="DIR", default="", help="Folder for the files (default: .vmrag/COLLECTION).")
def command(invocation: Invocation, *, collection: str, target: Literal["files", "store"], folder: str) -> None:
    """Move documents between the knowledge base and files.

    For example, 'vmrag move wiki --to files' writes each document of the stored collection wiki
    as a Markdown file with its metadata, and removes the collection. 'vmrag move wiki --to store'
    does the opposite. The earlier history of the documents stays where it is.

    If a document cannot be a file, for example because it is empty, nothing is written. If the
    command is interrupted, run it again.
    """
    if target == "store":
        if folder:
            raise UsageInvalid("--folder needs '--to files'.", hint=f"run 'vmrag move {quoted(collection)} --to store'")
        with open_for_writing(invocation) as ws:
            report = move_to_store(ws, collection)
    else:
        with invocation.workspace() as ws:
            report = move_to_files(ws, collection, folder=folder)
    invocation.emit_report(report, _describe_move(report, target))


def _describe_move(report: CollectionMove, target: Literal["files", "store"]) -> Iterator[str]:
    number = plural(report.documents, "document")
    if target == "files":
        yield f"Moved {number} of {report.collection} to files in {report.folder}/"
    else:
        yield f"Stored {number} of {report.collection} and deleted the files in {report.folder}/"
    if not report.staged:
        yield f"hint: run 'git add -A -- {quoted(report.folder)} {CONFIG_NAME}' to stage them"
    yield "hint: run 'vmrag commit --git' to commit the knowledge base and the files"
