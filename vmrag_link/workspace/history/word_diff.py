"""Describe a diff for readers, word by word."""

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
"""Settings of a collection. Two branches that create the same collection may differ in its creation
time, which is not a setting.
"""


class Words(Record, frozen=True):
    """Numbers of words, which blanks separate."""

    inserted: int = 0
    deleted: int = 0
    hidden: int = 0
    """Number of invisible characters (`terminal_text`) in inserted text, and in new titles,
    metadata and names.
    """


class FieldDiff(Record, frozen=True):
    """A changed field. A value that is not a text (a number, the chunking) is JSON."""

    name: str
    before: str
    after: str


class DocumentDiff(Record, frozen=True):
    """A changed document."""

    kind: ChangeKind
    collection: str
    doc_id: str
    title: str
    words: Words | None = None
    """None if words were not counted."""
    fields: tuple[FieldDiff, ...] = ()
    """Changed fields of a modified document, if requested."""
    text: tuple[Piece, ...] = ()
    """Changed text of a modified document, if requested, without long equal parts."""
    old_name: str = ""
    """Former name of a renamed document; otherwise empty."""


class CollectionDiff(Record, frozen=True):
    """Changed settings of a collection. `fields`: for modified ones."""

    kind: ChangeKind
    name: str
    fields: tuple[FieldDiff, ...]


class DiffReport(Record, frozen=True, omit_defaults=True):
    """The whole diff. `files` and `missing` are as in `Diff`."""

    old: str
    """A revision or `WORKING`; empty for nothing. The same applies to `new`."""
    new: str
    changes: ChangeCounts
    """Sum over the documents, as is `words`."""
    words: Words | None
    documents: list[DocumentDiff]
    collections: list[CollectionDiff]
    old_commit: str = ""
    """Git commit of the files, as in `Diff.commits`. The same applies to `new_commit`."""
    new_commit: str = ""
    files: tuple[FileCounts, ...] = ()
    missing: tuple[str, ...] = ()


class WordDiff:
    """A diff whose documents are read on demand, a few at a time.

    `detail`: names only, or numbers of words, or changed texts.
    """

    def __init__(self, texts: DiffTexts, diff: Diff, detail: Detail) -> None:
        self.texts = texts
        self.diff = diff
        self.detail = detail

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Printed names by the full names of documents (`shown_names`)."""
        return printed_names(self.diff)

    @property
    def collections(self) -> list[CollectionDiff]:
        changes = (
            CollectionDiff(
                collection.kind, collection.key, _list_fields(collection.before, collection.after, COLLECTION_FIELDS)
            )
            for collection in self.diff.collections
        )
        return [change for change in changes if change.kind != "modified" or change.fields]

    def read_documents(self) -> Iterator[DocumentDiff]:
        """Yield the documents, sorted by name. Raises `KnowledgeMoved`."""
        changes = self.diff.documents
        shown = changes if self.detail == "text" else [change for change in changes if not _has_same_text(change)]
        sides = diffs.read_sides(self.texts, () if self.detail == "names" else shown)
        for change in changes:
            if self.detail == "names":
                yield _form_named(change)
            elif self.detail == "stat" and _has_same_text(change):
                yield msgspec.structs.replace(_form_named(change), words=Words())
            else:
                yield document_diff(*next(sides), with_text=self.detail == "text")

    def form_report(self) -> DiffReport:
        """Return the whole diff as one report."""
        documents = list(self.read_documents())
        words = None if self.detail == "names" else sum_words(documents)
        old, new = (WORKING if isinstance(at, WorkingSet) else at or "" for at in (self.diff.old, self.diff.new))
        diff = self.diff
        return DiffReport(
            old, new, diff.changes, words, documents, self.collections, *diff.commits, diff.files, diff.missing
        )


def printed_names(diff: Diff) -> dict[str, str]:
    """Return what to print for the full names of the documents in a diff."""
    headers = (header for change in diff.documents for header in (change.before, change.after) if header)
    names = name_among([header.key for header in headers], diff.sources)
    return {"/".join(key): name for key, name in names.items()}


def hidden_suffix(words: Words) -> str:
    """Return the text to print after numbers of words; empty if there are no invisible
    characters.
    """
    return f"; {plural(words.hidden, 'invisible character')}" if words.hidden else ""


def words_of(pieces: Sequence[Piece]) -> Words:
    hidden = sum(terminal_text.count_hidden(piece.text) for piece in pieces if piece.op == "insert")
    return Words(worddiff.count_words(pieces, "insert"), worddiff.count_words(pieces, "delete"), hidden)


def document_diff(
    change: HeaderChange, before: Document | None, after: Document | None, *, with_text: bool
) -> DocumentDiff:
    """Return one document with numbers of words. `with_text`: with the changed text."""
    same = _has_same_text(change)
    old, new = before.content if before else "", after.content if after else ""
    pieces = () if same else worddiff.diff_words(old, new)
    hidden_in_fields = sum(map(terminal_text.count_hidden, _list_new_values(before, after)))
    words = msgspec.structs.replace(counts := words_of(pieces), hidden=counts.hidden + hidden_in_fields)
    counted = msgspec.structs.replace(_form_named(change), words=words)
    if not with_text or change.kind != "modified":
        return counted
    fields = _list_fields(before, after, DOCUMENT_FIELDS)
    return msgspec.structs.replace(counted, fields=fields, text=worddiff.cut_equal_text(pieces))


class HasWords(Protocol):
    @property
    def words(self) -> Words | None: ...


def sum_words(documents: Iterable[HasWords]) -> Words:
    counted = [document.words for document in documents if document.words]
    return Words(*(sum(getattr(words, name) for words in counted) for name in Words.__struct_fields__))


def _form_named(change: HeaderChange) -> DocumentDiff:
    old = change.before.key if change.before and change.after else change.key
    old_name = "" if old == change.key else "/".join(old)
    return DocumentDiff(change.kind, *change.key, change.header.title, old_name=old_name)


def _has_same_text(change: HeaderChange) -> bool:
    return bool(change.before and change.after and change.before.content_hash == change.after.content_hash)


def _list_new_values(before: Document | None, after: Document | None) -> Iterator[str]:
    """Yield the new values that are shown, except the text."""
    if after:
        for name in ("collection", "doc_id", *DOCUMENT_FIELDS):
            if before is None or _form_text(before, name) != _form_text(after, name):
                yield _form_text(after, name)


def _list_fields(before: Record | None, after: Record | None, names: Sequence[str]) -> tuple[FieldDiff, ...]:
    if before is None or after is None:
        return ()
    if all(isinstance(row, Document) and row.source == row.doc_id for row in (before, after)):
        names = [name for name in names if name != "source"]  # it is the name
    fields = (FieldDiff(name, _form_text(before, name), _form_text(after, name)) for name in names)
    return tuple(field for field in fields if field.before != field.after)


def _form_text(row: Record, name: str) -> str:
    """Return a field as it is shown, without the checksums of a library's source."""
    if isinstance(row, Document) and name == "metadata":
        return encode_canonical_json(import_base.read_visible_metadata(row))
    value = getattr(row, name)
    return value if isinstance(value, str) else encode_canonical_json(value)
