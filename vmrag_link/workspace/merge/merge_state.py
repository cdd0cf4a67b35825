"""The merge that waits for a person: git's conflict in the pin, or one that `vmrag merge` began.

What git has is read from the index each time; the decisions about it are in `merge-git.json` of the
work tree. A merge of ours is in `merge.json`, and stays there while git merges. The merge itself is
computed from the revisions and the decisions each time: an engine need not keep conflicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link.engines import migrated
from vmrag_link.engines.base import Engine
from vmrag_link.errors import FileFailed, KnowledgeMoved, MergeConflict, PinMalformed, quoted, set_aside
from vmrag_link.formats import require_known_format
from vmrag_link.git import pin_conflict, pin_merge, plumbing
from vmrag_link.git.refs import BRANCHES
from vmrag_link.merging.choices import Choice
from vmrag_link.models import At, Record
from vmrag_link.paths import PIN_NAME, write_atomically
from vmrag_link.pin import Pin
from vmrag_link.sync.target import read_own_pin
from vmrag_link.workspace import Workspace, twins

if TYPE_CHECKING:
    from vmrag_link.merging.revisions import Signature
    from vmrag_link.merging.text import Labels
    from vmrag_link.merging.threeway import MergeResult

FORMAT = 2
"""The format of the file, which a newer program's exceeds."""

Kind = Literal["merge", "aside", "git"]


class MergeState(Record, frozen=True):
    """`base`, `ours` and `theirs` are revisions; `source` is what was merged, as it was named.

    Kinds: `git`, whose conflict in the pin ends with a staged pin; `merge`, which ends with a
    commit; `aside`, documents that were set aside (`source` is their KB branch) and end as
    uncommitted ones. `commit` False: the result is to be looked at before it is committed;
    `written` says that it is in the working set by now, where a person may have changed it.
    `decided_by` and `decided_at`: who decided last, and when (ISO 8601 UTC). `closed`: of git's
    conflict only, `git add` took one side before anybody decided. `given_up`: likewise, revisions
    of its pins that a person said are lost, and the remotes that were `asked` for them.
    """

    kind: Kind
    source: str
    base: str
    ours: str
    theirs: str
    symbolic: str = ""
    commit: bool = True
    written: bool = False
    decisions: dict[str, dict[str, Choice]] = msgspec.field(default_factory=dict)
    decided_by: str = ""
    decided_at: str = ""
    closed: bool = False
    given_up: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    format: int = FORMAT

    def build_signature(self, engine: Engine, *, joins: bool) -> Signature | None:
        """The person's who decided, with the time of the last decision; None where nobody did.

        Both are stored, so that a merge that was killed gives the same revision again.
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
    """The open merge of this work tree, if there is one; changes nothing.

    Raises `FileFailed`, `PinMalformed` for a side's pin, `EngineFailed` for sides without a common
    history.
    """
    in_git = _in_git(ws)
    if in_git:
        decided = _read(ws.places.merge_in_git)
        return decided if decided and _sides(decided) == _sides(in_git) else in_git
    stored = _read(ws.places.merge)
    return None if stored is None or _concluded(ws, stored) else stored


def recover_merge(ws: Workspace) -> MergeState | None:
    """As `current`, for commands that change something: a killed merge is cleaned up first."""
    state, stored = read_merge(ws), _read(ws.places.merge)
    if state is None or state.kind != "git":
        clear_merge(ws, "git")  # git's conflict is over
    if state is None and stored:
        if not plumbing.stage_path(ws.places, ws.places.pin):
            return None  # another git command holds the index; the next command stages it
        ws.progress.note(f"Finished an interrupted merge of {stored.source}; its result is pinned.")
        clear_merge(ws)
    return state


def require_merge(ws: Workspace) -> MergeState:
    state = recover_merge(ws)
    if state is None:
        what = plumbing.find_operation(ws.places)
        hint = plumbing.operation_hint(what) if what and what != "bisect" else "vmrag merge REF"
        raise MergeConflict("No merge is open here.", hint=hint)
    return state


def refuse_if_open(ws: Workspace) -> None:
    """Refuse what would move the base of an open merge. Raises `MergeConflict`."""
    state = recover_merge(ws)
    if state and not (
        state.closed and plumbing.find_operation(ws.places) is None
    ):  # of a stash that one side was taken for
        raise MergeConflict(
            f"The merge of {state.source} is not finished.",
            hint="vmrag resolve, then vmrag merge --continue; or vmrag merge --abort",
        )


def save_merge(ws: Workspace, state: MergeState) -> None:
    write_atomically(_path(ws, state.kind), msgspec.json.encode(state))


def clear_merge(ws: Workspace, kind: Kind = "merge") -> None:
    _path(ws, kind).unlink(missing_ok=True)


def _path(ws: Workspace, kind: Kind) -> Path:
    return ws.places.merge_in_git if kind == "git" else ws.places.merge


def apply_decisions(ws: Workspace, state: MergeState) -> MergeResult:
    """The merge with the decisions so far; empty once its result is in the working set.

    Raises `KnowledgeMoved` when it does not belong to this place any more.
    """
    from vmrag_link.merging.threeway import MergeResult, merge

    here = find_our_side(ws, state)
    if state.written or (state.kind == "git" and not _both_here(ws, state)):
        return MergeResult.from_nothing()  # or nothing that could be merged: one side is lost
    derived = twins.build_derived(ws)
    return merge(ws.engine, base=state.base, ours=here, theirs=state.theirs, decisions=state.decisions, derived=derived)


def label_sides(ws: Workspace, state: MergeState) -> Labels:
    """What the sides are called, for markers and for a person."""
    from vmrag_link.workspace.merge import sides

    found = pin_conflict.find_undecided(ws.places) if state.kind == "git" else None
    if found:
        return sides.label_git_sides(ws, found.stages)
    return sides.label_sides(state.symbolic, "yours, set aside" if state.kind == "aside" else state.source)


def is_at_start(ws: Workspace, state: MergeState) -> bool:
    """Whether HEAD, and the pin of a merge that ends with a commit, are where the merge began."""
    trigger = ws.read_trigger()
    here = read_own_pin(ws.places, trigger.pin).dolt_commit if trigger.pin else ""
    return trigger.symbolic == state.symbolic and (state.kind == "aside" or here == state.ours)


def find_our_side(ws: Workspace, state: MergeState) -> At:
    """Our side; in our own merge with uncommitted documents, so that one can be edited by hand."""
    if state.kind == "git":
        return state.ours
    if not is_at_start(ws, state):
        back = f"git switch {quoted(state.symbolic.removeprefix(BRANCHES))}"
        raise KnowledgeMoved(
            f"HEAD or the pin have moved since the merge of {state.source} began on {state.ours[:7]}.",
            hint=f"Go back: {back}{f' && vmrag pin {state.ours}' * (state.kind == 'merge')}; "
            "or give the merge up: vmrag merge --abort",
        )
    return ws.locate_documents()


def _in_git(ws: Workspace) -> MergeState | None:
    found = pin_conflict.find_undecided(ws.places)
    if found is None or found.stages.ours is None or found.stages.theirs is None:
        return None  # the pin was deleted on one side: git's own question
    from vmrag_link.workspace.merge import sides
    from vmrag_link.workspace.merge.merge_pins import find_base_revision

    base, left, right = (_side(ws, name, stage) for name, stage in zip(_SIDES, found.stages, strict=True))
    assert left is not None  # noqa: S101  looked at above
    assert right is not None  # noqa: S101
    base_at = find_base_revision(ws.engine, base, left, right)
    source = sides.describe_git_source(ws, found.stages)
    state = MergeState("git", source, base_at, left.dolt_commit, right.dolt_commit, closed=found.closed)
    return None if found.closed and not _is_contested(ws, state) else state


_SIDES = ("base", "ours", "theirs")


def _side(ws: Workspace, name: str, data: bytes | None) -> Pin | None:
    """One version of a pin in conflict. Raises `PinMalformed`; its hint goes on from the other."""
    try:
        return migrated.read_pin(ws.places.kb, data, source=f"{name}:{PIN_NAME}") if data else None
    except PinMalformed as error:
        other = "theirs" if name == "ours" else "ours"
        hint = (
            f"git checkout --{other} -- {PIN_NAME} && git add {PIN_NAME} && git commit   (goes on from that side's pin)"
        )
        raise PinMalformed(error.message, hint=hint, **error.details) from None


def _is_contested(ws: Workspace, state: MergeState) -> bool:
    """Whether the pin that `git add` took lacks what the other side holds.

    Not so in a merge of branches, where one side holds all of the other.
    """
    engine, both = ws.engine, (state.ours, state.theirs)
    if not pin_merge.is_merge(ws.places) or not _both_here(ws, state):
        return True
    return not any(engine.is_ancestor(*each) for each in (both, both[::-1]))


def _both_here(ws: Workspace, state: MergeState) -> bool:
    return all(map(ws.engine.has_revision, (state.ours, state.theirs)))


def _sides(state: MergeState) -> tuple[str, str, str]:
    return state.base, state.ours, state.theirs


def _concluded(ws: Workspace, state: MergeState) -> bool:
    """Whether a kill came between the end of the merge and the removal of its file."""
    if state.kind != "merge" or state.symbolic != ws.read_trigger().symbolic:
        return False
    pin = ws.resolve_target().pin
    if pin is None or pin.dolt_commit == state.ours or not ws.engine.has_revision(pin.dolt_commit):
        return False
    return all(ws.engine.is_ancestor(each, pin.dolt_commit) for each in (state.ours, state.theirs))


def _read(path: Path) -> MergeState | None:
    try:
        content = path.read_bytes()
        require_known_format(content, FORMAT, what="The open merge", path=path)
        return msgspec.json.decode(content, type=MergeState)
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise FileFailed(
            f"The file of the open merge cannot be read: {error}",
            hint=f"Set it aside, which gives the merge up: {set_aside(path)}",
            path=str(path),
        ) from error
