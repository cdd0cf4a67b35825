"""Keep documents that were never committed, before a command removes or replaces them.

Their texts are committed in a revision that no branch has. `vmrag restore --source` restores them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

from vmrag_link import clock
from vmrag_link.engines.records import read_documents_by_key
from vmrag_link.merging.replay import AUTHOR
from vmrag_link.merging.threeway import convert_to_rows
from vmrag_link.models import At, Difference, DocumentChange, HeaderChange, WorkingSet
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore


def find_unsaved(
    ws: DocumentStore, at: At, is_selected: Callable[[tuple[str, str]], bool], collections: Container[str] = ()
) -> Difference:
    """Return the changes of the selected documents and collections' settings that no revision has.

    Removed documents are left out, because a revision has them. Documents without versions are left
    out, because removing them is meant to be final.
    """
    branch = ws.engine.find_branch(at.branch) if isinstance(ws, Workspace) and isinstance(at, WorkingSet) else None
    if branch is None or not branch.dirty:
        return Difference((), ())
    difference = ws.engine.diff_headers(branch.head, at)
    unsaved = [document for document in difference.documents if document.after and is_selected(document.key)]
    needed = {document.key[0] for document in unsaved}
    rows = (
        collection
        for collection in difference.collections
        if collection.after and (collection.key in collections or collection.key in needed)
    )
    return Difference(tuple(rows), with_texts(ws, at, unsaved))


def keep_unsaved(ws: DocumentStore, at: At, unsaved: Difference, *, before: str) -> str:
    """Commit these changes to no branch. Return the revision, or an empty text for no changes.

    `before`: the end of the commit's message.
    """
    branch = ws.engine.find_branch(at.branch) if isinstance(at, WorkingSet) else None
    if branch is None or unsaved.is_empty:
        return ""
    message = f"Uncommitted documents of {branch.name}, before {before}"
    return ws.engine.commit_onto(
        branch.head, [convert_to_rows(unsaved)], message=message, author=AUTHOR, date=clock.now()
    )


def with_texts(ws: DocumentStore, at: At, changes: Sequence[HeaderChange]) -> tuple[DocumentChange, ...]:
    """Return the changes with the texts at a place."""
    rows = read_documents_by_key(ws.engine, at, [change.key for change in changes if change.after])
    # If another process removed a document in between, `writing.write_rows` plans again.
    return tuple(
        DocumentChange(change.kind, change.before, rows.get(change.key))
        for change in changes
        if change.after is None or change.key in rows
    )
