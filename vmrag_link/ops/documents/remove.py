"""Remove documents: by names and patterns on the command line, by ids and filters for tools."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.engines.base import Write
from vmrag_link.errors import ConfirmationMissing, NothingSelected, enumerated, plural, quoted
from vmrag_link.models import At, Record
from vmrag_link.ops.documents import collections, derived_files, unsaved, writing
from vmrag_link.ops.documents.document_selection import Selection, select
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.ops.history import document_names
from vmrag_link.ops.history.document_names import DocumentName, command_of
from vmrag_link.workspace import DocumentStore


class Removal(Record, frozen=True):
    """`ids` of documents; `missing` were asked for, and name neither a document nor a chunk."""

    collection: str
    ids: list[str]
    missing: list[str]


class NamedRemoval(Record, frozen=True):
    """`collections` were removed as a whole.

    `kept`: the revision that holds what no other does of them; empty for none. `unsaved`: its
    documents.
    """

    documents: tuple[DocumentName, ...]
    collections: tuple[str, ...]
    unsaved: tuple[DocumentName, ...]
    kept: str


def remove(ws: DocumentStore, name: str, selection: Selection) -> Landed[Removal]:
    """Remove the documents that are selected; the id of a chunk means its document.

    Raises `NothingSelected`, `CollectionMissing`, `FilterInvalid`, and as `writing.write`; then
    nothing is removed.
    """
    if not selection.ids and not selection.filtered:
        raise NothingSelected(
            "Nothing says which documents are meant.", hint="Name ids, or give a filter that is not empty."
        )

    def plan(at: At) -> Planned[Removal]:
        collection = collections.find(ws, at, name)
        found = select(ws, at, collection, selection)
        ids = list(dict.fromkeys(each.doc_id for each in found.named))
        rows = Write(remove_documents=[(collection.name, doc_id) for doc_id in ids])
        return Planned(rows if ids else None, Removal(collection.name, ids, found.missing))

    return writing.write(ws, plan, f"remove from {name}")


def remove_named(
    ws: DocumentStore, names: Sequence[str], *, within: str | None, confirmed: bool, dry_run: bool = False
) -> Landed[NamedRemoval]:
    """Remove the documents and collections that `document_names.select` finds for these names.

    The index is left to its next reader. What no revision holds of them stays reachable. `dry_run`
    removes nothing. Raises `ConfirmationMissing` unless `confirmed` where a name stands for more
    than the document of that name, and as `select` and `writing.write`; then nothing is removed.
    """

    def plan(at: At) -> Planned[NamedRemoval]:
        found = document_names.select(ws.engine, [at], names, within=within)
        wanted = set(found.documents)
        lost = unsaved.of(ws, at, lambda key: DocumentName(*key) in wanted, found.collections)
        never_committed = tuple(DocumentName(*each.key) for each in lost.documents)
        if dry_run:
            return Planned(None, NamedRemoval(found.documents, found.collections, never_committed, ""))
        if not found.exact and not confirmed:
            raise _confirmation_missing(found, len(never_committed), command_of("rm", names, within))
        kept = unsaved.keep(ws, at, lost, before="they were removed")
        rows = Write(
            remove_collections=found.collections,
            remove_documents=[each.key for each in found.documents if each.collection not in found.collections],
        )
        return Planned(
            None if rows.empty else rows, NamedRemoval(found.documents, found.collections, never_committed, kept)
        )

    with derived_files.explained(ws, names, within, lambda path: _of_file(ws, path)):
        return writing.write(ws, plan, "remove documents", follow=False)


def _of_file(ws: DocumentStore, path: str) -> str:
    """How a file goes."""
    return f"git rm {quoted(path)}   (the file is the document)" if (ws.places.top / path).is_file() else ""


def _confirmation_missing(
    found: document_names.NamedSelection, never_committed: int, command: str
) -> ConfirmationMissing:
    what = plural(len(found.documents), "document")
    if found.collections:
        noun = "collection" if len(found.collections) == 1 else "collections"
        what = f"the {noun} {enumerated(found.collections)} with {what}"
    never = f", {never_committed} of them never committed" if never_committed else ""
    return ConfirmationMissing(
        f"This would remove {what}{never}.",
        hint=f"{command} --yes (--dry-run lists them)",
        documents=len(found.documents),
        collections=list(found.collections),
        uncommitted_count=never_committed,
    )
