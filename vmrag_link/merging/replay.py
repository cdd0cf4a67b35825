"""Uncommitted documents follow their KB branch to another revision, as `git stash` would carry
files.

They are committed aside first. From then on every step can be repeated, so a kill between two of
them loses nothing: `finish` goes on from there.
"""

from __future__ import annotations

import hashlib

import msgspec

from vmrag_link import clock
from vmrag_link.engines.base import ASIDE_PREFIX, Engine
from vmrag_link.errors import KnowledgeMoved, plural, quoted
from vmrag_link.journal import Journal, ReplayEntry
from vmrag_link.merging.threeway import Derived, as_rows, merge, stored_alone
from vmrag_link.models import KbBranch, Record, Working

AUTHOR = "vmrag <vmrag@localhost>"


class Replayed(Record, frozen=True):
    """`documents` are uncommitted now or, with `kept_on`, in that branch's head because of
    `conflicts`.

    Neither: the revision holds them already.
    """

    branch: str
    to: str
    documents: int
    kept_on: str = ""
    conflicts: int = 0

    @property
    def note(self) -> str:
        back = f"To bring them back: vmrag merge {quoted(self.kept_on)}"
        some = f"{plural(self.documents, 'uncommitted document')} of {self.branch!r}"
        if self.conflicts:
            return f"{some} conflict with revision {self.to[:7]} and are kept. {back}"
        if self.kept_on:
            return f"{some} are kept. {back}"
        if not self.documents:
            return f"revision {self.to[:7]} holds what was uncommitted on {self.branch!r}."
        return f"{some} went along to revision {self.to[:7]}."


def replay(
    engine: Engine, journal: Journal, branch: KbBranch, to: str, *, timeout: float, derived: Derived = stored_alone
) -> Replayed:
    """Move a branch and its uncommitted documents to a revision. In a conflict they are kept aside;
    `derived` as in `merge`.

    Raises `Busy`, `FileFailed` (no journal, nothing happened), `KnowledgeMoved`.
    """
    with engine.writing("carry uncommitted documents", timeout=timeout):
        entry = _entry(engine, branch, to)
        with journal.entry(entry):
            _set_aside(engine, entry)
            engine.move_branch(branch.name, to, expected=branch.head)
            return _result(engine, entry, derived)


def put_aside(engine: Engine, journal: Journal, branch: KbBranch, *, timeout: float) -> str:
    """Commit a branch's uncommitted documents to another branch, which is returned, and leave it
    clean.

    A kill brings them back. Raises as `replay`.
    """
    with engine.writing("set uncommitted documents aside", timeout=timeout):
        entry = _entry(engine, branch, branch.head)
        with journal.entry(entry):
            _set_aside(engine, entry)
    return entry.aside


def finish(engine: Engine, entry: ReplayEntry, *, derived: Derived = stored_alone) -> Replayed | None:
    """Finish after a kill; None if nothing is set aside any more, or its documents are back."""
    with engine.writing("carry uncommitted documents"):
        landed = _result(engine, entry, derived) if engine.branch(entry.aside) else None
    return landed if landed and (landed.kept_on or landed.to != entry.head) else None


def _entry(engine: Engine, branch: KbBranch, to: str) -> ReplayEntry:
    if engine.branch(branch.name) != branch:
        raise KnowledgeMoved(f"The KB branch {branch.name!r} was changed meanwhile.", hint="Run the command again.")
    return ReplayEntry(kb_branch=branch.name, head=branch.head, to=to, aside=_free_aside(engine, branch.name))


def _free_aside(engine: Engine, kb_branch: str) -> str:
    """The name under which uncommitted documents of a KB branch are set aside now."""
    wanted = ASIDE_PREFIX + kb_branch
    if not engine.legal_branch_name(wanted + "-999"):  # too long
        wanted = ASIDE_PREFIX + hashlib.sha256(kb_branch.encode()).hexdigest()[:16]
    taken = {each.name.lower() for each in engine.branches()}
    names = [wanted, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name.lower() not in taken)


def _set_aside(engine: Engine, entry: ReplayEntry) -> None:
    now = clock.now()
    rows = as_rows(engine.diff(entry.head, Working(entry.kb_branch)))
    message = f"Uncommitted documents of {entry.kb_branch}"
    kept = engine.commit_onto(entry.head, [rows], message=message, author=AUTHOR, date=now)
    engine.create_branch(entry.aside, kept)
    engine.take_back(entry.kb_branch, kept=kept, expected=entry.head)


def _result(engine: Engine, entry: ReplayEntry, derived: Derived) -> Replayed:
    """Make documents set aside uncommitted on their KB branch again, wherever it is now.

    Can be repeated.
    """
    aside, branch = engine.branch(entry.aside), engine.branch(entry.kb_branch)
    assert aside is not None  # noqa: S101  the callers have made it, or looked
    stranded = Replayed(entry.kb_branch, entry.to, engine.count_changes(entry.head, aside.head).total, entry.aside)
    if branch is None:
        return stranded  # somebody deleted it
    working = Working(branch.name)
    merged = merge(engine, base=entry.head, ours=working, theirs=aside.head, derived=derived)
    if merged.conflicts:
        return msgspec.structs.replace(stranded, to=branch.head, conflicts=len(merged.conflicts))
    if not merged.empty:
        engine.write(branch.name, merged.rows, expected=branch.head)
    engine.delete_branch(entry.aside, expected=aside.head)
    return Replayed(branch.name, branch.head, engine.count_changes(branch.head, working).total)
