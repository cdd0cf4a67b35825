"""`vmrag diff --queries`: compare the answers to the golden queries at two places.

A place is the work tree (None), or a revision of the knowledge base with the files of a commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Literal

from vmrag_link.errors import GitReferenceMissing, NotInitialized, PinError, PinMissing
from vmrag_link.git import plumbing
from vmrag_link.golden.queries import GoldenFile, GoldenQuery, RankedChunk
from vmrag_link.models import Record
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.settings import RetrievalSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import golden_file
from vmrag_link.workspace.answers.golden_file import GoldenAnswer, answer_queries
from vmrag_link.workspace.answers.query import search_index
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.follow.search_scope import RankedRevision, can_files_answer, ranked_at
from vmrag_link.workspace.history.revparse import WORKING, resolve_rev


class QueryDiff(Record, frozen=True):
    """The answers to one query at two places."""

    query: str
    line: int
    change: Literal["none", "scores", "ranking"]
    """`ranking` for other chunks or another order, `scores` for other scores only."""
    before: tuple[RankedChunk, ...]
    after: tuple[RankedChunk, ...]
    problem_before: str = ""
    problem_after: str = ""


class QueriesDiff(Record, frozen=True):
    """The answers to all queries at two places."""

    file: str
    old: str
    """A revision, or WORKING."""
    new: str
    """A revision, or WORKING."""
    queries: tuple[QueryDiff, ...]
    names: Mapping[str, str] = {}
    """The printed form of the full names of documents."""


def diff_queries(ws: Workspace, old: str | None, new: str | None) -> QueriesDiff:
    """Ask the work tree's golden queries at two places, with the names of `word_diff`.

    The answers of a git ref are ranked by its own settings, and those of any other place by the
    settings of the work tree. Raises `QueriesMissing`, `QueriesInvalid`, `RevisionMissing` and
    `RevisionAmbiguous`.
    """
    golden = golden_file.load_queries(ws).golden
    try:
        follow_and_warn(ws, index=True)
    except (NotInitialized, PinMissing) as error:
        if not can_files_answer(ws, error):
            raise
    before = _find_committed_place(ws) if old is None else _find_place(ws, old)
    after = _find_place(ws, WORKING if new is None else new)
    pairs = answer_twice(ws, golden, before, after)
    queries = tuple(diff_answers(*answers) for answers in pairs)
    return QueriesDiff(QUERIES_NAME, _name_place(before), _name_place(after), queries, list_shown_names(pairs))


AnsweredTwice = tuple[GoldenQuery, GoldenAnswer, GoldenAnswer]
"""A query, and its answers at the earlier and the later place."""


def list_shown_names(answered: Sequence[AnsweredTwice]) -> dict[str, str]:
    """Return what to print for the full names of documents.

    If the later place does not have a name, it may be that of the earlier place.
    """
    if not answered:
        return {}
    _, before, after = answered[0]  # all answers at a place have the same names
    return dict(before.names.shown) | dict(after.names.shown)


def answer_twice(
    ws: Workspace, golden: GoldenFile, before: RankedRevision | None, after: RankedRevision | None
) -> list[AnsweredTwice]:
    """Return the answers at two places, in the order of the queries. None is the work tree.

    A revision without an index gets one. Raises the errors of `search_index`.
    """
    return list(zip(golden.queries, _answer_at(ws, golden, before), _answer_at(ws, golden, after), strict=True))


def diff_answers(query: GoldenQuery, before: GoldenAnswer, after: GoldenAnswer) -> QueryDiff:
    """Compare the answers to a query at two places."""
    change = _classify_change(before, after)
    return QueryDiff(
        query=query.text,
        line=query.line,
        change=change,
        before=before.chunks,
        after=after.chunks,
        problem_before=before.problem,
        problem_after=after.problem,
    )


def _find_committed_place(ws: Workspace) -> RankedRevision:
    """Return the place of the work tree without its uncommitted documents."""
    commit = plumbing.read_head(ws.places).commit
    try:
        revision = ws.require_stored_revision()
    except (NotInitialized, PinMissing) as error:
        if not (commit and can_files_answer(ws, error)):
            raise
        revision = ""
    files = ws.sources.read_config_at(commit) if commit and ws.sources.configured else None
    return RankedRevision(revision, ws.config.retrieval, commit if files else None, files)


def _find_place(ws: Workspace, name: str) -> RankedRevision | None:
    """Return the place with this name. None is the work tree with its uncommitted documents."""
    if name == WORKING:
        return None
    try:
        revision = resolve_rev(ws, name)
    except (NotInitialized, PinMissing) as error:
        if not can_files_answer(ws, error):
            raise
        return ranked_at(ws, name)
    with contextlib.suppress(GitReferenceMissing, PinError):  # then it names a revision or a KB branch
        if lazy_fetch.pin_at(ws, name).dolt_commit == revision:
            return ranked_at(ws, name)
    return RankedRevision(revision, ws.config.retrieval)


def _answer_at(ws: Workspace, golden: GoldenFile, place: RankedRevision | None) -> list[GoldenAnswer]:
    settings: RetrievalSettings = place.retrieval if place else ws.config.retrieval
    return search_index(ws, lambda searcher, _: answer_queries(searcher, golden, settings, ws.progress), at=place)


def _classify_change(before: GoldenAnswer, after: GoldenAnswer) -> Literal["none", "scores", "ranking"]:
    if (before.chunks, before.problem) == (after.chunks, after.problem):
        return "none"
    order_before = [(chunk.document, chunk.chunk) for chunk in before.chunks]
    order_after = [(chunk.document, chunk.chunk) for chunk in after.chunks]
    return "scores" if (order_before, before.problem) == (order_after, after.problem) else "ranking"


def _name_place(place: RankedRevision | None) -> str:
    return WORKING if place is None else place.revision or place.commit or ""
