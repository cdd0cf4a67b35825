"""The revisions behind a place, with their changes and the git commits that pin them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

from vmrag_link.engines.base import Engine
from vmrag_link.git import history as git_history
from vmrag_link.models import ChangeCounts, Record, RevisionInfo
from vmrag_link.ops.commits import revisions
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history.revparse import WORKING, resolve_rev
from vmrag_link.ops.pins import history_pins
from vmrag_link.workspace import Workspace


class GitCommit(Record, frozen=True):
    commit: str
    subject: str


class LogEntry(RevisionInfo, frozen=True):
    """`changes` against the first parent; `commits` of git that introduced a pin on it, newest
    first.
    """

    changes: ChangeCounts
    commits: tuple[GitCommit, ...] = ()


class Log(Record, frozen=True):
    """`total`: how many there are in all, if they were counted."""

    entries: list[LogEntry]
    total: int | None = None


def log(
    ws: Workspace,
    start: str,
    *,
    limit: int,
    offset: int = 0,
    wanted: Callable[[RevisionInfo], bool] | None = None,
    with_pins: bool = False,
) -> Log:
    """`limit` of the revisions behind `start`, itself included, after the first `offset`.

    `wanted`: only these, which are counted. `with_pins`: with the commits of git that pin each.
    """
    if wanted is None:
        shown, total = [*ws.engine.log(start, limit=offset + limit)][offset:], None
    else:
        found = [each for each in ws.engine.log(start) if wanted(each)]
        shown, total = found[offset:][:limit], len(found)
    commits = _pinning_commits(ws, {each.revision for each in shown}) if with_pins else {}
    return Log([_entry(ws, each, commits) for each in shown], total)


def first_of(ws: Workspace, ref: str | None) -> str:
    """The revision where a log begins. Without a `ref`, or for `WORKING`, the workspace's."""
    if ref is not None and ref != WORKING:
        return resolve_rev(ws, ref)
    move_and_warn(ws)
    return ws.revision_here()


def made_between(
    engine: Engine, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> Callable[[RevisionInfo], bool]:
    """A `wanted` for `log`: commits made within these times, the engine's own left out."""
    internal = revisions.beginning(engine)

    def wanted(info: RevisionInfo) -> bool:
        if info.revision in internal:
            return False
        if since is None and until is None:
            return True
        made = dt.datetime.fromisoformat(info.date)
        return (since is None or since <= made) and (until is None or made <= until)

    return wanted


def _entry(ws: Workspace, info: RevisionInfo, commits: Mapping[str, Sequence[GitCommit]]) -> LogEntry:
    parent = info.parents[0] if info.parents else None
    changes = ws.engine.count_changes(parent, info.revision) if parent else ChangeCounts()
    pinned = tuple(commits.get(info.revision, ()))
    return LogEntry(info.revision, info.parents, info.message, info.author, info.date, changes, pinned)


def _pinning_commits(ws: Workspace, wanted: set[str]) -> dict[str, list[GitCommit]]:
    """The commits of git's refs that introduced a pin on one of these revisions, newest first."""
    pinned: dict[str, str] = {}
    for pin, introducing in history_pins.read(ws.places, reflogs=False):
        if pin.dolt_commit in wanted:
            pinned.update(dict.fromkeys(introducing, pin.dolt_commit))
    found: dict[str, list[GitCommit]] = {}
    for commit, subject in git_history.subjects(ws.places, pinned).items():
        found.setdefault(pinned[commit], []).append(GitCommit(commit, subject))
    return found
