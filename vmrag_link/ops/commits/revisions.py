"""Where the history begins, which branches hold a commit, and the search for commits.

The first commit is the one that `init` made; what the engine needed before it belongs to nobody.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from graphlib import TopologicalSorter
from typing import Literal

from vmrag_link.engines.base import Engine, root_of
from vmrag_link.models import Record, RevisionInfo

_EACH = 200
"""Commits that are asked for one by one (0.1 ms); for more the whole log is read (0.02 ms each).
"""

Match = Literal["hash", "message"]


class FoundCommit(Record, frozen=True):
    """`branch`: one that holds the commit."""

    info: RevisionInfo
    branch: str
    match: Match


def parent(engine: Engine, info: RevisionInfo) -> str | None:
    """The first parent; None for the commit that made the knowledge base."""
    return info.parents[0] if info.parents and info.revision != root_of(engine) else None


def beginning(engine: Engine) -> AbstractSet[str]:
    """What the engine needed before the first commit."""
    root = root_of(engine)
    return engine.parents([root]).keys() - {root}


def holding(engine: Engine, revision: str, heads: Mapping[str, str]) -> list[str]:
    """The names of the heads that contain a revision."""
    from vmrag_link.ops.commits.ancestry import Ancestry

    known = Ancestry(engine, [revision, *heads.values()])
    return [name for name, head in heads.items() if known.has_revision(head) and known.descends(head, revision)]


def find(engine: Engine, query: str, heads: Mapping[str, str], *, by: Container[Match]) -> list[FoundCommit]:
    """The commits behind these heads that match the query, newest first.

    Their hash begins with it, or their message holds it in any case.

    A commit that several of them hold belongs to the first. One walk, however many there are.
    """
    graph = engine.parents(heads.values())
    ages = {each: age for age, each in enumerate(TopologicalSorter(graph).static_order())}
    internal = beginning(engine)
    owners = {each: name for name, own in _owners(graph, heads, internal) for each in own}
    hashes = {each for each in owners if each.startswith(query.lower())} if "hash" in by else set()
    youngest = sorted(heads.items(), key=lambda each: ages.get(each[1], -1), reverse=True)
    known = _infos(engine, dict(youngest), graph, internal) if "message" in by else {}
    wanted = query.casefold()
    matched = hashes | {each for each, info in known.items() if wanted in info.message.casefold()}
    infos = [known.get(each) or engine.info(each) for each in matched]
    infos.sort(key=lambda each: (each.date, ages[each.revision]), reverse=True)
    return [
        FoundCommit(each, owners[each.revision], "hash" if each.revision in hashes else "message") for each in infos
    ]


def _owners(
    graph: Mapping[str, Iterable[str]], heads: Mapping[str, str], without: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """For each name: what its head reaches and no head before it does."""
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
    """Of everything behind the heads.

    From the youngest on, so that the first log that is read holds nearly all.
    """
    infos: dict[str, RevisionInfo] = {}
    for name, own in _owners(graph, heads, without):
        found = map(engine.info, own) if len(own) <= _EACH else engine.log(heads[name])
        infos |= {each.revision: each for each in found if each.revision not in without}
    return infos
