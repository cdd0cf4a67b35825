"""`vmrag links`: the table `git_links`, with links derived from git's history and manual ones."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from vmrag_link.engines import migrated
from vmrag_link.errors import LinkMissing, quoted
from vmrag_link.git import objects, plumbing, repository
from vmrag_link.models import Link, Record
from vmrag_link.ops.follow import recovery
from vmrag_link.ops.links import link as linking
from vmrag_link.ops.links import link_queue
from vmrag_link.ops.pins import pinning
from vmrag_link.paths import PIN_NAME
from vmrag_link.workspace import Workspace


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


def links(ws: Workspace, *, revision: str | None = None) -> LinksReport:
    """All links, or those of one revision; sorted by git commit."""
    recovery.recover(ws)
    link_queue.flush(ws)
    return LinksReport(ws.engine.links(dolt_commit=revision))


def show(ws: Workspace, ref: str) -> Link:
    """The link of a commit: by hand, if there is such a row, else what the pin in its tree says.

    Raises `LinkMissing`.
    """
    recovery.recover(ws)
    link_queue.flush(ws)
    commit = plumbing.resolve(ws.places, ref)
    rows = ws.engine.links(git_commit=commit)
    if rows and rows[0].source == "manual":
        return rows[0]
    data = plumbing.blob(ws.places, f"{commit}:{PIN_NAME}")
    if data is None:
        raise LinkMissing(f"{ref} is linked to no revision.", hint=f"vmrag link --git-commit {quoted(ref)}", ref=ref)
    pin = migrated.read_pin(ws.places.kb, data, source=f"{ref}:{PIN_NAME}")
    known = rows[0] if rows else Link(commit, "", "")  # it may be another clone's
    return replace(known, dolt_commit=pin.dolt_commit, dolt_branch=pin.dolt_branch, linked_at=pin.linked_at)


def rebuild(ws: Workspace) -> RebuildReport:
    """Derive the rows of the source `pin` from git's history again, and keep the ones made by hand.

    A commit has a row when it introduces the pin that its tree holds. Rows of commits that no ref
    reaches any more go; those of commits that are not here are other clones', and stay.
    """
    recovery.recover(ws)
    link_queue.flush(ws)
    there = {each.git_commit: each for each in ws.engine.links()}
    manual = {commit for commit, each in there.items() if each.source == "manual"}
    url = repository.origin(ws.places)
    derived = {each.git_commit: each for each in derive(ws, url) if each.git_commit not in manual}
    put = [each for commit, each in derived.items() if commit not in there or not same(there[commit], each)]
    unknown = there.keys() - derived.keys() - manual
    gone = tuple(sorted(unknown.difference(objects.missing_commits(ws.places, unknown)))) if unknown else ()
    if put or gone:
        linking.store(ws, put, "Derive the links from git's history", remove=gone)
    return RebuildReport(len(derived), len(put), len(gone), len(manual))


def derive(ws: Workspace, url: str) -> Iterable[Link]:
    """The links that the history of every ref tells of. A pin that cannot be read links nothing."""
    for pin, commits in pinning.read_pins(ws.places, reflogs=False):
        for commit in commits:
            yield Link(commit, pin.dolt_commit, pin.dolt_branch, git_repo_url=url, linked_at=pin.linked_at)


def same(one: Link, other: Link) -> bool:
    """Whether two rows say the same about a commit; where it was made is not part of history."""
    return _columns(one) == _columns(other)


def _columns(link: Link) -> tuple[str, ...]:
    return link.git_commit, link.dolt_commit, link.dolt_branch, link.linked_at
