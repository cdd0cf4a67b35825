"""Links that git's hooks asked for: a line a commit, appended by a shim in no time, worked off by the next command.

commit HASH BRANCH          a commit was made; BRANCH may be empty
rewrite OLD NEW             an amend or a rebase put NEW in the place of OLD
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from vmrag_link import locks
from vmrag_link import pin as pins
from vmrag_link.errors import GitReferenceMissing, PinMalformed
from vmrag_link.git import merging, plumbing, repository
from vmrag_link.models import Link
from vmrag_link.ops import link as linking
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace

_LINE = re.compile(r"(commit|rewrite) ([0-9a-f]{40}(?:[0-9a-f]{24})?) ?(.*)")


def flush(ws: Workspace) -> int:
    """Work off what is queued; returns the number of rows written. A kill leaves the lines to the next one, which may do them twice."""
    if not _waiting(ws):
        return 0
    with locks.exclusive(ws.places.locks / "links.lock", purpose="link", timeout=ws.lock_timeout):
        queue = ws.places.link_queue
        if queue.exists():  # what a shim appends from now on goes into a new file
            queue.replace(queue.with_name(f"{queue.name}.{os.urandom(6).hex()}"))
        taken = [path for path in _waiting(ws) if path != queue]
        lines = [line for path in taken for line in path.read_text(errors="surrogateescape").splitlines()]
        rows = _rows(ws, lines)
        if rows:
            linking.store(ws, rows, "Link what git has committed")
        for path in taken:
            path.unlink()
    return len(rows)


def _waiting(ws: Workspace) -> list[Path]:
    queue = ws.places.link_queue
    return sorted(queue.parent.glob(f"{queue.name}*"))


def _rows(ws: Workspace, lines: list[str]) -> list[Link]:
    url = repository.origin(ws.places)
    rows: dict[str, Link] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            continue  # half a line: its writer was killed, and history knows the commit all the same
        kind, commit, rest = match.groups()
        if kind == "commit":
            link = _link(ws, commit, rest, url)
            if link:
                rows[commit] = link
            continue
        old = rows.get(commit) or next(iter(ws.engine.links(git_commit=commit)), None)
        if old:
            rows[commit] = msgspec.structs.replace(old, superseded_by=rest)
        new = _link(ws, rest, old.git_branch if old else "", url) if rest not in rows else None
        if new:
            rows[rest] = new
    return list(rows.values())


def _link(ws: Workspace, commit: str, branch: str, url: str) -> Link | None:
    """The link of a commit that introduces its pin; a link made by hand stays."""
    by_hand = [each for each in ws.engine.links(git_commit=commit) if each.source == "manual"]
    if by_hand:
        return None
    try:
        data = plumbing.blob(ws.places, f"{commit}:{PIN_NAME}")
        parents = merging.parents(ws.places, commit)
        before = [plumbing.blob(ws.places, f"{parent}:{PIN_NAME}") for parent in parents]
    except GitReferenceMissing:
        return None  # gone already
    if data is None or data in before:
        return None
    try:
        pin = pins.parse(data)
    except PinMalformed:
        return None
    return Link(commit, pin.dolt_commit, pin.dolt_branch, branch, url, pin.linked_at)
