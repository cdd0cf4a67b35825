"""Pushing revisions that a remote lacks, such that everything it held stays reachable there.

Its branches are moved forward, or, after their old head was anchored, moved elsewhere or deleted.
Revisions that none of its branches then reaches are added to its own `vmrag_keep`, which grows from
its state there. Our `vmrag_keep` is not pushed, because it holds much that was discarded here. The
map of a migration is also pushed, unless the remote's map has entries that ours lacks: then a fetch
adds them first.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from vmrag_link import clock
from vmrag_link.engines.base import Engine
from vmrag_link.engines.inspection import MAX_LINKS, require_valid_link
from vmrag_link.engines.own_branches import KEEP_BRANCH, LINKS_BRANCH, MIGRATED_BRANCH, ROOT_BRANCH, read_root
from vmrag_link.errors import ContentRefused, RemoteDiverged, RemoteMoved, quoted
from vmrag_link.merging.rows import LINK_AUTHOR, list_link_additions
from vmrag_link.models import Link, Record
from vmrag_link.transport.connection import Transport

ATTEMPTS = 40
_PAUSE_SECONDS = 0.25


class PublishRequest(Record, frozen=True):
    """The state that a remote is to have."""

    branches: Mapping[str, str]
    """The remote's KB branches and their new heads.

    A branch that cannot be moved forward raises `RemoteDiverged`, unless `force`, `superseded` or
    `lenient` allows something else.
    """
    revisions: Sequence[str] = ()
    """The revisions that the remote must reach, newest first."""
    force: Collection[str] = ()
    """Branches that may be moved from any head."""
    lenient: bool = False
    """Leave branches unchanged that cannot be moved forward."""
    superseded: Callable[[str], Collection[str]] = lambda _: ()
    """Return the revisions that the history of a KB branch's code pins. Called only if needed.

    A remote branch at one of them may be moved from there: a revert left it there, or an older pin
    that is pinned again.
    """
    delete: Collection[str] = ()
    """Branches to delete, after all others."""
    replace_map: bool = False
    """Replace the remote's map of a migration by ours."""
    links: Sequence[Link] = ()
    """Links to add to the remote's `vmrag_links`."""


class BranchMove(Record, frozen=True):
    """A branch that moves at the remote."""

    branch: str
    old: str | None
    """The head before, or None if the branch is new there."""
    new: str


class Published(Record, frozen=True):
    """The changes at the remote."""

    branches: tuple[BranchMove, ...] = ()
    """The branches that moved."""
    kept: tuple[str, ...] = ()
    """The revisions that `vmrag_keep` now reaches."""
    behind: tuple[str, ...] = ()
    """The branches that were left unchanged."""
    deleted: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    """The links that were added or changed."""

    @property
    def empty(self) -> bool:
        return not (self.branches or self.kept or self.deleted or self.links)


def publish(engine: Engine, key: str, transport: Transport, request: PublishRequest) -> Published:
    """Push until the remote has everything, even if others push at the same time.

    Raises `RemoteDiverged` and the errors of `Transport`.
    """
    message = ""
    for attempt in range(ATTEMPTS):
        try:
            if attempt and not transport.fetch():
                transport.restore_remote()
            plan = _plan_push(engine, transport.read_heads(), request)
            if not plan.empty:
                transport.push(functools.partial(_push_plan, engine, key, plan))
                return plan
            if attempt or transport.is_current():
                return plan
        except RemoteMoved as error:
            message = str(error.details.get("said", ""))
            if attempt:  # spread the attempts of waiting processes
                time.sleep(random.uniform(0, _PAUSE_SECONDS * min(attempt, 8)))  # noqa: S311
        except RemoteDiverged:
            if attempt:
                raise
    raise RemoteMoved(
        f"nothing was pushed: other pushes changed the remote during all {ATTEMPTS} attempts. Its message: {message}",
        hint="run 'vmrag push' to push the revision",
        said=message,
    )


def _plan_push(engine: Engine, heads: Mapping[str, str], request: PublishRequest) -> Published:
    moves, behind, displaced = [], [], []
    if not heads:
        moves.append(BranchMove(ROOT_BRANCH, None, read_root(engine)))
    for name, head in request.branches.items():
        old = heads.get(name)
        if old == head:
            continue
        if old is None or engine.is_ancestor(old, head):
            moves.append(BranchMove(name, old, head))
        elif name in request.force or old in request.superseded(name):
            moves.append(BranchMove(name, old, head))
            displaced.append(old)
        elif engine.is_ancestor(head, old):
            continue
        elif request.lenient:
            behind.append(name)
        else:
            raise RemoteDiverged(
                f"the remote's KB branch {name!r} has revisions that yours lacks: {old[:12]} is not in {head[:12]}.",
                hint=f"run 'vmrag pull --branch {quoted(name)}' to merge the newer revision",
                branch=name,
                remote_head=old,
            )
    if map_move := _plan_map_move(engine, heads, force=request.replace_map):
        moves.append(map_move)
        if map_move.old and not engine.is_ancestor(map_move.old, map_move.new):
            displaced.append(map_move.old)
    deleted = {name: heads[name] for name in request.delete if name in heads}
    new_heads = {name: head for name, head in heads.items() if name not in deleted}
    new_heads |= {move.branch: move.new for move in moves}
    kept = engine.find_unreachable([*request.revisions, *displaced, *deleted.values()], heads=new_heads.values())
    links = _new_links(engine, heads.get(LINKS_BRANCH), request.links)
    return Published(tuple(moves), tuple(dict.fromkeys(kept)), tuple(behind), tuple(deleted), tuple(links))


def _new_links(engine: Engine, head: str | None, rows: Sequence[Link]) -> list[Link]:
    """Return the links that the remote lacks.

    Raises `ContentRefused` for links that every clone would refuse when it fetches them.
    """
    remote_links = engine.list_links(at=head) if head and rows else []
    new = list_link_additions(remote_links, rows)
    for link in new:
        try:
            require_valid_link(link)
        except ValueError as error:
            raise ContentRefused(f"invalid link: {error}.", hint="run 'vmrag links list' to list them") from error
    if len({link.git_commit for link in (*remote_links, *new)}) > MAX_LINKS:
        raise ContentRefused(
            f"too many links: a remote holds at most {MAX_LINKS:,}.",
            hint="run 'git config vmrag.link.share false && vmrag push' to push without links",
        )
    return new


def _plan_map_move(engine: Engine, heads: Mapping[str, str], *, force: bool) -> BranchMove | None:
    """Return the move of the remote's map of a migration, or None.

    It only moves forward, unless `force`: then a map that is refused everywhere can be replaced.
    """
    branch = engine.find_branch(MIGRATED_BRANCH)
    old = heads.get(MIGRATED_BRANCH)
    if branch is None or old == branch.head:
        return None
    if old and not force and not engine.is_ancestor(old, branch.head):
        return None
    return BranchMove(MIGRATED_BRANCH, old, branch.head)


def _push_plan(engine: Engine, key: str, plan: Published, url: str) -> None:
    """Push a plan.

    Anchor revisions first, so that a branch leaves its old head only if another branch reaches it.
    """
    with engine.write_lock("push"):
        heads = engine.remote_heads(key)
        root_moves = [move for move in plan.branches if move.branch == ROOT_BRANCH]
        engine.push(key, url, {move.branch: move.new for move in root_moves})
        if plan.kept:
            head = heads.get(KEEP_BRANCH)
            for revision in plan.kept:  # newest first, because it often contains the next
                if head is None or engine.find_unreachable([revision], heads=[head]):
                    head = engine.build_keep_head(head, revision, reason="pinned")
            assert head is not None  # noqa: S101  `plan.kept` is not empty
            engine.push(key, url, {KEEP_BRANCH: head})
        forward, forced = dict[str, str](), dict[str, str]()
        for move in plan.branches:
            if move.old and not engine.is_ancestor(move.old, move.new):
                forced[move.branch] = move.new
            elif move not in root_moves:
                forward[move.branch] = move.new
        engine.push(key, url, forward)
        engine.push(key, url, forced | dict.fromkeys(plan.deleted, ""), force=True)
        if plan.links:
            head = engine.build_links_head(
                heads.get(LINKS_BRANCH), plan.links, message="Share links", author=LINK_AUTHOR, date=clock.now()
            )
            engine.push(key, url, {LINKS_BRANCH: head})
