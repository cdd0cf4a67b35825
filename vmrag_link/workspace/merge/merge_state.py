"""Read and write the open merge: git's conflict in the pin, or a merge of `vmrag merge`.

A merge is open while it has conflicts, until the user finishes or aborts it. Three files record it:

* git's index has the versions of the pin in conflict. They are read each time.
* `merge-git.json` of the work tree has the user's decisions about git's conflict.
* `merge.json` has a merge of vmrag with its decisions. It stays there while git merges.

Conflicts are not stored: `apply_decisions` computes the merge from its revisions each time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link.engines import migrated
from vmrag_link.engines.base import Engine
from vmrag_link.errors import FileFailed, KnowledgeMoved, MergeConflict, PinMalformed, quoted, set_aside
from vmrag_link.file_access import write_atomically
from vmrag_link.formats import require_known_format
from vmrag_link.git import git_operation, pin_conflict, pin_merge, staging
from vmrag_link.git.refs import BRANCHES
from vmrag_link.merging.choices import Choice
from vmrag_link.models import At, Record
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.sync.target import read_own_pin
from vmrag_link.workspace import Workspace, twins

if TYPE_CHECKING:
    from vmrag_link.merging.revisions import Signature
    from vmrag_link.merging.text import Labels
    from vmrag_link.merging.threeway import MergeResult

FORMAT = 2
"""The format of the file. A newer program may write a higher number."""

Kind = Literal["merge", "aside", "git"]


class MergeState(Record, frozen=True, rename={"checked_remotes": "asked"}):
    """An open merge."""

    kind: Kind
    """The kind of the merge.

    * `git`: git's conflict in the pin. It ends with a staged pin.
    * `merge`: a merge of vmrag. It ends with a commit.
    * `aside`: stashed documents, whose KB branch is `source`. They end as uncommitted documents.
    """
    source: str
    """The name that the user merged."""
    base: str
    """The revision of the merge base."""
    ours: str
    """The revision of our side."""
    theirs: str
    """The revision of their side."""
    symbolic: str = ""
    """HEAD's full name when a merge of vmrag began."""
    commit: bool = True
    """False if the user wants to review the result before the commit."""
    written: bool = False
    """True if the result is in the uncommitted documents, where the user may have edited it."""
    decisions: dict[str, dict[str, Choice]] = msgspec.field(default_factory=dict)
    """The user's choices, by id of the conflict and field."""
    decided_by: str = ""
    """The person who made the last decision."""
    decided_at: str = ""
    """The time of the last decision (ISO 8601, UTC)."""
    closed: bool = False
    """For `git`, True if `git add` took one side before all conflicts were decided."""
    given_up: tuple[str, ...] = ()
    """For `git`, the lost revisions of its pins whose loss the user accepted."""
    checked_remotes: tuple[str, ...] = ()
    """For `git`, the remotes that were checked for the lost revisions."""
    format: int = FORMAT

    def build_signature(self, engine: Engine, *, joins: bool) -> Signature | None:
        """Return author, date and message for the merged revision; None without a decision.

        Person and time are stored, so that a killed merge gives the same revision again. `joins`:
        `theirs` becomes a parent of the revision.
        """
        from vmrag_link.merging.revisions import Signature

        if not self.decisions or not self.decided_by:
            return None
        return Signature.from_decision(
            engine,
            base=self.base,
            ours=self.ours,
            theirs=self.theirs,
            joins=joins,
            author=self.decided_by,
            date=self.decided_at,
        )


def read_merge(ws: Workspace) -> MergeState | None:
    """Return the open merge of this work tree, or None. Change nothing.

    Raises `FileFailed`, `PinMalformed` for the pin of a side, and `EngineFailed` for unrelated
    histories.
    """
    git_merge = _read_git_merge(ws)
    if git_merge:
        decided = _read_file(ws.places.merge_in_git)
        return decided if decided and _list_sides(decided) == _list_sides(git_merge) else git_merge
    stored = _read_file(ws.places.merge)
    return None if stored is None or _is_concluded(ws, stored) else stored


def recover_merge(ws: Workspace) -> MergeState | None:
    """Clean up after a killed merge, and return the open merge like `read_merge`.

    Commands that change something call this instead of `read_merge`.
    """
    state = read_merge(ws)
    stored = _read_file(ws.places.merge)
    if state is None or state.kind != "git":
        clear_merge(ws, "git")  # git's conflict is over
    if state is None and stored:
        if not staging.stage_path(ws.places, ws.places.pin):
            return None  # another git command holds the index; the next command stages it
        ws.progress.note(f"Finished an interrupted merge of {stored.source}. Its result is pinned.")
        clear_merge(ws)
    return state


def discard_aborted(ws: Workspace) -> None:
    """Discard the decisions about a merge that git has aborted.

    The merge driver calls this when a merge begins, because `git merge --abort` runs no hook.
    Otherwise the same merge would begin with the old decisions. They stay if the merge is still
    open, for example when `git merge-tree` runs the driver.
    """
    undecided = pin_conflict.find_undecided(ws.places)
    if undecided is None or (undecided.closed and git_operation.find_operation(ws.places) is None):
        clear_merge(ws, "git")


def require_merge(ws: Workspace) -> MergeState:
    """Return the open merge. Raises `MergeConflict` if there is none."""
    state = recover_merge(ws)
    if state is None:
        hint = "run 'vmrag merge REF' to start a merge"
        operation = git_operation.find_operation(ws.places)
        if operation and operation != "bisect":
            hint = git_operation.suggest_finish(operation)
        raise MergeConflict("no merge is open.", hint=hint)
    return state


def refuse_if_open(ws: Workspace) -> None:
    """Raise `MergeConflict` if a merge is open, because the caller would move its base."""
    state = recover_merge(ws)
    if state is None:
        return
    is_applied_stash = (
        state.closed and git_operation.find_operation(ws.places) is None
    )  # by `git add`, without a commit
    if not is_applied_stash:
        raise MergeConflict(
            f"the merge of {state.source} is not finished.",
            hint="run 'vmrag resolve && vmrag merge --continue', or 'vmrag merge --abort' to abort the merge",
        )


def save_merge(ws: Workspace, state: MergeState) -> None:
    """Write the file of a merge."""
    write_atomically(_find_path(ws, state.kind), msgspec.json.encode(state))


def clear_merge(ws: Workspace, kind: Kind = "merge") -> None:
    """Remove the file of a merge, because the merge is finished or aborted."""
    _find_path(ws, kind).unlink(missing_ok=True)


def _find_path(ws: Workspace, kind: Kind) -> Path:
    return ws.places.merge_in_git if kind == "git" else ws.places.merge


def apply_decisions(ws: Workspace, state: MergeState) -> MergeResult:
    """Compute the merge with the decisions so far, and its remaining conflicts.

    Empty if the result is already written, or if git's conflict lacks the revision of a side.
    Raises `KnowledgeMoved` if HEAD or the pin moved since the merge began.
    """
    from vmrag_link.merging.threeway import MergeResult, merge

    our_side = find_our_side(ws, state)
    if state.written or (state.kind == "git" and not _has_both_sides(ws, state)):
        return MergeResult.from_nothing()
    return merge(
        ws.engine,
        base=state.base,
        ours=our_side,
        theirs=state.theirs,
        decisions=state.decisions,
        derived=twins.build_derived(ws),
    )


def label_sides(ws: Workspace, state: MergeState) -> Labels:
    """Return the names of the sides, for conflict markers and messages."""
    from vmrag_link.workspace.merge import sides

    undecided = pin_conflict.find_undecided(ws.places) if state.kind == "git" else None
    if undecided:
        return sides.label_git_sides(ws, undecided.stages)
    return sides.label_sides(state.symbolic, "yours, stashed" if state.kind == "aside" else state.source)


def is_at_start(ws: Workspace, state: MergeState) -> bool:
    """Return whether HEAD and the pin are where the merge began.

    Stashed documents can be merged at any pin.
    """
    trigger = ws.read_trigger()
    pinned = read_own_pin(ws.places, trigger.pin).dolt_commit if trigger.pin else ""
    return trigger.symbolic == state.symbolic and (state.kind == "aside" or pinned == state.ours)


def find_our_side(ws: Workspace, state: MergeState) -> At:
    """Return from where our side's documents are read.

    A merge of vmrag includes uncommitted documents, so that the user can edit them before the
    merge. Raises `KnowledgeMoved` if HEAD or the pin moved since the merge began.
    """
    if state.kind == "git":
        return state.ours
    if not is_at_start(ws, state):
        command = f"git switch {quoted(state.symbolic.removeprefix(BRANCHES))}"
        if state.kind == "merge":
            command += f" && vmrag pin {state.ours}"
        raise KnowledgeMoved(
            f"HEAD or the pin has moved since the merge of {state.source} began on {state.ours[:7]}.",
            hint=f"run '{command}', or 'vmrag merge --abort' to abort the merge",
        )
    return ws.locate_documents()


def _read_git_merge(ws: Workspace) -> MergeState | None:
    """Return git's conflict in the pin as a merge without decisions, or None."""
    undecided = pin_conflict.find_undecided(ws.places)
    if undecided is None:
        return None
    base_bytes, our_bytes, their_bytes = undecided.stages
    if our_bytes is None or their_bytes is None:
        return None  # one side deleted the pin, which git itself must resolve
    from vmrag_link.workspace.merge import sides
    from vmrag_link.workspace.merge.merge_pins import find_base_revision

    base_pin = _read_side(ws, "base", base_bytes) if base_bytes else None
    our_pin = _read_side(ws, "ours", our_bytes)
    their_pin = _read_side(ws, "theirs", their_bytes)
    base = find_base_revision(ws.engine, base_pin, our_pin, their_pin)
    source = sides.describe_git_source(ws, undecided.stages)
    state = MergeState("git", source, base, our_pin.dolt_commit, their_pin.dolt_commit, closed=undecided.closed)
    return None if undecided.closed and not _is_contested(ws, state) else state


def _read_side(ws: Workspace, name: str, data: bytes) -> Pin:
    """Return one version of a pin with a conflict.

    Raises `PinMalformed` with a hint to use the other side.
    """
    try:
        return migrated.read_pin(ws.places.kb, data, source=f"{name}:{PIN_NAME}")
    except PinMalformed as error:
        other_side = "theirs" if name == "ours" else "ours"
        hint = (
            f"run 'git checkout --{other_side} -- {PIN_NAME} && git add {PIN_NAME} && git commit' to continue "
            "from that side's pin"
        )
        raise PinMalformed(error.message, hint=hint, **error.details) from None


def _is_contested(ws: Workspace, state: MergeState) -> bool:
    """Return whether the pin that `git add` took lacks something of the other side.

    In a merge of branches, it lacks nothing if one side contains the other.
    """
    if not pin_merge.is_merge(ws.places) or not _has_both_sides(ws, state):
        return True
    is_ancestor = ws.engine.is_ancestor
    return not (is_ancestor(state.ours, state.theirs) or is_ancestor(state.theirs, state.ours))


def _has_both_sides(ws: Workspace, state: MergeState) -> bool:
    return ws.engine.has_revision(state.ours) and ws.engine.has_revision(state.theirs)


def _list_sides(state: MergeState) -> tuple[str, str, str]:
    return state.base, state.ours, state.theirs


def _is_concluded(ws: Workspace, state: MergeState) -> bool:
    """Return whether the merge is finished, but was killed before it removed its file.

    Then the pin contains both sides.
    """
    if state.kind != "merge" or state.symbolic != ws.read_trigger().symbolic:
        return False
    pin = ws.resolve_target().pin
    if pin is None or pin.dolt_commit == state.ours or not ws.engine.has_revision(pin.dolt_commit):
        return False
    return all(ws.engine.is_ancestor(side, pin.dolt_commit) for side in (state.ours, state.theirs))


def _read_file(path: Path) -> MergeState | None:
    """Return the merge in a file, or None without a file. Raises `FileFailed`."""
    try:
        content = path.read_bytes()
        require_known_format(content, FORMAT, what="The open merge", path=path)
        return msgspec.json.decode(content, type=MergeState)
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise FileFailed(
            f"cannot read the file of the open merge: {error}",
            hint=f"run '{set_aside(path)}' to abort the merge",
            path=str(path),
        ) from error
