"""Commits of the knowledge base as tools list them: those behind a place, with what each changed, and those that somebody looks for.

The first commit is the one that `init` made; what the engine needed before it is nobody's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from graphlib import TopologicalSorter
from typing import Literal

from vmrag_link.engines.base import Engine, root_of
from vmrag_link.models import ChangeCounts, Record, RevisionInfo
from vmrag_link.ops.commits.ancestry import Ancestry

SHORT = 7
"""Characters of a short hash."""

_EACH = 200
"""Up to so many commits are asked for one by one (0.1 ms), before the whole log is read (0.02 ms each)."""

Match = Literal["hash", "message"]


class CommitSummary(Record, frozen=True):
    hash: str
    short_hash: str
    message: str
    author: str
    timestamp: str


class CommitWithParent(CommitSummary, frozen=True):
    """`parent_hash`: the first parent; None of the first commit."""

    parent_hash: str | None


class Stats(Record, frozen=True):
    """Against the first parent."""

    documents_added: int
    documents_modified: int
    documents_deleted: int


class CommitWithStats(CommitWithParent, frozen=True):
    stats: Stats


class CommitPage(Record, frozen=True):
    """`total`: how many there are in all."""

    commits: list[CommitWithStats]
    total: int


class CommitMatch(CommitSummary, frozen=True):
    """`branch`: one that holds it."""

    branch: str
    match_type: Match


def commit(info: RevisionInfo) -> CommitSummary:
    return CommitSummary(info.revision, info.revision[:SHORT], info.message, info.author, info.date)


def described(engine: Engine, revision: str) -> CommitWithParent:
    """Raises `RevisionMissing`."""
    info = engine.info(revision)
    return CommitWithParent(*_values(commit(info)), parent(engine, info))


def parent(engine: Engine, info: RevisionInfo) -> str | None:
    """The first parent; None for the commit that made the knowledge base."""
    return info.parents[0] if info.parents and info.revision != root_of(engine) else None


def changes(engine: Engine, revision: str, before: str | None) -> ChangeCounts:
    """Against `before`; None: everything is new."""
    return engine.count_changes(before, revision) if before else ChangeCounts(added=engine.count(revision))


# -- listing ------------------------------------------------------------------------------------------------------------


def page(
    engine: Engine,
    start: str,
    *,
    limit: int,
    offset: int = 0,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> CommitPage:
    """The commits behind a revision that were made within these times, newest first: `limit` of them, after the first `offset`."""
    total, shown = 0, []
    for info in history(engine, start):
        if _within(info, since, until):
            if offset <= total < offset + limit:
                shown.append(info)
            total += 1
    return CommitPage([_with_stats(engine, each) for each in shown], total)


def history(engine: Engine, start: str) -> Iterator[RevisionInfo]:
    """A revision and what is behind it, newest first."""
    before = beginning(engine)
    return (each for each in engine.log(start) if each.revision not in before)


def beginning(engine: Engine) -> AbstractSet[str]:
    """What the engine needed before the first commit."""
    root = root_of(engine)
    return engine.parents([root]).keys() - {root}


def _within(info: RevisionInfo, since: dt.datetime | None, until: dt.datetime | None) -> bool:
    if since is None and until is None:
        return True
    made = dt.datetime.fromisoformat(info.date)
    return (since is None or since <= made) and (until is None or made <= until)


def _with_stats(engine: Engine, info: RevisionInfo) -> CommitWithStats:
    before = parent(engine, info)
    found = changes(engine, info.revision, before)
    stats = Stats(found.added, found.modified, found.removed)
    return CommitWithStats(*_values(commit(info)), before, stats)


def _values(each: CommitSummary) -> tuple[str, str, str, str, str]:
    return each.hash, each.short_hash, each.message, each.author, each.timestamp


def moment(text: str, *, end: bool = False) -> dt.datetime:
    """A time in ISO 8601, UTC unless it says otherwise; a day alone is its beginning, or its `end`. Raises `ValueError`."""
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        found = dt.datetime.fromisoformat(text)
    else:
        found = dt.datetime.combine(day, dt.time.max if end else dt.time.min)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


# -- finding ------------------------------------------------------------------------------------------------------------


def holding(engine: Engine, revision: str, heads: Mapping[str, str]) -> list[str]:
    """The names of the heads that contain a revision."""
    known = Ancestry(engine, [revision, *heads.values()])
    return [name for name, head in heads.items() if known.has_revision(head) and known.descends(head, revision)]


def find(engine: Engine, query: str, heads: Mapping[str, str], *, by: Container[Match]) -> list[CommitMatch]:
    """The commits behind these heads whose hash begins with the query, or whose message holds it in any case, newest first.

    What several of them hold belongs to the first. One walk, however many there are.
    """
    graph = engine.parents(heads.values())
    ages = {each: age for age, each in enumerate(TopologicalSorter(graph).static_order())}
    nobodys = beginning(engine)
    owners = {each: name for name, own in _shared_out(graph, heads, nobodys) for each in own}
    hashes = {each for each in owners if each.startswith(query.lower())} if "hash" in by else set()
    youngest = sorted(heads.items(), key=lambda each: ages.get(each[1], -1), reverse=True)
    told = _infos(engine, dict(youngest), graph, nobodys) if "message" in by else {}
    wanted = query.casefold()
    matched = hashes | {each for each, info in told.items() if wanted in info.message.casefold()}
    infos = [told.get(each) or engine.info(each) for each in matched]
    infos.sort(key=lambda each: (each.date, ages[each.revision]), reverse=True)
    return [
        CommitMatch(*_values(commit(each)), owners[each.revision], "hash" if each.revision in hashes else "message")
        for each in infos
    ]


def _shared_out(
    graph: Mapping[str, Iterable[str]], heads: Mapping[str, str], without: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """For each name: what its head reaches and none before it does."""
    seen = set(without)
    for name, head in heads.items():
        own, left = [], [head]
        while left:
            each = left.pop()
            if each in graph and each not in seen:
                seen.add(each)
                own.append(each)
                left.extend(graph[each])
        yield name, own


def _infos(
    engine: Engine, heads: Mapping[str, str], graph: Mapping[str, Iterable[str]], without: AbstractSet[str]
) -> dict[str, RevisionInfo]:
    """Of everything behind the heads. From the youngest on, so that the log that is read first holds nearly all."""
    infos: dict[str, RevisionInfo] = {}
    for name, own in _shared_out(graph, heads, without):
        found = map(engine.info, own) if len(own) <= _EACH else engine.log(heads[name])
        infos |= {each.revision: each for each in found if each.revision not in without}
    return infos
