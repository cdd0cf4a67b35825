"""Links that git's hooks asked for.

A shim appends a line for each commit; the next command works them off.

commit HASH BRANCH          a commit was made; BRANCH may be empty
rewrite OLD NEW             an amend or a rebase put NEW in the place of OLD
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from vmrag_link import locks
from vmrag_link.git import history, repository
from vmrag_link.git.heads import COMMIT_NAME
from vmrag_link.models import Link
from vmrag_link.ops.links import link as linking
from vmrag_link.ops.pins.pinning import parsed
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace

GRACE = 60.0
"""Seconds in which a shim may still append to a queue that it had opened before."""

_TAKEN = re.compile(r"\.(\d+)\.(\d+)")
_LINE = re.compile(f"(?:commit|rewrite ({COMMIT_NAME})) ({COMMIT_NAME})(?: (.*))?")


class Taken(NamedTuple):
    """A queue that no shim opens any more.

    Its name holds the time when it was taken (ns) and how much of it is done (bytes).
    """

    queue: Path
    since: int
    done: int

    @property
    def path(self) -> Path:
        return self.queue.with_name(f"{self.queue.name}.{self.since}.{self.done}")

    @property
    def old(self) -> bool:
        return abs(time.time_ns() - self.since) > GRACE * 1e9  # clocks are set back, too

    @property
    def waits(self) -> bool:
        return self.old or self.path.stat().st_size > self.done

    def unread(self) -> bytes:
        """Whole lines."""
        rest = self.path.read_bytes()[self.done :]
        return rest[: rest.rfind(b"\n") + 1]

    def settle(self, read: int) -> None:
        if self.old:
            self.path.unlink()
        elif read:
            self.path.rename(self._replace(done=self.done + read).path)


def flush(ws: Workspace) -> int:
    """Work off what is queued; returns the number of rows written.

    A kill leaves the lines to the next one, which may do them twice.
    """
    if not _waiting(ws.places):
        return 0
    with locks.exclusive(ws.places.locks / "links.lock", purpose="link", timeout=ws.lock_timeout):
        if ws.places.link_queue.exists():  # what a shim appends from now on goes into a new file
            ws.places.link_queue.rename(Taken(ws.places.link_queue, time.time_ns(), 0).path)
        taken = [(each, each.unread()) for each in _queues(ws.places)]
        rows = _rows(ws, b"".join(data for _, data in taken).decode(errors="replace").split("\n"))
        if rows:
            linking.store(ws, rows, "Link what git has committed")
        for each, data in taken:
            each.settle(len(data))
    return len(rows)


def _waiting(places: Places) -> bool:
    try:
        return places.link_queue.exists() or any(each.waits for each in _queues(places))
    except FileNotFoundError:
        return True  # somebody else is at it


def _queues(places: Places) -> list[Taken]:
    """The oldest first."""
    queue = places.link_queue
    names = (_TAKEN.fullmatch(path.suffixes[-2] + path.suffix) for path in queue.parent.glob(f"{queue.name}.*.*"))
    return sorted(Taken(queue, int(name[1]), int(name[2])) for name in names if name)


def _rows(ws: Workspace, lines: list[str]) -> list[Link]:
    """The rows that these lines change.

    A line that is none was cut by a kill; history knows its commit all the same.
    """
    asked = [match.groups(default="") for line in lines if (match := _LINE.fullmatch(line))]
    there = {each.git_commit: each for each in ws.engine.links()} if asked else {}
    by_hand = {commit for commit, each in there.items() if each.source == "manual"}
    links = _links(ws, {new for _, new, _ in asked} - by_hand)
    rows = dict(there)
    for old, new, branch in asked:
        replaced = rows.get(old)
        if replaced:
            rows[old] = replace(replaced, superseded_by=new)
        if link := links.get(new):
            branches = (branch, rows.get(new, link).git_branch, replaced.git_branch if replaced else "")
            rows[new] = replace(link, git_branch=next(filter(None, branches), ""))
    return [row for commit, row in rows.items() if row != there.get(commit)]


def _links(ws: Workspace, commits: Iterable[str]) -> dict[str, Link]:
    """The link of each of these commits that introduces a pin, without its branch."""
    url = repository.origin(ws.places)
    return {
        commit: Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)
        for commit, data in history.introduced(ws.places, commits).items()
        if (pin := parsed(ws.places.kb, data))
    }
