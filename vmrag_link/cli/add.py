"""`vmrag add`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.conversion.reading import markdown_title
from vmrag_link.documents import export_paths
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import canonical_json, json_from_user
from vmrag_link.ops.documents.drafts import text_document
from vmrag_link.ops.documents.import_files import FileRequest, add_file
from vmrag_link.ops.documents.import_reports import ImportReport
from vmrag_link.ops.documents.put import PutRequest, put

EXAMPLE = """--metadata '{"team": "core", "year": 2024}'"""


@vmrag_command("add")
@click.argument("source", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--collection", required=True, help="The collection to store it in; made if it is not there.")
@click.option("--id", "doc_id", help="The document's id; by default the one that 'vmrag import' would give it.")
@click.option("--title", help="The document's title; by default the one that the text states, else its name.")
@click.option("--metadata", default="{}", help="A JSON object; beside what the file's front matter says.")
def command(
    invocation: Invocation, *, source: Path, collection: str, doc_id: str | None, title: str | None, metadata: str
) -> None:
    """Store one document, a file or standard input (-). One of that id is replaced.

    A file becomes the document that 'vmrag import' would make of it: its id is its path below the
    collection's import base, and its title is the one in its front matter, else its first heading,
    else its name. Files of other formats than an import reads are taken as text.
    """
    piped = str(source) == "-"
    if doc_id is None and piped:
        raise UsageInvalid("A document from standard input needs an id.", hint="vmrag add - --collection C --id NAME")
    values = canonical_json(metadata_object(metadata))
    text = export_paths.stream_text(sys.stdin.buffer) if piped else ""
    with invocation.workspace() as ws:
        if piped:
            name = doc_id or ""
            document = text_document(name, text, title=title or markdown_title(text) or name, metadata=values)
            report = ImportReport.of(put(ws, PutRequest(collection, [document], "replace", create=True)))
        else:
            wanted = FileRequest(doc_id, title or "", values)
            report, name = add_file(ws, invocation.directory / source, collection, wanted)
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
