"""Collect the contents of a report of two places.

A report contains the revisions at its ends, the revisions that only one end contains, and the
differences of each changed document, word by word and within limits.
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
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_link.workspace.history.named_places import NamedPlace
from vmrag_link.workspace.history.trail import with_moves
from vmrag_link.workspace.history.word_diff import CollectionDiff, FieldDiff, Words, document_diff, printed_names
from vmrag_link.workspace.source_tree import Key

_COMPARING = "comparing documents"
_MAX_REVISIONS = 50
"""Maximum number of revisions that are listed with their messages."""

_MAX_FIELD = 4_000
"""Maximum number of characters of a field's difference."""

_MIN_DOCUMENT, _MAX_DOCUMENT, _MAX_TOTAL = 2_000, 100_000, 20_000_000


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

    `findings` are existing findings of `vmrag verify`. Otherwise this finds them, without a remote.
    `past` is the number of commits before the head at which the answers to the golden queries are
    measured. If an answer needs an index, this builds it.

    Raises `KnowledgeMoved`, and the errors of `find_places` and of the engine.
    """
    if not ws.is_initialized:
        lazy_fetch.fetch_pinned(ws, insist=True)
    if ws.is_initialized:
        recover(ws)
    places = find_places(ws, base, head)
    spool = Spool()
    try:
        summary = _build_summary(ws, places, spool, findings)
        if past and places.head.commit:
            from vmrag_link.ops.check.check_history import measure_history

            summary = replace(summary, history=measure_history(ws, places.head.commit, limit=past))
        return KnowledgeReport(summary, spool)
    except BaseException:
        spool.close()
        raise


def _build_summary(
    ws: Workspace, places: ComparedPlaces, spool: Spool, findings: Sequence[PinFinding] | None
) -> ReportSummary:
    start, head = _known_place(ws, places.start), _known_place(ws, places.head)
    compared = between_places(ws, start, head, detail="names")
    read = compared.texts
    difference = with_moves(read, compared.diff)
    lines = _spool_documents(ws, read, difference, spool, {*_list_files(start), *_list_files(head)})
    citing, uncited = _find_citing_notes(ws, places, head)
    queries = compare_answers(ws, places)  # before the sizes, because it may build an index
    rows = _generate_collections(compared.collections)
    verified = findings if findings is not None else _verify_commits(ws, places)
    return ReportSummary(
        **_collect_revisions(ws, places),
        counts=_count_kinds(lines),
        words=word_diff.sum_words(lines),
        size=_measure_size(ws, (start, head), lines),
        collections=tuple(rows),
        documents=lines,
        files=difference.files,
        unread=difference.missing,
        queries=queries,
        verified=verified is not None,
        findings=tuple(verified or ()),
        citing=citing,
        uncited=uncited,
    )


def _find_citing_notes(ws: Workspace, places: ComparedPlaces, head: NamedPlace) -> tuple[tuple[CitingNote, ...], str]:
    """Return the notes of the head that cite changed files, or why they could not be found."""
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


def _list_files(place: NamedPlace) -> Iterable[Key]:
    return place.tree.files if place.tree else ()


def _spool_documents(
    ws: Workspace, read: DiffTexts, difference: Diff, spool: Spool, files: Container[Key]
) -> tuple[DocumentLine, ...]:
    """Spool the changed documents one by one. The returned rows contain no texts.

    `files` contains the keys of documents that are files of the code.
    """
    max_characters = _limit_document(len(difference.documents))
    lines = []
    names = printed_names(difference)
    with ws.progress.task(_COMPARING, len(difference.documents)) as task:
        for number, sides in enumerate(diffs.read_sides(read, difference.documents), start=1):
            document = _report_document(
                number, *sides, names=names, is_file=sides[0].key in files, max_characters=max_characters
            )
            spool.add(document)
            lines.append(build_document_line(document))
            task.advance()
    return tuple(lines)


def _count_kinds(lines: Sequence[DocumentLine]) -> DocumentCounts:
    kinds = Counter(line.kind for line in lines)
    return DocumentCounts(kinds["added"], kinds["changed"], kinds["moved"], kinds["removed"])


def _verify_commits(ws: Workspace, places: ComparedPlaces) -> Sequence[PinFinding] | None:
    """Return the findings of `vmrag verify`; None if the places are not commits."""
    base, head = places.base, places.head
    if not (base.commit and head.commit):
        return None
    return verify_between(ws, base.commit, head.commit, base_name=base.name, ask=False).findings


def _measure_size(ws: Workspace, places: Sequence[NamedPlace], lines: Sequence[DocumentLine]) -> KnowledgeSize:
    counts = [_count_documents(ws, place) for place in places]
    chunks = [_count_chunks(ws, place) for place in places]
    return KnowledgeSize(
        documents=Growth(*counts),
        characters=Growth(sum(line.characters.before for line in lines), sum(line.characters.after for line in lines)),
        chunks=Growth(chunks[0], chunks[1]) if chunks[0] is not None and chunks[1] is not None else None,
    )


def _count_documents(ws: Workspace, place: NamedPlace) -> int:
    """Count the documents, including files that are documents according to their names, without
    code.
    """
    stored = 0 if place.at is None else ws.engine.count_documents(place.at)
    return stored + sum(not place.tree.is_code(key) for key in place.tree.files) if place.tree else stored


def _count_chunks(ws: Workspace, place: NamedPlace) -> int | None:
    """Count the chunks of the index; None without a readable index, or if files are documents."""
    if place.tree or not isinstance(place.at, str):
        return None if place.tree else 0
    revision = place.at
    path = ws.views.view_path(revision)
    with ws.views.lock_for_reading(path):
        if not ws.views.find_problem(revision):
            with contextlib.suppress(IndexFailed):  # damaged since it was verified
                return views.read_view(path).count_totals()[1]
    return None


def _collect_revisions(ws: Workspace, places: ComparedPlaces) -> dict[str, Any]:
    """Return the fields of `ReportSummary` from `base` to `missing`.

    The code commits of all revisions are looked up at once, because this reads the whole git
    history.
    """
    base, start, head = (_list_reached(ws, place) for place in places)
    gained, lost = _list_only_in(ws, places.head, start), _list_only_in(ws, places.start, head)
    at_ends = [log.read_info(ws.engine, place.revision) for place in places if place.revision]
    shown = {info.revision: info for info in chain(at_ends, gained[:_MAX_REVISIONS], lost[:_MAX_REVISIONS])}
    code = [place.commit for place in places if place.commit]
    pinned_revisions = (
        {revision.revision: revision for revision in log.add_pins(ws, shown.values(), also=code)} if shown else {}
    )
    base_end, start_end, head_end = (
        ReportEnd(
            place.name, place.commit, pinned_revisions[place.revision] if place.revision else None, place.names_sources
        )
        for place in places
    )
    return {
        "base": base_end,
        "start": start_end,
        "head": head_end,
        "gained": _build_revision_list(gained, pinned_revisions),
        "lost": _build_revision_list(lost, pinned_revisions),
        "missing": len(base - start - head - log.list_hidden(ws.engine)) if base else 0,
    }


def _list_reached(ws: Workspace, place: ComparedPlace) -> AbstractSet[str]:
    return ws.engine.map_parents([place.revision]).keys() if place.revision else frozenset()


def _list_only_in(ws: Workspace, place: ComparedPlace, others: AbstractSet[str]) -> list[RevisionInfo]:
    """Return the revisions that only this place contains, newest first."""
    if not place.revision or place.revision in others:
        return []
    return list(log.list_revisions(ws.engine, [place.revision], log.list_hidden(ws.engine) | others))


def _build_revision_list(revisions: list[RevisionInfo], pinned_revisions: dict[str, PinnedRevision]) -> RevisionList:
    return RevisionList(tuple(pinned_revisions[info.revision] for info in revisions[:_MAX_REVISIONS]), len(revisions))


def _limit_document(documents: int) -> int:
    """Return the maximum number of characters of each document's difference.

    With many documents it is lower, so that no document displaces another one.
    """
    return max(_MIN_DOCUMENT, min(_MAX_DOCUMENT, _MAX_TOTAL // max(1, documents)))


def _report_document(
    number: int,
    change: HeaderChange,
    before: Document | None,
    after: Document | None,
    *,
    names: Mapping[str, str],
    is_file: bool = False,
    max_characters: int,
) -> ReportedDocument:
    """Build the entry of a changed document.

    `names` contains printed names. `is_file` means that it is a file of the code. `max_characters`
    is the maximum number of characters of the difference.
    """
    difference = document_diff(change, before, after, with_text=True)
    old_collection, old_id = before.key if before and difference.old_name else ("", "")
    document = after or before
    return ReportedDocument(
        number=number,
        kind=_classify_change(change),
        collection=difference.collection,
        doc_id=difference.doc_id,
        title=difference.title,
        old_collection=old_collection,
        old_doc_id=old_id,
        file=document.source if is_file and document else "",
        path_name=names[f"{difference.collection}/{difference.doc_id}"],
        old_path_name=names[difference.old_name] if difference.old_name else "",
        words=difference.words or Words(),
        characters=Growth(_count_characters(before), _count_characters(after)),
        fields=tuple(map(_build_field_change, difference.fields)),
        text=_clip_pieces(difference.text if before and after else _diff_whole_text(before, after), max_characters),
    )


def build_document_line(document: ReportedDocument) -> DocumentLine:
    """Return the entry of a document without its texts."""
    return DocumentLine(*(getattr(document, name) for name in DocumentLine.__struct_fields__))


def _generate_collections(collections: Iterable[CollectionDiff]) -> Iterator[ReportedCollection]:
    return (
        ReportedCollection(collection.kind, collection.name, tuple(map(_build_field_change, collection.fields)))
        for collection in collections
    )


def _clip_pieces(pieces: Sequence[Piece], max_characters: int) -> TextChange:
    """Return at most `max_characters` of a difference, from its beginning."""
    shown: list[Piece] = []
    remaining = max_characters
    for piece in pieces:
        if len(piece.text) > remaining:
            rest = sum(len(piece.text) for piece in pieces[len(shown) :]) - remaining
            return TextChange((*shown, Piece(piece.op, piece.text[:remaining])) if remaining else tuple(shown), rest)
        shown.append(piece)
        remaining -= len(piece.text)
    return TextChange(tuple(shown))


def _classify_change(change: HeaderChange) -> DocumentKind:
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    return "changed" if change.before.key == change.after.key else "moved"


def _build_field_change(field: FieldDiff) -> FieldChange:
    return FieldChange(
        field.name, _clip_pieces(worddiff.cut_equal_text(worddiff.diff_words(field.before, field.after)), _MAX_FIELD)
    )


def _diff_whole_text(before: Document | None, after: Document | None) -> tuple[Piece, ...]:
    """Return the difference of a new document (an insertion) or a removed one (a deletion)."""
    return worddiff.diff_words(before.content if before else "", after.content if after else "")


def _count_characters(document: Document | None) -> int:
    return len(document.content) if document else 0
