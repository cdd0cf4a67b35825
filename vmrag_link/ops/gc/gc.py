"""`vmrag gc`: anchor everything that is pinned somewhere, then free the space of the rest."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from typing import Literal

import msgspec

from vmrag_link import locks
from vmrag_link.embedding.cache import Excess
from vmrag_link.engines.base import ASIDE_PREFIX, is_memory_branch, is_reserved
from vmrag_link.errors import (
    BranchMissing,
    EngineUnwritable,
    FileSystemError,
    KnowledgeMoved,
    Uncommitted,
    file_failures,
)
from vmrag_link.git import plumbing
from vmrag_link.git.configuration import KbMapping
from vmrag_link.models import KbBranch, Record
from vmrag_link.ops.gc import garbage
from vmrag_link.ops.gc.garbage import Leftovers
from vmrag_link.paths import measure_size
from vmrag_link.sync import binding as bindings
from vmrag_link.transport import quarantine
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.pins import history_pins, kb_branches


class PrunedBranch(Record, frozen=True):
    """A KB branch whose code branch is gone. Its `revision` stays reachable."""

    name: str
    revision: str


class KeptBranch(Record, frozen=True):
    """A KB branch without code branch that stays for its documents.

    `hint` brings them back, or lists them.
    """

    name: str
    revision: str
    reason: Literal["uncommitted", "set_aside", "remembered"]
    hint: str


class Sizes(Record, frozen=True):
    """Bytes of a knowledge base."""

    before: int
    after: int


class GcReport(Record, frozen=True):
    """`applied` False: nothing was done; these are the plans.

    `undone`: what could not be done, and why (no room, say); the rest was. `anchored` are
    revisions; `unmapped` are code branches, gone, whose entry in git's configuration goes with its
    KB branch. `local_bytes`: of what stays on this machine, which is no part of the knowledge base.
    """

    applied: bool
    anchored: tuple[str, ...]
    pruned: tuple[PrunedBranch, ...]
    kept: tuple[KeptBranch, ...]
    unmapped: tuple[str, ...]
    kb_bytes: Sizes
    leftovers: Leftovers
    undone: tuple[str, ...] = ()
    local_bytes: Sizes = Sizes(0, 0)


class _Branches(Record, frozen=True):
    prune: tuple[KbBranch, ...]
    keep: tuple[KeptBranch, ...]
    unmap: tuple[KbMapping, ...]

    @property
    def unmapped(self) -> tuple[str, ...]:
        return tuple(each.code for each in self.unmap if not each.tree)


def gc(ws: Workspace, *, apply: bool = False) -> GcReport:
    """Remove derived files; anchor what git can check out; prune KB branches; drop the rest.

    Only KB branches of code branches that are gone are pruned.

    In this order it makes its own room on a full disk, and a kill leaves all pinned revisions
    reachable.
    """
    engine = ws.engine
    swept = garbage.remove_leftovers(ws) if apply else None
    undone: list[str] = []
    with _noting(undone, "What was interrupted could not be finished"):
        recover(ws)
    before, local = measure_size(ws.places.kb), measure_size(ws.places.local_kb)
    wanted = tuple(engine.find_unreachable(list_needed(ws)))
    if swept is None:
        branches = _branches(ws)
        prunable = tuple(PrunedBranch(each.name, each.head) for each in branches.prune)
        rest = garbage.find_leftovers(ws)
        sizes, local_sizes = Sizes(before, before), Sizes(local, local)
        return GcReport(False, wanted, prunable, branches.keep, branches.unmapped, sizes, rest, local_bytes=local_sizes)
    anchored: list[str] = []
    pruned: tuple[PrunedBranch, ...] = ()
    branches = _Branches((), (), ())
    with _noting(undone, "The knowledge base could not be written anew"):
        for revision in wanted:
            engine.anchor_revision(revision, reason="pinned in git history")
            anchored.append(revision)
        pruned, branches = _prune(ws)
        engine.forget_remote(quarantine.QUARANTINE_KEY)  # of an adoption that was killed
        engine.collect_garbage()
    with _noting(undone, "What stays on this machine could not be written anew"):
        if ws.local.exists:
            ws.local.engine.collect_garbage()
    vectors = Excess()
    with _noting(undone, "Old vectors could not be dropped"):
        vectors = garbage.prune_vectors(ws)
    sizes, local_sizes = (
        Sizes(had, measure_size(folder)) for had, folder in ((before, ws.places.kb), (local, ws.places.local_kb))
    )
    rest = msgspec.structs.replace(swept, vectors=vectors)
    return GcReport(
        True, tuple(anchored), pruned, branches.keep, branches.unmapped, sizes, rest, tuple(undone), local_sizes
    )


@contextlib.contextmanager
def _noting(undone: list[str], what: str) -> Iterator[None]:
    """Note an error of the machine that ends the block; what was done before stays."""
    try:
        with file_failures():
            yield
    except (FileSystemError, EngineUnwritable) as error:
        undone.append(f"{what}: {error.message}")


# -- what has to stay


def list_needed(ws: Workspace) -> list[str]:
    """The revisions that something still names, latest pins first: their anchors keep ancestors.

    All that are pinned by a commit of git's refs and reflogs, by an index, a work tree, or what git
    is in the middle of; that some work tree answers from; and that an interrupted operation goes on
    with.
    """
    bound = (path.name.rpartition("-")[0] for path in bindings.list_bound_views(ws.places))
    return list(dict.fromkeys([*list_pinned(ws), *bound, *_journaled(ws)]))


def list_pinned(ws: Workspace) -> list[str]:
    """The revisions that something of git's pins, here or not, latest first."""
    return history_pins.list_pinned(ws.places)


def _journaled(ws: Workspace) -> Iterator[str]:
    """Every text in the journal, revisions and KB branches among them, of all work trees."""
    for _, entry in ws.journal.list_entries():
        if entry is not None:
            yield from (value for value in msgspec.to_builtins(entry).values() if isinstance(value, str))


# -- branches


def _prune(ws: Workspace) -> tuple[tuple[PrunedBranch, ...], _Branches]:
    """Delete what `_branches` names; the engine anchors each head.

    A branch that is written on meanwhile stays.
    """
    pruned = []
    with locks.hold_exclusive(ws.places.locks / "mapping.lock", purpose="prune KB branches", timeout=ws.lock_timeout):
        branches = _branches(ws)
        for each in branches.prune:
            try:
                ws.engine.delete_branch(each.name, expected=each.head)
            except (Uncommitted, KnowledgeMoved, BranchMissing):
                continue
            pruned.append(PrunedBranch(each.name, each.head))
        there = {branch.name for branch in ws.engine.list_branches()}
        gone = tuple(each for each in branches.unmap if each.kb_branch not in there)
        for entry in gone:
            plumbing.forget_kb_branch(ws.places, entry.code, entry.tree)
    return tuple(pruned), _Branches(branches.prune, branches.keep, gone)


def _branches(ws: Workspace) -> _Branches:
    """KB branches without code branch, and entries of deleted code branches and of removed work
    trees, by their fate.

    On a shared server, a branch without an entry here is another repository's.
    """
    mappings = plumbing.list_kb_mappings(ws.places)
    living = kb_branches.list_active_mappings(ws)
    stale = [mapping for mapping in mappings if mapping not in living]
    deleted = {each.kb_branch for each in stale}
    in_use = {each.kb_branch for each in living} | set(_journaled(ws))
    prune, keep, target = [], [], ws.resolve_target()
    for branch in ws.engine.list_branches():
        if is_memory_branch(branch.name):
            keep.append(KeptBranch(branch.name, branch.head, "remembered", "vmrag branch"))
        elif branch.name.startswith(ASIDE_PREFIX):
            keep.append(KeptBranch(branch.name, branch.head, "set_aside", f"vmrag merge {shlex.quote(branch.name)}"))
        elif is_reserved(branch.name) or branch.name in in_use or (ws.engine.shared and branch.name not in deleted):
            continue
        elif branch.dirty:
            keep.append(
                KeptBranch(
                    branch.name, branch.head, "uncommitted", kb_branches.form_recovery_command(ws, target, branch)
                )
            )
        else:
            prune.append(branch)
    staying = in_use | {each.name for each in keep}
    return _Branches(tuple(prune), tuple(keep), tuple(each for each in stale if each.kb_branch not in staying))
