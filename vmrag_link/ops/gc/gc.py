"""`vmrag gc`: keep every pinned revision, and free the space of the others.

The engine deletes revisions that no branch reaches. To *anchor* a revision means to make it
reachable from a reserved branch of the engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from vmrag_link import hints, locks
from vmrag_link.embedding.cache import Excess
from vmrag_link.engines.own_branches import ASIDE_PREFIX, is_memory_branch, is_reserved
from vmrag_link.errors import (
    BranchMissing,
    EngineUnwritable,
    FileSystemError,
    KnowledgeMoved,
    Uncommitted,
    file_failures,
    quoted,
)
from vmrag_link.file_access import measure_size
from vmrag_link.git import own_keys
from vmrag_link.git.own_keys import KbMapping
from vmrag_link.models import KbBranch, Record
from vmrag_link.ops.gc import garbage
from vmrag_link.ops.gc.garbage import Leftovers
from vmrag_link.sync import binding as bindings
from vmrag_link.transport import quarantine
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.pins import history_pins, kb_branches


class PrunedBranch(Record, frozen=True):
    """A KB branch whose code branch was deleted. Its `revision` stays reachable."""

    name: str
    revision: str


class KeptBranch(Record, frozen=True):
    """A KB branch without a code branch that is kept for its documents."""

    name: str
    revision: str
    reason: Literal["uncommitted", "set_aside", "remembered"]
    hint: str
    """How to restore or list the documents."""


class Sizes(Record, frozen=True):
    """Bytes of a knowledge base."""

    before: int
    after: int


class GcReport(Record, frozen=True):
    """The result of `gc`."""

    applied: bool
    """False if nothing was done, so that the report is a plan."""
    anchored: tuple[str, ...]
    """The anchored revisions."""
    pruned: tuple[PrunedBranch, ...]
    kept: tuple[KeptBranch, ...]
    unmapped: tuple[str, ...]
    """Deleted code branches whose entry in git's configuration is removed with their KB branch."""
    kb_bytes: Sizes
    leftovers: Leftovers
    undone: tuple[str, ...] = ()
    """Failures and their reasons (for example, lack of space). Everything else was done."""
    local_bytes: Sizes = Sizes(0, 0)
    """Bytes of the documents that stay on this machine, outside the knowledge base."""


class _Branches(Record, frozen=True):
    """KB branches to prune and to keep, and entries to remove."""

    prune: tuple[KbBranch, ...] = ()
    keep: tuple[KeptBranch, ...] = ()
    unmap: tuple[KbMapping, ...] = ()

    @property
    def pruned(self) -> tuple[PrunedBranch, ...]:
        return tuple(PrunedBranch(branch.name, branch.head) for branch in self.prune)

    @property
    def unmapped(self) -> tuple[str, ...]:
        return tuple(mapping.code for mapping in self.unmap if not mapping.tree)


def gc(ws: Workspace, *, apply: bool = False) -> GcReport:
    """Remove derived files, anchor what git can check out, prune KB branches of deleted code
    branches, and delete the other revisions.

    In this order, it makes space for itself on a full disk, and all pinned revisions stay reachable
    after a kill.
    """
    engine = ws.engine
    removed = garbage.remove_leftovers(ws) if apply else None
    undone: list[str] = []
    with _append_failure(undone, "an interrupted operation could not be finished"):
        recover(ws)
    kb_bytes = measure_size(ws.places.kb)
    local_bytes = measure_size(ws.places.local_kb)
    to_anchor = tuple(engine.find_unreachable(list_needed(ws)))
    if removed is None:
        branches = _classify_branches(ws)
        return GcReport(
            applied=False,
            anchored=to_anchor,
            pruned=branches.pruned,
            kept=branches.keep,
            unmapped=branches.unmapped,
            kb_bytes=Sizes(kb_bytes, kb_bytes),
            leftovers=garbage.find_leftovers(ws),
            local_bytes=Sizes(local_bytes, local_bytes),
        )
    anchored: list[str] = []
    branches = _Branches()
    with _append_failure(undone, "the knowledge base could not be rewritten"):
        for revision in to_anchor:
            engine.anchor_revision(revision, reason="pinned in git history")
            anchored.append(revision)
        branches = _prune_branches(ws)
        engine.forget_remote(quarantine.QUARANTINE_KEY)  # left by a killed `vmrag adopt`
        engine.collect_garbage()
    with _append_failure(undone, "the documents that stay on this machine could not be rewritten"):
        if ws.local.exists:
            ws.local.engine.collect_garbage()
    vectors = Excess()
    with _append_failure(undone, "old vectors could not be removed"):
        vectors = garbage.prune_vectors(ws)
    return GcReport(
        applied=True,
        anchored=tuple(anchored),
        pruned=branches.pruned,
        kept=branches.keep,
        unmapped=branches.unmapped,
        kb_bytes=Sizes(kb_bytes, measure_size(ws.places.kb)),
        leftovers=msgspec.structs.replace(removed, vectors=vectors),
        undone=tuple(undone),
        local_bytes=Sizes(local_bytes, measure_size(ws.places.local_kb)),
    )


def list_needed(ws: Workspace) -> list[str]:
    """Return the revisions that something names, latest pins first. Their ancestors also stay.

    These are the revisions that the refs, reflogs, current operation and work trees of git pin,
    those that an index or work tree answers from, and those that an interrupted operation needs.
    """
    answering = (path.name.rpartition("-")[0] for path in bindings.list_bound_views(ws.places))
    return list(dict.fromkeys([*list_pinned(ws), *answering, *_list_journaled(ws)]))


def list_pinned(ws: Workspace) -> list[str]:
    """Return the revisions that git pins anywhere, including missing ones, latest first."""
    return history_pins.list_pinned(ws.places)


@contextlib.contextmanager
def _append_failure(undone: list[str], failure: str) -> Iterator[None]:
    """Suppress a failure of the machine in the block, and append it to `undone`."""
    try:
        with file_failures():
            yield
    except (FileSystemError, EngineUnwritable) as error:
        undone.append(f"{failure}: {error.message}")


def _list_journaled(ws: Workspace) -> Iterator[str]:
    """Yield every text in the journal, including revisions and KB branches, of all work trees."""
    for _, entry in ws.journal.list_entries():
        if entry is not None:
            yield from (value for value in msgspec.to_builtins(entry).values() if isinstance(value, str))


def _prune_branches(ws: Workspace) -> _Branches:
    """Delete branches and entries, and return what was done. The engine anchors each head.

    A branch that is written at the same time stays.
    """
    with locks.hold_exclusive(ws.places.mapping_lock, purpose="prune KB branches", timeout=ws.lock_timeout):
        branches = _classify_branches(ws)
        pruned = []
        for branch in branches.prune:
            with contextlib.suppress(Uncommitted, KnowledgeMoved, BranchMissing):
                ws.engine.delete_branch(branch.name, expected=branch.head)
                pruned.append(branch)
        existing = {branch.name for branch in ws.engine.list_branches()}
        unmapped = tuple(mapping for mapping in branches.unmap if mapping.kb_branch not in existing)
        for mapping in unmapped:
            own_keys.forget_kb_branch(ws.places, mapping.code, mapping.tree)
    return _Branches(tuple(pruned), branches.keep, unmapped)


def _classify_branches(ws: Workspace) -> _Branches:
    """Find KB branches without a code branch, and the entries (in git's configuration) of deleted
    code branches and removed work trees.

    On a shared server, a branch without an entry here belongs to another repository.
    """
    mappings = own_keys.list_kb_mappings(ws.places)  # first, so that a branch renamed meanwhile stays
    active = kb_branches.list_active_mappings(ws)
    stale = [mapping for mapping in mappings if mapping not in active]
    stale_names = {mapping.kb_branch for mapping in stale}
    in_use = {mapping.kb_branch for mapping in active} | set(_list_journaled(ws))
    target = ws.resolve_target()
    prune = []
    keep = []
    for branch in ws.engine.list_branches():
        is_ours = not ws.engine.shared or branch.name in stale_names
        if kept_branch := _find_stash(branch):
            keep.append(kept_branch)
        elif is_reserved(branch.name) or branch.name in in_use or not is_ours:
            continue
        elif branch.dirty:
            hint = hints.suggest_command(kb_branches.form_recovery_command(ws, target, branch), "restore them")
            keep.append(KeptBranch(branch.name, branch.head, "uncommitted", hint))
        else:
            prune.append(branch)
    staying = in_use | {branch.name for branch in keep}
    unmap = tuple(mapping for mapping in stale if mapping.kb_branch not in staying)
    return _Branches(tuple(prune), tuple(keep), unmap)


def _find_stash(branch: KbBranch) -> KeptBranch | None:
    """Return a branch that vmrag made for stashed documents; None for another one."""
    if is_memory_branch(branch.name):
        return KeptBranch(branch.name, branch.head, "remembered", "run 'vmrag branch' to list it")
    if branch.name.startswith(ASIDE_PREFIX):
        hint = hints.suggest_command(f"vmrag merge {quoted(branch.name)}", "restore them")
        return KeptBranch(branch.name, branch.head, "set_aside", hint)
    return None
