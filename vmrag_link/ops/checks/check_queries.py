"""`vmrag check`: do the golden queries still get the answers that they expect?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from vmrag_link.errors import QueriesInvalid, SourcesIncomplete, shortened
from vmrag_link.golden import edit
from vmrag_link.golden.queries import (
    UPDATE,
    GoldenFile,
    GoldenQuery,
    Miss,
    RankedChunk,
    Recording,
    changed_since,
    misses,
    recording,
)
from vmrag_link.models import Record
from vmrag_link.ops.checks import golden_file
from vmrag_link.ops.checks.golden_answers import GoldenAnswer, answers
from vmrag_link.ops.checks.missed_documents import MissedDocuments
from vmrag_link.ops.follow.provenance import KbBlock, require_pinned, viewed
from vmrag_link.ops.follow.ranked_place import ranked_at
from vmrag_link.ops.history.document_names import NamedRows
from vmrag_link.ops.history.known import JoinedRows
from vmrag_link.ops.index.query import searching
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.retrieval import fusion
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import View, Workspace
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.sources import require_whole


class CheckedQuery(Record, frozen=True):
    """What a golden query expects, what was found, and what that lacks. `recorded`: what `update`
    did to its ranking; `ranking` is the one of before.
    """

    query: str
    line: int
    expect: tuple[str, ...]
    first: str | None
    ranking: tuple[RankedChunk, ...] | None
    found: tuple[RankedChunk, ...]
    misses: tuple[Miss, ...] = ()
    recorded: Literal["new", "changed"] | None = None


class GoldenReport(Record, frozen=True):
    """`missed`: how many queries miss something; `recorded`: how many rankings were written.

    `outdated`: why recorded rankings were not compared; empty if they were. `ranking`: under what
    the queries were asked; `kb`: where.
    """

    file: str
    queries: tuple[CheckedQuery, ...]
    missed: int
    recorded: int
    outdated: str
    ranking: Recording
    kb: KbBlock

    @property
    def passed(self) -> bool:
        return not self.missed and not self.outdated


class _Checked(Record, frozen=True):
    queries: tuple[CheckedQuery, ...]
    kb: KbBlock


def check_queries(ws: Workspace, *, ref: str | None = None, update: bool = False) -> GoldenReport:
    """Ask the work tree's golden queries, of what its code pins with the uncommitted documents, or
    of what a git `ref` pins, ranked as that commit's settings say.

    `update`: record the ranking of each query that has one, or that expects nothing else; what
    `expect` and `first` say is a person's to change. Raises `QueriesMissing`, `QueriesInvalid`,
    `SourcesIncomplete` where another machine would find more files, and
    why the pinned knowledge cannot be asked: no other revision answers in its place.
    """
    stored = golden_file.load(ws)
    golden = stored.golden
    if not update:
        _require_expectations(golden)
    place = ranked_at(ws, ref) if ref is not None else None
    settings = place.retrieval if place else ws.config.retrieval
    now = recording(fusion.ranking(settings), settings)
    changed = changed_since(golden.recorded, now) if golden.recorded else []
    comparable = not changed and not update

    def look(searcher: Searcher, view: View) -> _Checked:
        require_pinned(ws, view.notes)
        if view.files_note:
            raise SourcesIncomplete(view.files_note, hint="vmrag sources")
        if view.sources:
            require_whole(view.sources.unavailable, view.sources.missing, view.sources.failed)
        documents = MissedDocuments(searcher, _rows(ws, view), view.at)
        found = answers(searcher, golden, settings, ws.progress)
        checked = []
        for query, answer in zip(golden.queries, found, strict=True):
            asked = query.asked(settings)
            missed = misses(query, answer.found, asked.k, comparable=comparable)
            explained = [documents.explained(miss, asked) for miss in missed]
            checked.append(_checked(query, answer, explained))
        return _Checked(tuple(checked), viewed(ws, view).kb)

    checked = searching(ws, look, at=place)
    queries = _recorded(ws, stored, checked.queries, now) if update else checked.queries
    return GoldenReport(
        file=QUERIES_NAME,
        queries=queries,
        missed=sum(bool(each.misses) for each in queries),
        recorded=sum(each.recorded is not None for each in queries),
        outdated=_outdated(golden, changed) if not update else "",
        ranking=now,
        kb=checked.kb,
    )


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


def _outdated(golden: GoldenFile, changed: Sequence[str]) -> str:
    if not changed or all(query.ranking is None for query in golden.queries):
        return ""
    return f"The recorded rankings were not compared: {'; '.join(changed)}."


def _checked(query: GoldenQuery, answer: GoldenAnswer, missed: Sequence[Miss]) -> CheckedQuery:
    lacking = (Miss("asked", answer.problem),) if answer.problem else tuple(missed)
    return CheckedQuery(query.text, query.line, query.expect, query.first, query.ranking, answer.found, lacking)


def _recorded(
    ws: Workspace, stored: golden_file.StoredQueries, checked: Sequence[CheckedQuery], now: Recording
) -> tuple[CheckedQuery, ...]:
    """Write the rankings that are to be recorded. What was recorded already stays as it is."""
    wanted = dict(_to_record(stored.golden, checked))
    if not wanted and (stored.golden.recorded in (None, now) or all(each.ranking is None for each in checked)):
        return tuple(checked)
    written = edit.with_rankings(stored.data, wanted, now, QUERIES_NAME)
    after = golden_file.store(ws, stored, written)
    return tuple(
        msgspec.structs.replace(
            each,
            line=query.line,
            recorded=None if number not in wanted else "new" if each.ranking is None else "changed",
        )
        for number, (each, query) in enumerate(zip(checked, after.queries, strict=True))
    )


def _to_record(golden: GoldenFile, checked: Sequence[CheckedQuery]) -> Iterator[tuple[int, tuple[RankedChunk, ...]]]:
    for number, (query, each) in enumerate(zip(golden.queries, checked, strict=True)):
        asked = not any(miss.kind == "asked" for miss in each.misses)
        if asked and (query.ranking is not None or not query.expects) and query.ranking != each.found:
            yield number, each.found
