"""Add, change and delete notes: documents of a writable source, which are Markdown files.

Each function makes a plan for `note_files.change_notes`, which checks and writes the files.
`put.put_documents` and `vmrag rm` do the same for stored documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from vmrag_link import terminal_text
from vmrag_link.conversion.reading import TITLE, find_markdown_title, find_text_title
from vmrag_link.documents.importing import ImportedDocument
from vmrag_link.errors import (
    DocumentMissing,
    KnowledgeMoved,
    NoteExists,
    nearest,
    quoted,
)
from vmrag_link.models import ChangeCounts, Document, Record
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.notes import first_line, make_slug
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.drafts import NewDocument, new_documents, refused_ids, stated_title
from vmrag_link.workspace.documents.import_reports import PutCounts
from vmrag_link.workspace.documents.note_files import (
    NoteChange,
    NoteFile,
    NoteFolder,
    NotesWritten,
    change_notes,
)
from vmrag_link.workspace.documents.writing import WriteResult

WhenExists = Literal["refuse", "replace", "append"]
MAX_TEXT_CHARACTERS = 1000
"""Maximum length of a present text in an error."""


def put_notes(
    ws: Workspace,
    source: SourceSettings,
    documents: Sequence[ImportedDocument],
    existing: WhenExists,
    *,
    explain: bool = False,
    allow_secret: bool = False,
) -> WriteResult[PutCounts]:
    """Write new notes, and replace or extend existing ones.

    If `existing` is `refuse`, raises `DocumentExists` for existing ids. With `explain`, a note with
    the same text is not an error, and the error for another text is `NoteExists`, which has the
    present text. Raises `ContentRefused` and the errors of `change_notes`.
    """

    def plan_put(folder: NoteFolder) -> list[NoteChange]:
        present = {document.doc_id: folder.find_note(document.doc_id) for document in documents}
        existing_notes = [note for note in present.values() if note]
        if existing_notes and existing == "refuse" and not explain:
            raise refused_ids(
                [note.doc_id for note in existing_notes], f"are in collection {source.collection!r} already"
            )
        changes = [_plan_put(folder, document, present[document.doc_id], existing) for document in documents]
        if existing == "refuse" and any(change.before not in (None, change.after) for change in changes):
            raise _note_exists(source, existing_notes[0])
        return changes

    written = change_notes(ws, source, plan_put, allow_secret=allow_secret)
    added_count = sum(change.before is None for change in written.changes)
    changes = ChangeCounts(added=added_count, modified=len(written.changes) - added_count, removed=0)
    unchanged = len(documents) - changes.total
    report = PutCounts(source.collection, False, changes, unchanged)
    return WriteResult(report, None, written.pending, notes=written)


def _plan_put(
    folder: NoteFolder, document: ImportedDocument, present: NoteFile | None, existing: WhenExists
) -> NoteChange:
    """Return the change that writes, replaces or extends one note."""
    metadata = metadata_of_note(
        document.doc_id, document.title, msgspec.json.decode(document.metadata), document.content
    )
    if present and existing == "append":
        before = present.text.content
        joint = "" if not before or before.endswith("\n") else "\n"
        return folder.plan_change(
            document.doc_id, {**present.text.metadata, **metadata}, before + joint + document.content, present
        )
    return folder.plan_change(document.doc_id, metadata, document.content, present)


def metadata_of_note(doc_id: str, title: str, metadata: Mapping[str, Any], content: str) -> dict[str, Any]:
    """Return the front matter of a note: metadata, and the title if nothing else gives it."""
    derived = (stated_title(metadata), find_text_title(content), first_line(content)[:TITLE], doc_id)
    if title and title not in derived:
        return {"title": title, **{key: value for key, value in metadata.items() if key != "title"}}
    return dict(metadata)


class NoteDraft(Record, frozen=True):
    """A note to write."""

    text: str
    doc_id: str = ""
    """Empty to derive the id from the title or the first line."""
    title: str = ""
    metadata: Mapping[str, Any] = {}


def add_note(
    ws: Workspace, source: SourceSettings, draft: NoteDraft, existing: WhenExists, *, allow_secret: bool = False
) -> tuple[str, WriteResult[PutCounts]]:
    """Write one note. Return its id and the result.

    Raises `NameInvalid` and the errors of `put_notes`.
    """
    metadata = {**({"title": draft.title} if draft.title else {}), **draft.metadata}
    text = draft.text if draft.text.endswith("\n") else f"{draft.text}\n"
    doc_id = draft.doc_id or make_slug(stated_title(metadata) or find_markdown_title(text) or first_line(text))
    [document] = new_documents([NewDocument(text, doc_id, metadata)])
    return doc_id, put_notes(ws, source, [document], existing, explain=True, allow_secret=allow_secret)


def replace_text(ws: Workspace, source: SourceSettings, before: Document, text: str) -> WriteResult[PutCounts]:
    """Replace the text of a note, unless another process changed it after it was read.

    Raises `KnowledgeMoved` if it was changed or deleted, and the errors of `change_notes`.
    """

    def plan_text(folder: NoteFolder) -> list[NoteChange]:
        note = folder.find_note(before.doc_id)
        if note is None or note.text.content != before.content:
            name = f"{source.collection}/{before.doc_id}"
            raise KnowledgeMoved(
                f"another process changed or deleted the note {name}, so nothing was written.",
                hint=f"run 'vmrag show {quoted(name)}' to see it",
            )
        return [folder.plan_change(note.doc_id, note.text.metadata, text, note)]

    written = change_notes(ws, source, plan_text)
    changed = len(written.paths)
    report = PutCounts(source.collection, False, ChangeCounts(modified=changed), 1 - changed)
    return WriteResult(report, None, written.pending, notes=written)


class NoteUpdate(NamedTuple):
    """The new parts of a note; None leaves a part unchanged."""

    doc_id: str
    text: str | None
    metadata: Mapping[str, Any] | None


class UpdatedNotes(NamedTuple):
    """Ids of notes with a new text or new metadata, and of notes that had them already."""

    changed: list[str]
    unchanged: list[str]
    written: NotesWritten


def update_notes(ws: Workspace, source: SourceSettings, updates: Sequence[NoteUpdate]) -> UpdatedNotes:
    """Change texts and metadata of existing notes.

    Nothing is written if this raises `DocumentMissing`, `ContentRefused` or an error of
    `change_notes`.
    """

    def plan_updates(folder: NoteFolder) -> list[NoteChange]:
        ids = [update.doc_id for update in updates]
        present = {note.doc_id: note for note in _require_notes(ws, folder, ids)}
        metadata_by_id = {doc_id: note.text.metadata for doc_id, note in present.items()}
        texts = {doc_id: note.text.content for doc_id, note in present.items()}
        for update in updates:
            if update.metadata is not None:
                metadata_by_id[update.doc_id] = dict(update.metadata)
            if update.text is not None:
                texts[update.doc_id] = update.text
        return [
            folder.plan_change(doc_id, metadata_by_id[doc_id], texts[doc_id], note) for doc_id, note in present.items()
        ]

    written = change_notes(ws, source, plan_updates)
    changed = [change.doc_id for change in written.changes]
    ids = dict.fromkeys(update.doc_id for update in updates)
    return UpdatedNotes(changed, [doc_id for doc_id in ids if doc_id not in changed], written)


def remove_notes(ws: Workspace, source: SourceSettings, ids: Sequence[str]) -> NotesWritten:
    """Delete existing notes. Raises `DocumentMissing` and the errors of `change_notes`."""

    def plan_removals(folder: NoteFolder) -> list[NoteChange]:
        return [folder.plan_removal(note) for note in _require_notes(ws, folder, ids)]

    return change_notes(ws, source, plan_removals)


def _require_notes(ws: Workspace, folder: NoteFolder, ids: Sequence[str]) -> list[NoteFile]:
    """Return the notes with these ids. Raises `DocumentMissing` with all missing ids."""
    present = {doc_id: folder.find_note(doc_id) for doc_id in dict.fromkeys(ids)}
    notes = [note for note in present.values() if note]
    missing = [doc_id for doc_id, note in present.items() if note is None]
    if not missing:
        return notes
    from vmrag_link.workspace import source_tree  # imported here, because only an error lists the names

    doc_id = missing[0]
    name = folder.source.collection
    tree = source_tree.read_work_tree(ws)
    similar = nearest(doc_id, [key[1] for key in tree.files if key[0] == name] if tree else [])
    raise DocumentMissing(
        f"no note {doc_id!r} in {name!r}." + (f" Did you mean {similar!r}?" if similar else ""),
        hint=f"run 'vmrag list --collection {quoted(name)}' to list its documents",
        collection_name=name,
        doc_id=doc_id,
        ids=missing,
    )


def quoted_text(text: str) -> str:
    """Return the text of a document for a message, with marks that distinguish its lines."""
    return "\n".join(terminal_text.mark_lines(text.rstrip(), "    "))


def _note_exists(source: SourceSettings, note: NoteFile) -> NoteExists:
    text = note.text.content
    more = " …" if len(text) > MAX_TEXT_CHARACTERS else ""
    name = f"{source.collection}/{note.doc_id}"
    return NoteExists(
        f"the note {name} exists. Its text is:\n{quoted_text(text[:MAX_TEXT_CHARACTERS])}{more}",
        hint="use --replace (mode=replace) or --append (mode=append), or choose another name",
        ids=[note.doc_id],
        name=name,
        text=text[:MAX_TEXT_CHARACTERS],
    )
