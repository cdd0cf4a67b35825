"""`vmrag status`: do pin, knowledge base and index agree, and if not, what to type. Changes nothing, needs no index extra."""

from __future__ import annotations

import sqlite3
from typing import Literal

from vmrag_link import locks
from vmrag_link.git import plumbing
from vmrag_link.index.manifest import Manifest
from vmrag_link.models import Record, Working
from vmrag_link.pin import Pin
from vmrag_link.sync import apply
from vmrag_link.sync.resolve import Target
from vmrag_link.workspace import Workspace

State = Literal["in_sync", "drift", "missing", "no_pin", "malformed", "not_initialized"]


class GitBlock(Record, frozen=True):
    head: str | None
    branch: str | None


class PinBlock(Record, frozen=True):
    dolt_remote: str
    dolt_branch: str
    dolt_commit: str
    linked_at: str


class KbStatus(Record, frozen=True):
    """`revision`: where the KB branch is (or, `detached`, the revision that is read); `documents` with the uncommitted ones."""

    engine: str | None = None
    revision: str | None = None
    branch: str | None = None
    detached: bool = True
    dirty: bool = False
    documents: int = 0


class IndexStatus(Record, frozen=True):
    """`working_copy`: the index of the uncommitted documents, if there is one."""

    revision: str | None = None
    settings: str | None = None
    documents: int = 0
    chunks: int = 0
    path: str | None = None
    working_copy: str | None = None


class StatusReport(Record, frozen=True):
    state: State
    in_sync: bool
    git: GitBlock
    pin: PinBlock | None
    kb: KbStatus
    index: IndexStatus
    reasons: list[str]
    hint: str


def status(ws: Workspace) -> StatusReport:
    """What `vmrag status` shows."""
    head = plumbing.head(ws.places)
    git = GitBlock(head.commit, head.branch)
    if not ws.initialized:
        reasons = ["This repository has no knowledge base yet."]
        if plumbing.pin_bytes(ws.places) is not None:
            reasons = [f"The pin names a knowledge base that is not on this machine ({ws.places.kb} is missing)."]
        return StatusReport("not_initialized", False, git, None, KbStatus(), IndexStatus(), reasons, "vmrag init")
    target = ws.target()
    index = _index(ws, target)
    state, reasons, hint = _judged(ws, target)
    reasons += [f"warning: {warning}" for warning in ws.settings.warnings]
    return StatusReport(
        state, state == "in_sync", git, _pin(target.pin), _kb(ws, target), index, reasons + _interrupted(ws), hint
    )


def _pin(pin: Pin | None) -> PinBlock | None:
    return PinBlock(pin.dolt_remote, pin.dolt_branch, pin.dolt_commit, pin.linked_at) if pin else None


def _kb(ws: Workspace, target: Target) -> KbStatus:
    branch, bound = target.kb_branch, ws.binding
    stands = bound.revision if bound and ws.engine.has_revision(bound.revision) else None
    detached = branch is None or target.attachment in ("held", "behind")
    revision = stands if detached or branch is None else branch.head
    dirty = branch is not None and branch.dirty
    documents = 0
    if branch and dirty and not detached:
        documents = ws.engine.count(Working(branch.name))
    elif revision:
        documents = ws.engine.count(revision)
    return KbStatus(ws.engine.name, revision, branch.name if branch else None, detached, dirty, documents)


def _index(ws: Workspace, target: Target) -> IndexStatus:
    bound = ws.binding
    if bound is None:
        return IndexStatus()
    path = ws.shelf.path(bound.revision)
    documents = chunks = 0
    if not ws.shelf.problem(bound.revision):
        try:
            manifest = Manifest(path, frozen=True)
            documents, chunks = manifest.counts()
            manifest.close()
        except sqlite3.Error:
            pass  # `_judged` says that it cannot be read
    working = None
    if target.kb_branch:
        copy = apply.working_copy(ws.parts, target.kb_branch.name, bound.revision)
        working = str(copy.path) if copy.path.is_dir() else None
    return IndexStatus(bound.revision, ws.shelf.settings, documents, chunks, str(path), working)


def _judged(ws: Workspace, target: Target) -> tuple[State, list[str], str]:
    """The state, why, and what to type."""
    if target.state == "no_pin":
        return "no_pin", ["This code commit pins no knowledge; the knowledge base stays where it is."], "vmrag pin"
    if target.state == "malformed" and target.problem:
        return "malformed", [target.problem.message], target.problem.hint
    if target.state == "missing":
        problem = ws.unusable(target)
        return "missing", [problem.message], problem.hint
    reasons = _drift(ws, target)
    if not reasons:
        return "in_sync", [], ""
    hint = "vmrag sync"
    if target.kb_branch and target.attachment == "held":
        hint = f"vmrag pin {target.kb_branch.head}"
    elif target.attachment == "behind" and ws.applied == target.trigger:
        hint = "vmrag pin"
    return "drift", reasons, hint


def _drift(ws: Workspace, target: Target) -> list[str]:
    bound = ws.binding
    reasons = []
    if bound is None:
        reasons.append("No index is bound to this work tree yet.")
    elif bound.revision != target.revision:
        reasons.append(f"The index stands at {bound.revision[:7]}, the pin names {target.revision[:7]}.")
    elif problem := ws.shelf.problem(bound.revision):
        reasons.append(f"The index of {bound.revision[:7]} cannot be served: {problem}.")
    elif ws.applied != target.trigger:
        reasons.append("HEAD has moved since the last sync.")
    if target.kb_branch and target.attachment == "held":
        reasons.append(apply.held_note(target.kb_branch.name, target.kb_branch.head, target.revision))
    elif target.kb_branch and target.attachment == "behind":
        reasons.append(f"KB branch {target.kb_branch.name!r} is at {target.kb_branch.head[:7]}, the pin elsewhere.")
    return reasons


def _interrupted(ws: Workspace) -> list[str]:
    """A commit that is under way, or was killed."""
    if not ws.journal.entries(ws.places.git_dir):
        return []
    holder = locks.holder(ws.places.workspace_lock)
    doing = f" (process {holder[0]} is at work)" if holder else ""
    return [f"A commit is not finished yet{doing}; the next command finishes it."]
