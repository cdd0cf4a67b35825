"""Read once what a report of two places says.

A report names the revisions at its ends, what one end contains and the other does not, and for
each changed document what differs, word by word, within limits.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

from msgspec.structs import replace

from vmrag_link import worddiff
from vmrag_link.errors import GitError, IndexFailed, LimitExceeded
from vmrag_link.index import view as views
from vmrag_link.models import Document, HeaderChange, RevisionInfo
from vmrag_link.ops.report.ends import ComparedPlace, ComparedPlaces, NamedEnd, compare_answers, find_places
from vmrag_link.ops.report.records import (
    DocumentCounts,
    DocumentKind,
    DocumentLine,
    FieldChange,
    Growth,
    KnowledgeReport,
    KnowledgeSize,
    ReportedCollection,
    ReportedDocument,
    ReportEnd,
    ReportSummary,
    RevisionList,
    Spool,
    TextChange,
)
from vmrag_link.ops.verify.verify import verify_between
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.sources.outdated import CitingNote, find_citing_notes
from vmrag_link.worddiff import Piece
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.history import diff as diffs
from vmrag_link.workspace.history import log, word_diff
from vmrag_link.workspace.history.compare import diff_places as between_places
from vmrag_link.workspace.history.diff import Diff, DiffTexts
from vmrag_link.workspace.history.known import NamedPlace
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_link.workspace.history.trail import with_moves
from vmrag_link.workspace.history.word_diff import CollectionDiff, FieldDiff, Words, document_diff, printed_names
from vmrag_link.workspace.source_tree import Key

COMPARING = "comparing documents"
MOST = 50
"""Revisions of a list that are shown, with their messages."""

FIELD = 4_000
"""Characters of a value's difference that are kept."""

_LEAST, _MOST, _TOGETHER = 2_000, 100_000, 20_000_000


def gather_report(
    ws: Workspace,
    base: NamedEnd,
    head: NamedEnd,
    *,
    findings: Sequence[PinFinding] | None = None,
    past: int | None = None,
) -> KnowledgeReport:
    """Return what the head changes since it left the base: documents, collections, revisions,
    answers.

    `findings`: the findings of `vmrag verify`, if they exist already; otherwise this function finds
    them, without a remote. `past`: the number of commits before the head whose answers to the
    golden queries are measured. The function builds an index that an answer needs.

    Raises `KnowledgeMoved`, and the errors of `places_of` and of the engine.
    """
    if not ws.is_initialized:
        lazy_fetch.fetch_pinned(ws, insist=True)
    if ws.is_initialized:
        recover(ws)
    places = find_places(ws, base, head)
    spool = Spool()
    try:
        summary = _summary(ws, places, spool, findings)
        if past and places.head.commit:
            from vmrag_link.ops.check.check_history import measure_history

            summary = replace(summary, history=measure_history(ws, places.head.commit, limit=past))
        return KnowledgeReport(summary, spool)
    except BaseException:
        spool.close()
        raise


def _summary(
    ws: Workspace, places: ComparedPlaces, spool: Spool, findings: Sequence[PinFinding] | None
) -> ReportSummary:
    start, head = _known_place(ws, places.start), _known_place(ws, places.head)
    compared = between_places(ws, start, head, detail="names")
    read = compared.texts
    found = with_moves(read, compared.diff)
    lines = _documents(ws, read, found, spool, {*_files(start), *_files(head)})
    citing, uncited = _find_citing_notes(ws, places, head)
    queries = compare_answers(ws, places)  # before the sizes: what it asks may get its index here
    rows = _collection_rows(compared.collections)
    verified = findings if findings is not None else _verify_commits(ws, places)
    return ReportSummary(
        **_revisions_of(ws, places),
        counts=_counts(lines),
        words=word_diff.sum_words(lines),
        size=_size(ws, (start, head), lines),
        collections=tuple(rows),
        documents=lines,
        files=found.files,
        unread=found.missing,
        queries=queries,
        verified=verified is not None,
        findings=tuple(verified or ()),
        citing=citing,
        uncited=uncited,
    )


def _find_citing_notes(ws: Workspace, places: ComparedPlaces, head: NamedPlace) -> tuple[tuple[CitingNote, ...], str]:
    """Return the notes of the head that cite what changes, or why they could not be found."""
    start, end, tree = places.start.commit, places.head.commit, head.tree
    if not (start and end and tree):
        return (), ""
    keys = [key for key in tree.files if (source := tree.find_source(key[0])) and source.write]
    if not keys:
        return (), ""
    try:
        notes = {document.source: document.content for document in tree.read_documents(keys).values()}
        return find_citing_notes(ws.places, notes, start, end), ""
    except (GitError, LimitExceeded, OSError) as error:
        return (), str(error)


def _known_place(ws: Workspace, place: ComparedPlace) -> NamedPlace:
    stored = [collection.name for collection in ws.engine.list_collections(place.revision)] if place.revision else ()
    tree = source_tree.read_commit(ws, place.commit, stored=stored) if place.commit and place.names_sources else None
    return NamedPlace(place.revision, tree, place.commit or "")


def _files(place: NamedPlace) -> Iterable[Key]:
    return place.tree.files if place.tree else ()


def _documents(
    ws: Workspace, read: DiffTexts, found: Diff, spool: Spool, files: Container[Key]
) -> tuple[DocumentLine, ...]:
    """Spool the changed documents one by one; the rows that are returned hold no texts.

    `files`: the keys of documents that are files of the code.
    """
    most = _room(len(found.documents))
    lines = []
    names = printed_names(found)
    with ws.progress.task(COMPARING, len(found.documents)) as task:
        for number, sides in enumerate(diffs.read_sides(read, found.documents), start=1):
            document = _report_document(number, *sides, names=names, is_file=sides[0].key in files, most=most)
            spool.add(document)
            lines.append(build_document_line(document))
            task.advance()
    return tuple(lines)


def _counts(lines: Sequence[DocumentLine]) -> DocumentCounts:
    kinds = Counter(line.kind for line in lines)
    return DocumentCounts(kinds["added"], kinds["changed"], kinds["moved"], kinds["removed"])


def _verify_commits(ws: Workspace, places: ComparedPlaces) -> Sequence[PinFinding] | None:
    """None where no commits are compared."""
    base, head = places.base, places.head
    if not (base.commit and head.commit):
        return None
    return verify_between(ws, base.commit, head.commit, base_name=base.name, ask=False).findings


def _size(ws: Workspace, places: Sequence[NamedPlace], lines: Sequence[DocumentLine]) -> KnowledgeSize:
    counts = [_count(ws, place) for place in places]
    chunks = [_chunks(ws, place) for place in places]
    return KnowledgeSize(
        documents=Growth(*counts),
        characters=Growth(sum(line.characters.before for line in lines), sum(line.characters.after for line in lines)),
        chunks=Growth(chunks[0], chunks[1]) if chunks[0] is not None and chunks[1] is not None else None,
    )


def _count(ws: Workspace, place: NamedPlace) -> int:
    """Files are counted that are documents by what is known without reading them; no code."""
    stored = 0 if place.at is None else ws.engine.count_documents(place.at)
    return stored + sum(not place.tree.is_code(key) for key in place.tree.files) if place.tree else stored


def _chunks(ws: Workspace, place: NamedPlace) -> int | None:
    """None without an index that can be read, and where files are part of the knowledge."""
    if place.tree or not isinstance(place.at, str):
        return None if place.tree else 0
    revision = place.at
    path = ws.views.view_path(revision)
    with ws.views.lock_for_reading(path):
        if not ws.views.find_problem(revision):
            with contextlib.suppress(IndexFailed):  # damaged since it was proven
                return views.read_view(path).count_totals()[1]
    return None


def _revisions_of(ws: Workspace, places: ComparedPlaces) -> dict[str, Any]:
    """The fields of `ReportSummary` from `base` to `missing`. Which code has which revision is
    asked once for all of them: it takes a look at all of git's history.
    """
    base, start, head = (_behind(ws, place) for place in places)
    gained, lost = _only_in(ws, places.head, start), _only_in(ws, places.start, head)
    at_ends = [log.read_info(ws.engine, place.revision) for place in places if place.revision]
    shown = {each.revision: each for each in chain(at_ends, gained[:MOST], lost[:MOST])}
    code = [place.commit for place in places if place.commit]
    known = {each.revision: each for each in log.add_pins(ws, shown.values(), also=code)} if shown else {}
    one, parted, other = (
        ReportEnd(place.name, place.commit, known[place.revision] if place.revision else None, place.names_sources)
        for place in places
    )
    return {
        "base": one,
        "start": parted,
        "head": other,
        "gained": _revision_list(gained, known),
        "lost": _revision_list(lost, known),
        "missing": len(base - start - head - log.list_hidden(ws.engine)) if base else 0,
    }


def _behind(ws: Workspace, place: ComparedPlace) -> AbstractSet[str]:
    return ws.engine.map_parents([place.revision]).keys() if place.revision else frozenset()


def _only_in(ws: Workspace, place: ComparedPlace, others: AbstractSet[str]) -> list[RevisionInfo]:
    """Newest first."""
    if not place.revision or place.revision in others:
        return []
    return list(log.list_revisions(ws.engine, [place.revision], log.list_hidden(ws.engine) | others))


def _revision_list(found: list[RevisionInfo], known: dict[str, PinnedRevision]) -> RevisionList:
    return RevisionList(tuple(known[each.revision] for each in found[:MOST]), len(found))


def _room(documents: int) -> int:
    """Characters of each document's difference that are kept: fewer where there are many, so that
    no document displaces another one.
    """
    return max(_LEAST, min(_MOST, _TOGETHER // max(1, documents)))


def _report_document(
    number: int,
    change: HeaderChange,
    before: Document | None,
    after: Document | None,
    *,
    names: Mapping[str, str],
    is_file: bool = False,
    most: int,
) -> ReportedDocument:
    """`names`: what to print. `is_file`: of the code's tree. `most`: characters of the difference
    that are kept.
    """
    found = document_diff(change, before, after, with_text=True)
    old_collection, old_id = before.key if before and found.old_name else ("", "")
    document = after or before
    return ReportedDocument(
        number=number,
        kind=_kind_of(change),
        collection=found.collection,
        doc_id=found.doc_id,
        title=found.title,
        old_collection=old_collection,
        old_doc_id=old_id,
        file=document.source if is_file and document else "",
        path_name=names[f"{found.collection}/{found.doc_id}"],
        old_path_name=names[found.old_name] if found.old_name else "",
        words=found.words or Words(),
        characters=Growth(_count_characters(before), _count_characters(after)),
        fields=tuple(map(_field_change, found.fields)),
        text=_clip(found.text if before and after else _whole_text(before, after), most),
    )


def build_document_line(document: ReportedDocument) -> DocumentLine:
    """The same without texts."""
    return DocumentLine(*(getattr(document, name) for name in DocumentLine.__struct_fields__))


def _collection_rows(found: Iterable[CollectionDiff]) -> Iterator[ReportedCollection]:
    return (ReportedCollection(each.kind, each.name, tuple(map(_field_change, each.fields))) for each in found)


def _clip(pieces: Sequence[Piece], most: int) -> TextChange:
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


def _kind_of(change: HeaderChange) -> DocumentKind:
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    return "changed" if change.before.key == change.after.key else "moved"


def _field_change(field: FieldDiff) -> FieldChange:
    return FieldChange(
        field.name, _clip(worddiff.cut_equal_text(worddiff.diff_words(field.before, field.after)), FIELD)
    )


def _whole_text(before: Document | None, after: Document | None) -> tuple[Piece, ...]:
    """A new document is one insertion, a removed one one deletion."""
    return worddiff.diff_words(before.content if before else "", after.content if after else "")


def _count_characters(document: Document | None) -> int:
    return len(document.content) if document else 0
