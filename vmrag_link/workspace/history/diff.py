"""Compare the stored documents and collections of two revisions or branches.

`Diff` has the headers of the documents that differ, without texts, so it fits in memory. Texts are
read in batches (`read_sides`) when they are printed. `compare` adds the files of sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from vmrag_link.engines.base import Engine
from vmrag_link.engines.records import read_documents_by_key
from vmrag_link.errors import KnowledgeMoved
from vmrag_link.models import (
    At,
    ChangeCounts,
    Collection,
    CollectionChange,
    Document,
    DocumentHeader,
    HeaderChange,
    Record,
)
from vmrag_link.workspace.history.document_names import NamedSelection

_MIN_BATCH_DOCUMENTS = 20
_MAX_BATCH_DOCUMENTS = 200
_BATCH_CHARACTERS = 4_000_000
"""Approximate number of characters in a batch. Its texts are in memory at the same time."""

Sides = tuple[HeaderChange, Document | None, Document | None]
"""A change with the whole document before and after it."""

TextReader = Callable[[Sequence[DocumentHeader]], Mapping[tuple[str, str], Document]]
"""Return the documents with these headers, by key."""


class DiffTexts(Record, frozen=True):
    """Functions that read the documents on both sides of a diff."""

    before: TextReader
    after: TextReader


class FileCounts(Record, frozen=True):
    """Numbers of changed files in a collection of code."""

    collection: str
    added: int = 0
    modified: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


class Diff(Record, frozen=True):
    """The differences between the documents at `old` and at `new`."""

    old: At | None
    """None if there are no documents yet."""
    new: At
    documents: tuple[HeaderChange, ...]
    """Sorted by (collection, doc_id)."""
    collections: tuple[CollectionChange, ...]
    commits: tuple[str, str] = ("", "")
    """The git commits whose files are also compared (`WORKING`: the work tree); empty if no files
    are.
    """
    files: tuple[FileCounts, ...] = ()
    """Numbers of files that are only counted."""
    missing: tuple[str, ...] = ()
    """Paths of files that are not compared because this clone does not have them."""
    sources: frozenset[str] = frozenset()
    """Collections whose documents are files."""

    @property
    def changes(self) -> ChangeCounts:
        return ChangeCounts.from_changes(self.documents)

    @property
    def empty(self) -> bool:
        return not self.documents and not self.collections and not self.files

    def narrow_to(self, selection: NamedSelection) -> Diff:
        """Return the changes of the selected documents and collections."""
        keys = {document.key for document in selection.documents}
        documents = (document for document in self.documents if document.key in keys)
        rows = (collection for collection in self.collections if collection.key in selection.collections)
        return msgspec.structs.replace(self, documents=tuple(documents), collections=tuple(rows))


def diff_documents(engine: Engine, old: At | None, new: At) -> Diff:
    """Return the differences. `old`: None if there are no documents yet."""
    if old is None:
        documents = tuple(HeaderChange("added", None, header) for header in engine.read_headers(new))
        collections = tuple(CollectionChange("added", None, row) for row in engine.list_collections(new))
        return Diff(None, new, documents, collections)
    if old == new:
        return Diff(old, new, (), ())
    difference = engine.diff_headers(old, new)
    return Diff(old, new, difference.documents, difference.collections)


def stored_texts(engine: Engine, old: At | None, new: At | None) -> DiffTexts:
    """Return functions that read stored documents on both sides."""

    def build_reader(at: At | None) -> TextReader:
        if at is None:
            return lambda _: {}
        return lambda headers: read_documents_by_key(engine, at, [header.key for header in headers])

    return DiffTexts(build_reader(old), build_reader(new))


def read_sides(texts: DiffTexts, changes: Iterable[HeaderChange]) -> Iterator[Sides]:
    """Yield the changes with their documents, in the given order.

    Only a batch is in memory at a time. Batches grow while their texts are short, because each
    costs statements of the engine. Raises `KnowledgeMoved` if a document no longer exists.
    """
    remaining = iter(changes)
    size = _MIN_BATCH_DOCUMENTS
    while batch := list(islice(remaining, size)):
        before = _read_documents(texts.before, [change.before for change in batch if change.before])
        after = _read_documents(texts.after, [change.after for change in batch if change.after])
        for change in batch:
            old_document = before[change.before.key] if change.before else None
            new_document = after[change.after.key] if change.after else None
            yield change, old_document, new_document
        length = sum(len(document.content) for side in (before, after) for document in side.values())
        size = max(_MIN_BATCH_DOCUMENTS, min(_MAX_BATCH_DOCUMENTS, len(batch) * _BATCH_CHARACTERS // (length + 1)))


def _read_documents(reader: TextReader, headers: Sequence[DocumentHeader]) -> Mapping[tuple[str, str], Document]:
    """Return all these documents by key. Raises `KnowledgeMoved`."""
    documents = reader(headers) if headers else {}
    for collection, doc_id in (header.key for header in headers):
        if (collection, doc_id) not in documents:
            raise KnowledgeMoved(
                f"another process removed {collection}/{doc_id}.", hint="run the command again", doc_id=doc_id
            )
    return documents


def renamed_collections(diff: Diff) -> dict[str, str]:
    """Return the old names of renamed collections by new name.

    A collection was renamed if a new one has its creation time and its documents.
    """
    removed = {change.before for change in diff.collections if change.before and not change.after}
    added = [change.after for change in diff.collections if change.after and not change.before]
    renamed: dict[str, str] = {}
    for new in added:
        for old in sorted(removed, key=lambda collection: collection.name):
            same_age = old.created_at == new.created_at and old.created_at
            if same_age and _list_contents(diff, old) == _list_contents(diff, new):
                renamed[new.name] = old.name
                removed.remove(old)
                break
    return renamed


def _list_contents(diff: Diff, collection: Collection) -> set[tuple[str, ...]]:
    """Return the documents of a removed or new collection, without its name."""
    headers = (document.header for document in diff.documents if document.key[0] == collection.name)
    return {(header.doc_id, header.title, header.content_hash, header.metadata) for header in headers}
