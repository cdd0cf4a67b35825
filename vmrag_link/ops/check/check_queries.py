"""`vmrag check`: do the golden queries still get the answers that they expect, and where is a
document that an answer misses?
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link.errors import QueriesInvalid, SourcesIncomplete, nearest, shortened
from vmrag_link.golden import rewrite
from vmrag_link.golden.queries import (
    NO_NAMES,
    UPDATE,
    GoldenFile,
    GoldenNames,
    GoldenQuery,
    Miss,
    RankedChunk,
    Recording,
    build_recording,
    describe_changes,
    find_misses,
    list_documents,
    name_queries,
)
from vmrag_link.models import At, Record
from vmrag_link.ops.check.thresholds import (
    NO_THRESHOLDS,
    GoldenMetrics,
    QualityHistory,
    ThresholdResult,
    Thresholds,
    list_relevant,
    measure_answers,
)
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.query import Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.settings import RetrievalSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import golden_file
from vmrag_link.workspace.answers.golden_file import GoldenAnswer, answer_queries
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.follow.provenance import KbBlock, find_view_origin, ranked_at, require_pinned
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.document_names import NamedRows
from vmrag_link.workspace.history.known import JoinedRows
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.sources import require_complete

if TYPE_CHECKING:
    from vmrag_link.workspace import View

DEPTH = 100
"""How far down an answer is looked for what should be at its top."""

SIMILAR = 0.75
"""From which on a file's name may have been another one's (`suggest.nearest`)."""

COMPARED = 5000
"""How many names are compared letter by letter, which takes 0.1 ms each."""


class CheckedQuery(Record, frozen=True):
    """What a golden query expects, what was found, and what that lacks. `recorded`: what `update`
    did to its ranking or order; `ranking` and `order` are those of before. `name`: what a test of
    it is called.
    """

    query: str
    name: str
    line: int
    expect: tuple[str, ...]
    first: str | None
    ranking: tuple[RankedChunk, ...] | None
    found: tuple[RankedChunk, ...]
    misses: tuple[Miss, ...] = ()
    order: tuple[str, ...] | None = None
    recorded: Literal["new", "changed"] | None = None
    relevant: tuple[str, ...] = ()
    """Return the full names of the expected documents."""


class GoldenReport(Record, frozen=True):
    """`missed`: how many queries miss something; `recorded`: how many rankings were written.

    `outdated`: why recorded rankings were not compared; empty if they were. `ranking`: under what
    the queries were asked; `kb`: where. `metrics`: None where no query names documents.
    `thresholds`: the requested ones; they decide in place of single misses. `history`: None if it
    was not requested. `names`: the printed names of documents, by full name.
    """

    file: str
    queries: tuple[CheckedQuery, ...]
    missed: int
    recorded: int
    outdated: str
    ranking: Recording
    kb: KbBlock
    metrics: GoldenMetrics | None = None
    thresholds: tuple[ThresholdResult, ...] = ()
    history: QualityHistory | None = None
    names: Mapping[str, str] = {}

    @property
    def passed(self) -> bool:
        held = all(threshold.holds for threshold in self.thresholds) if self.thresholds else not self.missed
        return held and not self.outdated


def check_queries(
    ws: Workspace,
    *,
    ref: str | None = None,
    update: bool = False,
    as_order: bool = False,
    thresholds: Thresholds = NO_THRESHOLDS,
    only: int | None = None,
) -> GoldenReport:
    """Ask the work tree's golden queries, of what its code pins with the uncommitted documents, or
    of what a git `ref` pins, ranked as that commit's settings say.

    `update`: record the ranking of each query that has one, or that expects nothing else; what
    `expect` and `first` say is a person's to change, and an `order` keeps its length. `as_order`:
    of what expects nothing the order of its documents is recorded. `thresholds`: what decides in
    place of single misses. `only`: the number of the one query that is asked, from 0.

    Raises `QueriesMissing`, `QueriesInvalid`, `SourcesIncomplete` where another machine would find
    more files, and why the pinned knowledge cannot be asked: no other revision answers in its
    place.
    """
    stored = golden_file.load_queries(ws)
    golden = stored.golden if only is None else _one_of(stored.golden, only)
    if not update:
        _require_expectations(golden)
    place = ranked_at(ws, ref) if ref is not None else None
    settings = place.retrieval if place else ws.config.retrieval
    now = build_recording(fusion.read_ranking(settings), settings)
    changed = list_ranking_changes(golden, settings)
    comparable = not changed and not update

    def check_view(searcher: Searcher, view: View) -> tuple[tuple[CheckedQuery, ...], KbBlock, GoldenNames]:
        require_pinned(ws, view.notes)
        if view.files_note:
            raise SourcesIncomplete(view.files_note, hint="vmrag sources")
        if view.sources:
            opened = view.sources
            require_complete(opened.unavailable, opened.missing, opened.failed, opened.indexed)
        documents = MissedDocuments(searcher, _rows(ws, view), view.at)
        found = answer_queries(searcher, golden, settings, ws.progress)
        checked = []
        for query, name, answer in zip(golden.queries, name_queries(golden.queries), found, strict=True):
            asked = query.build_query(settings)
            missed = find_misses(query, answer.found, asked.k, answer.names, comparable=comparable)
            explained = [documents.explain_miss(miss, asked) for miss in missed]
            expected = tuple(sorted(list_relevant(answer.names.resolve_query(query))))
            checked.append(msgspec.structs.replace(_checked(query, name, answer, explained), relevant=expected))
        return tuple(checked), find_view_origin(ws, view).kb, found[0].names if found else NO_NAMES

    queries, kb, names = search_index(ws, check_view, at=place)
    if update:
        queries = _record_answers(ws, stored, queries, now, as_order=as_order)
    metrics = measure_answers((frozenset(query.relevant), query.found) for query in queries)
    missing = {each.name for each in queries if each.misses}
    if thresholds.base is not None:
        there = check_queries(ws, ref=thresholds.base)
        missing -= {each.name for each in there.queries if each.misses}
    return GoldenReport(
        metrics=metrics,
        thresholds=tuple(thresholds.check_metrics(metrics, regressions=len(missing))),
        file=QUERIES_NAME,
        queries=queries,
        missed=sum(bool(each.misses) for each in queries),
        recorded=sum(each.recorded is not None for each in queries),
        outdated=explain_outdated(golden, changed) if not update else "",
        ranking=now,
        kb=kb,
        names=names.shown,
    )


NOTHING_TO_ASK = f"The repository has no pin and no sources, so nothing can answer {QUERIES_NAME}."


def has_nothing_to_ask(ws: Workspace) -> bool:
    """Return whether golden queries have neither stored documents nor files that could answer.

    Raises `QueriesMissing`, `QueriesInvalid`.
    """
    golden_file.load_queries(ws)
    return not (ws.is_initialized or ws.places.pin.exists() or ws.sources.configured)


def _one_of(golden: GoldenFile, number: int) -> GoldenFile:
    if number >= len(golden.queries):
        raise QueriesInvalid(f"{QUERIES_NAME} was changed while its queries were asked.", hint="vmrag check")
    return msgspec.structs.replace(golden, queries=golden.queries[number : number + 1])


def list_ranking_changes(golden: GoldenFile, settings: RetrievalSettings) -> list[str]:
    """What is not as it was when rankings were recorded, where these settings rank."""
    now = build_recording(fusion.read_ranking(settings), settings)
    return describe_changes(golden.recorded, now) if golden.recorded else []


def _rows(ws: Workspace, view: View) -> NamedRows:
    """What the index of a view was made of."""
    files = [IndexedRows(view.sources.folder)] if view.sources else []
    return JoinedRows(*([ws.engine] if view.revision else []), *files)


def _require_expectations(golden: GoldenFile) -> None:
    lacking = [query for query in golden.queries if not query.expects]
    if lacking:
        first, others = lacking[0], f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise QueriesInvalid(
            f"{QUERIES_NAME}, line {first.line}: the query {shortened(first.text)!r}{others} expects nothing.",
            hint=f"Add `expect:` or `first:`, or record its ranking: {UPDATE}",
            file=QUERIES_NAME,
            line=first.line,
        )


def explain_outdated(golden: GoldenFile, changed: Sequence[str]) -> str:
    """Why recorded rankings are not compared; empty if they are, or there are none."""
    if not changed or all(query.ranking is None for query in golden.queries):
        return ""
    return f"The recorded rankings were not compared: {'; '.join(changed)}."


def _checked(query: GoldenQuery, name: str, answer: GoldenAnswer, missed: Sequence[Miss]) -> CheckedQuery:
    lacking = (Miss("asked", answer.problem),) if answer.problem else tuple(missed)
    return CheckedQuery(
        query.text,
        name,
        query.line,
        query.expect,
        query.first,
        query.ranking,
        answer.found,
        lacking,
        query.order,
    )


def _record_answers(
    ws: Workspace,
    stored: golden_file.StoredQueries,
    checked: Sequence[CheckedQuery],
    now: Recording,
    *,
    as_order: bool,
) -> tuple[CheckedQuery, ...]:
    """Write the answers that are to be recorded. What was recorded already stays as it is."""
    orders = {
        number: list_documents(each.found)[: len(each.order) if each.order else None]
        for number, each in _answered(checked)
        if each.order is not None or (as_order and not stored.golden.queries[number].expects)
    }
    rankings = {
        number: each.found
        for number, each in _answered(checked)
        if each.ranking is not None or (number not in orders and not stored.golden.queries[number].expects)
    }
    orders = {number: order for number, order in orders.items() if checked[number].order != order}
    rankings = {number: ranking for number, ranking in rankings.items() if checked[number].ranking != ranking}
    stands = stored.golden.recorded in (None, now) or all(each.ranking is None for each in checked)
    if not orders and not rankings and stands:
        return tuple(checked)
    written = rewrite.record_answers(stored.data, rewrite.RecordedAnswers(rankings, orders), now, QUERIES_NAME)
    after = golden_file.store_queries(ws, stored, written)
    return tuple(
        msgspec.structs.replace(
            each,
            line=query.line,
            recorded=None if number not in {*rankings, *orders} else _how(each),
            misses=tuple(miss for miss in each.misses if miss.kind != "order"),
        )
        for number, (each, query) in enumerate(zip(checked, after.queries, strict=True))
    )


def _answered(checked: Sequence[CheckedQuery]) -> Iterator[tuple[int, CheckedQuery]]:
    return (
        (number, each) for number, each in enumerate(checked) if not any(miss.kind == "asked" for miss in each.misses)
    )


def _how(each: CheckedQuery) -> Literal["new", "changed"]:
    return "new" if each.ranking is None and each.order is None else "changed"


class MissedDocuments:
    """`searcher` holds the index of the rows `at` that place."""

    def __init__(self, searcher: Searcher, rows: NamedRows, at: At) -> None:
        self._searcher = searcher
        self._rows = rows
        self._at = at

    def explain_miss(self, miss: Miss, asked: Query) -> Miss:
        """The miss with where its document is, if it is about one."""
        if miss.document is None:
            return miss
        return msgspec.structs.replace(miss, message=f"{miss.message}; {self._whereabouts(miss.document, asked)}")

    def _whereabouts(self, document: str, asked: Query) -> str:
        names = document_names.named_in_full(self._rows, self._at, document)
        named = next((name for name in names if str(name) == document), None)
        collection, doc_id = named.key if named else ("", "")
        if not named or doc_id not in self._searcher.count_chunks(collection, [doc_id]):
            near = self._nearest(document)
            near = golden_file.find_shown_name(self._searcher, near) if near else None
            return "there is no such document" + (f": is it {near}?" if near else "")
        depth = max(DEPTH, asked.k)
        found = self._searcher.search(msgspec.structs.replace(asked, k=depth))
        rank = next((hit.rank for hit in found if (hit.collection, hit.doc_id) == (collection, doc_id)), None)
        if rank is not None:
            return f"it comes at number {rank}"
        return "the query does not find it" if len(found) < depth else f"nor is it among the first {depth}"

    def _nearest(self, document: str) -> str | None:
        """A document whose file has the same name, because it was moved, or nearly the same."""
        file_name, there = posixpath.basename(document), self._by_file_name
        near = file_name if file_name in there else nearest(file_name, [*there][:COMPARED], cutoff=SIMILAR)
        return nearest(document, there[near], cutoff=0.0) if near else None

    @cached_property
    def _by_file_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for collection, doc_id in sorted(header.key for header in self._rows.read_headers(self._at)):
            found.setdefault(posixpath.basename(doc_id), []).append(f"{collection}/{doc_id}")
        return found
