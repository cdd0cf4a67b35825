"""The revisions behind a place, with their changes, and what of the code has them: the git commits
that pin them, the branches and tags that stand on them.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vmrag_link.engines.base import Engine, is_reserved, read_root
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.git import history as git_history
from vmrag_link.git import plumbing, refs
from vmrag_link.git.history import LoggedPins
from vmrag_link.models import ChangeCounts, Record, RevisionInfo
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.pins import history_pins

HEAD = "HEAD"


class LogRange(Record, frozen=True):
    """What a log shows: all that the `heads` contain, but for the revisions in `without`."""

    heads: tuple[str, ...]
    without: AbstractSet[str] = frozenset()


class GitCommit(Record, frozen=True):
    commit: str
    subject: str


class PinnedRevision(RevisionInfo, frozen=True):
    """`commits` of git that introduced a pin on it, newest first; `refs`: what stands on it
    (`_names_on`).
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


def list_log(ws: Workspace, start: str, *, limit: int, offset: int, wanted: Callable[[RevisionInfo], bool]) -> Log:
    """`limit` of the wanted revisions behind `start`, itself included, after the first `offset`."""
    found = [each for each in list_revisions(ws.engine, [start], list_hidden(ws.engine)) if wanted(each)]
    return Log([_entry(ws.engine, each) for each in found[offset:][:limit]], len(found))


def list_hidden(engine: Engine, reach: LogRange | None = None) -> AbstractSet[str]:
    """The revisions that no list shows: what the engine made before the first commit, and what a
    range excludes.
    """
    return revisions.find_beginning(engine) | (reach.without if reach else frozenset())


def list_revisions(engine: Engine, heads: Sequence[str], without: AbstractSet[str]) -> Iterator[RevisionInfo]:
    """What these heads contain, newest first, children before parents; the first commit has no
    parent.
    """
    logs = [engine.log(head) for head in heads]
    # Two heads of a range share nothing that is shown, so no order is to be kept between them.
    found = logs[0] if len(logs) == 1 else heapq.merge(*map(list, logs), key=lambda each: each.date, reverse=True)
    root = read_root(engine)
    return (_first(each) if each.revision == root else each for each in found if each.revision not in without)


def read_info(engine: Engine, revision: str) -> RevisionInfo:
    """As `reached` has it. Raises `RevisionMissing`."""
    found = engine.read_revision(revision)
    return _first(found) if revision == read_root(engine) else found


def _first(found: RevisionInfo) -> RevisionInfo:
    """Without the engine's own commit before it."""
    return msgspec.structs.replace(found, parents=())


def add_pins(ws: Workspace, found: Iterable[RevisionInfo], *, also: Iterable[str] = ()) -> list[PinnedRevision]:
    """Return the same revisions with the git commits that introduced a pin on them, newest first,
    and with the names that point to them.

    `also`: further commits, by full hash, whose ancestors count too.
    """
    listed = list(found)
    asked = {info.revision for info in listed}
    head = plumbing.read_head(ws.places)
    tips = {**({HEAD: head.commit} if head.commit else {}), **refs.list_tips(ws.places)}
    pins = git_history.read_logged_pins(ws.places, set(tips.values()), also=also)
    commits = _commits_of(ws, asked, pins)
    names = _names_on(ws, asked, {name: pins.by_tip[commit] for name, commit in tips.items() if commit in pins.by_tip})
    return [
        PinnedRevision(
            **msgspec.structs.asdict(info),
            commits=tuple(commits.get(info.revision, ())),
            refs=tuple(names.get(info.revision, ())),
        )
        for info in listed
    ]


def _commits_of(ws: Workspace, revisions: Collection[str], pins: LoggedPins) -> dict[str, list[GitCommit]]:
    """By revision, the commits that introduced a pin on it, newest first."""
    pinned = {
        commit: pin.dolt_commit
        for pin, introducing in history_pins.parse_pins(ws.places, pins.introduced)
        for commit in introducing
        if pin.dolt_commit in revisions
    }
    commits: dict[str, list[GitCommit]] = {}
    for commit, subject in pins.subjects.items():
        if commit in pinned:
            commits.setdefault(pinned[commit], []).append(GitCommit(commit, subject))
    return commits


def _names_on(ws: Workspace, revisions: Collection[str], pins: Mapping[str, bytes]) -> dict[str, list[str]]:
    """By revision, what stands on it: `HEAD`, git's branches, `tag: NAME`, branches of remotes, and
    `kb: NAME` for a branch of the knowledge base where git's branch of that name pins another one.
    `pins`: by these names.
    """
    names: dict[str, list[str]] = {}
    for name, data in pins.items():
        pin = try_read_pin(ws.places.kb, data)
        if pin and pin.dolt_commit in revisions:
            names.setdefault(pin.dolt_commit, []).append(name)
    for branch in ws.engine.list_branches():
        listed = names.get(branch.head, [])
        if branch.head in revisions and not is_reserved(branch.name) and branch.name not in listed:
            names.setdefault(branch.head, []).append(f"kb: {branch.name}")
    return names


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
