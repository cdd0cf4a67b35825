"""`vmrag gc`: anchor every pinned revision, then free the space of the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from vmrag_link import hints, locks
from vmrag_link.embedding.cache import Excess
from vmrag_link.engines.base import ASIDE_PREFIX, is_memory_branch, is_reserved
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
from vmrag_link.git import plumbing
from vmrag_link.git.configuration import KbMapping
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

    prune: tuple[KbBranch, ...]
    keep: tuple[KeptBranch, ...]
    unmap: tuple[KbMapping, ...]

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
    with _note_failure(undone, "an interrupted operation could not be finished"):
        recover(ws)
    before, local = measure_size(ws.places.kb), measure_size(ws.places.local_kb)
    to_anchor = tuple(engine.find_unreachable(list_needed(ws)))
    if removed is None:
        branches = _classify_branches(ws)
        prunable = tuple(PrunedBranch(branch.name, branch.head) for branch in branches.prune)
        leftovers = garbage.find_leftovers(ws)
        sizes, local_sizes = Sizes(before, before), Sizes(local, local)
        return GcReport(
            applied=False,
            anchored=to_anchor,
            pruned=prunable,
            kept=branches.keep,
            unmapped=branches.unmapped,
            kb_bytes=sizes,
            leftovers=leftovers,
            local_bytes=local_sizes,
        )
    anchored: list[str] = []
    pruned: tuple[PrunedBranch, ...] = ()
    branches = _Branches((), (), ())
    with _note_failure(undone, "the knowledge base could not be rewritten"):
        for revision in to_anchor:
            engine.anchor_revision(revision, reason="pinned in git history")
            anchored.append(revision)
        pruned, branches = _prune_branches(ws)
        engine.forget_remote(quarantine.QUARANTINE_KEY)  # left by a killed `vmrag adopt`
        engine.collect_garbage()
    with _note_failure(undone, "the documents that stay on this machine could not be rewritten"):
        if ws.local.exists:
            ws.local.engine.collect_garbage()
    vectors = Excess()
    with _note_failure(undone, "old vectors could not be removed"):
        vectors = garbage.prune_vectors(ws)
    sizes, local_sizes = (
        Sizes(size_before, measure_size(folder))
        for size_before, folder in ((before, ws.places.kb), (local, ws.places.local_kb))
    )
    leftovers = msgspec.structs.replace(removed, vectors=vectors)
    return GcReport(
        applied=True,
        anchored=tuple(anchored),
        pruned=pruned,
        kept=branches.keep,
        unmapped=branches.unmapped,
        kb_bytes=sizes,
        leftovers=leftovers,
        undone=tuple(undone),
        local_bytes=local_sizes,
    )


@contextlib.contextmanager
def _note_failure(undone: list[str], failure: str) -> Iterator[None]:
    """Note a failure of the machine in the block. Completed steps stay."""
    try:
        with file_failures():
            yield
    except (FileSystemError, EngineUnwritable) as error:
        undone.append(f"{failure}: {error.message}")


# -- revisions to keep


def list_needed(ws: Workspace) -> list[str]:
    """Return the revisions that something still names, latest pins first. Their anchors keep their
    ancestors.

    These are the revisions that the refs, reflogs, current operation and work trees of git pin,
    those that an index or work tree answers from, and those that an interrupted operation needs.
    """
    bound = (path.name.rpartition("-")[0] for path in bindings.list_bound_views(ws.places))
    return list(dict.fromkeys([*list_pinned(ws), *bound, *_list_journaled(ws)]))


def list_pinned(ws: Workspace) -> list[str]:
    """Return the revisions that git pins anywhere, including missing ones, latest first."""
    return history_pins.list_pinned(ws.places)


def _list_journaled(ws: Workspace) -> Iterator[str]:
    """Yield every text in the journal, including revisions and KB branches, of all work trees."""
    for _, entry in ws.journal.list_entries():
        if entry is not None:
            yield from (value for value in msgspec.to_builtins(entry).values() if isinstance(value, str))


# -- branches


def _prune_branches(ws: Workspace) -> tuple[tuple[PrunedBranch, ...], _Branches]:
    """Delete the branches that `_classify_branches` names. The engine anchors each head.

    A branch that is written at the same time stays.
    """
    pruned = []
    with locks.hold_exclusive(ws.places.mapping_lock, purpose="prune KB branches", timeout=ws.lock_timeout):
        branches = _classify_branches(ws)
        for branch in branches.prune:
            try:
                ws.engine.delete_branch(branch.name, expected=branch.head)
            except (Uncommitted, KnowledgeMoved, BranchMissing):
                continue
            pruned.append(PrunedBranch(branch.name, branch.head))
        existing = {branch.name for branch in ws.engine.list_branches()}
        removed = tuple(mapping for mapping in branches.unmap if mapping.kb_branch not in existing)
        for entry in removed:
            plumbing.forget_kb_branch(ws.places, entry.code, entry.tree)
    return tuple(pruned), _Branches(branches.prune, branches.keep, removed)


def _classify_branches(ws: Workspace) -> _Branches:
    """Sort out KB branches without a code branch, and entries of deleted code branches and removed
    work trees.

    On a shared server, a branch without an entry here belongs to another repository.
    """
    mappings = plumbing.list_kb_mappings(ws.places)
    active = kb_branches.list_active_mappings(ws)
    stale = [mapping for mapping in mappings if mapping not in active]
    deleted = {mapping.kb_branch for mapping in stale}
    in_use = {mapping.kb_branch for mapping in active} | set(_list_journaled(ws))
    prune, keep, target = [], [], ws.resolve_target()
    for branch in ws.engine.list_branches():
        if is_memory_branch(branch.name):
            keep.append(KeptBranch(branch.name, branch.head, "remembered", "run 'vmrag branch' to list it"))
        elif branch.name.startswith(ASIDE_PREFIX):
            keep.append(
                KeptBranch(
                    branch.name,
                    branch.head,
                    "set_aside",
                    hints.suggest_command(f"vmrag merge {quoted(branch.name)}", "restore them"),
                )
            )
        elif is_reserved(branch.name) or branch.name in in_use or (ws.engine.shared and branch.name not in deleted):
            continue
        elif branch.dirty:
            keep.append(
                KeptBranch(
                    branch.name,
                    branch.head,
                    "uncommitted",
                    hints.suggest_command(kb_branches.form_recovery_command(ws, target, branch), "restore them"),
                )
            )
        else:
            prune.append(branch)
    staying = in_use | {branch.name for branch in keep}
    return _Branches(tuple(prune), tuple(keep), tuple(mapping for mapping in stale if mapping.kb_branch not in staying))
