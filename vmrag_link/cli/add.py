"""`vmrag add`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.documents import given
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import canonical_json, json_from_user
from vmrag_link.ops.documents.drafts import text_document, unnamed_document
from vmrag_link.ops.documents.import_files import ImportReport, add_file
from vmrag_link.ops.documents.put import PutRequest, put

EXAMPLE = """--metadata '{"team": "core", "year": 2024}'"""


@vmrag_command("add")
@click.argument("source", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--collection", required=True, help="The collection to store it in; made if it is not there.")
@click.option("--id", "doc_id", help="The document's id; by default the one that 'vmrag import' would give it.")
@click.option("--title", help="The document's title; by default its id.")
@click.option("--metadata", default="{}", help="A JSON object.")
def command(
    invocation: Invocation, *, source: Path, collection: str, doc_id: str | None, title: str | None, metadata: str
) -> None:
    """Store one document, a file or standard input (-). One of that id is replaced."""
    piped = str(source) == "-"
    if doc_id is None and piped:
        raise UsageInvalid("A document from standard input needs an id.", hint="vmrag add - --collection C --id NAME")
    file = invocation.directory / source
    text = given.stream_text(sys.stdin.buffer) if piped else given.file_text(file)
    values = canonical_json(metadata_object(metadata))
    with invocation.workspace() as ws:
        if doc_id is None:
            report, name = add_file(ws, file, collection, unnamed_document(text, title=title or "", metadata=values))
        else:
            name = doc_id
            document = text_document(name, text, title=title or name, metadata=values)
            report = ImportReport.of(put(ws, PutRequest(collection, [document], "replace", create=True)))
    lines = [f"{collection}/{name}: {described(report.changes)}"]
    if report.pending:
        lines.append(f"warning: {report.pending}")
    if report.branch:
        lines.append(NEXT_COMMIT)
    invocation.emit(report, lines)


def metadata_object(text: str) -> dict[str, Any]:
    """What `--metadata` holds. Raises `UsageInvalid`."""
    try:
        value = json_from_user(text)
    except ValueError as error:
        raise UsageInvalid(f"--metadata {error}.", hint=EXAMPLE) from None
    if not isinstance(value, dict):
        raise UsageInvalid("--metadata is not a JSON object.", hint=EXAMPLE)
    return value
