"""One changed document as a report has it: what differs, word by word, within limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vmrag_link import worddiff
from vmrag_link.models import Document, HeaderChange
from vmrag_link.ops.history.word_diff import CollectionDiff, FieldDiff, Words, document_diff
from vmrag_link.ops.report.records import (
    DocumentKind,
    DocumentLine,
    FieldChange,
    Growth,
    ReportedCollection,
    ReportedDocument,
    TextChange,
)
from vmrag_link.worddiff import Piece

FIELD = 4_000
"""Characters of a value's difference that are kept."""

_LEAST, _MOST, _TOGETHER = 2_000, 100_000, 20_000_000


def room(documents: int) -> int:
    """Characters of each document's difference that are kept: fewer where there are many, so that
    no document displaces another one.
    """
    return max(_LEAST, min(_MOST, _TOGETHER // max(1, documents)))


def reported(
    number: int,
    change: HeaderChange,
    before: Document | None,
    after: Document | None,
    *,
    is_file: bool = False,
    most: int,
) -> ReportedDocument:
    """`is_file`: of the code's tree. `most`: characters of the difference that are kept."""
    found = document_diff(change, before, after, with_text=True)
    old_collection, old_id = before.key if before and found.old_name else ("", "")
    return ReportedDocument(
        number=number,
        kind=_kind(change),
        collection=found.collection,
        doc_id=found.doc_id,
        title=found.title,
        old_collection=old_collection,
        old_doc_id=old_id,
        file=found.doc_id if is_file else "",
        words=found.words or Words(),
        characters=Growth(_length(before), _length(after)),
        fields=tuple(map(_field, found.fields)),
        text=clipped(found.text if before and after else _whole(before, after), most),
    )


def line(document: ReportedDocument) -> DocumentLine:
    """The same without texts."""
    return DocumentLine(*(getattr(document, name) for name in DocumentLine.__struct_fields__))


def collections(found: Iterable[CollectionDiff]) -> Iterator[ReportedCollection]:
    return (ReportedCollection(each.kind, each.name, tuple(map(_field, each.fields))) for each in found)


def clipped(pieces: Sequence[Piece], most: int) -> TextChange:
    """At most so many characters of a difference, from its beginning."""
    shown: list[Piece] = []
    left = most
    for each in pieces:
        if len(each.text) > left:
            rest = sum(len(piece.text) for piece in pieces[len(shown) :]) - left
            return TextChange((*shown, Piece(each.op, each.text[:left])) if left else tuple(shown), rest)
        shown.append(each)
        left -= len(each.text)
    return TextChange(tuple(shown))


def _kind(change: HeaderChange) -> DocumentKind:
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    return "changed" if change.before.key == change.after.key else "moved"


def _field(field: FieldDiff) -> FieldChange:
    return FieldChange(field.name, clipped(worddiff.cut(worddiff.difference(field.before, field.after)), FIELD))


def _whole(before: Document | None, after: Document | None) -> tuple[Piece, ...]:
    """A new document is one insertion, a removed one one deletion."""
    return worddiff.difference(before.content if before else "", after.content if after else "")


def _length(document: Document | None) -> int:
    return len(document.content) if document else 0
