"""What a report of two places says, read once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Iterable, Sequence

from vmrag_link.errors import IndexFailed
from vmrag_link.index import view as views
from vmrag_link.ops.checks.verify import verify_between
from vmrag_link.ops.checks.verify_commits import PinFinding
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.follow.recovery import recover
from vmrag_link.ops.history import diff as diffs
from vmrag_link.ops.history import word_diff
from vmrag_link.ops.history.compare import between as between_places
from vmrag_link.ops.history.diff import Diff, DiffTexts
from vmrag_link.ops.history.known import KnownPlace
from vmrag_link.ops.history.moved import with_moves
from vmrag_link.ops.report import documents
from vmrag_link.ops.report.answers import compare_answers
from vmrag_link.ops.report.ends import ComparedPlace, ComparedPlaces, NamedEnd, places_of
from vmrag_link.ops.report.records import DocumentCounts, DocumentLine, Growth, KnowledgeSize, ReportSummary
from vmrag_link.ops.report.report import KnowledgeReport, Spool
from vmrag_link.ops.report.revisions import between
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.source_tree import Key

COMPARING = "comparing documents"


def gather(
    ws: Workspace, base: NamedEnd, head: NamedEnd, *, findings: Sequence[PinFinding] | None = None
) -> KnowledgeReport:
    """What the head brings since it left the base: documents, collections, revisions, answers.

    `findings`: what `vmrag verify` says of the commits, if it was asked already; otherwise it is
    asked here, without a remote. An index that an answer needs is built. Raises as `places_of`,
    `KnowledgeMoved`, and as the engine.
    """
    if not ws.initialized:
        lazy_fetch.bring(ws, insist=True)
    if ws.initialized:
        recover(ws)
    places = places_of(ws, base, head)
    spool = Spool()
    try:
        return KnowledgeReport(_summary(ws, places, spool, findings), spool)
    except BaseException:
        spool.close()
        raise


def _summary(
    ws: Workspace, places: ComparedPlaces, spool: Spool, findings: Sequence[PinFinding] | None
) -> ReportSummary:
    start, head = _known(ws, places.start), _known(ws, places.head)
    compared = between_places(ws, start, head, detail="names")
    read = compared.read
    found = with_moves(read, compared.found)
    lines = _documents(ws, read, found, spool, {*_files(start), *_files(head)})
    queries = compare_answers(ws, places)  # before the sizes: what it asks may get its index here
    rows = documents.collections(compared.collections)
    verified = findings if findings is not None else _verified(ws, places)
    parts = between(ws, places)
    return ReportSummary(
        base=parts.base,
        start=parts.start,
        head=parts.head,
        gained=parts.gained,
        lost=parts.lost,
        missing=parts.missing,
        counts=_counts(lines),
        words=word_diff.total(lines),
        size=_size(ws, (start, head), lines),
        collections=tuple(rows),
        documents=lines,
        files=found.files,
        unread=found.missing,
        queries=queries,
        verified=verified is not None,
        findings=tuple(verified or ()),
    )


def _known(ws: Workspace, place: ComparedPlace) -> KnownPlace:
    stored = [each.name for each in ws.engine.collections(place.revision)] if place.revision else ()
    tree = source_tree.at_commit(ws, place.commit, stored=stored) if place.commit and place.names_sources else None
    return KnownPlace(place.revision, tree, place.commit or "")


def _files(place: KnownPlace) -> Iterable[Key]:
    return place.tree.files if place.tree else ()


def _documents(
    ws: Workspace, read: DiffTexts, found: Diff, spool: Spool, files: Container[Key]
) -> tuple[DocumentLine, ...]:
    """Aside with them, one by one; what stays in memory has no texts. `files`: which are some."""
    most = documents.room(len(found.documents))
    lines = []
    with ws.progress.task(COMPARING, len(found.documents)) as task:
        for number, sides in enumerate(diffs.texts(read, found.documents), start=1):
            document = documents.reported(number, *sides, is_file=sides[0].key in files, most=most)
            spool.add(document)
            lines.append(documents.line(document))
            task.advance()
    return tuple(lines)


def _counts(lines: Sequence[DocumentLine]) -> DocumentCounts:
    kinds = Counter(each.kind for each in lines)
    return DocumentCounts(kinds["added"], kinds["changed"], kinds["moved"], kinds["removed"])


def _verified(ws: Workspace, places: ComparedPlaces) -> Sequence[PinFinding] | None:
    """None where no commits are compared."""
    base, head = places.base, places.head
    if not (base.commit and head.commit):
        return None
    return verify_between(ws, base.commit, head.commit, base_name=base.name, ask=False).findings


def _size(ws: Workspace, places: Sequence[KnownPlace], lines: Sequence[DocumentLine]) -> KnowledgeSize:
    counts = [_count(ws, each) for each in places]
    chunks = [_chunks(ws, each) for each in places]
    return KnowledgeSize(
        documents=Growth(*counts),
        characters=Growth(sum(each.characters.before for each in lines), sum(each.characters.after for each in lines)),
        chunks=Growth(chunks[0], chunks[1]) if chunks[0] is not None and chunks[1] is not None else None,
    )


def _count(ws: Workspace, place: KnownPlace) -> int:
    """Files are counted that are documents by what is known without reading them; no code."""
    stored = 0 if place.at is None else ws.engine.count(place.at)
    return stored + sum(not place.tree.is_code(key) for key in place.tree.files) if place.tree else stored


def _chunks(ws: Workspace, place: KnownPlace) -> int | None:
    """None without an index that can be read, and where files are part of the knowledge."""
    if place.tree or not isinstance(place.at, str):
        return None if place.tree else 0
    revision = place.at
    path = ws.views.path(revision)
    with ws.views.reading(path):
        if not ws.views.problem(revision):
            with contextlib.suppress(IndexFailed):  # damaged since it was proven
                return views.read(path).counts()[1]
    return None
