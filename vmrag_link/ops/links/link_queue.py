"""Process the queue in which git's hooks request links from git commits to revisions.

A hook appends a line to the queue for each commit, and the next command processes the queue.

    commit HASH BRANCH          a commit was made; BRANCH may be empty
    rewrite OLD NEW             an amend or a rebase replaced OLD by NEW
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from vmrag_link import locks
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.git import history, repository
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.models import Link
from vmrag_link.ops.links import link as linking
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace

GRACE_SECONDS = 60.0
"""Seconds in which a hook may still append to a queue that it opened before."""

_RENAMED_SUFFIX = re.compile(r"\.(\d+)\.(\d+)")
_LINE = re.compile(f"(?:commit|rewrite ({COMMIT_NAME})) ({COMMIT_NAME})(?: (.*))?")


def flush_queue(ws: Workspace) -> int:
    """Process the queue and return the number of rows written.

    After a kill, the next call may process the same lines again.
    """
    if not _has_queued_lines(ws.places):
        return 0
    with locks.hold_exclusive(ws.places.locks / "links.lock", purpose="link", timeout=ws.lock_timeout):
        if ws.places.link_queue.exists():  # a hook appends to a new file from now on
            ws.places.link_queue.rename(_RenamedQueue(ws.places.link_queue, time.time_ns(), 0).path)
        contents = [(queue, queue.read_unread()) for queue in _list_renamed(ws.places)]
        rows = _parse_lines(ws, b"".join(data for _, data in contents))
        if rows:
            linking.store_links(ws, rows, "Link what git has committed")
        for queue, data in contents:
            queue.mark_read(len(data))
    return len(rows)


def read_queued_rows(ws: Workspace) -> list[Link]:
    """Return the rows that `flush_queue` would write. Nothing is changed."""
    data = b"".join(queue.read_unread() for queue in _list_renamed(ws.places))
    if ws.places.link_queue.exists():
        data += ws.places.link_queue.read_bytes()
    return _parse_lines(ws, data)


class _RenamedQueue(NamedTuple):
    """A file that was the queue. No hook opens it any longer.

    Its name contains `since` and `processed`.
    """

    queue: Path
    since: int
    """The time of the rename, in nanoseconds."""
    processed: int
    """Number of processed bytes."""

    @property
    def path(self) -> Path:
        return self.queue.with_name(f"{self.queue.name}.{self.since}.{self.processed}")

    @property
    def is_old(self) -> bool:
        return abs(time.time_ns() - self.since) > GRACE_SECONDS * 1e9  # a clock may have been set back

    @property
    def needs_processing(self) -> bool:
        return self.is_old or self.path.stat().st_size > self.processed

    def read_unread(self) -> bytes:
        """Return the complete lines that were not processed yet."""
        rest = self.path.read_bytes()[self.processed :]
        return rest[: rest.rfind(b"\n") + 1]

    def mark_read(self, size: int) -> None:
        """Record that this many more bytes were processed, or remove an old file."""
        if self.is_old:
            self.path.unlink()
        elif size:
            self.path.rename(self._replace(processed=self.processed + size).path)


def _has_queued_lines(places: Places) -> bool:
    try:
        return places.link_queue.exists() or any(queue.needs_processing for queue in _list_renamed(places))
    except FileNotFoundError:
        return True  # another process is processing them


def _list_renamed(places: Places) -> list[_RenamedQueue]:
    """Return the renamed queues, the oldest first."""
    queue = places.link_queue
    suffixes = (path.name.removeprefix(queue.name) for path in queue.parent.glob(f"{queue.name}.*.*"))
    matches = (_RENAMED_SUFFIX.fullmatch(suffix) for suffix in suffixes)
    return sorted(_RenamedQueue(queue, int(match[1]), int(match[2])) for match in matches if match)


def _parse_lines(ws: Workspace, data: bytes) -> list[Link]:
    """Return the rows that these lines of a queue change.

    An invalid line was cut by a kill. git's history still contains its commit.
    """
    matches = (_LINE.fullmatch(line) for line in data.decode(errors="replace").split("\n"))
    entries = [match.groups(default="") for match in matches if match]
    if not entries:
        return []
    rows_before = {row.git_commit: row for row in ws.engine.list_links()}
    manual = {commit for commit, row in rows_before.items() if row.source == "manual"}
    links = _derive_for_commits(ws, {new for _, new, _ in entries} - manual)
    rows = dict(rows_before)
    for old, new, branch in entries:
        replaced = rows.get(old)
        if replaced:
            rows[old] = replace(replaced, superseded_by=new)
        link = links.get(new)
        if link:
            existing = rows.get(new, link)
            git_branch = branch or existing.git_branch or (replaced.git_branch if replaced else "")
            rows[new] = replace(link, git_branch=git_branch)
    return [row for commit, row in rows.items() if row != rows_before.get(commit)]


def _derive_for_commits(ws: Workspace, commits: Iterable[str]) -> dict[str, Link]:
    """Return the link of each of these commits that introduces a pin, without its branch."""
    url = repository.read_origin_url(ws.places)
    links = {}
    for commit, data in history.read_introduced_pins(ws.places, commits).items():
        pin = try_read_pin(ws.places.kb, data)
        if pin:
            links[commit] = Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)
    return links
