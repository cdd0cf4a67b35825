"""`vmrag links`: the table `git_links`, which links git commits to revisions.

A link is manual (`vmrag link`), or derived from the pin that a commit introduces. Pushes share
derived links only for pushed commits, because a commit that only this clone has is private.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from vmrag_link.engines import migrated
from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.errors import EngineUnwritable, FileFailed, LinkMissing, quoted, refuses_writing
from vmrag_link.git import history, objects, plumbing, repository
from vmrag_link.models import Link, Record
from vmrag_link.ops.links import link as linking
from vmrag_link.ops.links import link_queue
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.pin import Pin
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import recovery
from vmrag_link.workspace.pins import history_pins


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


def show_link(ws: Workspace, ref: str) -> Link:
    """Return the link of a commit: a manual link, or else the pin in its tree.

    Raises `LinkMissing`.
    """
    recovery.recover(ws)
    commit = plumbing.resolve_commit(ws.places, ref)
    row = next((row for row in _read_rows(ws) if row.git_commit == commit), None)
    if row and row.source == "manual":
        return row
    data = plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}")
    if data is None:
        raise LinkMissing(f"no link for {ref}.", hint=f"run 'vmrag link --git-commit {quoted(ref)}'", ref=ref)
    pin = migrated.read_pin(ws.places.kb, data, source=f"{ref}:{PIN_NAME}")
    row = row or Link(commit, "", "")  # a row may be from another clone, so its revision is not used
    return replace(row, dolt_commit=pin.dolt_commit, dolt_branch=pin.dolt_branch, linked_at=pin.linked_at)


def rebuild_links(ws: Workspace) -> RebuildReport:
    """Derive the rows of the source `pin` from git's history again, and keep the manual ones.

    A commit has a row if it introduces the pin in its tree. Rows of commits that no ref contains
    any longer are removed. Rows of commits that this clone does not have belong to other clones and
    stay.
    """
    recovery.recover(ws)
    link_queue.flush_queue(ws)
    rows_by_commit = {row.git_commit: row for row in ws.engine.list_links()}
    manual = {commit for commit, row in rows_by_commit.items() if row.source == "manual"}
    derived = _derive_links(ws, manual)
    changed = [
        row
        for commit, row in derived.items()
        if commit not in rows_by_commit or _select_columns(row) != _select_columns(rows_by_commit[commit])
    ]
    underived = rows_by_commit.keys() - derived.keys() - manual
    missing = objects.find_missing_commits(ws.places, underived) if underived else ()
    removed = tuple(sorted(underived.difference(missing)))
    if changed or removed:
        linking.store_links(ws, changed, "Derive the links from git's history", remove=removed)
    return RebuildReport(len(derived), len(changed), len(removed), len(manual))


def list_head_links(ws: Workspace) -> list[Link]:
    """Return all manual links, and the links of HEAD and its ancestors."""
    link_queue.flush_queue(ws)
    head = plumbing.read_head(ws.places).commit
    manual = [row for row in ws.engine.list_links() if row.source == "manual"]
    return manual + (build_rows(ws, list_new_pins(ws.places, head)) if head else [])


def list_new_pins(places: Places, tip: str, *, without: str | None = None) -> dict[str, Pin]:
    """Return the pins that commits introduce that the tip contains and `without` does not, by
    commit.

    In a shallow clone, a commit without its parents may have inherited its pin, so it is left out.
    """
    excluded = [f"^{without}"] if without else []
    shallow_commits = history.read_shallow_boundary(places)
    pins: dict[str, Pin] = {}
    for data, commits in history.list_reachable_pins(places, [tip, *excluded]).items():
        pin = try_read_pin(places.kb, data)
        if pin:
            pins |= dict.fromkeys((commit for commit in commits if commit not in shallow_commits), pin)
    return pins


def build_rows(ws: Workspace, pins: Mapping[str, Pin], *, branch: str = "") -> list[Link]:
    """Return the links of commits, by what they pin. A commit with a manual link gets no row.

    `branch` is that of commits whose branch is unknown in this clone.
    """
    rows_by_commit = {row.git_commit: row for row in ws.engine.list_links()}
    url = repository.read_origin_url(ws.places)
    rows = []
    for commit, pin in pins.items():
        existing = rows_by_commit.get(commit, Link(commit, "", ""))
        if existing.source == "manual":
            continue
        row = Link(
            git_commit=commit,
            dolt_commit=pin.dolt_commit,
            dolt_branch=pin.dolt_branch,
            git_branch=existing.git_branch or branch,
            git_repo_url=url,
            linked_at=pin.linked_at,
            superseded_by=existing.superseded_by,
        )
        rows.append(row)
    return rows


def _derive_links(ws: Workspace, manual: AbstractSet[str]) -> dict[str, Link]:
    """Return the links in the history of every ref, by commit, without commits that have a manual
    link. A pin that cannot be read has none.
    """
    url = repository.read_origin_url(ws.places)
    return {
        commit: Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)
        for pin, commits in history_pins.read_pins(ws.places, reflogs=False)
        for commit in commits
        if commit not in manual
    }


def _select_columns(row: Link) -> tuple[str, ...]:
    """Return what does not depend on the clone that made the row."""
    return row.dolt_commit, row.dolt_branch, row.linked_at


def _read_rows(ws: Workspace) -> list[Link]:
    """Process the queue and return all links, sorted by git commit.

    If nothing can be written, the queue stays for a later command.
    """
    try:
        link_queue.flush_queue(ws)
    except EngineUnwritable:
        pass
    except FileFailed as error:
        if not refuses_writing(error):
            raise
    else:
        return ws.engine.list_links()
    queued = link_queue.read_queued_rows(ws)  # first, because another process can move them to the table meanwhile
    rows = {row.git_commit: row for row in (*ws.engine.list_links(), *queued)}
    return [rows[commit] for commit in sorted(rows)]
