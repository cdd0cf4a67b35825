"""The revisions behind a place, with their changes, and what of the code has them: the git commits
that pin them, the branches and tags that stand on them.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.engines.base import Engine, reserved, root_of
from vmrag_link.git import history as git_history
from vmrag_link.git import plumbing, refs
from vmrag_link.models import ChangeCounts, Record, RevisionInfo
from vmrag_link.ops.commits import revisions
from vmrag_link.ops.pins import history_pins
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.ops.history.ranges import Reach


HEAD = "HEAD"


class GitCommit(Record, frozen=True):
    commit: str
    subject: str


class PinnedRevision(RevisionInfo, frozen=True):
    """`commits` of git that introduced a pin on it, newest first; `refs`: what stands on it
    (`names_on`).
    """

    commits: tuple[GitCommit, ...]
    refs: tuple[str, ...]


class LogEntry(RevisionInfo, frozen=True):
    """`changes` against the first parent."""

    changes: ChangeCounts


class Log(Record, frozen=True):
    """`total`: how many there are in all."""

    entries: list[LogEntry]
    total: int


def log(ws: Workspace, start: str, *, limit: int, offset: int, wanted: Callable[[RevisionInfo], bool]) -> Log:
    """`limit` of the wanted revisions behind `start`, itself included, after the first `offset`."""
    found = [each for each in reached(ws.engine, [start], hidden(ws.engine)) if wanted(each)]
    return Log([_entry(ws.engine, each) for each in found[offset:][:limit]], len(found))


def hidden(engine: Engine, reach: Reach | None = None) -> AbstractSet[str]:
    """The revisions that no list shows: what the engine made before the first commit, and what a
    range excludes.
    """
    return revisions.beginning(engine) | (reach.without if reach else frozenset())


def reached(engine: Engine, heads: Sequence[str], without: AbstractSet[str]) -> Iterator[RevisionInfo]:
    """What these heads contain, newest first, children before parents; the first commit has no
    parent.
    """
    logs = [engine.log(head) for head in heads]
    # Two heads of a range share nothing that is shown, so no order is to be kept between them.
    found = logs[0] if len(logs) == 1 else heapq.merge(*map(list, logs), key=lambda each: each.date, reverse=True)
    root = root_of(engine)
    return (_first(each) if each.revision == root else each for each in found if each.revision not in without)


def info(engine: Engine, revision: str) -> RevisionInfo:
    """As `reached` has it. Raises `RevisionMissing`."""
    found = engine.info(revision)
    return _first(found) if revision == root_of(engine) else found


def _first(found: RevisionInfo) -> RevisionInfo:
    """Without the engine's own commit before it."""
    return msgspec.structs.replace(found, parents=())


def pinned(ws: Workspace, found: Iterable[RevisionInfo], *, also: Iterable[str] = ()) -> list[PinnedRevision]:
    """The same revisions with what of the code has them. `also`: as in `commits_of`."""
    listed = list(found)
    asked = {each.revision for each in listed}
    commits, names = commits_of(ws, asked, also=also), names_on(ws, asked)
    return [
        PinnedRevision(
            **msgspec.structs.asdict(each),
            commits=tuple(commits.get(each.revision, ())),
            refs=tuple(names.get(each.revision, ())),
        )
        for each in listed
    ]


def commits_of(ws: Workspace, revisions: Collection[str], *, also: Iterable[str] = ()) -> dict[str, list[GitCommit]]:
    """By revision, the commits of git's refs that introduced a pin on it, newest first; `also`:
    commits that no ref may have, by full hash, with their ancestors.
    """
    pinned: dict[str, str] = {}
    for pin, introducing in history_pins.read_pins(ws.places, reflogs=False, also=also):
        if pin.dolt_commit in revisions:
            pinned.update(dict.fromkeys(introducing, pin.dolt_commit))
    found: dict[str, list[GitCommit]] = {}
    for commit, subject in git_history.subjects(ws.places, pinned).items():
        found.setdefault(pinned[commit], []).append(GitCommit(commit, subject))
    return found


def names_on(ws: Workspace, revisions: Collection[str]) -> dict[str, list[str]]:
    """By revision, what stands on it: `HEAD`, git's branches, `tag: NAME`, branches of remotes, and
    `kb: NAME` for a branch of the knowledge base where git's branch of that name pins another one.
    """
    head = plumbing.head(ws.places)
    tips = {HEAD: head.commit, **refs.tips(ws.places)} if head.commit else refs.tips(ws.places)
    pins = git_history.pins_of(ws.places, {each for each in tips.values() if each})
    found: dict[str, list[str]] = {}
    for name, commit in tips.items():
        pin = parsed(ws.places.kb, pins[commit]) if commit in pins else None
        if pin and pin.dolt_commit in revisions:
            found.setdefault(pin.dolt_commit, []).append(name)
    for branch in ws.engine.branches():
        there = found.get(branch.head, [])
        if branch.head in revisions and not reserved(branch.name) and branch.name not in there:
            found.setdefault(branch.head, []).append(f"kb: {branch.name}")
    return found


def made_between(since: dt.datetime | None = None, until: dt.datetime | None = None) -> Callable[[RevisionInfo], bool]:
    """A `wanted` for `log`: commits made within these times."""

    def wanted(info: RevisionInfo) -> bool:
        if since is None and until is None:
            return True
        made = dt.datetime.fromisoformat(info.date)
        return (since is None or since <= made) and (until is None or made <= until)

    return wanted


def changes_of(engine: Engine, info: RevisionInfo) -> ChangeCounts:
    """Against the first parent."""
    return engine.count_changes(info.parents[0], info.revision) if info.parents else ChangeCounts()


def _entry(engine: Engine, info: RevisionInfo) -> LogEntry:
    return LogEntry(**msgspec.structs.asdict(info), changes=changes_of(engine, info))
