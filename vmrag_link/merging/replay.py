"""Move uncommitted documents of a KB branch to another revision, like `git stash` moves files.

They are first committed to a separate branch (stashed). After that each step can be repeated, so a
kill between two steps loses nothing: `finish_replay` continues from there.

A change that the new revision already contains is no longer uncommitted there, and would be lost if
the pin moved back. So the branch `vmrag/wip/NAME.carried` remembers the changes. Its head has the
tables of all changes on the revision on which they were made, the first parent. The second parent
is the state of the KB branch after the last move. `vmrag commit` deletes this branch.
"""

from __future__ import annotations

import hashlib

import msgspec

from vmrag_link import clock
from vmrag_link.engines.base import ASIDE_PREFIX, CARRIED_SUFFIX, Engine, Write
from vmrag_link.errors import KnowledgeMoved, plural, quoted
from vmrag_link.journal import Journal, ReplayEntry
from vmrag_link.merging.threeway import Derived, convert_to_rows, merge, stored_alone
from vmrag_link.models import Collection, Document, KbBranch, Record, Row, WorkingSet

AUTHOR = "vmrag <vmrag@localhost>"


class Replayed(Record, frozen=True):
    """The result of a move.

    `documents` are uncommitted now or, with `kept_on`, in that branch's head because of
    `conflicts`. If neither applies, the revision already contains them.
    """

    branch: str
    to: str
    documents: int
    kept_on: str = ""
    conflicts: int = 0
    collections: bool = False
    """True if changes of collections or projects are uncommitted."""
    remembered: bool = False
    """True if changes that the revision already contains return with the pin."""
    hidden: str = ""
    """The branch of earlier changes that are not shown because of conflicts."""
    silent: bool = False
    """True if nothing was uncommitted before and after."""

    @property
    def note(self) -> str:
        """The note for the user, or an empty text."""
        restore = f"run 'vmrag merge {quoted(self.kept_on)}' to restore them"
        some = f"{plural(self.documents, 'uncommitted document')} of {self.branch!r}"
        if self.conflicts:
            return f"{some} conflict with revision {self.to[:7]} and are kept; {restore}"
        if self.kept_on:
            return f"{some} are kept; {restore}"
        if self.silent and not self.hidden:
            return ""
        if self.documents:
            shown = f"{some} moved to revision {self.to[:7]}."
        elif self.collections:
            shown = f"uncommitted changes of collections of {self.branch!r} moved to revision {self.to[:7]}."
        else:
            shown = f"revision {self.to[:7]} already contains the uncommitted changes of {self.branch!r}."
        if self.hidden:
            return (
                f"{shown} Earlier uncommitted changes are kept; run 'vmrag merge {quoted(self.hidden)}' to merge them"
            )
        if self.remembered:
            return f"{shown} Changes that it already contains will be uncommitted again if the pin moves back."
        return shown


def replay_branch(
    engine: Engine, journal: Journal, branch: KbBranch, to: str, *, timeout: float, derived: Derived = stored_alone
) -> Replayed:
    """Move a branch and its uncommitted documents to a revision. In a conflict they are stashed on
    another branch.

    `derived`: as in `threeway.merge`. Raises `Busy`, `FileFailed` (the journal cannot be written,
    nothing happened), `KnowledgeMoved`.
    """
    with engine.write_lock("carry uncommitted documents", timeout=timeout):
        entry = _build_entry(engine, branch, to)
        with journal.record_entry(entry):
            _stash_changes(engine, entry)
            engine.move_branch(branch.name, to, expected=branch.head)
            return _restore_changes(engine, entry, derived)


def put_aside(engine: Engine, journal: Journal, branch: KbBranch, *, timeout: float) -> str:
    """Commit a branch's uncommitted documents to another branch, and return that branch. The first
    branch is clean then.

    After a kill, they are uncommitted again. Raises the errors of `replay_branch`.
    """
    with engine.write_lock("set uncommitted documents aside", timeout=timeout):
        entry = _build_entry(engine, branch, branch.head)
        with journal.record_entry(entry):
            _stash_changes(engine, entry)
    return entry.aside


def finish_replay(engine: Engine, entry: ReplayEntry, *, derived: Derived = stored_alone) -> Replayed | None:
    """Finish a replay after a kill. Returns None if nothing is stashed, or if its documents are
    uncommitted again on their branch.
    """
    with engine.write_lock("carry uncommitted documents"):
        replayed = _restore_changes(engine, entry, derived) if engine.find_branch(entry.aside) else None
    return replayed if replayed and (replayed.kept_on or replayed.to != entry.head) else None


def _build_entry(engine: Engine, branch: KbBranch, to: str) -> ReplayEntry:
    if engine.find_branch(branch.name) != branch:
        raise KnowledgeMoved(
            f"the KB branch {branch.name!r} was changed by another command.", hint="run the command again"
        )
    return ReplayEntry(kb_branch=branch.name, head=branch.head, to=to, aside=_choose_stash_name(engine, branch.name))


def _choose_stash_name(engine: Engine, kb_branch: str) -> str:
    """Return an unused name of a branch for uncommitted documents of a KB branch."""
    preferred = _build_stash_name(engine, kb_branch)
    existing = {branch.name.lower() for branch in engine.list_branches()}
    names = [preferred, *(f"{preferred}-{number}" for number in range(2, len(existing) + 3))]
    return next(name for name in names if name.lower() not in existing)


def _build_stash_name(engine: Engine, kb_branch: str) -> str:
    name = ASIDE_PREFIX + kb_branch
    if engine.is_legal_branch_name(name + CARRIED_SUFFIX):
        return name
    return ASIDE_PREFIX + hashlib.sha256(kb_branch.encode()).hexdigest()[:16]  # the name is too long


def _stash_changes(engine: Engine, entry: ReplayEntry) -> None:
    now = clock.now()
    rows = convert_to_rows(engine.diff(entry.head, WorkingSet(entry.kb_branch)))
    message = f"Uncommitted documents of {entry.kb_branch}"
    kept = engine.commit_onto(entry.head, [rows], message=message, author=AUTHOR, date=now)
    engine.create_branch(entry.aside, kept)
    engine.discard_saved_rows(entry.kb_branch, kept=kept, expected=entry.head)


def _restore_changes(engine: Engine, entry: ReplayEntry, derived: Derived) -> Replayed:
    """Make stashed documents uncommitted on their KB branch again, at its present revision.

    This can be repeated.
    """
    aside, branch = engine.find_branch(entry.aside), engine.find_branch(entry.kb_branch)
    assert aside is not None  # noqa: S101  the callers created it or checked it
    stranded = Replayed(entry.kb_branch, entry.to, engine.count_changes(entry.head, aside.head).total, entry.aside)
    if branch is None:
        return stranded  # it was deleted
    working, has_moved = WorkingSet(branch.name), branch.head != entry.head
    latest = _Changes(entry.head, aside.head)
    memory = _read_memory(engine, branch.name) if has_moved else None
    all_changes = _combine_changes(engine, memory, latest, derived) if memory and memory.head == entry.head else None
    merged = None
    if all_changes and not _is_superseded(engine, all_changes, entry.head, branch.head):
        merged = merge(engine, base=all_changes.base, ours=working, theirs=all_changes.state, derived=derived)
    hidden = _memory_name(engine, branch.name) if merged and merged.conflicts else ""
    if merged is None or merged.conflicts:
        merged = merge(engine, base=latest.base, ours=working, theirs=latest.state, derived=derived)
    if merged.conflicts:
        return msgspec.structs.replace(stranded, to=branch.head, conflicts=len(merged.conflicts))
    if not merged.is_empty:
        engine.write(branch.name, merged.rows, expected=branch.head)
    remembered = False
    if has_moved and not (memory and memory.head == branch.head):  # otherwise a kill happened after the next line
        if memory and all_changes is None:
            hidden = _retire_memory(engine, memory, branch, derived)
        remembered = _remember_changes(engine, branch, all_changes or latest, derived)
    engine.delete_branch(entry.aside, expected=aside.head)
    after = engine.find_branch(branch.name) or branch
    documents = engine.count_changes(branch.head, working).total
    return Replayed(
        branch.name,
        branch.head,
        documents,
        collections=after.dirty and not documents,
        remembered=remembered,
        hidden=hidden,
        silent=aside.head == entry.head and not after.dirty,
    )


# -- changes that a revision already contains


class _Changes(Record, frozen=True):
    """Uncommitted changes of the revision `base`."""

    base: str
    state: str
    """A revision that contains all of them."""


class _RememberedChanges(Record, frozen=True):
    """Remembered changes."""

    branch: KbBranch
    changes: _Changes
    shown: str
    """The state of the KB branch, with uncommitted changes, after it moved to `head`."""
    head: str


def remember_changes(
    engine: Engine, branch: KbBranch, *, base: str, state: str, derived: Derived = stored_alone
) -> None:
    """Remember changes that another command restored, unless moving the pin back restores them."""
    with engine.write_lock("carry uncommitted documents"):
        memory = _read_memory(engine, branch.name)
        if memory:
            _retire_memory(engine, memory, branch, derived)
        _remember_changes(engine, branch, _Changes(base, state), derived)


def forget_changes(engine: Engine, kb_branch: str) -> None:
    """Forget the remembered changes of a KB branch, because they were committed or discarded. They
    stay anchored.
    """
    memory = engine.find_branch(_memory_name(engine, kb_branch))
    if memory:
        engine.delete_branch(memory.name, expected=memory.head)


def _is_superseded(engine: Engine, changes: _Changes, head: str, to: str) -> bool:
    """Return whether the pin moves forward from a revision that was made after the changes and
    contains some of them. Then later revisions decide about these.
    """
    return engine.is_ancestor(head, to) and not engine.is_ancestor(head, changes.base)


def _memory_name(engine: Engine, kb_branch: str) -> str:
    return _build_stash_name(engine, kb_branch) + CARRIED_SUFFIX


def _read_memory(engine: Engine, kb_branch: str) -> _RememberedChanges | None:
    branch = engine.find_branch(_memory_name(engine, kb_branch))
    if branch is None:
        return None
    base, *others = engine.read_revision(branch.head).parents
    if not others:
        return None  # documents of a KB branch whose name ends like this
    return _RememberedChanges(
        branch, _Changes(base, branch.head), others[0], engine.read_revision(others[0]).parents[0]
    )


def _combine_changes(engine: Engine, memory: _RememberedChanges, latest: _Changes, derived: Derived) -> _Changes | None:
    """Return the remembered changes together with those since the last move. None if they
    conflict.
    """
    since = merge(engine, base=memory.shown, ours=memory.branch.head, theirs=latest.state, derived=derived)
    if since.conflicts:
        return None
    base = memory.changes.base
    rows = [convert_to_rows(engine.diff(base, memory.branch.head)), since.rows]
    state = engine.commit_onto(base, rows, message="Uncommitted documents", author=AUTHOR, date=clock.now())
    return _Changes(base, state)


def _remember_changes(engine: Engine, branch: KbBranch, changes: _Changes, derived: Derived) -> bool:
    """Remember changes until the pin moves back, and return True. If the visible state of the
    branch is enough to restore them there, forget them and return False.
    """
    name, working, now = _memory_name(engine, branch.name), WorkingSet(branch.name), clock.now()
    before = engine.find_branch(name)
    rows = convert_to_rows(engine.diff(changes.base, changes.state))
    back = merge(engine, base=branch.head, ours=changes.base, theirs=working, derived=derived)
    if not back.conflicts and _group_rows(rows).items() <= _group_rows(back.rows).items():
        forget_changes(engine, branch.name)
        return False
    message = f"Uncommitted documents of {branch.name}"
    visible = convert_to_rows(engine.diff(branch.head, working))
    shown = engine.recreate_revision([branch.head], [visible], message=message, author=AUTHOR, date=now)
    head = engine.commit_onto(changes.base, [rows], joining=shown, message=message, author=AUTHOR, date=now)
    if before:
        engine.move_branch(name, head, expected=before.head)
    else:
        engine.create_branch(name, head)
    return True


def _retire_memory(engine: Engine, memory: _RememberedChanges, branch: KbBranch, derived: Derived) -> str:
    """Stash remembered changes that nothing can restore automatically. Return the new branch, or an
    empty text if the KB branch contains all of them.
    """
    name, changes = "", memory.changes
    more = merge(engine, base=changes.base, ours=WorkingSet(branch.name), theirs=changes.state, derived=derived)
    if more.conflicts or not more.is_empty:
        name = _choose_stash_name(engine, branch.name)
        engine.create_branch(name, changes.state)
    engine.delete_branch(memory.branch.name, expected=memory.branch.head)
    return name


def _group_rows(rows: Write) -> dict[object, object]:
    """Return rows by key without their times, because a new time alone is not a change. A removed
    row has the value None.
    """
    put: tuple[Row, ...] = (*rows.put_collections, *rows.put_documents, *rows.put_projects)
    removed = (*rows.remove_collections, *rows.remove_documents, *(("", key) for key in rows.remove_projects))
    return {_get_key(row): _clear_times(row) for row in put} | dict.fromkeys(removed)


def _get_key(row: Row) -> object:
    if isinstance(row, Document):
        return row.key
    return row.name if isinstance(row, Collection) else ("", row.project_id)


def _clear_times(row: Row) -> Row:
    times = [name for name in row.__struct_fields__ if name.endswith("_at") or name == "last_modified"]
    return msgspec.structs.replace(row, **dict.fromkeys(times, ""))
