"""Find the compared places of a report and their common ancestor, and compare the answers to the
golden queries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from msgspec.structs import asdict, replace

from vmrag_link.errors import (
    ConfigInvalid,
    EmbeddingError,
    EngineError,
    FileSystemError,
    GitError,
    GitReferenceMissing,
    HistoryMissing,
    LockError,
    PinMissing,
    QueriesInvalid,
    UsageInvalid,
    VectorIndexError,
    quoted,
)
from vmrag_link.git import plumbing
from vmrag_link.golden.queries import GoldenFile, GoldenQuery, Miss, find_misses
from vmrag_link.ops.check.check_queries import explain_outdated, list_ranking_changes
from vmrag_link.ops.diff_queries import answer_twice, diff_answers, list_shown_names
from vmrag_link.ops.report.records import (
    OPAQUE,
    AnswerChange,
    AnswerText,
    ComparedQueries,
    ListedQuery,
    QueryChange,
)
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.settings import RetrievalSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers import golden_file
from vmrag_link.workspace.answers.golden_file import GoldenAnswer
from vmrag_link.workspace.commits.ancestry import MergeBases
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.provenance import RankedRevision
from vmrag_link.workspace.history.ranges import find_shown_base
from vmrag_link.workspace.history.revparse import WORKING, resolve_rev

MERGE_BASE = "merge base"
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
"""Errors that only prevent a comparison of answers.

The report names the error, and still compares documents.
"""


class ComparedPlace(NamedTuple):
    """A place of the comparison, like `records.ReportEnd` with only the hash of the revision."""

    name: str
    commit: str | None
    revision: str | None
    names_sources: bool = False
    """True if the settings of the commit have sources."""


class ComparedPlaces(NamedTuple):
    """The places of a report. `start` is their common ancestor, which is `base` itself unless it
    has moved on.
    """

    base: ComparedPlace
    start: ComparedPlace
    head: ComparedPlace


class NamedEnd(NamedTuple):
    """A name of `find_places`, and its label in the report."""

    name: str
    label: str = ""


def find_places(ws: Workspace, base: NamedEnd, head: NamedEnd) -> ComparedPlaces:
    """Find the places by name: first as git commits, then as revisions like in `vmrag diff`.

    A missing pinned revision is fetched. Raises `HistoryMissing` if a shallow clone does not have
    the common ancestor, `PinMissing` if none of the places has a pin or sources,
    `PinRevisionMissing`, `PinMalformed`, `UsageInvalid` for uncommitted documents,
    `RevisionMissing` and `RevisionAmbiguous`.
    """
    base_place, head_place = _find_place(ws, base), _find_place(ws, head)
    start = _find_start(ws, base_place, head_place)
    if not any(place.revision or place.names_sources for place in (base_place, head_place, start)):
        raise PinMissing(
            f"neither {base_place.name} nor {head_place.name} has a pin or sources, so there is nothing to compare.",
            hint="run 'vmrag init --knowledge-base', or 'vmrag pin' in a repository that has one",
        )
    return ComparedPlaces(base_place, start, head_place)


def _find_place(ws: Workspace, end: NamedEnd) -> ComparedPlace:
    label = end.label or end.name
    if end.name == WORKING:
        raise UsageInvalid(
            "a report compares commits, and cannot include uncommitted documents.",
            hint="run 'vmrag diff', or 'vmrag commit -m \"…\"' to commit first",
        )
    try:
        commit = plumbing.resolve_commit(ws.places, end.name)
    except GitReferenceMissing:
        return ComparedPlace(label, None, resolve_rev(ws, end.name))
    return _build_place(ws, label, commit, _find_revision(ws, commit, label))


def _find_start(ws: Workspace, base: ComparedPlace, head: ComparedPlace) -> ComparedPlace:
    if not (base.commit and head.commit):
        if base.revision is None or head.revision is None:
            return base
        revision = find_shown_base(ws, base.revision, head.revision)
        return base if revision == base.revision else ComparedPlace(MERGE_BASE, None, revision)
    merge_bases = MergeBases(ws.places, head.commit, base.commit).find_bases(head.commit, base.commit)
    if merge_bases is None:
        raise HistoryMissing(
            f"no common ancestor of {head.name} and {base.name} found, because this clone is too shallow.",
            hint="run 'git fetch --unshallow', or set 'fetch-depth: 0' for actions/checkout in a workflow",
        )
    if not merge_bases:
        raise UsageInvalid(
            f"the histories of {base.name} and {head.name} have no common commit.",
            hint=f"run 'vmrag diff {quoted(base.name)} {quoted(head.name)}' to compare them without a merge base",
        )
    if base.commit in merge_bases:
        return base
    if base.revision and head.revision:
        revision = find_shown_base(ws, base.revision, head.revision, (base.commit, head.commit))
        return _build_place(ws, MERGE_BASE, merge_bases[0], revision)
    return _build_place(
        ws, MERGE_BASE, merge_bases[0], _find_revision(ws, merge_bases[0], f"{MERGE_BASE} {merge_bases[0][:12]}")
    )


def _build_place(ws: Workspace, label: str, commit: str, revision: str | None) -> ComparedPlace:
    return ComparedPlace(label, commit, revision, bool(ws.sources.read_config_at(commit).sources))


def _find_revision(ws: Workspace, commit: str, label: str) -> str | None:
    """Return the pinned revision of a commit, and fetch it if it is missing; None without a pin."""
    try:
        pin = lazy_fetch.pin_at(ws, commit, shown=label)
    except PinMissing:
        return None
    return lazy_fetch.require_revision(ws, pin, label)


def compare_answers(ws: Workspace, places: ComparedPlaces) -> ComparedQueries:
    """Ask the queries that both places have in their files, at each place with its own settings.

    An error that prevents this is recorded in the result.
    """
    listed = ComparedQueries(QUERIES_NAME)
    try:
        golden = _load_golden(ws, places.head)
        listed = _list_queries(golden, _load_golden_before(ws, places) or golden)
        if golden is None:
            return _explain_not_compared(listed, f"{places.head.name} has no golden queries in {QUERIES_NAME}.")
        for place in (places.head, places.start):
            if not (place.revision or place.names_sources):
                return _explain_not_compared(listed, f"{place.name} has no pin or sources that could answer.")
        before, after = _build_ranked_revision(ws, places.start), _build_ranked_revision(ws, places.head)
        if before == after:  # equal places have equal answers
            return listed
        answered = answer_twice(ws, golden, before, after)
    except _REASONS as error:
        return _explain_not_compared(listed, error.message, error.hint)
    return _compare_queries(listed, golden, answered, (before.retrieval, after.retrieval))


def _compare_queries(
    listed: ComparedQueries,
    golden: GoldenFile,
    answered: Sequence[tuple[GoldenQuery, GoldenAnswer, GoldenAnswer]],
    settings: tuple[RetrievalSettings, RetrievalSettings],
) -> ComparedQueries:
    """Compare the answers. `settings` are those of both sides.

    Queries that only the head's file has get an answer, but are not compared.
    """
    new = {query_listed.line for query_listed in listed.added}
    changes, answers, added = [], [], []
    unexpected = 0
    for query, before, after in answered:
        missed = _list_misses(golden, query, before, settings[0]), _list_misses(golden, query, after, settings[1])
        unexpected += bool(after.problem or missed[1])
        lacks_before, lacks_after = map(_form_sentences, missed)
        if query.line in new:
            problem = (f"{after.problem}.",) if after.problem else ()
            added.append(ListedQuery(query.text, query.line, (*problem, *lacks_after)))
            continue
        diff, changed = diff_answers(query, before, after), _compare_answer(query, before, after, missed)
        if changed or diff.change != "none":
            changes.append(QueryChange(**asdict(diff), missed_before=lacks_before, missed_after=lacks_after))
        answers += [changed] if changed else []
    changes.sort(key=lambda change: change.change != "ranking")
    return replace(
        listed,
        changed=tuple(changes),
        missed=unexpected,
        outdated=explain_outdated(golden, list_ranking_changes(golden, settings[1])),
        answers=tuple(answers),
        added=tuple(added),
        titles=_list_titles(answer for _, *answer_pair in answered for answer in answer_pair),
        names=list_shown_names(answered),
    )


def _list_queries(golden: GoldenFile | None, before: GoldenFile | None) -> ComparedQueries:
    """Return the queries, and which of them only one of the files has."""
    head_queries, start_queries = (
        golden_or_none.queries if golden_or_none else () for golden_or_none in (golden, before)
    )
    return ComparedQueries(
        QUERIES_NAME,
        len(head_queries),
        added=_list_missing_from(head_queries, start_queries),
        removed=_list_missing_from(start_queries, head_queries),
    )


def _list_missing_from(queries: Iterable[GoldenQuery], others: Iterable[GoldenQuery]) -> tuple[ListedQuery, ...]:
    texts = {query.text for query in others}
    return tuple(ListedQuery(query.text, query.line) for query in queries if query.text not in texts)


def _load_golden(ws: Workspace, head: ComparedPlace) -> GoldenFile | None:
    """Return the golden queries of the head. A revision has no files, so those of the work tree are
    used.
    """
    if head.commit:
        return golden_file.load_queries_at(ws, head.commit)
    return golden_file.load_queries(ws).golden if ws.places.queries.exists() else None


def _load_golden_before(ws: Workspace, places: ComparedPlaces) -> GoldenFile | None:
    """Return the golden queries of the start; None if they are unknown.

    A revision has no files. If the file of the start is invalid, the queries of the head are still
    asked.
    """
    if places.start.commit and places.head.commit:
        with contextlib.suppress(QueriesInvalid, GitError):
            return golden_file.load_queries_at(ws, places.start.commit) or GoldenFile(())
    return None


def _list_titles(answers: Iterable[GoldenAnswer]) -> dict[str, str]:
    pairs = (
        (hit.document, title) for answer in answers for hit, title in zip(answer.chunks, answer.titles, strict=True)
    )
    return {name: title for name, title in pairs if title and OPAQUE.search(name)}


def _build_ranked_revision(ws: Workspace, place: ComparedPlace) -> RankedRevision:
    settings = ws.sources.read_config_at(place.commit) if place.commit else ws.config
    files = settings if place.names_sources else None
    return RankedRevision(place.revision or "", settings.retrieval, place.commit if files else None, files)


def _list_misses(
    golden: GoldenFile, query: GoldenQuery, answer: GoldenAnswer, settings: RetrievalSettings
) -> list[Miss]:
    comparable = not list_ranking_changes(golden, settings)
    return find_misses(query, answer.chunks, query.build_query(settings).k, answer.names, comparable=comparable)


def _form_sentences(missed: Sequence[Miss]) -> tuple[str, ...]:
    return tuple(f"{miss.message}." for miss in missed)


def _compare_answer(
    query: GoldenQuery, before: GoldenAnswer, after: GoldenAnswer, missed: tuple[Sequence[Miss], Sequence[Miss]]
) -> AnswerChange | None:
    """Return the change of an answer; None if the texts are equal and nothing expected
    is missing.
    """
    lacks_before, lacks_after = (
        dict.fromkeys(miss.document for miss in misses_of_side if miss.document) for misses_of_side in missed
    )
    missing = tuple(name for name in lacks_after if name not in lacks_before)
    chunks = tuple(_list_chunks(before)), tuple(_list_chunks(after))
    places = {place: pair for place, pair in enumerate(zip_longest(*chunks), start=1) if _has_different_text(*pair)}
    if not (places or missing):
        return None
    resolved = after.names.resolve_query(query)
    expected = {*resolved.expect, resolved.first}
    expected_changes = {chunk for chunk in {*chunks[0]} ^ {*chunks[1]} if chunk.document in expected}
    important = [place for place, pair in places.items() if place == 1 or expected_changes.intersection(pair)]
    place = min(important or places, default=1)
    # If only a name is missing and no text differs, the first place is shown.
    chunk_before, chunk_after = places.get(place) or next(zip_longest(*chunks), (None, None))
    return AnswerChange(
        query=query.text,
        line=query.line,
        place=place,
        before=chunk_before,
        after=chunk_after,
        missing=missing,
        below=not (important or missing),
    )


def _has_different_text(before: AnswerText | None, after: AnswerText | None) -> bool:
    return (before and before.text) != (after and after.text)


def _list_chunks(answer: GoldenAnswer) -> Iterator[AnswerText]:
    return (
        AnswerText(ranked_chunk.document, text) for ranked_chunk, text in zip(answer.chunks, answer.texts, strict=True)
    )


def _explain_not_compared(listed: ComparedQueries, reason: str, hint: str = "") -> ComparedQueries:
    return replace(listed, not_compared=reason, hint=hint)
