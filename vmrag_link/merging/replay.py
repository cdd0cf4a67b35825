"""Uncommitted documents follow their KB branch to another revision, as `git stash` would carry files.

They are set aside in a commit first. From then on every step can be repeated, so a kill between any two of them loses nothing:
`finish` goes on from what it finds.
"""

from __future__ import annotations

import datetime as dt
import hashlib

from vmrag_link.engines.base import ASIDE_PREFIX, Engine
from vmrag_link.journal import Journal, ReplayEntry
from vmrag_link.merging.threeway import as_rows, merge
from vmrag_link.models import KbBranch, Record, Working

AUTHOR = "vmrag <vmrag@localhost>"


class Replayed(Record, frozen=True):
    """`documents` uncommitted ones went along; with `kept_on` they are in that branch's head instead, because of `conflicts`."""

    branch: str
    to: str
    documents: int
    kept_on: str = ""
    conflicts: int = 0

    @property
    def note(self) -> str:
        some = f"{self.documents or 'no'} uncommitted document{'s' * (self.documents != 1)} of {self.branch!r}"
        if not self.kept_on:
            return f"{some} went along to revision {self.to[:7]}."
        return (
            f"{some} conflict with revision {self.to[:7]} and are kept. To bring them back: vmrag merge {self.kept_on}"
        )


def replay(engine: Engine, journal: Journal, branch: KbBranch, to: str, *, timeout: float) -> Replayed:
    """Move a branch with uncommitted documents to a revision, and them with it; on a conflict they are kept aside.

    Raises `Busy`, `FileFailed` (no journal, nothing happened), `KnowledgeMoved`.
    """
    with engine.writing("carry uncommitted documents", timeout=timeout):
        entry = ReplayEntry(kb_branch=branch.name, head=branch.head, to=to, aside=free_aside(engine, branch.name))
        with journal.entry(entry):
            _set_aside(engine, entry)
            return _carried(engine, entry)


def finish(engine: Engine, entry: ReplayEntry) -> Replayed | None:
    """Finish what was killed; None when its documents are where they were, or where they were going."""
    with engine.writing("carry uncommitted documents"):
        return _carried(engine, entry) if engine.branch(entry.aside) else None


def free_aside(engine: Engine, kb_branch: str) -> str:
    """The name under which uncommitted documents of a KB branch are set aside now."""
    wanted = ASIDE_PREFIX + kb_branch
    if not engine.legal_branch_name(wanted + "-999"):  # too long
        wanted = ASIDE_PREFIX + hashlib.sha256(kb_branch.encode()).hexdigest()[:16]
    taken = {each.name.lower() for each in engine.branches()}
    names = [wanted, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name.lower() not in taken)


def _set_aside(engine: Engine, entry: ReplayEntry) -> None:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = as_rows(engine.diff(entry.head, Working(entry.kb_branch)))
    message = f"Uncommitted documents of {entry.kb_branch}"
    kept = engine.commit_onto(entry.head, [rows], message=message, author=AUTHOR, date=now)
    engine.create_branch(entry.aside, kept)


def _carried(engine: Engine, entry: ReplayEntry) -> Replayed:
    """From the commit that holds the documents to the working set of the moved branch."""
    aside, branch = engine.branch(entry.aside), engine.branch(entry.kb_branch)
    assert aside is not None  # noqa: S101  the callers have made it, or looked
    documents = engine.count_changes(entry.head, aside.head).total
    stranded = Replayed(entry.kb_branch, entry.to, documents, entry.aside)
    if branch is not None and branch.head == entry.head:
        engine.take_back(branch.name, kept=aside.head, expected=entry.head)
        engine.move_branch(branch.name, entry.to, expected=entry.head)
    elif branch is None or branch.head != entry.to:
        return stranded  # somebody moved it on, or deleted it
    elif branch.dirty:
        engine.delete_branch(entry.aside, expected=aside.head)  # killed after the last write
        return Replayed(entry.kb_branch, entry.to, documents)
    merged = merge(engine, base=entry.head, ours=entry.to, theirs=aside.head)
    if merged.conflicts:
        return Replayed(entry.kb_branch, entry.to, documents, entry.aside, len(merged.conflicts))
    if not merged.empty:
        engine.write(entry.kb_branch, merged.rows, expected=entry.to)
    engine.delete_branch(entry.aside, expected=aside.head)
    return Replayed(entry.kb_branch, entry.to, documents)
