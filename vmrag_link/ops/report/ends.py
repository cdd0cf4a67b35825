"""The ends of a report: the two places that are compared, where they parted, and what the golden
queries are answered at both.
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
    ComparedQueries,
    ListedQuery,
    QueryChange,
    ReportedChunk,
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
"""What may keep the answers from being known, and is said in the report, whose documents stand."""


class ComparedPlace(NamedTuple):
    """As `records.ReportEnd`, with the revision alone. `names_sources`: the commit's settings name
    files that are documents.
    """

    name: str
    commit: str | None
    revision: str | None
    names_sources: bool = False


class ComparedPlaces(NamedTuple):
    """`start` is `base` itself, unless that has moved on since they parted."""

    base: ComparedPlace
    start: ComparedPlace
    head: ComparedPlace


class NamedEnd(NamedTuple):
    """A name as `places_of` takes it, and how the report calls it."""

    name: str
    label: str = ""


def find_places(ws: Workspace, base: NamedEnd, head: NamedEnd) -> ComparedPlaces:
    """The ends by name: of git's commits first, then as `vmrag diff` takes revisions.

    A pinned revision that is not here is fetched. Raises `HistoryMissing` where a shallow clone
    cannot tell where they parted, `PinMissing` where none of the places pins or names anything,
    `PinRevisionMissing`, `PinMalformed`, `UsageInvalid` for uncommitted documents, and as
    `resolve_rev`.
    """
    one, other = _place(ws, base), _place(ws, head)
    start = _start(ws, one, other)
    if not any(each.revision or each.names_sources for each in (one, other, start)):
        raise PinMissing(
            f"Neither {one.name} nor {other.name} pins any knowledge: there is nothing to compare.",
            hint="vmrag init --knowledge-base   (in a repository that has one: vmrag pin)",
        )
    return ComparedPlaces(one, start, other)


def _place(ws: Workspace, asked: NamedEnd) -> ComparedPlace:
    called = asked.label or asked.name
    if asked.name == WORKING:
        raise UsageInvalid(
            "A report is about commits; uncommitted documents are in none.",
            hint='vmrag diff   (or first: vmrag commit -m "…")',
        )
    try:
        commit = plumbing.resolve_commit(ws.places, asked.name)
    except GitReferenceMissing:
        return ComparedPlace(called, None, resolve_rev(ws, asked.name))
    return _at(ws, called, commit, _pinned(ws, commit, called))


def _start(ws: Workspace, base: ComparedPlace, head: ComparedPlace) -> ComparedPlace:
    if not (base.commit and head.commit):
        if base.revision is None or head.revision is None:
            return base
        revision = find_shown_base(ws, base.revision, head.revision)
        return base if revision == base.revision else ComparedPlace(MERGE_BASE, None, revision)
    found = MergeBases(ws.places, head.commit, base.commit).find_bases(head.commit, base.commit)
    if found is None:
        raise HistoryMissing(
            f"Where {head.name} left {base.name} cannot be said: this clone is shallow, and ends too early.",
            hint="git fetch --unshallow   (in a workflow: fetch-depth: 0 for actions/checkout)",
        )
    if not found:
        raise UsageInvalid(
            f"The histories of {base.name} and {head.name} have nothing in common.",
            hint=f"vmrag diff {quoted(base.name)} {quoted(head.name)}",
        )
    if base.commit in found:
        return base
    if base.revision and head.revision:
        revision = find_shown_base(ws, base.revision, head.revision, (base.commit, head.commit))
        return _at(ws, MERGE_BASE, found[0], revision)
    return _at(ws, MERGE_BASE, found[0], _pinned(ws, found[0], f"{MERGE_BASE} {found[0][:12]}"))


def _at(ws: Workspace, called: str, commit: str, revision: str | None) -> ComparedPlace:
    return ComparedPlace(called, commit, revision, bool(ws.sources.read_config_at(commit).sources))


def _pinned(ws: Workspace, commit: str, called: str) -> str | None:
    """None for a commit without a pin. `called`: how messages name the commit."""
    try:
        pin = lazy_fetch.pin_at(ws, commit, shown=called)
    except PinMissing:
        return None
    return lazy_fetch.require_revision(ws, pin, called)


def compare_answers(ws: Workspace, places: ComparedPlaces) -> ComparedQueries:
    """The queries that both ends have in their files, asked at both, each ranked as its own
    settings say. What keeps that from being done is said in the result.
    """
    listed = ComparedQueries(QUERIES_NAME)
    try:
        golden = _golden(ws, places.head)
        listed = _listed(golden, _golden_before(ws, places) or golden)
        if golden is None:
            return _not_compared(listed, f"{places.head.name} has no golden queries in {QUERIES_NAME}.")
        for each in (places.head, places.start):
            if not (each.revision or each.names_sources):
                return _not_compared(listed, f"{each.name} pins no knowledge that could answer.")
        before, after = _ranked_revision(ws, places.start), _ranked_revision(ws, places.head)
        if before == after:  # one place ranks alike twice
            return listed
        found = answer_twice(ws, golden, before, after)
    except _REASONS as why:
        return _not_compared(listed, why.message, why.hint)
    return _compared(listed, golden, found, (before.retrieval, after.retrieval))


def _compared(
    listed: ComparedQueries,
    golden: GoldenFile,
    found: Sequence[tuple[GoldenQuery, GoldenAnswer, GoldenAnswer]],
    settings: tuple[RetrievalSettings, RetrievalSettings],
) -> ComparedQueries:
    """`settings`: those of both sides. What only the head's file has is asked, and not compared."""
    new = {each.line for each in listed.added}
    changes, answers, added = [], [], []
    unexpected = 0
    for query, one, other in found:
        missed = _list_misses(golden, query, one, settings[0]), _list_misses(golden, query, other, settings[1])
        unexpected += bool(other.problem or missed[1])
        lacked, lacks = map(_sentences, missed)
        if query.line in new:
            problem = (f"{other.problem}.",) if other.problem else ()
            added.append(ListedQuery(query.text, query.line, (*problem, *lacks)))
            continue
        diff, changed = diff_answers(query, one, other), _answer_change(query, one, other, missed)
        if changed or diff.change != "none":
            changes.append(QueryChange(**asdict(diff), missed_before=lacked, missed_after=lacks))
        answers += [changed] if changed else []
    changes.sort(key=lambda change: change.change != "ranking")
    return replace(
        listed,
        changed=tuple(changes),
        missed=unexpected,
        outdated=explain_outdated(golden, list_ranking_changes(golden, settings[1])),
        answers=tuple(answers),
        added=tuple(added),
        titles=_titles(answer for _, *both in found for answer in both),
        names=list_shown_names(found),
    )


def _listed(golden: GoldenFile | None, before: GoldenFile | None) -> ComparedQueries:
    """Which queries there are, and which of them one file has alone."""
    ours, theirs = (each.queries if each else () for each in (golden, before))
    return ComparedQueries(QUERIES_NAME, len(ours), added=_without(ours, theirs), removed=_without(theirs, ours))


def _without(some: Iterable[GoldenQuery], others: Iterable[GoldenQuery]) -> tuple[ListedQuery, ...]:
    known = {each.text for each in others}
    return tuple(ListedQuery(each.text, each.line) for each in some if each.text not in known)


def _golden(ws: Workspace, head: ComparedPlace) -> GoldenFile | None:
    """Of a revision, which has no files, those of the work tree."""
    if head.commit:
        return golden_file.load_queries_at(ws, head.commit)
    return golden_file.load_queries(ws).golden if ws.places.queries.exists() else None


def _golden_before(ws: Workspace, places: ComparedPlaces) -> GoldenFile | None:
    """Those of the start. None where nobody knows them: a revision has no files, and of one that
    cannot be read the head's are asked all the same.
    """
    if places.start.commit and places.head.commit:
        with contextlib.suppress(QueriesInvalid, GitError):
            return golden_file.load_queries_at(ws, places.start.commit) or GoldenFile(())
    return None


def _titles(answers: Iterable[GoldenAnswer]) -> dict[str, str]:
    pairs = (
        (hit.document, title) for answer in answers for hit, title in zip(answer.found, answer.titles, strict=True)
    )
    return {name: title for name, title in pairs if title and OPAQUE.search(name)}


def _ranked_revision(ws: Workspace, place: ComparedPlace) -> RankedRevision:
    settings = ws.sources.read_config_at(place.commit) if place.commit else ws.config
    files = settings if place.names_sources else None
    return RankedRevision(place.revision or "", settings.retrieval, place.commit if files else None, files)


def _list_misses(
    golden: GoldenFile, query: GoldenQuery, answer: GoldenAnswer, settings: RetrievalSettings
) -> list[Miss]:
    comparable = not list_ranking_changes(golden, settings)
    return find_misses(query, answer.found, query.build_query(settings).k, answer.names, comparable=comparable)


def _sentences(missed: Sequence[Miss]) -> tuple[str, ...]:
    return tuple(f"{each.message}." for each in missed)


def _answer_change(
    query: GoldenQuery, before: GoldenAnswer, after: GoldenAnswer, missed: tuple[Sequence[Miss], Sequence[Miss]]
) -> AnswerChange | None:
    """None where both say the same, and nothing that is expected went missing."""
    lacked, lacks = (dict.fromkeys(each.document for each in some if each.document) for some in missed)
    missing = tuple(lack for lack in lacks if lack not in lacked)
    told = tuple(_told(before)), tuple(_told(after))
    places = {place: pair for place, pair in enumerate(zip_longest(*told), start=1) if _differ(*pair)}
    if not (places or missing):
        return None
    resolved = after.names.resolve_query(query)
    expected = {*resolved.expect, resolved.first}
    told_once = {each for each in {*told[0]} ^ {*told[1]} if each.document in expected}
    weighty = [place for place, pair in places.items() if place == 1 or told_once.intersection(pair)]
    place = min(weighty or places, default=1)
    one, other = places.get(place) or next(zip_longest(*told), (None, None))  # under another name: the first
    return AnswerChange(query.text, query.line, place, one, other, missing, below=not (weighty or missing))


def _differ(one: ReportedChunk | None, other: ReportedChunk | None) -> bool:
    return (one and one.text) != (other and other.text)


def _told(answer: GoldenAnswer) -> Iterator[ReportedChunk]:
    return (ReportedChunk(each.document, text) for each, text in zip(answer.found, answer.texts, strict=True))


def _not_compared(listed: ComparedQueries, why: str, hint: str = "") -> ComparedQueries:
    return replace(listed, not_compared=why, hint=hint)
