"""Commits of the knowledge base: where the history begins, which branches hold a commit, the search
for commits, and how far commits are apart.

The first commit is the one that `init` made; what the engine needed before it belongs to nobody. A
distance counts neither that nor what is not here.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from graphlib import TopologicalSorter
from typing import Literal

from msgspec.structs import asdict

from vmrag_link.engines.base import Engine, is_reserved, read_root
from vmrag_link.models import Record, RevisionInfo

_EACH = 200
"""Commits that are asked for one by one (0.1 ms); for more the whole log is read (0.02 ms each).
"""

Match = Literal["hash", "message"]


class FoundCommit(RevisionInfo, frozen=True):
    """`branch`: one that holds the commit."""

    branch: str
    match: Match


def find_parent(engine: Engine, info: RevisionInfo) -> str | None:
    """The first parent; None for the commit that made the knowledge base."""
    return info.parents[0] if info.parents and info.revision != read_root(engine) else None


def find_beginning(engine: Engine) -> AbstractSet[str]:
    """What the engine needed before the first commit."""
    root = read_root(engine)
    return engine.map_parents([root]).keys() - {root}


def list_holding_heads(engine: Engine, revision: str, heads: Mapping[str, str]) -> list[str]:
    """The names of the heads that contain a revision."""
    from vmrag_link.workspace.commits.ancestry import Ancestry

    known = Ancestry(engine, [revision, *heads.values()])
    return [name for name, head in heads.items() if known.has_revision(head) and known.is_descendant(head, revision)]


def find_commits(engine: Engine, query: str, heads: Mapping[str, str], *, by: Container[Match]) -> list[FoundCommit]:
    """The commits behind these heads that match the query, newest first.

    Their hash begins with it, or their message holds it in any case.

    A commit that several of them hold belongs to the first. One walk, however many there are.
    """
    graph = engine.map_parents(heads.values())
    ages = {each: age for age, each in enumerate(TopologicalSorter(graph).static_order())}
    internal = find_beginning(engine)
    owners = {each: name for name, owner in _owners(graph, heads, internal) for each in owner}
    hashes = {owner for owner in owners if owner.startswith(query.lower())} if "hash" in by else set()
    youngest = sorted(heads.items(), key=lambda each: ages.get(each[1], -1), reverse=True)
    known = _infos(engine, dict(youngest), graph, internal) if "message" in by else {}
    wanted = query.casefold()
    matched = hashes | {each for each, info in known.items() if wanted in info.message.casefold()}
    infos = [known.get(each) or engine.read_revision(each) for each in matched]
    infos.sort(key=lambda each: (each.date, ages[each.revision]), reverse=True)
    return [
        FoundCommit(
            **asdict(each), branch=owners[each.revision], match="hash" if each.revision in hashes else "message"
        )
        for each in infos
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
    for name, owner in _owners(graph, heads, without):
        found = map(engine.read_revision, owner) if len(owner) <= _EACH else engine.log(heads[name])
        infos |= {each.revision: each for each in found if each.revision not in without}
    return infos


class AheadBehind(Record, frozen=True):
    """Numbers of commits that only we have (`ahead`), and only the other side."""

    ahead: int = 0
    behind: int = 0

    @property
    def diverged(self) -> bool:
        return self.ahead > 0 and self.behind > 0


class Distances:
    """Distances between any of these commits and their ancestors, from one walk through the
    history.
    """

    def __init__(self, engine: Engine, heads: Collection[str]) -> None:
        self._parents: Mapping[str, tuple[str, ...]] = engine.map_parents(heads) if heads else {}
        self._before = find_beginning(engine)

    def count_apart(self, ours: Iterable[str], theirs: Iterable[str]) -> AheadBehind:
        """All commits of both sides count, however many they are."""
        mine, other = self._ancestors(ours), self._ancestors(theirs)
        return AheadBehind(len(mine - other - self._before), len(other - mine - self._before))

    def _ancestors(self, heads: Iterable[str]) -> set[str]:
        from vmrag_link.workspace.commits.ancestry import list_ancestors

        return set(list_ancestors(self._parents, [head for head in heads if head in self._parents]))


def count_beyond(engine: Engine, heads: Collection[str], others: Collection[str] = ()) -> int:
    """How many commits these heads reach and the others do not."""
    return Distances(engine, [*heads, *others]).count_apart(heads, others).ahead


def compare_with_remote(engine: Engine, head: str, name: str, there: Mapping[str, str]) -> AheadBehind:
    """Against a remote's KB branch of this name. `there` has the heads of all its branches.

    If it has none of this name, every commit that it does not have is ahead.
    """
    heads = {each: at for each, at in there.items() if not is_reserved(each)}
    theirs = [heads[name]] if name in heads else [*heads.values()]
    if theirs == [head]:
        return AheadBehind()
    found = Distances(engine, [head, *theirs]).count_apart([head], theirs)
    return found if name in heads else AheadBehind(found.ahead)
