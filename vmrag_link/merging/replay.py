"""Uncommitted documents follow their KB branch to another revision, as `git stash` would carry files.

They are set aside in a commit first. From then on every step can be repeated, so a kill between any two of them loses nothing:
`finish` goes on from what it finds.
"""

from __future__ import annotations

import datetime as dt
import hashlib

import msgspec

from vmrag_link.engines.base import ASIDE_PREFIX, Engine
from vmrag_link.errors import Uncommitted
from vmrag_link.journal import Journal, ReplayEntry
from vmrag_link.merging.threeway import as_rows, merge
from vmrag_link.models import KbBranch, Record, Working

AUTHOR = "vmrag <vmrag@localhost>"


class Replayed(Record, frozen=True):
    """`documents` are uncommitted on the revision now; with `kept_on` they are in that branch's head instead, because of `conflicts`.

    None of both: the revision holds them already.
    """

    branch: str
    to: str
    documents: int
    kept_on: str = ""
    conflicts: int = 0

    @property
    def note(self) -> str:
        some = f"{self.documents} uncommitted document{'s' * (self.documents != 1)} of {self.branch!r}"
        if self.conflicts:
            return f"{some} conflict with revision {self.to[:7]} and are kept. To bring them back: vmrag merge {self.kept_on}"
        if self.kept_on:
            return f"{some} are kept. To bring them back: vmrag merge {self.kept_on}"
        if not self.documents:
            return f"revision {self.to[:7]} holds what was uncommitted on {self.branch!r}."
        return f"{some} went along to revision {self.to[:7]}."


def replay(engine: Engine, journal: Journal, branch: KbBranch, to: str, *, timeout: float) -> Replayed:
    """Move a branch with uncommitted documents to a revision, and them with it; on a conflict they are kept aside.

    Raises `Busy`, `FileFailed` (no journal, nothing happened), `KnowledgeMoved`.
    """
    with engine.writing("carry uncommitted documents", timeout=timeout):
        entry = _entry(engine, branch, to)
        with journal.entry(entry):
            _set_aside(engine, entry)
            return _carried(engine, entry)


def put_aside(engine: Engine, journal: Journal, branch: KbBranch, *, timeout: float) -> str:
    """Keep the uncommitted documents of a branch in a commit and leave it clean; returns the KB branch that holds them.

    A kill brings them back. Raises as `replay`.
    """
    with engine.writing("set uncommitted documents aside", timeout=timeout):
        entry = _entry(engine, branch, branch.head)
        with journal.entry(entry):
            kept = _set_aside(engine, entry)
            engine.take_back(branch.name, kept=kept, expected=branch.head)
    return entry.aside


def finish(engine: Engine, entry: ReplayEntry) -> Replayed | None:
    """Finish what was killed; None when its documents are where they were, or where they were going."""
    with engine.writing("carry uncommitted documents"):
        return _carried(engine, entry) if engine.branch(entry.aside) else None


def _entry(engine: Engine, branch: KbBranch, to: str) -> ReplayEntry:
    return ReplayEntry(kb_branch=branch.name, head=branch.head, to=to, aside=_free_aside(engine, branch.name))


def _free_aside(engine: Engine, kb_branch: str) -> str:
    """The name under which uncommitted documents of a KB branch are set aside now."""
    wanted = ASIDE_PREFIX + kb_branch
    if not engine.legal_branch_name(wanted + "-999"):  # too long
        wanted = ASIDE_PREFIX + hashlib.sha256(kb_branch.encode()).hexdigest()[:16]
    taken = {each.name.lower() for each in engine.branches()}
    names = [wanted, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name.lower() not in taken)


def _set_aside(engine: Engine, entry: ReplayEntry) -> str:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = as_rows(engine.diff(entry.head, Working(entry.kb_branch)))
    message = f"Uncommitted documents of {entry.kb_branch}"
    kept = engine.commit_onto(entry.head, [rows], message=message, author=AUTHOR, date=now)
    engine.create_branch(entry.aside, kept)
    return kept


def _carried(engine: Engine, entry: ReplayEntry) -> Replayed:
    """From the commit that holds the documents to the working set of the moved branch."""
    aside, branch = engine.branch(entry.aside), engine.branch(entry.kb_branch)
    assert aside is not None  # noqa: S101  the callers have made it, or looked
    stranded = Replayed(entry.kb_branch, entry.to, engine.count_changes(entry.head, aside.head).total, entry.aside)
    if branch is None or branch.head not in (entry.head, entry.to):
        return stranded  # somebody deleted it, or moved it on
    if branch.head == entry.head:
        try:
            engine.take_back(branch.name, kept=aside.head, expected=entry.head)
        except Uncommitted:
            return stranded  # more was written after the kill
        engine.move_branch(branch.name, entry.to, expected=entry.head)
        branch = msgspec.structs.replace(branch, head=entry.to, dirty=False)
    if not branch.dirty:  # else it was killed after the last write
        merged = merge(engine, base=entry.head, ours=entry.to, theirs=aside.head)
        if merged.conflicts:
            return msgspec.structs.replace(stranded, conflicts=len(merged.conflicts))
        if not merged.empty:
            engine.write(entry.kb_branch, merged.rows, expected=entry.to)
    engine.delete_branch(entry.aside, expected=aside.head)
    return Replayed(entry.kb_branch, entry.to, engine.count_changes(entry.to, Working(entry.kb_branch)).total)
