"""Gather what a report contains: documents, collections, revisions and answers that differ.

`ends` finds what is compared, and `records` defines the result. Differences of texts are word by
word, and each has a limit, so that one document cannot displace the others.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

from msgspec.structs import replace

from vmrag_link import worddiff
from vmrag_link.errors import GitError, IndexFailed, LimitExceeded
from vmrag_link.index import view as views
from vmrag_link.models import Document, HeaderChange, RevisionInfo
from vmrag_link.ops.report.answer_changes import compare_answers
from vmrag_link.ops.report.ends import ComparedEnd, ComparedEnds, NamedEnd, find_ends
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

_MAX_FIELD_CHARACTERS = 4_000
"""Maximum number of characters of a field's difference."""

_MIN_DOCUMENT_CHARACTERS = 2_000
_MAX_DOCUMENT_CHARACTERS = 100_000
_MAX_TOTAL_CHARACTERS = 20_000_000
"""Limits of the differences of texts. With many documents, each has a share of the total."""


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

    Raises `KnowledgeMoved`, and the errors of `find_ends` and of the engine.
    """
    if not ws.is_initialized:
        lazy_fetch.fetch_pinned(ws, insist=True)
    if ws.is_initialized:
        recover(ws)
    ends = find_ends(ws, base, head)
    spool = Spool()
    try:
        summary = _build_summary(ws, ends, spool, findings)
        if past and ends.head.commit:
            from vmrag_link.ops.check.check_history import measure_history

            summary = replace(summary, history=measure_history(ws, ends.head.commit, limit=past))
        return KnowledgeReport(summary, spool)
    except BaseException:
        spool.close()
        raise


def _build_summary(
    ws: Workspace, ends: ComparedEnds, spool: Spool, findings: Sequence[PinFinding] | None
) -> ReportSummary:
    """Compare the ends. The changed documents are added to the spool."""
    start = _build_named_place(ws, ends.start)
    head = _build_named_place(ws, ends.head)
    compared = between_places(ws, start, head, detail="names")
    difference = with_moves(compared.texts, compared.diff)
    files = {key for place in (start, head) if place.tree for key in place.tree.files}
    lines = _spool_documents(ws, compared.texts, difference, spool, files)
    citing, uncited = _find_citing_notes(ws, ends, head)
    queries = compare_answers(ws, ends)  # before the sizes, because it may build an index
    if findings is None:
        findings = _verify_commits(ws, ends)
    return ReportSummary(
        **_collect_revisions(ws, ends),
        counts=_count_kinds(lines),
        words=word_diff.sum_words(lines),
        size=_measure_size(ws, start, head, lines),
        collections=tuple(_build_collection(collection) for collection in compared.collections),
        documents=lines,
        files=difference.files,
        unread=difference.missing,
        queries=queries,
        verified=findings is not None,
        findings=tuple(findings or ()),
        citing=citing,
        uncited=uncited,
    )


def _find_citing_notes(ws: Workspace, ends: ComparedEnds, head: NamedPlace) -> tuple[tuple[CitingNote, ...], str]:
    """Return the notes of the head that cite changed files, or why they could not be found."""
    start = ends.start.commit
    end = ends.head.commit
    tree = head.tree
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


def _build_named_place(ws: Workspace, end: ComparedEnd) -> NamedPlace:
    """Return the stored documents and the files of sources at an end, for a diff."""
    stored = [collection.name for collection in ws.engine.list_collections(end.revision)] if end.revision else ()
    tree = source_tree.read_commit(ws, end.commit, stored=stored) if end.commit and end.names_sources else None
    return NamedPlace(end.revision, tree, end.commit or "")


def _spool_documents(
    ws: Workspace, texts: DiffTexts, difference: Diff, spool: Spool, files: Container[Key]
) -> tuple[DocumentLine, ...]:
    """Spool the changed documents one by one. The returned rows contain no texts.

    `files` contains the keys of documents that are files of the code.
    """
    share = _MAX_TOTAL_CHARACTERS // max(1, len(difference.documents))
    max_characters = max(_MIN_DOCUMENT_CHARACTERS, min(_MAX_DOCUMENT_CHARACTERS, share))
    lines = []
    names = printed_names(difference)
    with ws.progress.task(_COMPARING, len(difference.documents)) as task:
        for number, (change, before, after) in enumerate(diffs.read_sides(texts, difference.documents), start=1):
            document = _report_document(
                number,
                change,
                before,
                after,
                names=names,
                is_file=change.key in files,
                max_characters=max_characters,
            )
            spool.add(document)
            lines.append(build_document_line(document))
            task.advance()
    return tuple(lines)


def _count_kinds(lines: Sequence[DocumentLine]) -> DocumentCounts:
    kinds = Counter(line.kind for line in lines)
    return DocumentCounts(kinds["added"], kinds["changed"], kinds["moved"], kinds["removed"])


def _verify_commits(ws: Workspace, ends: ComparedEnds) -> Sequence[PinFinding] | None:
    """Return the findings of `vmrag verify`; None if the ends are not commits."""
    base = ends.base
    if not (base.commit and ends.head.commit):
        return None
    return verify_between(ws, base.commit, ends.head.commit, base_name=base.name, ask=False).findings


def _measure_size(ws: Workspace, start: NamedPlace, head: NamedPlace, lines: Sequence[DocumentLine]) -> KnowledgeSize:
    chunks_before = _count_chunks(ws, start)
    chunks_after = _count_chunks(ws, head)
    return KnowledgeSize(
        documents=Growth(_count_documents(ws, start), _count_documents(ws, head)),
        characters=Growth(sum(line.characters.before for line in lines), sum(line.characters.after for line in lines)),
        chunks=Growth(chunks_before, chunks_after) if chunks_before is not None and chunks_after is not None else None,
    )


def _count_documents(ws: Workspace, place: NamedPlace) -> int:
    """Count the documents, including files that are documents according to their names, without
    code.
    """
    stored = 0 if place.at is None else ws.engine.count_documents(place.at)
    files = sum(not place.tree.is_code(key) for key in place.tree.files) if place.tree else 0
    return stored + files


def _count_chunks(ws: Workspace, place: NamedPlace) -> int | None:
    """Count the chunks of the index; None without a readable index, or if files are documents."""
    if place.tree:
        return None
    if not isinstance(place.at, str):
        return 0
    revision = place.at
    path = ws.views.view_path(revision)
    with ws.views.lock_for_reading(path):
        if not ws.views.find_problem(revision):
            with contextlib.suppress(IndexFailed):  # damaged since it was verified
                return views.read_view(path).count_totals()[1]
    return None


def _collect_revisions(ws: Workspace, ends: ComparedEnds) -> dict[str, Any]:
    """Return the fields of `ReportSummary` from `base` to `missing`.

    The code commits of all revisions are looked up at once, because this reads the whole git
    history.
    """
    base, start, head = (_list_reached(ws, end) for end in ends)
    gained = _list_only_in(ws, ends.head, start)
    lost = _list_only_in(ws, ends.start, head)
    at_ends = [log.read_info(ws.engine, end.revision) for end in ends if end.revision]
    listed = {info.revision: info for info in chain(at_ends, gained[:_MAX_REVISIONS], lost[:_MAX_REVISIONS])}
    code = [end.commit for end in ends if end.commit]
    pinned_revisions = (
        {revision.revision: revision for revision in log.add_pins(ws, listed.values(), also=code)} if listed else {}
    )
    base_end, start_end, head_end = (
        ReportEnd(
            name=end.name,
            commit=end.commit,
            revision=pinned_revisions[end.revision] if end.revision else None,
            files=end.names_sources,
        )
        for end in ends
    )
    return {
        "base": base_end,
        "start": start_end,
        "head": head_end,
        "gained": _build_revision_list(gained, pinned_revisions),
        "lost": _build_revision_list(lost, pinned_revisions),
        "missing": len(base - start - head - log.list_hidden(ws.engine)) if base else 0,
    }


def _list_reached(ws: Workspace, end: ComparedEnd) -> AbstractSet[str]:
    """Return the revision of an end and all its ancestors."""
    return ws.engine.map_parents([end.revision]).keys() if end.revision else frozenset()


def _list_only_in(ws: Workspace, end: ComparedEnd, others: AbstractSet[str]) -> list[RevisionInfo]:
    """Return the revisions that this end contains and `others` do not, newest first."""
    if not end.revision or end.revision in others:
        return []
    return list(log.list_revisions(ws.engine, [end.revision], log.list_hidden(ws.engine) | others))


def _build_revision_list(revisions: list[RevisionInfo], pinned_revisions: dict[str, PinnedRevision]) -> RevisionList:
    return RevisionList(tuple(pinned_revisions[info.revision] for info in revisions[:_MAX_REVISIONS]), len(revisions))


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
    moved_from = before if difference.old_name else None
    document = after or before
    text_before = before.content if before else ""
    text_after = after.content if after else ""
    pieces = difference.text if before and after else worddiff.diff_words(text_before, text_after)
    return ReportedDocument(
        number=number,
        kind=_classify_change(change),
        collection=difference.collection,
        doc_id=difference.doc_id,
        title=difference.title,
        old_collection=moved_from.collection if moved_from else "",
        old_doc_id=moved_from.doc_id if moved_from else "",
        file=document.source if is_file and document else "",
        path_name=names[f"{difference.collection}/{difference.doc_id}"],
        old_path_name=names[difference.old_name] if difference.old_name else "",
        words=difference.words or Words(),
        characters=Growth(len(text_before), len(text_after)),
        fields=tuple(map(_build_field_change, difference.fields)),
        text=_clip_pieces(pieces, max_characters),
    )


def build_document_line(document: ReportedDocument) -> DocumentLine:
    """Return the entry of a document without its texts."""
    return DocumentLine(*(getattr(document, name) for name in DocumentLine.__struct_fields__))


def _build_collection(collection: CollectionDiff) -> ReportedCollection:
    return ReportedCollection(collection.kind, collection.name, tuple(map(_build_field_change, collection.fields)))


def _clip_pieces(pieces: Sequence[Piece], max_characters: int) -> TextChange:
    """Return at most `max_characters` of a difference, from its beginning."""
    first_pieces: list[Piece] = []
    remaining = max_characters
    for number, piece in enumerate(pieces):
        if len(piece.text) > remaining:
            left_out = sum(len(rest.text) for rest in pieces[number:]) - remaining
            if remaining:
                first_pieces.append(Piece(piece.op, piece.text[:remaining]))
            return TextChange(tuple(first_pieces), left_out)
        first_pieces.append(piece)
        remaining -= len(piece.text)
    return TextChange(tuple(first_pieces))


def _classify_change(change: HeaderChange) -> DocumentKind:
    if change.before is None:
        return "added"
    if change.after is None:
        return "removed"
    return "changed" if change.before.key == change.after.key else "moved"


def _build_field_change(field: FieldDiff) -> FieldChange:
    pieces = worddiff.cut_equal_text(worddiff.diff_words(field.before, field.after))
    return FieldChange(field.name, _clip_pieces(pieces, _MAX_FIELD_CHARACTERS))
