"""`vmrag links`: the table `git_links`, with links derived from git's history, manual ones, and
those that git's hooks asked for.

A shim appends a line to a queue for each commit; the next command works them off.

    commit HASH BRANCH          a commit was made; BRANCH may be empty
    rewrite OLD NEW             an amend or a rebase put NEW in the place of OLD
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
"""Seconds in which a shim may still append to a queue that it had opened before."""

_TAKEN = re.compile(r"\.(\d+)\.(\d+)")
_LINE = re.compile(f"(?:commit|rewrite ({COMMIT_NAME})) ({COMMIT_NAME})(?: (.*))?")


class LinksReport(Record, frozen=True):
    links: list[Link]


class RebuildReport(Record, frozen=True):
    """Numbers of rows.

    `derived` from git's history now, of which `changed` were different or missing; `removed`;
    `manual` ones, kept.
    """

    derived: int
    changed: int
    removed: int
    manual: int


def list_links(ws: Workspace, *, revision: str | None = None) -> LinksReport:
    """All links, or those of one revision; sorted by git commit."""
    recovery.recover(ws)
    rows = _read_rows(ws)
    return LinksReport([row for row in rows if revision in (None, row.dolt_commit)])


def _read_rows(ws: Workspace) -> list[Link]:
    """Work off what is queued and return all links, sorted by git commit.

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
    queued = b"".join(taken.read_unread() for taken in _queues(ws.places))
    if ws.places.link_queue.exists():
        queued += ws.places.link_queue.read_bytes()
    rows = {row.git_commit: row for row in ws.engine.list_links()}
    rows |= {row.git_commit: row for row in _rows(ws, queued.decode(errors="replace").split("\n"))}
    return [rows[commit] for commit in sorted(rows)]


def show_link(ws: Workspace, ref: str) -> Link:
    """The link of a commit: by hand, if there is such a row, else what the pin in its tree says.

    Raises `LinkMissing`.
    """
    recovery.recover(ws)
    commit = plumbing.resolve_commit(ws.places, ref)
    rows = [row for row in _read_rows(ws) if row.git_commit == commit]
    if rows and rows[0].source == "manual":
        return rows[0]
    data = plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}")
    if data is None:
        raise LinkMissing(f"{ref} is linked to no revision.", hint=f"vmrag link --git-commit {quoted(ref)}", ref=ref)
    pin = migrated.read_pin(ws.places.kb, data, source=f"{ref}:{PIN_NAME}")
    known = rows[0] if rows else Link(commit, "", "")  # it may be another clone's
    return replace(known, dolt_commit=pin.dolt_commit, dolt_branch=pin.dolt_branch, linked_at=pin.linked_at)


def rebuild_links(ws: Workspace) -> RebuildReport:
    """Derive the rows of the source `pin` from git's history again, and keep the ones made by hand.

    A commit has a row when it introduces the pin that its tree holds. Rows of commits that no ref
    reaches any more go; those of commits that are not here are other clones', and stay.
    """
    recovery.recover(ws)
    flush_queue(ws)
    there = {each.git_commit: each for each in ws.engine.list_links()}
    manual = {commit for commit, each in there.items() if each.source == "manual"}
    url = repository.read_origin_url(ws.places)
    derived = {each.git_commit: each for each in derive_links(ws, url) if each.git_commit not in manual}
    put = [each for commit, each in derived.items() if commit not in there or not is_same_link(there[commit], each)]
    unknown = there.keys() - derived.keys() - manual
    gone = tuple(sorted(unknown.difference(objects.find_missing_commits(ws.places, unknown)))) if unknown else ()
    if put or gone:
        linking.store_links(ws, put, "Derive the links from git's history", remove=gone)
    return RebuildReport(len(derived), len(put), len(gone), len(manual))


def derive_links(ws: Workspace, url: str) -> Iterable[Link]:
    """The links that the history of every ref tells of. A pin that cannot be read links nothing."""
    for pin, commits in history_pins.read_pins(ws.places, reflogs=False):
        for commit in commits:
            yield Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)


def is_same_link(one: Link, other: Link) -> bool:
    """Whether two rows say the same about a commit; where it was made is not part of history."""
    return _columns(one) == _columns(other)


def _columns(link: Link) -> tuple[str, ...]:
    return link.git_commit, link.dolt_commit, link.dolt_branch, link.linked_at


class TakenQueue(NamedTuple):
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
    def is_old(self) -> bool:
        return abs(time.time_ns() - self.since) > GRACE_SECONDS * 1e9  # clocks are set back, too

    @property
    def waits(self) -> bool:
        return self.is_old or self.path.stat().st_size > self.done

    def read_unread(self) -> bytes:
        """Whole lines."""
        rest = self.path.read_bytes()[self.done :]
        return rest[: rest.rfind(b"\n") + 1]

    def mark_read(self, read: int) -> None:
        if self.is_old:
            self.path.unlink()
        elif read:
            self.path.rename(self._replace(done=self.done + read).path)


def flush_queue(ws: Workspace) -> int:
    """Work off what is queued; returns the number of rows written.

    A kill leaves the lines to the next one, which may do them twice.
    """
    if not _waiting(ws.places):
        return 0
    with locks.hold_exclusive(ws.places.locks / "links.lock", purpose="link", timeout=ws.lock_timeout):
        if ws.places.link_queue.exists():  # what a shim appends from now on goes into a new file
            ws.places.link_queue.rename(TakenQueue(ws.places.link_queue, time.time_ns(), 0).path)
        taken = [(queue, queue.read_unread()) for queue in _queues(ws.places)]
        rows = _rows(ws, b"".join(data for _, data in taken).decode(errors="replace").split("\n"))
        if rows:
            linking.store_links(ws, rows, "Link what git has committed")
        for each, data in taken:
            each.mark_read(len(data))
    return len(rows)


def _waiting(places: Places) -> bool:
    try:
        return places.link_queue.exists() or any(queue.waits for queue in _queues(places))
    except FileNotFoundError:
        return True  # somebody else is at it


def _queues(places: Places) -> list[TakenQueue]:
    """The oldest first."""
    queue = places.link_queue
    names = (_TAKEN.fullmatch(path.suffixes[-2] + path.suffix) for path in queue.parent.glob(f"{queue.name}.*.*"))
    return sorted(TakenQueue(queue, int(name[1]), int(name[2])) for name in names if name)


def _rows(ws: Workspace, lines: list[str]) -> list[Link]:
    """The rows that these lines change.

    A line that is none was cut by a kill; history knows its commit all the same.
    """
    asked = [match.groups(default="") for line in lines if (match := _LINE.fullmatch(line))]
    there = {each.git_commit: each for each in ws.engine.list_links()} if asked else {}
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
    url = repository.read_origin_url(ws.places)
    return {
        commit: Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)
        for commit, data in history.read_introduced_pins(ws.places, commits).items()
        if (pin := try_read_pin(ws.places.kb, data))
    }


# -- which links a remote learns of: those of the source `pin` go as far as the code does, because a
# commit that is only here is nobody else's business


def list_head_links(ws: Workspace) -> list[Link]:
    """All links made by hand, and those of HEAD and its ancestors."""
    flush_queue(ws)
    head = plumbing.read_head(ws.places).commit
    manual = [each for each in ws.engine.list_links() if each.source == "manual"]
    return manual + (build_rows(ws, list_new_pins(ws.places, head)) if head else [])


def list_new_pins(places: Places, tip: str, *, without: str | None = None) -> dict[str, Pin]:
    """The pins that the commits introduce that the tip reaches, and `without` does not; by commit.

    A commit whose parents a shallow clone lacks may have its pin from them: it is left out.
    """
    found = history.list_reachable_pins(places, [tip, *([f"^{without}"] if without else [])])
    cut = history.read_shallow_boundary(places)
    return {
        commit: pin
        for data, commits in found.items()
        if (pin := try_read_pin(places.kb, data))
        for commit in commits
        if commit not in cut
    }


def build_rows(ws: Workspace, pins: Mapping[str, Pin], *, branch: str = "") -> list[Link]:
    """The links of commits, by what they pin. A link made by hand stands in for its commit's.

    `branch`: for commits whose own branch is not known here.
    """
    known = {each.git_commit: each for each in ws.engine.list_links()}
    url = repository.read_origin_url(ws.places)
    found = []
    for commit, pin in pins.items():
        there = known.get(commit, Link(commit, "", ""))
        if there.source == "pin":
            row = Link(commit, pin.dolt_commit, pin.dolt_branch, there.git_branch or branch, url, pin.linked_at)
            found.append(replace(row, superseded_by=there.superseded_by))
    return found
