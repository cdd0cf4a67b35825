"""Remove documents: by id on the command line, by ids and filters for tools."""

from __future__ import annotations

from vmrag_link.engines.base import Write
from vmrag_link.errors import NothingSelected
from vmrag_link.models import At, Record
from vmrag_link.ops.documents import collections, writing
from vmrag_link.ops.documents.document_selection import Selection, select
from vmrag_link.ops.documents.listing import no_document
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.workspace import Workspace


class Removal(Record, frozen=True):
    """`ids` of documents; `missing` were asked for, and name neither a document nor a chunk."""

    collection: str
    ids: list[str]
    missing: list[str]


def remove(ws: Workspace, name: str, selection: Selection, *, exact: bool = False) -> Landed[Removal]:
    """Remove the documents that are selected; the id of a chunk means its document.

    `exact`: names are taken literally, each id must be a document's, and the index is left to its
    next reader. Raises `NothingSelected`, `CollectionMissing`, `FilterInvalid`, with `exact`
    `DocumentMissing`, and as `writing.write`; then nothing is removed.
    """
    if not selection.ids and not selection.filtered:
        raise NothingSelected(
            "Nothing says which documents are meant.", hint="Name ids, or give a filter that is not empty."
        )

    def plan(at: At) -> Planned[Removal]:
        found = _exact_removal(ws, at, name, selection) if exact else _filtered_removal(ws, at, name, selection)
        rows = Write(remove_documents=[(found.collection, doc_id) for doc_id in found.ids])
        return Planned(rows if found.ids else None, found)

    return writing.write(ws, plan, f"remove from {name}", follow=not exact)


def _exact_removal(ws: Workspace, at: At, name: str, selection: Selection) -> Removal:
    ids = list(dict.fromkeys(selection.ids or ()))
    for doc_id in ids:
        if ws.engine.document(at, name, doc_id) is None:
            raise no_document(ws, at, name, doc_id)
    return Removal(name, ids, [])


def _filtered_removal(ws: Workspace, at: At, name: str, selection: Selection) -> Removal:
    collection = collections.find(ws, at, name)
    found = select(ws, at, collection, selection)
    return Removal(collection.name, list(dict.fromkeys(each.doc_id for each in found.named)), found.missing)
