"""`vmrag links`: the table `git_links`, with links derived from git's history, manual links, and
links that git's hooks requested.

A shim appends a line to a queue for each commit, and the next command processes the queue.

    commit HASH BRANCH          a commit was made; BRANCH may be empty
    rewrite OLD NEW             an amend or a rebase replaced OLD by NEW
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from vmrag_link import locks
from vmrag_link.engines import migrated
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import EngineUnwritable, FileFailed, LinkMissing, quoted, refuses_writing
from vmrag_link.git import history, objects, plumbing, repository
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.models import Link, Record
from vmrag_link.ops.links import link as linking
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import recovery
from vmrag_link.workspace.pins import history_pins

GRACE_SECONDS = 60.0
"""Seconds in which a shim may still append to a queue that it opened before."""

_TAKEN = re.compile(r"\.(\d+)\.(\d+)")
_LINE = re.compile(f"(?:commit|rewrite ({COMMIT_NAME})) ({COMMIT_NAME})(?: (.*))?")


class LinksReport(Record, frozen=True):
    links: list[Link]


class RebuildReport(Record, frozen=True):
    """Numbers of rows."""

    derived: int
    """Rows derived from git's history now."""
    changed: int
    """Derived rows that were different or missing."""
    removed: int
    manual: int
    """Rows made by hand, which are kept."""


def list_links(ws: Workspace, *, revision: str | None = None) -> LinksReport:
    """Return all links, or those of one revision, sorted by git commit."""
    recovery.recover(ws)
    rows = _read_rows(ws)
    return LinksReport([row for row in rows if revision in (None, row.dolt_commit)])


def _read_rows(ws: Workspace) -> list[Link]:
    """Process the queue and return all links, sorted by git commit.

    If nothing can be written, the queue stays for a later command.
    """
    try:
        flush_queue(ws)
    except EngineUnwritable:
        pass
    except FileFailed as error:
        if not refuses_writing(error):
            raise
    else:
        return ws.engine.list_links()
    queued = b"".join(taken.read_unread() for taken in _list_queues(ws.places))
    if ws.places.link_queue.exists():
        queued += ws.places.link_queue.read_bytes()
    rows = {row.git_commit: row for row in ws.engine.list_links()}
    rows |= {row.git_commit: row for row in _parse_queue(ws, queued.decode(errors="replace").split("\n"))}
    return [rows[commit] for commit in sorted(rows)]


def show_link(ws: Workspace, ref: str) -> Link:
    """Return the link of a commit: a manual link, or else the pin in its tree.

    Raises `LinkMissing`.
    """
    recovery.recover(ws)
    commit = plumbing.resolve_commit(ws.places, ref)
    rows = [row for row in _read_rows(ws) if row.git_commit == commit]
    if rows and rows[0].source == "manual":
        return rows[0]
    data = plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}")
    if data is None:
        raise LinkMissing(f"no link for {ref}.", hint=f"run 'vmrag link --git-commit {quoted(ref)}'", ref=ref)
    pin = migrated.read_pin(ws.places.kb, data, source=f"{ref}:{PIN_NAME}")
    row = rows[0] if rows else Link(commit, "", "")  # the row may be from another clone
    return replace(row, dolt_commit=pin.dolt_commit, dolt_branch=pin.dolt_branch, linked_at=pin.linked_at)


def rebuild_links(ws: Workspace) -> RebuildReport:
    """Derive the rows of the source `pin` from git's history again, and keep the manual ones.

    A commit has a row if it introduces the pin in its tree. Rows of commits that no ref contains
    any longer are removed. Rows of commits that this clone does not have belong to other clones and
    stay.
    """
    recovery.recover(ws)
    flush_queue(ws)
    rows_by_commit = {row.git_commit: row for row in ws.engine.list_links()}
    manual = {commit for commit, row in rows_by_commit.items() if row.source == "manual"}
    url = repository.read_origin_url(ws.places)
    derived = {row.git_commit: row for row in derive_links(ws, url) if row.git_commit not in manual}
    changed = [
        row
        for commit, row in derived.items()
        if commit not in rows_by_commit or not is_same_link(rows_by_commit[commit], row)
    ]
    unknown = rows_by_commit.keys() - derived.keys() - manual
    removed = tuple(sorted(unknown.difference(objects.find_missing_commits(ws.places, unknown)))) if unknown else ()
    if changed or removed:
        linking.store_links(ws, changed, "Derive the links from git's history", remove=removed)
    return RebuildReport(len(derived), len(changed), len(removed), len(manual))


def derive_links(ws: Workspace, url: str) -> Iterable[Link]:
    """Yield the links in the history of every ref. A pin that cannot be read yields none."""
    for pin, commits in history_pins.read_pins(ws.places, reflogs=False):
        for commit in commits:
            yield Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)


def is_same_link(link: Link, other_link: Link) -> bool:
    """Return whether two rows link a commit to the same revision. The clone that made a row does
    not matter.
    """
    return _select_columns(link) == _select_columns(other_link)


def _select_columns(link: Link) -> tuple[str, ...]:
    return link.git_commit, link.dolt_commit, link.dolt_branch, link.linked_at


class TakenQueue(NamedTuple):
    """A queue that no shim opens any longer.

    The name of its file contains `since` and `processed`.
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
    def waits(self) -> bool:
        return self.is_old or self.path.stat().st_size > self.processed

    def read_unread(self) -> bytes:
        """Return the complete lines that were not processed yet."""
        rest = self.path.read_bytes()[self.processed :]
        return rest[: rest.rfind(b"\n") + 1]

    def mark_read(self, read: int) -> None:
        if self.is_old:
            self.path.unlink()
        elif read:
            self.path.rename(self._replace(processed=self.processed + read).path)


def flush_queue(ws: Workspace) -> int:
    """Process the queue and return the number of rows written.

    After a kill, the next call may process the same lines again.
    """
    if not _has_queued_lines(ws.places):
        return 0
    with locks.hold_exclusive(ws.places.locks / "links.lock", purpose="link", timeout=ws.lock_timeout):
        if ws.places.link_queue.exists():  # a shim appends to a new file from now on
            ws.places.link_queue.rename(TakenQueue(ws.places.link_queue, time.time_ns(), 0).path)
        taken = [(queue, queue.read_unread()) for queue in _list_queues(ws.places)]
        rows = _parse_queue(ws, b"".join(data for _, data in taken).decode(errors="replace").split("\n"))
        if rows:
            linking.store_links(ws, rows, "Link what git has committed")
        for queue, data in taken:
            queue.mark_read(len(data))
    return len(rows)


def _has_queued_lines(places: Places) -> bool:
    try:
        return places.link_queue.exists() or any(queue.waits for queue in _list_queues(places))
    except FileNotFoundError:
        return True  # another process is processing them


def _list_queues(places: Places) -> list[TakenQueue]:
    """Return the taken queues, the oldest first."""
    queue = places.link_queue
    names = (_TAKEN.fullmatch(path.suffixes[-2] + path.suffix) for path in queue.parent.glob(f"{queue.name}.*.*"))
    return sorted(TakenQueue(queue, int(name[1]), int(name[2])) for name in names if name)


def _parse_queue(ws: Workspace, lines: list[str]) -> list[Link]:
    """Return the rows that these lines change.

    An invalid line was cut by a kill. git's history still contains its commit.
    """
    entries = [match.groups(default="") for line in lines if (match := _LINE.fullmatch(line))]
    rows_by_commit = {row.git_commit: row for row in ws.engine.list_links()} if entries else {}
    manual = {commit for commit, row in rows_by_commit.items() if row.source == "manual"}
    links = _derive_for_commits(ws, {new for _, new, _ in entries} - manual)
    rows = dict(rows_by_commit)
    for old, new, branch in entries:
        replaced = rows.get(old)
        if replaced:
            rows[old] = replace(replaced, superseded_by=new)
        if link := links.get(new):
            branches = (branch, rows.get(new, link).git_branch, replaced.git_branch if replaced else "")
            rows[new] = replace(link, git_branch=next(filter(None, branches), ""))
    return [row for commit, row in rows.items() if row != rows_by_commit.get(commit)]


def _derive_for_commits(ws: Workspace, commits: Iterable[str]) -> dict[str, Link]:
    """Return the link of each of these commits that introduces a pin, without its branch."""
    url = repository.read_origin_url(ws.places)
    return {
        commit: Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)
        for commit, data in history.read_introduced_pins(ws.places, commits).items()
        if (pin := try_read_pin(ws.places.kb, data))
    }


# -- shared links: links of the source `pin` are pushed only for pushed commits, because a commit
# that only this clone has is private


def list_head_links(ws: Workspace) -> list[Link]:
    """Return all manual links, and the links of HEAD and its ancestors."""
    flush_queue(ws)
    head = plumbing.read_head(ws.places).commit
    manual = [row for row in ws.engine.list_links() if row.source == "manual"]
    return manual + (build_rows(ws, list_new_pins(ws.places, head)) if head else [])


def list_new_pins(places: Places, tip: str, *, without: str | None = None) -> dict[str, Pin]:
    """Return the pins that commits introduce that the tip contains and `without` does not, by
    commit.

    In a shallow clone, a commit without its parents may have inherited its pin, so it is left out.
    """
    commits_by_pin = history.list_reachable_pins(places, [tip, *([f"^{without}"] if without else [])])
    cut = history.read_shallow_boundary(places)
    return {
        commit: pin
        for data, commits in commits_by_pin.items()
        if (pin := try_read_pin(places.kb, data))
        for commit in commits
        if commit not in cut
    }


def build_rows(ws: Workspace, pins: Mapping[str, Pin], *, branch: str = "") -> list[Link]:
    """Return the links of commits, by what they pin. A commit with a manual link gets no row.

    `branch` is that of commits whose branch is unknown in this clone.
    """
    rows_by_commit = {row.git_commit: row for row in ws.engine.list_links()}
    url = repository.read_origin_url(ws.places)
    rows = []
    for commit, pin in pins.items():
        existing = rows_by_commit.get(commit, Link(commit, "", ""))
        if existing.source == "pin":
            row = Link(
                git_commit=commit,
                dolt_commit=pin.dolt_commit,
                dolt_branch=pin.dolt_branch,
                git_branch=existing.git_branch or branch,
                git_repo_url=url,
                linked_at=pin.linked_at,
            )
            rows.append(replace(row, superseded_by=existing.superseded_by))
    return rows
