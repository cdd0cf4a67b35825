"""A diff as people read it: word by word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, Protocol

import msgspec

from vmrag_link import terminal_text, worddiff
from vmrag_link.documents import import_base
from vmrag_link.errors import plural
from vmrag_link.models import (
    ChangeCounts,
    ChangeKind,
    Collection,
    Document,
    HeaderChange,
    Record,
    WorkingSet,
    encode_canonical_json,
)
from vmrag_link.shown_names import name_among
from vmrag_link.worddiff import Piece
from vmrag_link.workspace.history import diff as diffs
from vmrag_link.workspace.history.diff import Diff, DiffTexts, FileCounts
from vmrag_link.workspace.history.revparse import WORKING

Detail = Literal["names", "stat", "text"]

DOCUMENT_FIELDS = ("title", "metadata", "source", "file_type")
COLLECTION_FIELDS = tuple(name for name in Collection.__struct_fields__ if name not in ("name", "created_at"))
"""Two branches that each began a collection differ in its time, which is no setting."""


class Words(Record, frozen=True):
    """Numbers of words, separated by blanks.

    `hidden`: characters that nobody sees (`terminal_text`) in what was inserted, and in what was
    put in the place of a title, metadata or a name.
    """

    inserted: int = 0
    deleted: int = 0
    hidden: int = 0


class FieldDiff(Record, frozen=True):
    """Texts; a value that is no text in the knowledge base (a number, the chunking) as JSON."""

    name: str
    before: str
    after: str


class DocumentDiff(Record, frozen=True):
    """`words` None: not counted. `fields` and `text` of modified documents, if asked for.

    Long equal stretches are cut out of `text`. `old_name`: of a document that was called otherwise.
    """

    kind: ChangeKind
    collection: str
    doc_id: str
    title: str
    words: Words | None = None
    fields: tuple[FieldDiff, ...] = ()
    text: tuple[Piece, ...] = ()
    old_name: str = ""


class CollectionDiff(Record, frozen=True):
    """A collection's settings; `fields` of modified ones."""

    kind: ChangeKind
    name: str
    fields: tuple[FieldDiff, ...]


class DiffReport(Record, frozen=True, omit_defaults=True):
    """`old`, `new`: revisions, or `WORKING`; empty for nothing. `changes`, `words`: sums over the
    documents. `old_commit`, `new_commit`, `files`, `missing`: as in `Diff`.
    """

    old: str
    new: str
    changes: ChangeCounts
    words: Words | None
    documents: list[DocumentDiff]
    collections: list[CollectionDiff]
    old_commit: str = ""
    new_commit: str = ""
    files: tuple[FileCounts, ...] = ()
    missing: tuple[str, ...] = ()


class WordDiff:
    """A diff whose documents are read while they are looked at, a few at a time.

    `detail`: the names alone; with numbers of words; with the changed texts.
    """

    def __init__(self, read: DiffTexts, found: Diff, detail: Detail) -> None:
        self.texts = read
        self.diff = found
        self.detail = detail

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Return printed names by the full names of documents (`shown_names`)."""
        return printed_names(self.diff)

    @property
    def collections(self) -> list[CollectionDiff]:
        found = (
            CollectionDiff(
                collection.kind, collection.key, _fields(collection.before, collection.after, COLLECTION_FIELDS)
            )
            for collection in self.diff.collections
        )
        return [each for each in found if each.kind != "modified" or each.fields]

    def read_documents(self) -> Iterator[DocumentDiff]:
        """Sorted by name. Raises `KnowledgeMoved`."""
        changes = self.diff.documents
        shown = changes if self.detail == "text" else [each for each in changes if not _same_text(each)]
        read = diffs.read_sides(self.texts, () if self.detail == "names" else shown)
        for change in changes:
            if self.detail == "names":
                yield _names_only(change)
            elif self.detail == "stat" and _same_text(change):
                yield msgspec.structs.replace(_names_only(change), words=Words())
            else:
                yield document_diff(*next(read), with_text=self.detail == "text")

    def form_report(self) -> DiffReport:
        """All of it."""
        documents = list(self.read_documents())
        words = None if self.detail == "names" else sum_words(documents)
        old, new = (WORKING if isinstance(at, WorkingSet) else at or "" for at in (self.diff.old, self.diff.new))
        found = self.diff
        return DiffReport(
            old, new, found.changes, words, documents, self.collections, *found.commits, found.files, found.missing
        )


def printed_names(diff: Diff) -> dict[str, str]:
    """Return what to print for the full names of the documents in a diff."""
    headers = (header for change in diff.documents for header in (change.before, change.after) if header)
    names = name_among([header.key for header in headers], diff.sources)
    return {"/".join(key): name for key, name in names.items()}


def hidden_suffix(words: Words) -> str:
    """What stands behind numbers of words; empty where everything can be seen."""
    return f"; {plural(words.hidden, 'invisible character')}" if words.hidden else ""


def words_of(pieces: Sequence[Piece]) -> Words:
    hidden = sum(terminal_text.count_hidden(piece.text) for piece in pieces if piece.op == "insert")
    return Words(worddiff.count_words(pieces, "insert"), worddiff.count_words(pieces, "delete"), hidden)


def document_diff(
    change: HeaderChange, before: Document | None, after: Document | None, *, with_text: bool
) -> DocumentDiff:
    """One document, with numbers of words; `with_text`: with what was modified."""
    same = _same_text(change)
    old, new = before.content if before else "", after.content if after else ""
    pieces = () if same else worddiff.diff_words(old, new)
    beside = sum(map(terminal_text.count_hidden, _new_values(before, after)))
    words = msgspec.structs.replace(found := words_of(pieces), hidden=found.hidden + beside)
    counted = msgspec.structs.replace(_names_only(change), words=words)
    if not with_text or change.kind != "modified":
        return counted
    fields = _fields(before, after, DOCUMENT_FIELDS)
    return msgspec.structs.replace(counted, fields=fields, text=worddiff.cut_equal_text(pieces))


class HasWords(Protocol):
    @property
    def words(self) -> Words | None: ...


def sum_words(documents: Iterable[HasWords]) -> Words:
    counted = [document.words for document in documents if document.words]
    return Words(*(sum(getattr(each, name) for each in counted) for name in Words.__struct_fields__))


def _names_only(change: HeaderChange) -> DocumentDiff:
    old = change.before.key if change.before and change.after else change.key
    old_name = "" if old == change.key else "/".join(old)
    return DocumentDiff(change.kind, *change.key, change.header.title, old_name=old_name)


def _same_text(change: HeaderChange) -> bool:
    return bool(change.before and change.after and change.before.content_hash == change.after.content_hash)


def _new_values(before: Document | None, after: Document | None) -> Iterator[str]:
    """What is shown of a document besides its text, where it was not so before."""
    if after:
        for name in ("collection", "doc_id", *DOCUMENT_FIELDS):
            if before is None or _text(before, name) != _text(after, name):
                yield _text(after, name)


def _fields(before: Record | None, after: Record | None, names: Sequence[str]) -> tuple[FieldDiff, ...]:
    if before is None or after is None:
        return ()
    if all(isinstance(each, Document) and each.source == each.doc_id for each in (before, after)):
        names = [each for each in names if each != "source"]  # the name says it
    found = (FieldDiff(name, _text(before, name), _text(after, name)) for name in names)
    return tuple(each for each in found if each.before != each.after)


def _text(row: Record, name: str) -> str:
    """A field as it is shown; of which bytes a library made a document tells a person nothing."""
    if isinstance(row, Document) and name == "metadata":
        return encode_canonical_json(import_base.read_visible_metadata(row))
    value = getattr(row, name)
    return value if isinstance(value, str) else encode_canonical_json(value)
