"""Compare the answers to the golden queries at both ends of a report.

A *place* is the position of a chunk in an answer, from 1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from msgspec.structs import asdict, replace

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
from vmrag_link.golden.queries import GoldenFile, GoldenQuery, Miss, find_misses
from vmrag_link.ops.check.check_queries import explain_outdated, list_ranking_changes
from vmrag_link.ops.diff_queries import AnsweredTwice, answer_twice, diff_answers, list_shown_names
from vmrag_link.ops.report.ends import ComparedEnd, ComparedEnds
from vmrag_link.ops.report.records import OPAQUE, AnswerChange, AnswerText, ComparedQueries, ListedQuery, QueryChange
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.settings import RetrievalSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import golden_file
from vmrag_link.workspace.answers.golden_file import GoldenAnswer
from vmrag_link.workspace.follow.search_scope import RankedRevision

_COMPARISON_ERRORS = (
    QueriesInvalid,
    ConfigInvalid,
    GitError,
    VectorIndexError,
    EmbeddingError,
    EngineError,
    FileSystemError,
    LockError,
)
"""Errors that only prevent a comparison of answers. A report with such an error still compares
documents.
"""


def compare_answers(ws: Workspace, ends: ComparedEnds) -> ComparedQueries:
    """Ask the queries that both ends have in their files, at each end with its own settings.

    An error that prevents this is recorded in the result.
    """
    listed = ComparedQueries(QUERIES_NAME)
    try:
        golden = _load_golden(ws, ends.head)
        listed = _list_queries(golden, _load_golden_before(ws, ends) or golden)
        if golden is None:
            return replace(listed, not_compared=f"{ends.head.name} has no golden queries in {QUERIES_NAME}.")
        for end in (ends.head, ends.start):
            if not (end.revision or end.names_sources):
                return replace(listed, not_compared=f"{end.name} has no pin or sources that could answer.")
        before = _build_ranked_revision(ws, ends.start)
        after = _build_ranked_revision(ws, ends.head)
        if before == after:  # equal ends have equal answers
            return listed
        answered = answer_twice(ws, golden, before, after)
    except _COMPARISON_ERRORS as error:
        return replace(listed, not_compared=error.message, hint=error.hint)
    return _compare_queries(listed, golden, answered, before.retrieval, after.retrieval)


def _compare_queries(
    listed: ComparedQueries,
    golden: GoldenFile,
    answered: Sequence[AnsweredTwice],
    settings_before: RetrievalSettings,
    settings_after: RetrievalSettings,
) -> ComparedQueries:
    """Compare the answers.

    Queries that only the head's file has get an answer, but are not compared.
    """
    new_lines = {query.line for query in listed.added}
    changes: list[QueryChange] = []
    answers: list[AnswerChange] = []
    added: list[ListedQuery] = []
    unexpected = 0
    for query, before, after in answered:
        misses_before = _list_misses(golden, query, before, settings_before)
        misses_after = _list_misses(golden, query, after, settings_after)
        unexpected += bool(after.problem or misses_after)
        if query.line in new_lines:
            problem = (f"{after.problem}.",) if after.problem else ()
            added.append(ListedQuery(query.text, query.line, (*problem, *_form_sentences(misses_after))))
            continue
        diff = diff_answers(query, before, after)
        expected_before = {miss.document for miss in misses_before}
        lost = dict.fromkeys(miss.document for miss in misses_after if miss.document not in expected_before)
        answer = _compare_answer(query, before, after, tuple(filter(None, lost)))
        if answer or diff.change != "none":
            changes.append(
                QueryChange(
                    **asdict(diff),
                    missed_before=_form_sentences(misses_before),
                    missed_after=_form_sentences(misses_after),
                )
            )
        if answer:
            answers.append(answer)
    changes.sort(key=lambda change: change.change != "ranking")
    return replace(
        listed,
        changed=tuple(changes),
        missed=unexpected,
        outdated=explain_outdated(golden, list_ranking_changes(golden, settings_after)),
        answers=tuple(answers),
        added=tuple(added),
        titles=_list_titles(answer for _, before, after in answered for answer in (before, after)),
        names=list_shown_names(answered),
    )


def _list_queries(golden: GoldenFile | None, before: GoldenFile | None) -> ComparedQueries:
    """Return the queries, and which of them only one of the files has."""
    head_queries = golden.queries if golden else ()
    start_queries = before.queries if before else ()
    return ComparedQueries(
        QUERIES_NAME,
        len(head_queries),
        added=_list_missing_from(head_queries, start_queries),
        removed=_list_missing_from(start_queries, head_queries),
    )


def _list_missing_from(queries: Iterable[GoldenQuery], others: Iterable[GoldenQuery]) -> tuple[ListedQuery, ...]:
    texts = {query.text for query in others}
    return tuple(ListedQuery(query.text, query.line) for query in queries if query.text not in texts)


def _load_golden(ws: Workspace, head: ComparedEnd) -> GoldenFile | None:
    """Return the golden queries of the head. A revision has no files, so those of the work tree are
    used.
    """
    if head.commit:
        return golden_file.load_queries_at(ws, head.commit)
    return golden_file.load_queries(ws).golden if ws.places.queries.exists() else None


def _load_golden_before(ws: Workspace, ends: ComparedEnds) -> GoldenFile | None:
    """Return the golden queries of the start; None if they are unknown.

    A revision has no files. If the file of the start is invalid, the queries of the head are still
    asked.
    """
    if ends.start.commit and ends.head.commit:
        with contextlib.suppress(QueriesInvalid, GitError):
            return golden_file.load_queries_at(ws, ends.start.commit) or GoldenFile(())
    return None


def _list_titles(answers: Iterable[GoldenAnswer]) -> dict[str, str]:
    return {
        chunk.document: title
        for answer in answers
        for chunk, title in zip(answer.chunks, answer.titles, strict=True)
        if title and OPAQUE.search(chunk.document)
    }


def _build_ranked_revision(ws: Workspace, end: ComparedEnd) -> RankedRevision:
    settings = ws.sources.read_config_at(end.commit) if end.commit else ws.config
    files = settings if end.names_sources else None
    return RankedRevision(end.revision or "", settings.retrieval, end.commit if files else None, files)


def _list_misses(
    golden: GoldenFile, query: GoldenQuery, answer: GoldenAnswer, settings: RetrievalSettings
) -> list[Miss]:
    comparable = not list_ranking_changes(golden, settings)
    return find_misses(query, answer.chunks, query.build_query(settings).k, answer.names, comparable=comparable)


def _form_sentences(missed: Sequence[Miss]) -> tuple[str, ...]:
    return tuple(f"{miss.message}." for miss in missed)


def _compare_answer(
    query: GoldenQuery, before: GoldenAnswer, after: GoldenAnswer, lost: tuple[str, ...]
) -> AnswerChange | None:
    """Return the change of an answer; None if the texts are equal and nothing was lost.

    `lost`: expected documents that only the answer before had.
    """
    chunks_before = _list_chunks(before)
    chunks_after = _list_chunks(after)
    pairs = enumerate(zip_longest(chunks_before, chunks_after), start=1)
    differences = {place: pair for place, pair in pairs if _has_different_text(*pair)}
    if not (differences or lost):
        return None
    resolved = after.names.resolve_query(query)
    expected = {*resolved.expect, resolved.first}
    expected_changes = {chunk for chunk in {*chunks_before} ^ {*chunks_after} if chunk.document in expected}
    important = [place for place, pair in differences.items() if place == 1 or expected_changes.intersection(pair)]
    place = min(important or differences, default=1)
    # If only a name was lost and no text differs, the first place is shown.
    chunk_before, chunk_after = differences.get(place) or next(zip_longest(chunks_before, chunks_after), (None, None))
    return AnswerChange(
        query=query.text,
        line=query.line,
        place=place,
        before=chunk_before,
        after=chunk_after,
        missing=lost,
        below=not (important or lost),
    )


def _has_different_text(before: AnswerText | None, after: AnswerText | None) -> bool:
    return (before and before.text) != (after and after.text)


def _list_chunks(answer: GoldenAnswer) -> list[AnswerText]:
    return [AnswerText(chunk.document, text) for chunk, text in zip(answer.chunks, answer.texts, strict=True)]
