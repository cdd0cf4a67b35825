"""What differs between two places in the knowledge base: documents, collections, renames."""

from __future__ import annotations

from vmrag_link.engines.base import Engine
from vmrag_link.errors import KnowledgeMoved
from vmrag_link.models import (
    At,
    ChangeCounts,
    Collection,
    CollectionChange,
    Difference,
    Document,
    DocumentChange,
    Record,
)


class Diff(Record, frozen=True):
    """What turns the place `old` (None: nothing) into `new`.

    Documents are sorted by (collection, doc_id).
    """

    old: At | None
    new: At
    documents: tuple[DocumentChange, ...]
    collections: tuple[CollectionChange, ...]

    @property
    def changes(self) -> ChangeCounts:
        return Difference((), self.documents).counts()

    @property
    def empty(self) -> bool:
        return not self.documents and not self.collections

    def only(self, collection: str, doc_id: str) -> Diff:
        """The part about a collection, or about a document; an empty name stands for all."""
        documents = (each for each in self.documents if collection in ("", each.key[0]) and doc_id in ("", each.key[1]))
        rows = (each for each in self.collections if collection in ("", each.key) and not doc_id)
        return Diff(self.old, self.new, tuple(documents), tuple(rows))


def diff(engine: Engine, old: At | None, new: At) -> Diff:
    if old is None:
        added = tuple(DocumentChange("added", None, each) for each in engine.documents(new))
        return Diff(None, new, added, tuple(CollectionChange("added", None, each) for each in engine.collections(new)))
    if old == new:
        return Diff(old, new, (), ())
    found = engine.diff(old, new)
    return Diff(old, new, found.documents, found.collections)


def old_document(engine: Engine, found: Diff, change: DocumentChange) -> Document | None:
    """The whole document before a change, which itself has the header alone.

    Raises `KnowledgeMoved`.
    """
    if change.before is None or found.old is None:
        return None
    document = engine.document(found.old, *change.key)
    if document is None:
        raise KnowledgeMoved(
            f"{'/'.join(change.key)} was removed while it was compared.",
            hint="Compare again.",
            doc_id=change.key[1],
        )
    return document


def renamed_collections(found: Diff) -> dict[str, str]:
    """Old names by new ones: made at the same moment, and with the same documents."""
    gone = {each.before for each in found.collections if each.before and not each.after}
    renamed: dict[str, str] = {}
    for new in (each.after for each in found.collections if each.after and not each.before):
        for old in sorted(gone, key=lambda each: each.name):
            same_age = old.created_at == new.created_at and old.created_at
            if same_age and _documents_of(found, old) == _documents_of(found, new):
                renamed[new.name] = old.name
                gone.remove(old)
                break
    return renamed


def _documents_of(found: Diff, collection: Collection) -> set[tuple[str, ...]]:
    headers = (
        each.after.header if each.after else each.before for each in found.documents if each.key[0] == collection.name
    )
    return {(each.doc_id, each.title, each.content_hash, each.metadata) for each in headers if each}
