"""Compare the stored documents and collections of two places, and find renamed collections."""

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

_FIRST_BATCH = 20
_LARGEST_BATCH = 200
_BATCH_CHARACTERS = 4_000_000
"""Approximate number of characters in a batch. Its texts are in memory at the same time."""

Sides = tuple[HeaderChange, Document | None, Document | None]
"""A change with the whole document before and after it."""

TextReader = Callable[[Sequence[DocumentHeader]], Mapping[tuple[str, str], Document]]
"""Reads documents of a place, by name."""


class DiffTexts(Record, frozen=True):
    """Readers of the documents at both places of a diff."""

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
    """The differences between the places `old` and `new`.

    Documents are sorted by (collection, doc_id).
    """

    old: At | None
    """None for nothing."""
    new: At
    documents: tuple[HeaderChange, ...]
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
        """Return the part about some documents and collections."""
        keys = {document.key for document in selection.documents}
        documents = (document for document in self.documents if document.key in keys)
        rows = (collection for collection in self.collections if collection.key in selection.collections)
        return msgspec.structs.replace(self, documents=tuple(documents), collections=tuple(rows))


def diff_documents(engine: Engine, old: At | None, new: At) -> Diff:
    """Compare two places. `old`: None for nothing."""
    if old is None:
        added = tuple(HeaderChange("added", None, header) for header in engine.read_headers(new))
        return Diff(
            None,
            new,
            added,
            tuple(CollectionChange("added", None, collection) for collection in engine.list_collections(new)),
        )
    if old == new:
        return Diff(old, new, (), ())
    difference = engine.diff_headers(old, new)
    return Diff(old, new, difference.documents, difference.collections)


def stored_texts(engine: Engine, old: At | None, new: At | None) -> DiffTexts:
    """Return the reader of stored documents at two places."""

    def open_reader(at: At | None) -> TextReader:
        return lambda headers: (
            read_documents_by_key(engine, at, [header.key for header in headers]) if at is not None else {}
        )

    return DiffTexts(open_reader(old), open_reader(new))


def read_sides(texts: DiffTexts, changes: Iterable[HeaderChange]) -> Iterator[Sides]:
    """Yield the documents of these changes, in the given order. A few are in memory at a time.

    Each batch costs statements of the engine, so batches grow while their texts are short. Raises
    `KnowledgeMoved` if a place no longer has a document.
    """
    rest = iter(changes)
    size = _FIRST_BATCH
    while batch := list(islice(rest, size)):
        before = _read_documents(texts.before, [change.before for change in batch if change.before])
        after = _read_documents(texts.after, [change.after for change in batch if change.after])
        for change in batch:
            old = before[change.before.key] if change.before else None
            yield change, old, after[change.after.key] if change.after else None
        length = sum(len(document.content) for side in (before, after) for document in side.values())
        size = max(_FIRST_BATCH, min(_LARGEST_BATCH, len(batch) * _BATCH_CHARACTERS // (length + 1)))


def _read_documents(reader: TextReader, headers: Sequence[DocumentHeader]) -> Mapping[tuple[str, str], Document]:
    documents = reader(headers) if headers else {}
    for collection, doc_id in (header.key for header in headers):
        if (collection, doc_id) not in documents:
            raise KnowledgeMoved(
                f"another process removed {collection}/{doc_id}.", hint="run the command again", doc_id=doc_id
            )
    return documents


def renamed_collections(diff: Diff) -> dict[str, str]:
    """Return old names by new names of collections with the same creation time and documents."""
    removed = {collection.before for collection in diff.collections if collection.before and not collection.after}
    renamed: dict[str, str] = {}
    for new in (collection.after for collection in diff.collections if collection.after and not collection.before):
        for old in sorted(removed, key=lambda collection: collection.name):
            same_age = old.created_at == new.created_at and old.created_at
            if same_age and _list_contents(diff, old) == _list_contents(diff, new):
                renamed[new.name] = old.name
                removed.remove(old)
                break
    return renamed


def _list_contents(diff: Diff, collection: Collection) -> set[tuple[str, ...]]:
    headers = (document.header for document in diff.documents if document.key[0] == collection.name)
    return {(header.doc_id, header.title, header.content_hash, header.metadata) for header in headers}
