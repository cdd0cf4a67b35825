"""Describe a diff for users: changed fields, numbers of changed words, and the changed text.

`WordDiff` reads the documents of a `Diff` while it is printed, so a large diff needs little memory.
`DiffReport` is the same diff as one record, for `--json` and the tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Literal, Protocol

import msgspec

from vmrag_link import terminal_text, worddiff
from vmrag_link.documents import library_origin
from vmrag_link.errors import plural
from vmrag_link.models import (
    At,
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
    """Numbers of changed words. Blanks separate words."""

    inserted: int = 0
    deleted: int = 0
    hidden: int = 0
    """Number of invisible characters (`terminal_text`) in inserted text, and in new titles,
    metadata and names.
    """


class FieldDiff(Record, frozen=True):
    """A changed field. Values that are not texts, such as numbers, are JSON."""

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
    """Changed settings of a collection."""

    kind: ChangeKind
    name: str
    fields: tuple[FieldDiff, ...]
    """Changed settings of a modified collection."""


class DiffReport(Record, frozen=True, omit_defaults=True):
    """The whole diff. `files` and `missing` have the meaning that they have in `Diff`."""

    old: str
    """A revision or `WORKING`; empty if there are no documents yet. The same applies to `new`."""
    new: str
    changes: ChangeCounts
    """Numbers of changed documents."""
    words: Words | None
    """Sum over the documents. None if words were not counted."""
    documents: list[DocumentDiff]
    collections: list[CollectionDiff]
    old_commit: str = ""
    """Git commit of the files, as in `Diff.commits`. The same applies to `new_commit`."""
    new_commit: str = ""
    files: tuple[FileCounts, ...] = ()
    missing: tuple[str, ...] = ()


class WordDiff:
    """A diff whose documents are read on demand, a few at a time.

    `detail`: `names` only, numbers of words (`stat`), or changed `text`.
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
        """Changed collections, except those that differ only in their creation time."""
        diffs_by_collection = (
            CollectionDiff(change.kind, change.key, _list_fields(change.before, change.after, COLLECTION_FIELDS))
            for change in self.diff.collections
        )
        return [row for row in diffs_by_collection if row.kind != "modified" or row.fields]

    def read_documents(self) -> Iterator[DocumentDiff]:
        """Yield the documents, sorted by name. Raises `KnowledgeMoved`."""
        changes = self.diff.documents
        if self.detail == "names":
            yield from map(_form_named, changes)
            return
        is_read = [self.detail == "text" or not _has_same_text(change) for change in changes]
        sides = diffs.read_sides(self.texts, compress(changes, is_read))
        for change, needs_text in zip(changes, is_read, strict=True):
            if needs_text:
                yield document_diff(*next(sides), with_text=self.detail == "text")
            else:
                yield msgspec.structs.replace(_form_named(change), words=Words())

    def form_report(self) -> DiffReport:
        """Return the whole diff as one report."""
        documents = list(self.read_documents())
        diff = self.diff
        old_commit, new_commit = diff.commits
        return DiffReport(
            old=_name_side(diff.old),
            new=_name_side(diff.new),
            changes=diff.changes,
            words=None if self.detail == "names" else sum_words(documents),
            documents=documents,
            collections=self.collections,
            old_commit=old_commit,
            new_commit=new_commit,
            files=diff.files,
            missing=diff.missing,
        )


def _name_side(at: At | None) -> str:
    """Return the revision, or `WORKING` for uncommitted documents. Empty without documents."""
    return WORKING if isinstance(at, WorkingSet) else at or ""


def printed_names(diff: Diff) -> dict[str, str]:
    """Return the printed names by the full names of the documents in a diff."""
    keys = [header.key for change in diff.documents for header in (change.before, change.after) if header]
    names = name_among(keys, diff.sources)
    return {"/".join(key): name for key, name in names.items()}


def hidden_suffix(words: Words) -> str:
    """Return the number of invisible characters, to print after numbers of words, or ""."""
    return f"; {plural(words.hidden, 'invisible character')}" if words.hidden else ""


def words_of(pieces: Sequence[Piece]) -> Words:
    """Return the numbers of words in a changed text."""
    hidden = sum(terminal_text.count_hidden(piece.text) for piece in pieces if piece.op == "insert")
    return Words(worddiff.count_words(pieces, "insert"), worddiff.count_words(pieces, "delete"), hidden)


def document_diff(
    change: HeaderChange, before: Document | None, after: Document | None, *, with_text: bool
) -> DocumentDiff:
    """Return one document with numbers of words. `with_text`: with the changed text."""
    pieces: Sequence[Piece] = ()
    if not _has_same_text(change):
        pieces = worddiff.diff_words(before.content if before else "", after.content if after else "")
    words = words_of(pieces)
    hidden_in_fields = sum(map(terminal_text.count_hidden, _list_new_values(before, after)))
    words = msgspec.structs.replace(words, hidden=words.hidden + hidden_in_fields)
    diff = msgspec.structs.replace(_form_named(change), words=words)
    if not with_text or change.kind != "modified":
        return diff
    fields = _list_fields(before, after, DOCUMENT_FIELDS)
    return msgspec.structs.replace(diff, fields=fields, text=worddiff.cut_equal_text(pieces))


class HasWords(Protocol):
    """A record with numbers of words."""

    @property
    def words(self) -> Words | None: ...


def sum_words(documents: Iterable[HasWords]) -> Words:
    """Return the sums of the numbers of words."""
    words = [document.words for document in documents if document.words]
    return Words(
        inserted=sum(numbers.inserted for numbers in words),
        deleted=sum(numbers.deleted for numbers in words),
        hidden=sum(numbers.hidden for numbers in words),
    )


def _form_named(change: HeaderChange) -> DocumentDiff:
    """Return the name of a changed document, without words and text."""
    is_renamed = change.before and change.after and change.before.key != change.key
    old_name = "/".join(change.before.key) if change.before and is_renamed else ""
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
    """Return the fields that differ. Empty for a new or removed row."""
    if before is None or after is None:
        return ()
    if all(isinstance(row, Document) and row.source == row.doc_id for row in (before, after)):
        names = [name for name in names if name != "source"]  # it is the name
    fields = (FieldDiff(name, _form_text(before, name), _form_text(after, name)) for name in names)
    return tuple(field for field in fields if field.before != field.after)


def _form_text(row: Record, name: str) -> str:
    """Return a field as it is shown, without the checksums of a library's source."""
    if isinstance(row, Document) and name == "metadata":
        return encode_canonical_json(library_origin.read_visible_metadata(row))
    value = getattr(row, name)
    return value if isinstance(value, str) else encode_canonical_json(value)
