"""Search commits of the knowledge base, and count commits between them (`ahead` and `behind`).

`vmrag init` makes the first commit. Commits that the engine created before it, and commits that are
missing in this clone, are not counted.
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

_MAX_SINGLE_READS = 200
"""Up to this number, commits are read one by one (0.1 ms each), otherwise by the whole log (0.02 ms
each).
"""

Match = Literal["hash", "message"]


class FoundCommit(RevisionInfo, frozen=True):
    """A commit that a search found."""

    branch: str
    """A branch that contains it."""
    match: Match


def find_parent(engine: Engine, info: RevisionInfo) -> str | None:
    """Return the first parent; None for the first commit of the knowledge base."""
    return info.parents[0] if info.parents and info.revision != read_root(engine) else None


def find_beginning(engine: Engine) -> AbstractSet[str]:
    """Return the commits that the engine created before the first commit (of `vmrag init`)."""
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
    """Return the commits that match the query, newest first.

    `query`: the start of a hash, or part of a message, without regard to case. `heads`: heads by
    branch. A commit of several branches belongs to the first one. `by`: what the query may match.
    """
    graph = engine.map_parents(heads.values())
    ages = {revision: age for age, revision in enumerate(TopologicalSorter(graph).static_order())}
    internal = find_beginning(engine)
    branches: dict[str, str] = {}
    for name, revisions in _assign_owners(graph, heads, internal):
        branches.update(dict.fromkeys(revisions, name))
    hashes = {revision for revision in branches if revision.startswith(query.lower())} if "hash" in by else set()
    # The log of the youngest head has nearly all commits, so it is read first.
    youngest_first = sorted(heads.items(), key=lambda entry: ages.get(entry[1], -1), reverse=True)
    infos_by_revision = _read_infos(engine, dict(youngest_first), graph, internal) if "message" in by else {}
    text = query.casefold()
    matched = hashes | {revision for revision, info in infos_by_revision.items() if text in info.message.casefold()}
    infos = [infos_by_revision.get(revision) or engine.read_revision(revision) for revision in matched]
    infos.sort(key=lambda info: (info.date, ages[info.revision]), reverse=True)
    return [
        FoundCommit(
            **asdict(info), branch=branches[info.revision], match="hash" if info.revision in hashes else "message"
        )
        for info in infos
    ]


def _assign_owners(
    graph: Mapping[str, Iterable[str]], heads: Mapping[str, str], without: Iterable[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each name with the revisions that its head contains and no earlier head does."""
    seen = set(without)
    for name, head in heads.items():
        revisions: list[str] = []
        waiting = [head]
        while waiting:
            revision = waiting.pop()
            if revision in graph and revision not in seen:
                seen.add(revision)
                revisions.append(revision)
                waiting.extend(graph[revision])
        yield name, revisions


def _read_infos(
    engine: Engine, heads: Mapping[str, str], graph: Mapping[str, Iterable[str]], without: AbstractSet[str]
) -> dict[str, RevisionInfo]:
    """Return the commits of the heads by revision, without those in `without`."""
    infos: dict[str, RevisionInfo] = {}
    for name, revisions in _assign_owners(graph, heads, without):
        reads_log = len(revisions) > _MAX_SINGLE_READS
        head_infos = engine.log(heads[name]) if reads_log else map(engine.read_revision, revisions)
        infos |= {info.revision: info for info in head_infos if info.revision not in without}
    return infos


class AheadBehind(Record, frozen=True):
    """Numbers of commits that only one of two sides has."""

    ahead: int = 0
    """Only our side has them."""
    behind: int = 0
    """Only the other side has them."""

    @property
    def diverged(self) -> bool:
        return self.ahead > 0 and self.behind > 0


class Distances:
    """Count commits between the given heads and their ancestors, after one walk of the history."""

    def __init__(self, engine: Engine, heads: Collection[str]) -> None:
        self._parents: Mapping[str, tuple[str, ...]] = engine.map_parents(heads) if heads else {}
        self._before = find_beginning(engine)

    def count_apart(self, ours: Iterable[str], theirs: Iterable[str]) -> AheadBehind:
        """Return how many commits only one side has. A side consists of heads."""
        our_commits = self._find_ancestors(ours) - self._before
        their_commits = self._find_ancestors(theirs) - self._before
        return AheadBehind(ahead=len(our_commits - their_commits), behind=len(their_commits - our_commits))

    def _find_ancestors(self, heads: Iterable[str]) -> set[str]:
        from vmrag_link.workspace.commits.ancestry import list_ancestors

        return set(list_ancestors(self._parents, [head for head in heads if head in self._parents]))


def count_beyond(engine: Engine, heads: Collection[str], others: Collection[str] = ()) -> int:
    """Return how many commits these heads contain and the others do not."""
    return Distances(engine, [*heads, *others]).count_apart(heads, others).ahead


def compare_with_remote(engine: Engine, head: str, name: str, remote_heads: Mapping[str, str]) -> AheadBehind:
    """Count commits between a head and the remote's KB branch of this name.

    `remote_heads`: the heads of all branches of the remote. If it has no branch of this name, every
    commit that it lacks is ahead.
    """
    heads = {branch: branch_head for branch, branch_head in remote_heads.items() if not is_reserved(branch)}
    their_heads = [heads[name]] if name in heads else [*heads.values()]
    if their_heads == [head]:
        return AheadBehind()
    distance = Distances(engine, [head, *their_heads]).count_apart([head], their_heads)
    return distance if name in heads else AheadBehind(distance.ahead)
