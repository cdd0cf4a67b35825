"""`vmrag check`: compare the answers to the golden queries with the expected ones.

Golden queries are the queries of `.vmrag/queries.yaml`. A *miss* is an expectation that the answer
does not fulfil.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link.errors import QueriesInvalid, SourcesIncomplete, shortened
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
from vmrag_link.models import Record
from vmrag_link.ops.check.missed_documents import MissedDocuments
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
from vmrag_link.retrieval.ranking import read_ranking
from vmrag_link.retrieval.search import Searcher
from vmrag_link.settings import RetrievalSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import golden_file
from vmrag_link.workspace.answers.golden_file import GoldenAnswer, answer_queries
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.follow.provenance import KbBlock, find_view_origin, require_pinned
from vmrag_link.workspace.follow.search_scope import ranked_at
from vmrag_link.workspace.history.document_names import NamedRows
from vmrag_link.workspace.history.named_places import JoinedRows
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.source_index import require_complete

if TYPE_CHECKING:
    from vmrag_link.workspace import View


class CheckedQuery(Record, frozen=True, rename={"chunks": "found"}):
    """A golden query, its answer, and what the answer lacks."""

    query: str
    name: str
    """The name of the query as a test case."""
    line: int
    expect: tuple[str, ...]
    first: str | None
    ranking: tuple[RankedChunk, ...] | None
    """The recorded ranking before `update`."""
    chunks: tuple[RankedChunk, ...]
    misses: tuple[Miss, ...] = ()
    order: tuple[str, ...] | None = None
    """The recorded order before `update`."""
    recorded: Literal["new", "changed"] | None = None
    """The effect of `update` on the ranking or order."""
    relevant: tuple[str, ...] = ()
    """The full names of the expected documents."""


class GoldenReport(Record, frozen=True):
    """The result of `check_queries`."""

    file: str
    queries: tuple[CheckedQuery, ...]
    missed: int
    """Number of queries whose answer lacks something."""
    recorded: int
    """Number of rankings that were written."""
    outdated: str
    """Why recorded rankings were not compared; empty if they were."""
    ranking: Recording
    """The ranking settings of the answers."""
    kb: KbBlock
    """The knowledge base that answered."""
    metrics: GoldenMetrics | None = None
    """None if no query names documents."""
    thresholds: tuple[ThresholdResult, ...] = ()
    """The requested thresholds. They decide instead of single misses."""
    history: QualityHistory | None = None
    """None if it was not requested."""
    names: Mapping[str, str] = {}
    """The printed names of documents, by full name."""

    @property
    def passed(self) -> bool:
        reached = all(threshold.holds for threshold in self.thresholds) if self.thresholds else not self.missed
        return reached and not self.outdated


def check_queries(
    ws: Workspace,
    *,
    ref: str | None = None,
    update: bool = False,
    as_order: bool = False,
    thresholds: Thresholds = NO_THRESHOLDS,
    only: int | None = None,
) -> GoldenReport:
    """Ask the work tree's golden queries.

    The answers come from what the code pins and from the uncommitted documents or, with a git
    `ref`, from what that commit pins, ranked by its settings.

    * `update`: record the ranking of each query that has one, or that has no other expectation. It
      never changes `expect` and `first`, and an `order` keeps its length.
    * `as_order`: for queries without an expectation, record the order of the documents instead.
    * `thresholds`: what decides instead of single misses.
    * `only`: the number of the only query to ask, from 0.

    Raises `QueriesMissing`, `QueriesInvalid`, `SourcesIncomplete` if another machine would find
    more files, and the error of a pinned revision that cannot be searched, because no other
    revision answers instead.
    """
    stored = golden_file.load_queries(ws)
    golden = stored.golden if only is None else _select_query(stored.golden, only)
    if not update:
        _require_expectations(golden)
    place = ranked_at(ws, ref) if ref is not None else None
    settings = place.retrieval if place else ws.config.retrieval
    present_ranking = build_recording(read_ranking(settings), settings)
    changed = list_ranking_changes(golden, settings)
    comparable = not changed and not update

    def check_view(searcher: Searcher, view: View) -> tuple[tuple[CheckedQuery, ...], KbBlock, GoldenNames]:
        _require_complete_view(ws, view)
        documents = MissedDocuments(searcher, _open_rows(ws, view), view.at)
        answers = answer_queries(searcher, golden, settings, ws.progress)
        checked = []
        for query, name, answer in zip(golden.queries, name_queries(golden.queries), answers, strict=True):
            parameters = query.build_query(settings)
            misses = find_misses(query, answer.chunks, parameters.k, answer.names, comparable=comparable)
            explained_misses = [documents.explain_miss(miss, parameters) for miss in misses]
            checked.append(_build_checked(query, name, answer, explained_misses))
        return tuple(checked), find_view_origin(ws, view).kb, answers[0].names if answers else NO_NAMES

    queries, kb, names = search_index(ws, check_view, at=place)
    if update:
        queries = _record_answers(ws, stored, queries, present_ranking, as_order=as_order)
    metrics = measure_answers((frozenset(query.relevant), query.chunks) for query in queries)
    regressions = {query.name for query in queries if query.misses}
    if thresholds.base is not None:
        base_report = check_queries(ws, ref=thresholds.base)
        regressions -= {query.name for query in base_report.queries if query.misses}
    return GoldenReport(
        metrics=metrics,
        thresholds=tuple(thresholds.check_metrics(metrics, regressions=len(regressions))),
        file=QUERIES_NAME,
        queries=queries,
        missed=sum(bool(query.misses) for query in queries),
        recorded=sum(query.recorded is not None for query in queries),
        outdated=explain_outdated(golden, changed) if not update else "",
        ranking=present_ranking,
        kb=kb,
        names=names.shown,
    )


NOTHING_TO_ASK = f"the repository has no pin and no sources, so nothing can answer {QUERIES_NAME}."


def has_nothing_to_ask(ws: Workspace) -> bool:
    """Return whether golden queries have neither stored documents nor files that could answer.

    Raises `QueriesMissing`, `QueriesInvalid`.
    """
    golden_file.load_queries(ws)
    return not (ws.is_initialized or ws.places.pin.exists() or ws.sources.configured)


def _select_query(golden: GoldenFile, number: int) -> GoldenFile:
    if number >= len(golden.queries):
        raise QueriesInvalid(f"{QUERIES_NAME} changed while vmrag asked its queries.", hint="run 'vmrag check'")
    return msgspec.structs.replace(golden, queries=golden.queries[number : number + 1])


def list_ranking_changes(golden: GoldenFile, settings: RetrievalSettings) -> list[str]:
    """Return the ranking settings that changed since the rankings were recorded."""
    present_ranking = build_recording(read_ranking(settings), settings)
    return describe_changes(golden.recorded, present_ranking) if golden.recorded else []


def _require_complete_view(ws: Workspace, view: View) -> None:
    """Raise the error of a pin or of files that another machine would search, but not this one."""
    require_pinned(ws, view.notes)
    if view.files_note:
        raise SourcesIncomplete(view.files_note, hint="run 'vmrag sources' to list the files of the sources")
    sources = view.sources
    if sources:
        require_complete(sources.unavailable, sources.missing, sources.failed, sources.indexed)


def _open_rows(ws: Workspace, view: View) -> NamedRows:
    """Return the rows that the index of a view was built from."""
    files = [IndexedRows(view.sources.folder)] if view.sources else []
    return JoinedRows(*([ws.engine] if view.revision else []), *files)


def _require_expectations(golden: GoldenFile) -> None:
    lacking = [query for query in golden.queries if not query.expects]
    if lacking:
        first = lacking[0]
        others = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        raise QueriesInvalid(
            f"{QUERIES_NAME}, line {first.line}: the query {shortened(first.text)!r}{others} has no expectation.",
            hint=f"add 'expect:' or 'first:', or run '{UPDATE}' to record its ranking",
            file=QUERIES_NAME,
            line=first.line,
        )


def explain_outdated(golden: GoldenFile, changed: Sequence[str]) -> str:
    """Return why recorded rankings are not compared; empty if they are, or if there are none."""
    if not changed or all(query.ranking is None for query in golden.queries):
        return ""
    return f"the recorded rankings were not compared: {'; '.join(changed)}."


def _build_checked(query: GoldenQuery, name: str, answer: GoldenAnswer, missed: Sequence[Miss]) -> CheckedQuery:
    return CheckedQuery(
        query=query.text,
        name=name,
        line=query.line,
        expect=query.expect,
        first=query.first,
        ranking=query.ranking,
        chunks=answer.chunks,
        misses=(Miss("asked", answer.problem),) if answer.problem else tuple(missed),
        order=query.order,
        relevant=tuple(sorted(list_relevant(answer.names.resolve_query(query)))),
    )


def _record_answers(
    ws: Workspace,
    stored: golden_file.StoredQueries,
    checked: Sequence[CheckedQuery],
    present_ranking: Recording,
    *,
    as_order: bool,
) -> tuple[CheckedQuery, ...]:
    """Write the answers that are to be recorded. Recorded answers that did not change stay."""
    orders = {}
    rankings = {}
    for number, query in enumerate(checked):
        if any(miss.kind == "asked" for miss in query.misses):
            continue  # it has no answer
        has_no_expectation = not stored.golden.queries[number].expects
        order = list_documents(query.chunks)[: len(query.order) if query.order else None]
        records_order = query.order is not None or (has_no_expectation and as_order)
        if records_order and order != query.order:
            orders[number] = order
        records_ranking = query.ranking is not None or (has_no_expectation and not as_order)
        if records_ranking and query.chunks != query.ranking:
            rankings[number] = query.chunks
    is_current = stored.golden.recorded in (None, present_ranking) or all(query.ranking is None for query in checked)
    if not orders and not rankings and is_current:
        return tuple(checked)
    written = rewrite.record_answers(
        stored.data, rewrite.RecordedAnswers(rankings, orders), present_ranking, QUERIES_NAME
    )
    after = golden_file.store_queries(ws, stored, written)
    return tuple(
        msgspec.structs.replace(
            query,
            line=stored_query.line,
            recorded=_describe_recording(query) if number in {*rankings, *orders} else None,
            misses=tuple(miss for miss in query.misses if miss.kind != "order"),
        )
        for number, (query, stored_query) in enumerate(zip(checked, after.queries, strict=True))
    )


def _describe_recording(query: CheckedQuery) -> Literal["new", "changed"]:
    return "new" if query.ranking is None and query.order is None else "changed"
