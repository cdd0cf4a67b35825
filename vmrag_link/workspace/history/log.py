"""List revisions, with their changes, the git commits that pin them, and names that point to them.

`vmrag log`, `vmrag show` and the tools use it. `vmrag init` makes the first revision that is
listed. The engine created its parent.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vmrag_link.engines.base import Engine
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.engines.own_branches import is_reserved, read_root
from vmrag_link.git import history as git_history
from vmrag_link.git import plumbing, refs
from vmrag_link.git.history import LoggedPins
from vmrag_link.models import ChangeCounts, Record, RevisionInfo
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.pins import history_pins

HEAD = "HEAD"


class LogRange(Record, frozen=True):
    """The revisions of a log: the heads and their ancestors, except `without`."""

    heads: tuple[str, ...]
    without: AbstractSet[str] = frozenset()


class GitCommit(Record, frozen=True):
    commit: str
    subject: str


class PinnedRevision(RevisionInfo, frozen=True):
    """A revision with the git commits that pin it."""

    commits: tuple[GitCommit, ...]
    """Git commits that introduced a pin of the revision, newest first."""
    refs: tuple[str, ...]
    """Names that point to the revision, such as `HEAD`, a branch of git, `tag: NAME`, or `kb: NAME`
    for a KB branch.
    """


class LogEntry(RevisionInfo, frozen=True):
    """A revision with the numbers of its changes."""

    changes: ChangeCounts
    """Compared with the first parent."""


class Log(Record, frozen=True):
    """One page of a log."""

    entries: list[LogEntry]
    total: int
    """Number of all matching revisions."""


def list_log(ws: Workspace, start: str, *, limit: int, offset: int, matches: Callable[[RevisionInfo], bool]) -> Log:
    """Return a page of the history of `start`: up to `limit` revisions after the first `offset`.

    `matches`: a filter, such as `made_between`.
    """
    infos = [info for info in list_revisions(ws.engine, [start], list_hidden(ws.engine)) if matches(info)]
    entries = [
        LogEntry(**msgspec.structs.asdict(info), changes=changes_of(ws.engine, info))
        for info in infos[offset : offset + limit]
    ]
    return Log(entries, total=len(infos))


def list_hidden(engine: Engine, reach: LogRange | None = None) -> AbstractSet[str]:
    """Return the revisions that no list shows: those before `vmrag init`, and those outside a
    range.
    """
    return revisions.find_beginning(engine) | (reach.without if reach else frozenset())


def list_revisions(engine: Engine, heads: Sequence[str], without: AbstractSet[str]) -> Iterator[RevisionInfo]:
    """Yield the heads and their ancestors, except `without`, newest first, children before parents.

    The first revision has no parent.
    """
    logs = [engine.log(head) for head in heads]
    # Two heads of a range have no listed revision in common, so their order does not matter.
    infos = logs[0] if len(logs) == 1 else heapq.merge(*map(list, logs), key=lambda info: info.date, reverse=True)
    root = read_root(engine)
    return (_without_parents(info) if info.revision == root else info for info in infos if info.revision not in without)


def read_info(engine: Engine, revision: str) -> RevisionInfo:
    """Return a revision, without its parent if it is the first. Raises `RevisionMissing`."""
    revision_info = engine.read_revision(revision)
    return _without_parents(revision_info) if revision == read_root(engine) else revision_info


def _without_parents(info: RevisionInfo) -> RevisionInfo:
    """Return the first revision without its parent, which the engine created."""
    return msgspec.structs.replace(info, parents=())


def add_pins(ws: Workspace, infos: Iterable[RevisionInfo], *, also: Iterable[str] = ()) -> list[PinnedRevision]:
    """Return the revisions with the git commits that introduced a pin of them, and their names.

    `also`: further commits, by full hash, whose ancestors are also searched.
    """
    listed = list(infos)
    revisions = {info.revision for info in listed}
    head = plumbing.read_head(ws.places).commit
    tips = {**({HEAD: head} if head else {}), **refs.list_tips(ws.places)}
    pins = git_history.read_logged_pins(ws.places, set(tips.values()), also=also)
    commits = _find_pinning_commits(ws, revisions, pins)
    pins_by_name = {name: pins.by_tip[commit] for name, commit in tips.items() if commit in pins.by_tip}
    names = _find_names(ws, revisions, pins_by_name)
    return [
        PinnedRevision(
            **msgspec.structs.asdict(info),
            commits=tuple(commits.get(info.revision, ())),
            refs=tuple(names.get(info.revision, ())),
        )
        for info in listed
    ]


def _find_pinning_commits(ws: Workspace, revisions: Collection[str], pins: LoggedPins) -> dict[str, list[GitCommit]]:
    """Return the git commits that introduced a pin, newest first, by revision."""
    revision_by_commit: dict[str, str] = {}
    for pin, commits in history_pins.parse_pins(ws.places, pins.introduced):
        if pin.dolt_commit in revisions:
            revision_by_commit.update(dict.fromkeys(commits, pin.dolt_commit))
    commits_by_revision: dict[str, list[GitCommit]] = {}
    for commit, subject in pins.subjects.items():  # newest first
        if commit in revision_by_commit:
            commits_by_revision.setdefault(revision_by_commit[commit], []).append(GitCommit(commit, subject))
    return commits_by_revision


def _find_names(ws: Workspace, revisions: Collection[str], pins: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the names that point to each revision (`PinnedRevision.refs`).

    `pins`: the bytes of pins by the name of a git ref. A KB branch is left out if the git branch of
    the same name pins the same revision.
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
    """Return a filter for `list_log`: revisions that were made in this period."""

    def is_in_period(info: RevisionInfo) -> bool:
        if since is None and until is None:
            return True
        time = dt.datetime.fromisoformat(info.date)
        return (since is None or since <= time) and (until is None or time <= until)

    return is_in_period


def changes_of(engine: Engine, info: RevisionInfo) -> ChangeCounts:
    """Return the numbers of changed documents, compared with the first parent."""
    return engine.count_changes(info.parents[0], info.revision) if info.parents else ChangeCounts()
