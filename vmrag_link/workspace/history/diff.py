"""What differs between two places in the knowledge base: documents, collections, renames."""

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
"""How many characters the documents of a batch have, about. Their texts are in memory together."""

Sides = tuple[HeaderChange, Document | None, Document | None]
"""A change with the whole document before and after it."""

TextReader = Callable[[Sequence[DocumentHeader]], Mapping[tuple[str, str], Document]]
"""Reads documents of a place, by name."""


class DiffTexts(Record, frozen=True):
    """What reads the documents of a diff, at its one place and at the other."""

    before: TextReader
    after: TextReader


class FileCounts(Record, frozen=True):
    """How many files of a collection of code differ."""

    collection: str
    added: int = 0
    modified: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


class Diff(Record, frozen=True):
    """What turns the place `old` (None: nothing) into `new`.

    Documents are sorted by (collection, doc_id); `texts` reads them.

    `commits`: those of git whose files are compared, too (`WORKING`: the work tree); empty where
    none are. `files`: those that are only counted. `missing`: paths of files that are not compared,
    because this clone does not have them. `sources`: the collections whose documents are files.
    """

    old: At | None
    new: At
    documents: tuple[HeaderChange, ...]
    collections: tuple[CollectionChange, ...]
    commits: tuple[str, str] = ("", "")
    files: tuple[FileCounts, ...] = ()
    missing: tuple[str, ...] = ()
    sources: frozenset[str] = frozenset()

    @property
    def changes(self) -> ChangeCounts:
        return ChangeCounts.from_changes(self.documents)

    @property
    def empty(self) -> bool:
        return not self.documents and not self.collections and not self.files

    def narrow_to(self, selection: NamedSelection) -> Diff:
        """The part about some documents and collections."""
        keys = {document.key for document in selection.documents}
        documents = (document for document in self.documents if document.key in keys)
        rows = (collection for collection in self.collections if collection.key in selection.collections)
        return msgspec.structs.replace(self, documents=tuple(documents), collections=tuple(rows))


def diff_documents(engine: Engine, old: At | None, new: At) -> Diff:
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
    found = engine.diff_headers(old, new)
    return Diff(old, new, found.documents, found.collections)


def stored_texts(engine: Engine, old: At | None, new: At | None) -> DiffTexts:
    """Of documents of the knowledge base."""

    def reader(at: At | None) -> TextReader:
        return lambda headers: (
            read_documents_by_key(engine, at, [header.key for header in headers]) if at is not None else {}
        )

    return DiffTexts(reader(old), reader(new))


def read_sides(read: DiffTexts, changes: Iterable[HeaderChange]) -> Iterator[Sides]:
    """The documents of some of the changes, in the given order; a few are in memory at a time.

    Each batch costs statements of the engine, so batches grow while their texts are short. Raises
    `KnowledgeMoved` where a place does not hold what was found any more.
    """
    rest = iter(changes)
    size = _FIRST_BATCH
    while batch := list(islice(rest, size)):
        before = _documents(read.before, [change.before for change in batch if change.before])
        after = _documents(read.after, [change.after for change in batch if change.after])
        for change in batch:
            old = before[change.before.key] if change.before else None
            yield change, old, after[change.after.key] if change.after else None
        length = sum(len(document.content) for side in (before, after) for document in side.values())
        size = max(_FIRST_BATCH, min(_LARGEST_BATCH, len(batch) * _BATCH_CHARACTERS // (length + 1)))


def _documents(read: TextReader, headers: Sequence[DocumentHeader]) -> Mapping[tuple[str, str], Document]:
    found = read(headers) if headers else {}
    for collection, doc_id in (header.key for header in headers):
        if (collection, doc_id) not in found:
            raise KnowledgeMoved(
                f"{collection}/{doc_id} was removed while it was compared.", hint="Compare again.", doc_id=doc_id
            )
    return found


def renamed_collections(found: Diff) -> dict[str, str]:
    """Old names by new ones: made at the same moment, and with the same documents."""
    gone = {collection.before for collection in found.collections if collection.before and not collection.after}
    renamed: dict[str, str] = {}
    for new in (collection.after for collection in found.collections if collection.after and not collection.before):
        for old in sorted(gone, key=lambda each: each.name):
            same_age = old.created_at == new.created_at and old.created_at
            if same_age and _documents_of(found, old) == _documents_of(found, new):
                renamed[new.name] = old.name
                gone.remove(old)
                break
    return renamed


def _documents_of(found: Diff, collection: Collection) -> set[tuple[str, ...]]:
    headers = (document.header for document in found.documents if document.key[0] == collection.name)
    return {(header.doc_id, header.title, header.content_hash, header.metadata) for header in headers}
