"""Find commits of the knowledge base, their branches, and distances between them.

The first commit is that of `init`. Commits that the engine created before it do not count in
distances, nor do missing commits.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from graphlib import TopologicalSorter
from typing import Literal

from msgspec.structs import asdict

from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import is_reserved, read_root
from vmrag_link.models import Record, RevisionInfo

_MOST_SINGLE_READS = 200
"""Maximum number of commits that are read one by one (0.1 ms each). For more, the whole log is read
(0.02 ms each).
"""

Match = Literal["hash", "message"]


class FoundCommit(RevisionInfo, frozen=True):
    """A commit that a search found. `branch`: a branch that has it."""

    branch: str
    match: Match


def find_parent(engine: Engine, info: RevisionInfo) -> str | None:
    """Return the first parent; None for the first commit of the knowledge base."""
    return info.parents[0] if info.parents and info.revision != read_root(engine) else None


def find_beginning(engine: Engine) -> AbstractSet[str]:
    """Return the commits that the engine created before the first commit."""
    root = read_root(engine)
    return engine.map_parents([root]).keys() - {root}


def list_holding_heads(engine: Engine, revision: str, heads: Mapping[str, str]) -> list[str]:
    """Return the names of the heads that contain a revision."""
    from vmrag_link.workspace.commits.ancestry import Ancestry

    ancestry = Ancestry(engine, [revision, *heads.values()])
    return [
        name for name, head in heads.items() if ancestry.has_revision(head) and ancestry.is_descendant(head, revision)
    ]


def find_commits(engine: Engine, query: str, heads: Mapping[str, str], *, by: Container[Match]) -> list[FoundCommit]:
    """Return the commits of these heads that match the query, newest first.

    The query is the start of a hash, or part of a message in any case. A commit of several heads
    belongs to the first head. All heads need one walk.
    """
    graph = engine.map_parents(heads.values())
    ages = {revision: age for age, revision in enumerate(TopologicalSorter(graph).static_order())}
    internal = find_beginning(engine)
    owners = {revision: name for name, owner in _assign_owners(graph, heads, internal) for revision in owner}
    hashes = {owner for owner in owners if owner.startswith(query.lower())} if "hash" in by else set()
    youngest = sorted(heads.items(), key=lambda entry: ages.get(entry[1], -1), reverse=True)
    infos_by_revision = _read_infos(engine, dict(youngest), graph, internal) if "message" in by else {}
    text = query.casefold()
    matched = hashes | {revision for revision, info in infos_by_revision.items() if text in info.message.casefold()}
    infos = [infos_by_revision.get(revision) or engine.read_revision(revision) for revision in matched]
    infos.sort(key=lambda info: (info.date, ages[info.revision]), reverse=True)
    return [
        FoundCommit(
            **asdict(info), branch=owners[info.revision], match="hash" if info.revision in hashes else "message"
        )
        for info in infos
    ]


def _assign_owners(
    graph: Mapping[str, Iterable[str]], heads: Mapping[str, str], without: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield for each name the revisions that its head reaches and no earlier head does."""
    seen = set(without)
    for name, head in heads.items():
        reached, waiting = [], [head]
        while waiting:
            revision = waiting.pop()
            if revision in graph and revision not in seen:
                seen.add(revision)
                reached.append(revision)
                waiting.extend(graph[revision])
        yield name, reached


def _read_infos(
    engine: Engine, heads: Mapping[str, str], graph: Mapping[str, Iterable[str]], without: AbstractSet[str]
) -> dict[str, RevisionInfo]:
    """Return the commits of the heads by revision.

    The youngest head is first, so that the first log has nearly all of them.
    """
    infos: dict[str, RevisionInfo] = {}
    for name, owner in _assign_owners(graph, heads, without):
        infos_of_head = (
            map(engine.read_revision, owner) if len(owner) <= _MOST_SINGLE_READS else engine.log(heads[name])
        )
        infos |= {info.revision: info for info in infos_of_head if info.revision not in without}
    return infos


class AheadBehind(Record, frozen=True):
    """Numbers of commits that only we have (`ahead`), and that only the other side has."""

    ahead: int = 0
    behind: int = 0

    @property
    def diverged(self) -> bool:
        return self.ahead > 0 and self.behind > 0


class Distances:
    """Distances between these commits and their ancestors, from one walk through the history."""

    def __init__(self, engine: Engine, heads: Collection[str]) -> None:
        self._parents: Mapping[str, tuple[str, ...]] = engine.map_parents(heads) if heads else {}
        self._before = find_beginning(engine)

    def count_apart(self, ours: Iterable[str], theirs: Iterable[str]) -> AheadBehind:
        """Count the commits that only one side has."""
        our_commits, other = self._find_ancestors(ours), self._find_ancestors(theirs)
        return AheadBehind(len(our_commits - other - self._before), len(other - our_commits - self._before))

    def _find_ancestors(self, heads: Iterable[str]) -> set[str]:
        from vmrag_link.workspace.commits.ancestry import list_ancestors

        return set(list_ancestors(self._parents, [head for head in heads if head in self._parents]))


def count_beyond(engine: Engine, heads: Collection[str], others: Collection[str] = ()) -> int:
    """Return how many commits these heads reach and the others do not."""
    return Distances(engine, [*heads, *others]).count_apart(heads, others).ahead


def compare_with_remote(engine: Engine, head: str, name: str, remote_heads: Mapping[str, str]) -> AheadBehind:
    """Compare a head with a remote's KB branch of this name.

    `remote_heads`: the heads of all its branches. If it has no such branch, every commit that it
    does not have is ahead.
    """
    heads = {branch: at for branch, at in remote_heads.items() if not is_reserved(branch)}
    their_heads = [heads[name]] if name in heads else [*heads.values()]
    if their_heads == [head]:
        return AheadBehind()
    distance = Distances(engine, [head, *their_heads]).count_apart([head], their_heads)
    return distance if name in heads else AheadBehind(distance.ahead)
