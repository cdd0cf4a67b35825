"""The golden queries at both ends of a report."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import (
    ConfigInvalid,
    EmbeddingError,
    EngineError,
    FileSystemError,
    GitError,
    LockError,
    QueriesInvalid,
    VectorIndexError,
)
from vmrag_link.golden.queries import GoldenFile, GoldenQuery, RankedChunk, misses
from vmrag_link.ops.checks import golden_file
from vmrag_link.ops.checks.diff_queries import QueryDiff, compared
from vmrag_link.ops.follow.ranked_place import RankedRevision
from vmrag_link.ops.report.ends import ComparedPlace, ComparedPlaces
from vmrag_link.ops.report.records import ComparedQueries, QueryChange
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.settings import RetrievalSettings
from vmrag_link.workspace import Workspace

_REASONS = (
    QueriesInvalid,
    ConfigInvalid,
    GitError,
    VectorIndexError,
    EmbeddingError,
    EngineError,
    FileSystemError,
    LockError,
)
"""What may keep the answers from being known, and is said in the report, whose documents stand."""


def compare_answers(ws: Workspace, places: ComparedPlaces) -> ComparedQueries:
    """The queries that the head has in its file, asked at both ends, each ranked as its own
    settings say. What keeps that from being done is said in the result.
    """
    try:
        golden = _golden(ws, places.head)
        if golden is None:
            return _not_compared(f"{places.head.name} has no golden queries in {QUERIES_NAME}.")
        for each in (places.head, places.start):
            if not (each.revision or each.names_sources):
                return _not_compared(f"{each.name} pins no knowledge that could answer.", total=len(golden.queries))
        before, after = _ranked(ws, places.start), _ranked(ws, places.head)
        if before == after:  # one place ranks alike twice
            return ComparedQueries(QUERIES_NAME, len(golden.queries))
        found = compared(ws, golden, before, after)
    except _REASONS as why:
        return _not_compared(why.message, why.hint)
    changes = [
        _change(query, each, before.retrieval, after.retrieval)
        for query, each in zip(golden.queries, found, strict=True)
        if each.change != "none"
    ]
    changes.sort(key=lambda each: each.change != "ranking")
    return ComparedQueries(QUERIES_NAME, len(found), tuple(changes))


def _golden(ws: Workspace, head: ComparedPlace) -> GoldenFile | None:
    """Of a revision, which has no files, those of the work tree."""
    if head.commit:
        return golden_file.load_at(ws, head.commit)
    return golden_file.load(ws).golden if ws.places.queries.exists() else None


def _ranked(ws: Workspace, place: ComparedPlace) -> RankedRevision:
    settings = ws.sources.config_at(place.commit) if place.commit else ws.config
    files = settings if place.names_sources else None
    return RankedRevision(place.revision or "", settings.retrieval, place.commit if files else None, files)


def _change(query: GoldenQuery, found: QueryDiff, before: RetrievalSettings, after: RetrievalSettings) -> QueryChange:
    return QueryChange(
        query=found.query,
        line=found.line,
        change="ranking" if found.change == "ranking" else "scores",
        before=found.before,
        after=found.after,
        problem_before=found.problem_before,
        problem_after=found.problem_after,
        missed_before=_missed(query, found.before, before),
        missed_after=_missed(query, found.after, after),
    )


def _missed(query: GoldenQuery, answer: Sequence[RankedChunk], settings: RetrievalSettings) -> tuple[str, ...]:
    """Of what is expected by name; a recorded ranking says no more than that it is another one."""
    k = query.asked(settings).k
    return tuple(f"{each.message}." for each in misses(query, answer, k, comparable=False))


def _not_compared(why: str, hint: str = "", *, total: int = 0) -> ComparedQueries:
    return ComparedQueries(QUERIES_NAME, total, not_compared=why, hint=hint)
