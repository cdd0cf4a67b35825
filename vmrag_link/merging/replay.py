"""Move uncommitted documents of a KB branch to another revision, like `git stash` moves files.

**Stash.** They are first committed to a separate branch, `vmrag/wip/NAME`. After that each step can
be repeated, so a kill between two steps loses nothing: `finish_replay` continues from there.

**Memory.** A change that the new revision already contains is no longer uncommitted there, and
would be lost if the pin moved back. So the branch `vmrag/wip/NAME.carried` remembers the changes.
Its head is the revision on which they were made (first parent) with all changes. The second parent
is the state of the KB branch after the last move. `vmrag commit` deletes this branch.
"""

from __future__ import annotations

import hashlib

import msgspec

from vmrag_link import clock
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.own_branches import ASIDE_PREFIX, CARRIED_SUFFIX
from vmrag_link.errors import KnowledgeMoved, plural, quoted
from vmrag_link.journal import Journal, ReplayEntry
from vmrag_link.merging.threeway import Derived, MergeResult, convert_to_rows, merge, stored_alone
from vmrag_link.models import Collection, Document, KbBranch, Record, Row, WorkingSet

AUTHOR = "vmrag <vmrag@localhost>"


class Replayed(Record, frozen=True):
    """The result of a move."""

    branch: str
    to: str
    documents: int
    """Number of documents that are uncommitted now, or are stashed on `kept_on`. The others are in
    the revision already.
    """
    kept_on: str = ""
    """The branch on which the documents are still stashed."""
    conflicts: int = 0
    """Number of conflicts with the revision, which are the reason for `kept_on`."""
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
        """The message for the user, or an empty text."""
        restore = f"run 'vmrag merge {quoted(self.kept_on)}' to restore them"
        some = f"{plural(self.documents, 'uncommitted document')} of {self.branch!r}"
        if self.conflicts:
            return f"{some} conflict with revision {self.to[:7]} and are kept; {restore}"
        if self.kept_on:
            return f"{some} are kept; {restore}"
        if self.silent and not self.hidden:
            return ""
        if self.documents:
            sentence = f"{some} moved to revision {self.to[:7]}."
        elif self.collections:
            sentence = f"uncommitted changes of collections of {self.branch!r} moved to revision {self.to[:7]}."
        else:
            sentence = f"revision {self.to[:7]} already contains the uncommitted changes of {self.branch!r}."
        if self.hidden:
            return f"{sentence} Earlier uncommitted changes are kept; run 'vmrag merge {quoted(self.hidden)}' to merge them"
        if self.remembered:
            return f"{sentence} Changes that it already contains will be uncommitted again if the pin moves back."
        return sentence


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
    rows = convert_to_rows(engine.diff(entry.head, WorkingSet(entry.kb_branch)))
    message = f"Uncommitted documents of {entry.kb_branch}"
    stash = engine.commit_onto(entry.head, [rows], message=message, author=AUTHOR, date=clock.now())
    engine.create_branch(entry.aside, stash)
    engine.discard_saved_rows(entry.kb_branch, kept=stash, expected=entry.head)


def _restore_changes(engine: Engine, entry: ReplayEntry, derived: Derived) -> Replayed:
    """Make stashed documents uncommitted on their KB branch again, at its current revision.

    In a conflict they stay stashed. This can be repeated after a kill.
    """
    stash = engine.find_branch(entry.aside)
    branch = engine.find_branch(entry.kb_branch)
    assert stash is not None  # noqa: S101  the callers created it or checked it
    still_stashed = Replayed(entry.kb_branch, entry.to, engine.count_changes(entry.head, stash.head).total, entry.aside)
    if branch is None:
        return still_stashed  # it was deleted
    has_moved = branch.head != entry.head
    stashed = _Changes(entry.head, stash.head)
    memory = _read_memory(engine, branch.name) if has_moved else None
    combined = _combine_changes(engine, memory, stashed, derived) if memory and memory.head == entry.head else None
    merged = None
    if combined and not _is_superseded(engine, combined, entry.head, branch.head):
        merged = _merge_changes(engine, branch, combined, derived)
    hidden = _memory_name(engine, branch.name) if merged and merged.conflicts else ""
    if merged is None or merged.conflicts:
        merged = _merge_changes(engine, branch, stashed, derived)
    if merged.conflicts:
        return msgspec.structs.replace(still_stashed, to=branch.head, conflicts=len(merged.conflicts))
    if not merged.is_empty:
        engine.write(branch.name, merged.rows, expected=branch.head)
    remembered = False
    if has_moved and not (memory and memory.head == branch.head):  # otherwise a kill happened after the next line
        if memory and combined is None:
            hidden = _retire_memory(engine, memory, branch, derived)
        remembered = _remember_changes(engine, branch, combined or stashed, derived)
    engine.delete_branch(entry.aside, expected=stash.head)
    is_dirty = (engine.find_branch(branch.name) or branch).dirty
    documents = engine.count_changes(branch.head, WorkingSet(branch.name)).total
    return Replayed(
        branch.name,
        branch.head,
        documents,
        collections=is_dirty and not documents,
        remembered=remembered,
        hidden=hidden,
        silent=stash.head == entry.head and not is_dirty,
    )


# -- changes that a revision already contains


class _Changes(Record, frozen=True):
    """Uncommitted changes."""

    base: str
    """The revision on which they were made."""
    state: str
    """A revision that contains all of them."""


class _Memory(Record, frozen=True):
    """The branch that remembers the changes of a KB branch, and its content."""

    branch: KbBranch
    changes: _Changes
    visible_state: str
    """The state of the KB branch, with uncommitted changes, after it moved to `head`."""
    head: str


def _merge_changes(engine: Engine, branch: KbBranch, changes: _Changes, derived: Derived) -> MergeResult:
    """Merge changes into the uncommitted documents of a KB branch, without writing them."""
    return merge(engine, base=changes.base, ours=WorkingSet(branch.name), theirs=changes.state, derived=derived)


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
    """Return whether later revisions decide about the changes: the pin moves forward from a
    revision that was made after the changes and contains some of them.
    """
    return engine.is_ancestor(head, to) and not engine.is_ancestor(head, changes.base)


def _memory_name(engine: Engine, kb_branch: str) -> str:
    return _build_stash_name(engine, kb_branch) + CARRIED_SUFFIX


def _read_memory(engine: Engine, kb_branch: str) -> _Memory | None:
    branch = engine.find_branch(_memory_name(engine, kb_branch))
    if branch is None:
        return None
    base, *others = engine.read_revision(branch.head).parents
    if not others:
        return None  # documents of a KB branch whose name ends like this
    return _Memory(branch, _Changes(base, branch.head), others[0], engine.read_revision(others[0]).parents[0])


def _combine_changes(engine: Engine, memory: _Memory, stashed: _Changes, derived: Derived) -> _Changes | None:
    """Return the remembered changes and the stashed ones together. None if they conflict."""
    base, remembered = memory.changes.base, memory.changes.state
    merged = merge(engine, base=memory.visible_state, ours=remembered, theirs=stashed.state, derived=derived)
    if merged.conflicts:
        return None
    rows = [convert_to_rows(engine.diff(base, remembered)), merged.rows]
    state = engine.commit_onto(base, rows, message="Uncommitted documents", author=AUTHOR, date=clock.now())
    return _Changes(base, state)


def _remember_changes(engine: Engine, branch: KbBranch, changes: _Changes, derived: Derived) -> bool:
    """Remember changes until the pin moves back, and return True. If moving the visible state of
    the branch back restores them, forget them and return False.
    """
    name = _memory_name(engine, branch.name)
    working = WorkingSet(branch.name)
    now = clock.now()
    memory_branch = engine.find_branch(name)
    rows = convert_to_rows(engine.diff(changes.base, changes.state))
    moved_back = merge(engine, base=branch.head, ours=changes.base, theirs=working, derived=derived)
    if not moved_back.conflicts and _group_rows(rows).items() <= _group_rows(moved_back.rows).items():
        forget_changes(engine, branch.name)
        return False
    message = f"Uncommitted documents of {branch.name}"
    visible_rows = convert_to_rows(engine.diff(branch.head, working))
    visible_state = engine.recreate_revision([branch.head], [visible_rows], message=message, author=AUTHOR, date=now)
    head = engine.commit_onto(changes.base, [rows], joining=visible_state, message=message, author=AUTHOR, date=now)
    if memory_branch:
        engine.move_branch(name, head, expected=memory_branch.head)
    else:
        engine.create_branch(name, head)
    return True


def _retire_memory(engine: Engine, memory: _Memory, branch: KbBranch, derived: Derived) -> str:
    """Stash remembered changes that nothing can restore automatically. Return the new branch, or an
    empty text if the KB branch contains all of them.
    """
    name = ""
    merged = _merge_changes(engine, branch, memory.changes, derived)
    if merged.conflicts or not merged.is_empty:
        name = _choose_stash_name(engine, branch.name)
        engine.create_branch(name, memory.changes.state)
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
