"""`vmrag add`: write a note, or store a document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.models import ChangeCounts, Record

if TYPE_CHECKING:
    from vmrag_link.settings import SourceSettings
    from vmrag_link.workspace import Workspace
    from vmrag_link.workspace.documents.import_reports import ImportReport
    from vmrag_link.workspace.documents.note_writes import NoteDraft, WhenExists


class NoteReport(Record, frozen=True):
    """A note that was written."""

    collection: str
    doc_id: str
    path: str
    changes: ChangeCounts
    pending: str = ""
    kept: bool = False
    """True if the former text is kept because git does not have it."""
    commit: str = ""
    """The git commit with the note; an empty text without one."""


class _AddRequest(NamedTuple):
    """The options and arguments that describe the document."""

    file: Path | None
    text: str | None
    """Text of `-m` or of standard input; None for a file."""
    doc_id: str | None
    title: str | None
    metadata: str


@vmrag_command("add")
@click.argument("source", metavar="[FILE]", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("-m", "--message", metavar="TEXT", help="Text of the document, in place of a file.")
@click.option("--collection", help="Store it in this collection (default: write a note).")
@click.option("--id", "doc_id", help="Id of the document (default: made from the title or the name of the file).")
@click.option("--title", help="Title of the document (default: the first heading, else the first line or the name).")
@click.option("--metadata", default="{}", help="JSON object; added to the front matter of a file.")
@click.option("--replace", is_flag=True, help="Replace the text of an existing note.")
@click.option("--append", is_flag=True, help="Add the text to the end of an existing note.")
@click.option("--commit", is_flag=True, help="Also commit the note to git, and nothing else.")
@click.option("--allow-secret", is_flag=True, help="Write the note even if it seems to contain a password or key.")
@click.option("--copy", is_flag=True, help="Store a copy of a file that git tracks. The copy does not follow the file.")
def command(
    invocation: Invocation,
    *,
    source: Path | None,
    message: str | None,
    collection: str | None,
    doc_id: str | None,
    title: str | None,
    metadata: str,
    replace: bool,
    append: bool,
    commit: bool,
    allow_secret: bool,
    copy: bool,
) -> None:
    """Write a note, or store a document.

    The text comes from FILE, from -m or from piped input. Without --collection, it becomes a note:
    a Markdown file that git tracks, for example 'vmrag add -m "We chose Pagefind, because it needs
    no server."'. Its id is made from its title. An existing note changes only with --replace or
    --append.

    With --collection, the knowledge base stores it, and a document of the same id is replaced.
    Text from -m or from a pipe then needs --id. A FILE is converted as 'vmrag import' converts it.
    """
    from vmrag_link.cli.texts import parse_metadata_option
    from vmrag_link.models import encode_canonical_json
    from vmrag_link.ops.add.note_commit import commit_notes
    from vmrag_link.workspace.documents.note_writes import add_note

    if replace and append:
        raise UsageInvalid(
            "--replace and --append cannot be used together.", hint="run 'vmrag add --append' to add to the note"
        )
    text = _read_given_text(source, message, collection, doc_id)
    request = _AddRequest(source, text, doc_id, title, encode_canonical_json(parse_metadata_option(metadata)))
    with invocation.workspace() as ws:
        notes = _find_notes_source(ws, collection)
        if notes is None:
            _refuse_note_options(replace=replace, append=append, commit=commit, allow_secret=allow_secret)
            import_report, doc_id = _store_document(ws, invocation, request, collection or "", copy=copy)
            invocation.emit_report(import_report, _describe_stored(import_report, f"{collection}/{doc_id}"))
            return
        existing: WhenExists = "replace" if replace else "append" if append else "refuse"
        draft = _read_draft(ws, invocation, request, notes)
        doc_id, result = add_note(ws, notes, draft, existing, allow_secret=allow_secret)
        paths = result.notes.paths if result.notes else ()
        note_commit = commit_notes(ws, paths, draft.title or doc_id) if commit and paths else None
    report = NoteReport(
        collection=notes.collection,
        doc_id=doc_id,
        path=paths[0] if paths else "",
        changes=result.report.changes,
        pending=result.pending,
        kept=bool(result.notes and result.notes.kept),
        commit=note_commit.commit if note_commit else "",
    )
    invocation.emit_report(report, _describe_note(report))


def _read_given_text(
    source: Path | None, message: str | None, collection: str | None, doc_id: str | None
) -> str | None:
    """Return the text of `-m` or of standard input; None for a file.

    Raises `UsageInvalid` if no text is given, or if it is empty.
    """
    from vmrag_link.cli.texts import has_piped_input, read_standard_input

    if message is None and source is not None and str(source) != "-":
        return None
    if message is not None and source is not None:
        raise UsageInvalid("FILE cannot be combined with -m, because both give the text", hint="leave one of them out")
    options = f" --collection {quoted(collection)} --id {quoted(doc_id or 'NAME')}" if collection else ""
    if message is None and source is None and not has_piped_input():
        raise UsageInvalid(
            "no text is given: neither a FILE, nor -m, nor piped input", hint=f"run 'vmrag add -m TEXT{options}'"
        )
    text = read_standard_input() if message is None else message
    if not text.strip():
        origin = "standard input" if message is None else "the text of -m"
        raise UsageInvalid(f"{origin} is empty, so nothing was written", hint=f"run 'vmrag add -m TEXT{options}'")
    return text


def _find_notes_source(ws: Workspace, collection: str | None) -> SourceSettings | None:
    """Return the source of the notes that a command writes; None for a stored collection.

    Raises `UsageInvalid` for a call without a collection if there is no source for notes.
    """
    source = ws.sources.find_writable(collection)
    if source is None and collection is None:
        raise UsageInvalid(
            "this repository has no source for notes, and no --collection is given.",
            hint="run 'vmrag sources add --write'"
            if ws.places.config.exists()
            else "run 'vmrag init' to set up this repository",
        )
    return source


def _refuse_note_options(**options: bool) -> None:
    """Raise `UsageInvalid` if one of these options is used."""
    name = next((name for name, is_used in options.items() if is_used), None)
    if name:
        option = f"--{name.replace('_', '-')}"
        hint = "run 'vmrag commit --git'" if option == "commit" else f"remove {option}"
        raise UsageInvalid(f"{option} is for notes, not for stored collections.", hint=hint)


def _read_draft(ws: Workspace, invocation: Invocation, request: _AddRequest, source: SourceSettings) -> NoteDraft:
    """Return the note to write. Raises `SourceReadOnly` for a file that git tracks."""
    from msgspec import json, structs

    from vmrag_link.workspace.documents.note_names import find_note_id
    from vmrag_link.workspace.documents.note_writes import NoteDraft

    if request.text is None:
        from vmrag_link.ops.add.note_drafts import read_note_draft

        draft = read_note_draft(ws, invocation.directory / (request.file or ""))
    else:
        draft = NoteDraft(request.text)
    metadata = {**draft.metadata, **json.decode(request.metadata)}
    doc_id = find_note_id(ws, source, request.doc_id) if request.doc_id else draft.doc_id
    return structs.replace(draft, doc_id=doc_id, title=request.title or draft.title, metadata=metadata)


def _describe_note(report: NoteReport) -> Iterator[str]:
    name = f"{report.collection}/{report.doc_id}"
    if not report.path:
        yield f"{name} already has this text."
        return
    yield f"{'Added' if report.changes.added else 'Changed'} {name} in {report.path}"
    if report.pending:
        yield f"warning: {report.pending}"
    if report.commit:
        yield f"Committed as {report.commit[:7]}"
    else:
        yield f"hint: run 'git commit -m MESSAGE -- {quoted(report.path)}'"
    if report.kept:
        yield f"hint: run 'vmrag restore --undo {quoted(name)}' to restore the text that was replaced"


def _store_document(
    ws: Workspace, invocation: Invocation, request: _AddRequest, collection: str, *, copy: bool
) -> tuple[ImportReport, str]:
    """Store a document. Return the report and the id."""
    from vmrag_link.cli.writing import create_if_missing
    from vmrag_link.conversion.reading import find_markdown_title
    from vmrag_link.ops.import_.import_files import FileRequest, add_file
    from vmrag_link.workspace.documents.drafts import text_document
    from vmrag_link.workspace.documents.import_reports import ImportReport
    from vmrag_link.workspace.documents.put import PutRequest, put_documents

    if request.text is not None and request.doc_id is None:
        command = f"vmrag add {'-m TEXT' if request.file is None else '-'} --collection {quoted(collection)} --id NAME"
        raise UsageInvalid(
            "a stored document from a text or from standard input needs an id.", hint=f"run '{command}' to name it"
        )
    with create_if_missing(ws):
        if request.text is None:
            file_request = FileRequest(request.doc_id, request.title or "", request.metadata)
            return add_file(ws, invocation.directory / (request.file or ""), collection, file_request, copy=copy)
        doc_id = request.doc_id or ""
        title = request.title or find_markdown_title(request.text) or doc_id
        document = text_document(doc_id, request.text, title=title, metadata=request.metadata)
        result = put_documents(ws, PutRequest(collection, [document], "replace", create=True))
        return ImportReport.from_result(result), doc_id


def _describe_stored(report: ImportReport, name: str) -> Iterator[str]:
    yield f"{name}: {report.changes.text}"
    if report.pending:
        yield f"warning: {report.pending}"
    if report.branch:
        yield NEXT_COMMIT
