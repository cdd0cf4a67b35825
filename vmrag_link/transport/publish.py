"""Push revisions that a remote lacks. Whatever it held stays reachable there.

Its branches are moved forward, or elsewhere or deleted after their old head was kept. Revisions
that none of them reaches then go under its own `vmrag_keep`, which grows from its state there. Ours
is not pushed: it holds much that was given up here. What a migration noted goes along, unless the
remote's notes have something that ours have not: a fetch takes that.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from vmrag_link import clock
from vmrag_link.engines.base import KEEP_BRANCH, LINKS_BRANCH, MIGRATED_BRANCH, ROOT_BRANCH, Engine, read_root
from vmrag_link.engines.inspection import MOST_LINKS, require_valid_link
from vmrag_link.errors import ContentRefused, RemoteDiverged, RemoteMoved, quoted
from vmrag_link.merging.rows import LINK_AUTHOR, list_link_additions
from vmrag_link.models import Link, Record
from vmrag_link.transport.connection import Transport

ATTEMPTS = 40
_PAUSE_SECONDS = 0.25


class PublishRequest(Record, frozen=True):
    """`branches`: the remote's KB branches and their new heads.

    `revisions`: what it must reach, newest first. `superseded`: by KB branch, the revisions that
    the history of its code pins; called only where it matters. A branch at one of them was left
    there by a revert, or by an older pin that is pinned again. A branch that cannot be moved
    forward is moved all the same (from there, and those in `force`), or is no reason to fail
    (`lenient`), or raises. `delete`: branches to delete, after all others. `links`: rows that its
    `vmrag_links` is to say with its own.
    """

    branches: Mapping[str, str]
    revisions: Sequence[str] = ()
    force: Collection[str] = ()
    lenient: bool = False
    superseded: Callable[[str], Collection[str]] = lambda _: ()
    delete: Collection[str] = ()
    replace_map: bool = False
    """What a migration noted here takes the place of what the remote has of it."""
    links: Sequence[Link] = ()


class BranchMove(Record, frozen=True):
    """`old` None: the branch is new there."""

    branch: str
    old: str | None
    new: str


class Published(Record, frozen=True):
    """`branches` that moved, `kept` revisions that `vmrag_keep` now reaches, `behind` branches that
    stayed, `deleted` ones, `links` that are new or others there.
    """

    branches: tuple[BranchMove, ...] = ()
    kept: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.branches or self.kept or self.deleted or self.links)


def publish(engine: Engine, key: str, transport: Transport, wanted: PublishRequest) -> Published:
    """Push until the remote has everything, however many others push at the same time.

    Raises `RemoteDiverged`, and as `Transport`.
    """
    said = ""
    for attempt in range(ATTEMPTS):
        try:
            if attempt and not transport.fetch():
                transport.restore_remote()
            plan = _plan(engine, transport.read_heads(), wanted)
            if not plan.empty:
                transport.push(functools.partial(_carry_out, engine, key, plan))
                return plan
            if attempt or transport.is_current():
                return plan
        except RemoteMoved as error:
            said = str(error.details.get("said", ""))
            if attempt:  # not all waiting processes at once
                time.sleep(random.uniform(0, _PAUSE_SECONDS * min(attempt, 8)))  # noqa: S311
        except RemoteDiverged:
            if attempt:
                raise
    raise RemoteMoved(
        f"Nothing was pushed: {ATTEMPTS} times, something else changed the remote's knowledge meanwhile. It said: {said}",
        hint="vmrag push",
        said=said,
    )


def _plan(engine: Engine, heads: Mapping[str, str], wanted: PublishRequest) -> Published:
    moves, behind, displaced = [], [], []
    if not heads:
        moves.append(BranchMove(ROOT_BRANCH, None, read_root(engine)))
    for name, head in wanted.branches.items():
        old = heads.get(name)
        if old == head:
            continue
        if old is None or engine.is_ancestor(old, head):
            moves.append(BranchMove(name, old, head))
        elif name in wanted.force or old in wanted.superseded(name):
            moves.append(BranchMove(name, old, head))
            displaced.append(old)
        elif engine.is_ancestor(head, old):
            continue
        elif wanted.lenient:
            behind.append(name)
        else:
            raise RemoteDiverged(
                f"The remote's KB branch {name!r} holds revisions that this one does not: {old[:12]} is not in {head[:12]}.",
                hint=f"vmrag pull --branch {quoted(name)}",
                branch=name,
                remote_head=old,
            )
    if noted := _notes_of_migration(engine, heads, force=wanted.replace_map):
        moves.append(noted)
        if noted.old and not engine.is_ancestor(noted.old, noted.new):
            displaced.append(noted.old)
    deleted = {name: heads[name] for name in wanted.delete if name in heads}
    after = {name: head for name, head in heads.items() if name not in deleted} | {
        move.branch: move.new for move in moves
    }
    kept = engine.find_unreachable([*wanted.revisions, *displaced, *deleted.values()], heads=after.values())
    links = _new_links(engine, heads.get(LINKS_BRANCH), wanted.links)
    return Published(tuple(moves), tuple(dict.fromkeys(kept)), tuple(behind), tuple(deleted), tuple(links))


def _new_links(engine: Engine, head: str | None, rows: Sequence[Link]) -> list[Link]:
    """Raises `ContentRefused` for what whoever fetches would have to refuse."""
    there = engine.list_links(at=head) if head and rows else []
    new = list_link_additions(there, rows)
    for each in new:
        try:
            require_valid_link(each)
        except ValueError as error:
            raise ContentRefused(f"No remote takes this: {error}.", hint="vmrag links list") from error
    if len({each.git_commit for each in (*there, *new)}) > MOST_LINKS:
        raise ContentRefused(f"A remote holds at most {MOST_LINKS:,} links.", hint="vmrag push, with link.share off")
    return new


def _notes_of_migration(engine: Engine, heads: Mapping[str, str], *, force: bool) -> BranchMove | None:
    """Forward only, but by `force`: then a map that is refused everywhere can be put right."""
    ours, old = engine.find_branch(MIGRATED_BRANCH), heads.get(MIGRATED_BRANCH)
    if ours is None or old == ours.head:
        return None
    if old and not force and not engine.is_ancestor(old, ours.head):
        return None
    return BranchMove(MIGRATED_BRANCH, old, ours.head)


def _carry_out(engine: Engine, key: str, plan: Published, url: str) -> None:
    """Keep first: a branch leaves its old head only when something else reaches it."""
    with engine.write_lock("push"):
        heads = engine.remote_heads(key)
        first = [move for move in plan.branches if move.branch == ROOT_BRANCH]
        engine.push(key, url, {move.branch: move.new for move in first})
        if plan.kept:
            head = heads.get(KEEP_BRANCH)
            for revision in plan.kept:  # newest first: it often contains the next
                if head is None or engine.find_unreachable([revision], heads=[head]):
                    head = engine.build_keep_head(head, revision, reason="pinned")
            assert head is not None  # noqa: S101  there was one at least
            engine.push(key, url, {KEEP_BRANCH: head})
        forced = {m.branch: m.new for m in plan.branches if m.old and not engine.is_ancestor(m.old, m.new)}
        forward = {m.branch: m.new for m in plan.branches if m not in first and m.branch not in forced}
        engine.push(key, url, forward)
        engine.push(key, url, forced | dict.fromkeys(plan.deleted, ""), force=True)
        if plan.links:
            head = engine.build_links_head(
                heads.get(LINKS_BRANCH), plan.links, message="Share links", author=LINK_AUTHOR, date=clock.now()
            )
            engine.push(key, url, {LINKS_BRANCH: head})
