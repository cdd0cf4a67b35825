"""Find outdated notes: notes that cite files which changed after the last commit of the note.

Answers mark such notes (`find_outdated`), and `vmrag list --outdated` lists them (`list_outdated`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from vmrag_link.errors import no_collection
from vmrag_link.git import plumbing
from vmrag_link.models import Collection, Document, Record
from vmrag_link.sources.cited_lines import ChangedCitation
from vmrag_link.sources.outdated import check_all_notes, check_notes
from vmrag_link.workspace import Workspace, source_tree

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore

MAX_LISTING_SECONDS = 60.0
"""Time limit of all git processes for a list of all notes."""

Key = tuple[str, str]


def find_outdated(
    ws: ReadableStore, documents: Iterable[tuple[Collection, Document]], commit: str | None = None
) -> Mapping[Key, str]:
    """Return a text for each outdated note among the documents, by key.

    For example `cites src/auth.py:10, changed since in 2 commits`. `commit`: the commit to compare;
    None for the working tree. At most one git process is started.
    """
    notes = [document for collection, document in documents if collection.has_notes]
    if not notes:
        return {}
    head = commit or plumbing.read_head(ws.places).commit
    texts = {document.source: document.content for document in notes}
    outdated = check_notes(ws.places, texts, head, working_tree=commit is None).outdated
    return {document.key: str(outdated[document.source]) for document in notes if document.source in outdated}


class OutdatedRow(Record, frozen=True):
    """A note that cites files or lines which changed after its last commit."""

    collection: str
    doc_id: str
    path: str
    title: str
    citations: tuple[ChangedCitation, ...]

    @property
    def name(self) -> str:
        return f"{self.collection}/{self.doc_id}"


class OutdatedReport(Record, frozen=True):
    """Notes that may be outdated."""

    notes: tuple[OutdatedRow, ...]
    unknown: tuple[str, ...] = ()
    """Paths of notes whose citations could not be compared, for example in a shallow clone."""


def list_outdated(ws: Workspace, collection: str | None) -> OutdatedReport:
    """Return the notes of the working tree that may be outdated, of all collections or of one.

    Raises `CollectionMissing` for a collection that has no notes.
    """
    writable = [source.collection for source in ws.sources.configured if source.write]
    if collection is not None and collection not in writable:
        raise no_collection(collection, writable)
    tree = source_tree.read_work_tree(ws)
    collections = writable if collection is None else [collection]
    documents = tree.read_documents([key for key in tree.files if key[0] in collections]) if tree else {}
    texts = {document.source: document.content for document in documents.values()}
    head = plumbing.read_head(ws.places).commit
    check = check_all_notes(ws.places, texts, head, seconds=MAX_LISTING_SECONDS)
    rows = [
        OutdatedRow(*key, document.source, document.title, check.outdated[document.source].citations)
        for key, document in sorted(documents.items())
        if document.source in check.outdated
    ]
    return OutdatedReport(tuple(rows), check.unknown)
