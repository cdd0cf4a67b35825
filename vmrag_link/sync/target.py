"""What a work tree should stand at, by HEAD and the pin, and how it stands to that, in sentences
for a person. Reads only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from vmrag_link.engines.base import Engine
from vmrag_link.engines.migrated import read_pin
from vmrag_link.errors import KnowledgeRefused, PinMalformed, quoted
from vmrag_link.git import plumbing
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import At, KbBranch, Record, WorkingSet
from vmrag_link.paths import Places
from vmrag_link.pin import Pin
from vmrag_link.sync import lease

State = Literal["pinned", "missing", "no_pin", "malformed"]
Attachment = Literal["detached", "attached", "behind", "held"]


class Trigger(Record, frozen=True):
    """HEAD's symbolic name (None: detached) and the pin's bytes (None: no pin). A change makes a
    sync due.
    """

    symbolic: str | None
    pin: bytes | None

    @property
    def branch(self) -> str | None:
        return self.symbolic.removeprefix(BRANCHES) if self.symbolic else None


class Target(Record, frozen=True):
    """What the trigger asks for.

    `kb_branch` is the KB branch of HEAD's code branch, if it was made already; `attachment` says
    how it relates to a usable pin: no such branch (`detached`: the revision is read by hash), at
    the pin (`attached`), elsewhere without uncommitted documents (`behind`), elsewhere with some
    (`held`). A pin that moved moves the branch along, with its uncommitted documents. `problem`:
    why a pin is malformed; or, of a revision that is as good as missing, what it holds that must
    not be read. `in_use_by` is the git directory of another work tree that writes HEAD's branch;
    this one's documents then go to a KB branch of its own, which its first write makes. `own`: that
    is `kb_branch`.
    """

    trigger: Trigger
    state: State
    pin: Pin | None = None
    problem: PinMalformed | KnowledgeRefused | None = None
    kb_branch: KbBranch | None = None
    attachment: Attachment = "detached"
    in_use_by: Path | None = None
    has_own_branch: bool = False

    @property
    def revision(self) -> str:
        assert self.pin is not None  # noqa: S101  asked only in the states `pinned` and `missing`
        return self.pin.dolt_commit

    @property
    def at(self) -> At:
        """Where a write to this target reads documents."""
        return WorkingSet(self.kb_branch.name) if self.kb_branch else self.revision


def read_pinned_revision(places: Places, trigger: Trigger) -> str | None:
    """The revision that the pin names; None where there is no pin, or none that can be read."""
    try:
        return read_pin(places.kb, trigger.pin).dolt_commit if trigger.pin is not None else None
    except PinMalformed:
        return None


def read_own_pin(places: Places, data: bytes) -> Pin:
    """The work tree's pin. Raises `PinMalformed`, whose hint is what brings back this one."""
    try:
        return read_pin(places.kb, data)
    except PinMalformed as error:
        from vmrag_link.git import pin_conflict

        hint = pin_conflict.restore_hint(places)
        raise PinMalformed(error.message, hint=hint, **error.details) from None


def read_trigger(places: Places) -> Trigger:
    return Trigger(plumbing.read_head(places).symbolic, plumbing.read_pin_bytes(places))


def resolve_target(places: Places, engine: Engine, trigger: Trigger, *, bound: str | None = None) -> Target:
    """What HEAD and the pin ask for. The branch that the pin names is information only.

    `bound`: the revision that the work tree answers from already. It was checked before, and is not
    again.
    """
    branch, other, own = _writing(places, engine, trigger)
    there = Target(trigger, "no_pin", kb_branch=branch, in_use_by=other, has_own_branch=own)
    if trigger.pin is None:
        return there
    try:
        pin = read_own_pin(places, trigger.pin)
    except PinMalformed as problem:
        return msgspec.structs.replace(there, state="malformed", problem=problem)
    if not engine.has_revision(pin.dolt_commit):
        return msgspec.structs.replace(there, state="missing", pin=pin)
    refusal = engine.find_refusal(pin.dolt_commit) if pin.dolt_commit != bound else None
    if refusal:
        return msgspec.structs.replace(there, state="missing", pin=pin, problem=refusal)
    return msgspec.structs.replace(there, state="pinned", pin=pin, attachment=_attachment(branch, pin))


def _writing(places: Places, engine: Engine, trigger: Trigger) -> tuple[KbBranch | None, Path | None, bool]:
    """`kb_branch`, `in_use_by` and `own` of the target.

    A KB branch of its own counts for as long as the other work tree stays, and as it holds what
    this one wrote: leaving it then would hide that.
    """
    if trigger.branch is None or trigger.symbolic is None:
        return None, None, False
    other = lease.find_holder(places, trigger.symbolic)
    name = plumbing.find_kb_branch(places, trigger.branch, own=True)
    mine = engine.find_branch(name) if name else None
    if mine and (other or mine.dirty or mine.head == read_pinned_revision(places, trigger)):
        return mine, other, True
    name = None if other else plumbing.find_kb_branch(places, trigger.branch)
    return (engine.find_branch(name) if name else None), other, False


def _attachment(branch: KbBranch | None, pin: Pin) -> Attachment:
    if branch is None:
        return "detached"
    if branch.head == pin.dolt_commit:
        return "attached"
    return "held" if branch.dirty else "behind"


def list_dirty_branches(engine: Engine, target: Target) -> list[str]:
    """KB branches with uncommitted documents, but for the target's own."""
    own = target.kb_branch.name if target.kb_branch else None
    return [branch.name for branch in engine.list_branches() if branch.dirty and branch.name != own]


def describe_left_behind(target: Target) -> tuple[str, ...]:
    """What of HEAD's KB branch the pin does not show, with the command that brings it back."""
    branch = target.kb_branch
    if branch is None or target.attachment not in ("held", "behind"):
        return ()
    what = (
        describe_held(branch, target.revision)
        if target.attachment == "held"
        else describe_unpinned(branch, target.revision)
    )
    return (f"{what} To go back there: {restore_command(branch)} (and here again: vmrag pin {target.revision})",)


def describe_held(branch: KbBranch, pinned: str) -> str:
    return f"Uncommitted documents of {branch.name!r} were written on revision {branch.head[:7]}, while the pin names {pinned[:7]}."


def describe_unpinned(branch: KbBranch, pinned: str) -> str:
    return f"KB branch {branch.name!r} is at {branch.head[:7]}, while the pin names {pinned[:7]}."


def restore_command(branch: KbBranch) -> str:
    """The command after which the pin names the branch's head again."""
    return f"vmrag pin {branch.head}" if branch.dirty else "vmrag pin"


def describe_left_revision(branch: KbBranch) -> str:
    """A reset is gone back on by a pin; a rebase that dropped knowledge is mended by a merge."""
    back = f"To go back: vmrag pin {branch.head}; to have what it holds here, too: vmrag merge {branch.head}"
    return f"{branch.name!r} left revision {branch.head[:7]}, which is kept. {back}"


def describe_stay(code_branch: str) -> str:
    there = quoted(code_branch)
    return f"uncommitted documents stay with {code_branch!r}; they are there again after: git switch {there}"
