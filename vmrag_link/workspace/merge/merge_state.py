"""Read and write the open merge: git's conflict in the pin, or a merge of `vmrag merge`.

git's conflict is read from git's index each time. The decisions about it are in `merge-git.json` of
the work tree. A merge of vmrag is in `merge.json`, and stays there while git merges. The merge
itself is computed from the revisions and the decisions each time, so engines need not store
conflicts.
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
from vmrag_link.git import pin_conflict, pin_merge, plumbing, staging
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
    """An open merge. `base`, `ours` and `theirs` are revisions."""

    kind: Kind
    """The kind of the merge.

    * `git`: git's conflict in the pin. It ends with a staged pin.
    * `merge`: a merge of vmrag. It ends with a commit.
    * `aside`: stashed documents, whose KB branch is `source`. They end as uncommitted documents.
    """
    source: str
    """The name that the user merged."""
    base: str
    ours: str
    theirs: str
    symbolic: str = ""
    commit: bool = True
    """False if the user wants to review the result before the commit."""
    written: bool = False
    """True if the result is in the uncommitted documents, where the user may have edited it."""
    decisions: dict[str, dict[str, Choice]] = msgspec.field(default_factory=dict)
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
        """Return the signature of the person and the time of the last decision; None without a
        decision.

        Both are stored, so that a merge that was killed results in the same revision again.
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
    """Return the open merge of this work tree; None if there is none. Changes nothing.

    Raises `FileFailed`, `PinMalformed` for the pin of a side, and `EngineFailed` for unrelated
    histories.
    """
    in_git = _read_git_merge(ws)
    if in_git:
        decided = _read_file(ws.places.merge_in_git)
        return decided if decided and _list_sides(decided) == _list_sides(in_git) else in_git
    stored = _read_file(ws.places.merge)
    return None if stored is None or _is_concluded(ws, stored) else stored


def recover_merge(ws: Workspace) -> MergeState | None:
    """Clean up after a killed merge, and return the open merge like `read_merge`.

    Use it in commands that change something.
    """
    state, stored = read_merge(ws), _read_file(ws.places.merge)
    if state is None or state.kind != "git":
        clear_merge(ws, "git")  # git's conflict is over
    if state is None and stored:
        if not staging.stage_path(ws.places, ws.places.pin):
            return None  # another git command holds the index; the next command stages it
        ws.progress.note(f"Finished an interrupted merge of {stored.source}. Its result is pinned.")
        clear_merge(ws)
    return state


def discard_aborted(ws: Workspace) -> None:
    """Discard the decisions about a merge that git has aborted. The merge driver calls this when a
    merge begins.

    `git merge --abort` starts no hook. Without this, the same merge would begin with the decisions.
    They stay if the merge is still open, for example when `git merge-tree` starts the driver.
    """
    undecided = pin_conflict.find_undecided(ws.places)
    if undecided is None or (undecided.closed and plumbing.find_operation(ws.places) is None):
        clear_merge(ws, "git")


def require_merge(ws: Workspace) -> MergeState:
    """Return the open merge. Raises `MergeConflict` if there is none."""
    state = recover_merge(ws)
    if state is None:
        operation = plumbing.find_operation(ws.places)
        hint = (
            plumbing.suggest_finish(operation)
            if operation and operation != "bisect"
            else "run 'vmrag merge REF' to start a merge"
        )
        raise MergeConflict("no merge is open.", hint=hint)
    return state


def refuse_if_open(ws: Workspace) -> None:
    """Raise `MergeConflict` if a merge is open whose base the caller would move."""
    state = recover_merge(ws)
    if state and not (
        state.closed and plumbing.find_operation(ws.places) is None
    ):  # a stash, for which `git add` took one side
        raise MergeConflict(
            f"the merge of {state.source} is not finished.",
            hint="run 'vmrag resolve && vmrag merge --continue', or 'vmrag merge --abort' to abort the merge",
        )


def save_merge(ws: Workspace, state: MergeState) -> None:
    write_atomically(_find_path(ws, state.kind), msgspec.json.encode(state))


def clear_merge(ws: Workspace, kind: Kind = "merge") -> None:
    _find_path(ws, kind).unlink(missing_ok=True)


def _find_path(ws: Workspace, kind: Kind) -> Path:
    return ws.places.merge_in_git if kind == "git" else ws.places.merge


def apply_decisions(ws: Workspace, state: MergeState) -> MergeResult:
    """Return the merge with the decisions so far; empty if its result is already written.

    Raises `KnowledgeMoved` if HEAD or the pin moved since the merge began.
    """
    from vmrag_link.merging.threeway import MergeResult, merge

    our_side = find_our_side(ws, state)
    if state.written or (state.kind == "git" and not _has_both_sides(ws, state)):
        return MergeResult.from_nothing()  # the result is written, or one side is lost
    derived = twins.build_derived(ws)
    return merge(
        ws.engine, base=state.base, ours=our_side, theirs=state.theirs, decisions=state.decisions, derived=derived
    )


def label_sides(ws: Workspace, state: MergeState) -> Labels:
    """Return the names of the sides, for conflict markers and messages."""
    from vmrag_link.workspace.merge import sides

    undecided = pin_conflict.find_undecided(ws.places) if state.kind == "git" else None
    if undecided:
        return sides.label_git_sides(ws, undecided.stages)
    return sides.label_sides(state.symbolic, "yours, stashed" if state.kind == "aside" else state.source)


def is_at_start(ws: Workspace, state: MergeState) -> bool:
    """Return whether HEAD is where the merge began and, unless it is a stash, the pin
    is as well.
    """
    trigger = ws.read_trigger()
    pinned = read_own_pin(ws.places, trigger.pin).dolt_commit if trigger.pin else ""
    return trigger.symbolic == state.symbolic and (state.kind == "aside" or pinned == state.ours)


def find_our_side(ws: Workspace, state: MergeState) -> At:
    """Return our side of the merge.

    In vmrag's own merge it includes uncommitted documents, so that the user can edit one. Raises
    `KnowledgeMoved` if HEAD or the pin moved since the merge began.
    """
    if state.kind == "git":
        return state.ours
    if not is_at_start(ws, state):
        switch = f"git switch {quoted(state.symbolic.removeprefix(BRANCHES))}"
        raise KnowledgeMoved(
            f"HEAD or the pin has moved since the merge of {state.source} began on {state.ours[:7]}.",
            hint=f"run '{switch}{f' && vmrag pin {state.ours}' * (state.kind == 'merge')}', or 'vmrag merge --abort' "
            "to abort the merge",
        )
    return ws.locate_documents()


def _read_git_merge(ws: Workspace) -> MergeState | None:
    undecided = pin_conflict.find_undecided(ws.places)
    if undecided is None or undecided.stages.ours is None or undecided.stages.theirs is None:
        return None  # one side deleted the pin, which git itself must resolve
    from vmrag_link.workspace.merge import sides
    from vmrag_link.workspace.merge.merge_pins import find_base_revision

    base_pin, our_pin, their_pin = (
        _read_side(ws, name, stage) for name, stage in zip(_SIDES, undecided.stages, strict=True)
    )
    assert our_pin is not None  # noqa: S101  checked above
    assert their_pin is not None  # noqa: S101
    base = find_base_revision(ws.engine, base_pin, our_pin, their_pin)
    source = sides.describe_git_source(ws, undecided.stages)
    state = MergeState("git", source, base, our_pin.dolt_commit, their_pin.dolt_commit, closed=undecided.closed)
    return None if undecided.closed and not _is_contested(ws, state) else state


_SIDES = ("base", "ours", "theirs")


def _read_side(ws: Workspace, name: str, data: bytes | None) -> Pin | None:
    """Read one version of a pin with a conflict. Raises `PinMalformed` with a hint to use the other
    side.
    """
    try:
        return migrated.read_pin(ws.places.kb, data, source=f"{name}:{PIN_NAME}") if data else None
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
    engine, pair_of_sides = ws.engine, (state.ours, state.theirs)
    if not pin_merge.is_merge(ws.places) or not _has_both_sides(ws, state):
        return True
    return not any(engine.is_ancestor(*pair) for pair in (pair_of_sides, pair_of_sides[::-1]))


def _has_both_sides(ws: Workspace, state: MergeState) -> bool:
    return all(map(ws.engine.has_revision, (state.ours, state.theirs)))


def _list_sides(state: MergeState) -> tuple[str, str, str]:
    return state.base, state.ours, state.theirs


def _is_concluded(ws: Workspace, state: MergeState) -> bool:
    """Return whether a kill came between the end of the merge and the removal of its file."""
    if state.kind != "merge" or state.symbolic != ws.read_trigger().symbolic:
        return False
    pin = ws.resolve_target().pin
    if pin is None or pin.dolt_commit == state.ours or not ws.engine.has_revision(pin.dolt_commit):
        return False
    return all(ws.engine.is_ancestor(side, pin.dolt_commit) for side in (state.ours, state.theirs))


def _read_file(path: Path) -> MergeState | None:
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
