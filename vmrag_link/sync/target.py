"""The state that HEAD and the pin request for a work tree, and sentences about differences from it.
This module only reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from vmrag_link import hints
from vmrag_link.engines.base import Engine
from vmrag_link.engines.migrated import read_pin
from vmrag_link.errors import KnowledgeRefused, PinMalformed, quoted
from vmrag_link.git import own_keys, plumbing
from vmrag_link.git.refs import BRANCHES
from vmrag_link.models import At, KbBranch, Record, WorkingSet
from vmrag_link.paths import Places
from vmrag_link.pin import Pin
from vmrag_link.sync import lease

State = Literal["pinned", "missing", "no_pin", "malformed"]
Attachment = Literal["detached", "attached", "behind", "held"]


class Trigger(Record, frozen=True):
    """HEAD's symbolic name (None: detached) and the pin's bytes (None: no pin). If they change, a
    sync is needed.
    """

    symbolic: str | None
    pin: bytes | None

    @property
    def branch(self) -> str | None:
        return self.symbolic.removeprefix(BRANCHES) if self.symbolic else None


class Target(Record, frozen=True):
    """The state that the trigger requests.

    `kb_branch` is the KB branch of HEAD's code branch, if it exists. `attachment` is its relation
    to a usable pin:

    * `detached`: there is no such branch, and the revision is read by its hash.
    * `attached`: the branch is at the pin.
    * `behind`: it is elsewhere, without uncommitted documents.
    * `held`: it is elsewhere, with uncommitted documents.

    If the pin moves, the branch moves with its uncommitted documents. `problem`: why a pin is
    malformed, or the forbidden content of a revision that counts as missing. `in_use_by` is the git
    directory of another work tree that writes HEAD's branch. Then the documents of this work tree
    go to a separate KB branch, which its first write creates. `has_own_branch`: `kb_branch` is that
    branch.
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
        """The pinned revision, in the states `pinned` and `missing`."""
        assert self.pin is not None  # noqa: S101  used only in the states `pinned` and `missing`
        return self.pin.dolt_commit

    @property
    def at(self) -> At:
        """The place where a write to this target reads documents."""
        return WorkingSet(self.kb_branch.name) if self.kb_branch else self.revision


def read_pinned_revision(places: Places, trigger: Trigger) -> str | None:
    """Return the revision that the pin names, or None without a readable pin."""
    try:
        return read_pin(places.kb, trigger.pin).dolt_commit if trigger.pin is not None else None
    except PinMalformed:
        return None


def read_own_pin(places: Places, data: bytes) -> Pin:
    """Return the work tree's pin. Raises `PinMalformed`, with a hint that restores the pin."""
    try:
        return read_pin(places.kb, data)
    except PinMalformed as error:
        from vmrag_link.git import pin_conflict

        hint = pin_conflict.restore_hint(places)
        raise PinMalformed(error.message, hint=hint, **error.details) from None


def read_trigger(places: Places) -> Trigger:
    """Return HEAD's name and the pin as they are now."""
    return Trigger(plumbing.read_head(places).symbolic, plumbing.read_pin_bytes(places))


def resolve_target(places: Places, engine: Engine, trigger: Trigger, *, bound: str | None = None) -> Target:
    """Return the state that HEAD and the pin request. The branch in the pin is information only.

    `bound`: the revision of the bound index. It was checked before, and is not checked again.
    """
    branch, other, has_own_branch = _find_writable_branch(places, engine, trigger)
    target = Target(trigger, "no_pin", kb_branch=branch, in_use_by=other, has_own_branch=has_own_branch)
    if trigger.pin is None:
        return target
    try:
        pin = read_own_pin(places, trigger.pin)
    except PinMalformed as problem:
        return msgspec.structs.replace(target, state="malformed", problem=problem)
    if not engine.has_revision(pin.dolt_commit):
        return msgspec.structs.replace(target, state="missing", pin=pin)
    refusal = engine.find_refusal(pin.dolt_commit) if pin.dolt_commit != bound else None
    if refusal:
        return msgspec.structs.replace(target, state="missing", pin=pin, problem=refusal)
    return msgspec.structs.replace(target, state="pinned", pin=pin, attachment=_find_attachment(branch, pin))


def _find_writable_branch(
    places: Places, engine: Engine, trigger: Trigger
) -> tuple[KbBranch | None, Path | None, bool]:
    """Return `kb_branch`, `in_use_by` and `has_own_branch` of the target.

    A separate KB branch is used as long as the other work tree is on the branch, and as long as it
    has documents of this work tree, because leaving it would hide them.
    """
    if trigger.branch is None or trigger.symbolic is None:
        return None, None, False
    other = lease.find_holder(places, trigger.symbolic)
    name = own_keys.find_kb_branch(places, trigger.branch, of_tree=True)
    own_branch = engine.find_branch(name) if name else None
    if own_branch and (other or own_branch.dirty or own_branch.head == read_pinned_revision(places, trigger)):
        return own_branch, other, True
    name = None if other else own_keys.find_kb_branch(places, trigger.branch)
    return (engine.find_branch(name) if name else None), other, False


def _find_attachment(branch: KbBranch | None, pin: Pin) -> Attachment:
    if branch is None:
        return "detached"
    if branch.head == pin.dolt_commit:
        return "attached"
    return "held" if branch.dirty else "behind"


def list_dirty_branches(engine: Engine, target: Target) -> list[str]:
    """Return the KB branches with uncommitted documents, except the target's own."""
    target_branch = target.kb_branch.name if target.kb_branch else None
    return [branch.name for branch in engine.list_branches() if branch.dirty and branch.name != target_branch]


def describe_left_behind(target: Target) -> tuple[str, ...]:
    """Return a note about content of HEAD's KB branch that the pin does not include, with the
    command to return to it.
    """
    branch = target.kb_branch
    if branch is None or target.attachment not in ("held", "behind"):
        return ()
    what = (
        describe_held(branch, target.revision)
        if target.attachment == "held"
        else describe_unpinned(branch, target.revision)
    )
    return (hints.append_to(what, form_pin_hint(branch)),)


def describe_held(branch: KbBranch, pinned: str) -> str:
    """Return the statement that uncommitted documents are not on the pinned revision."""
    return f"uncommitted documents of {branch.name!r} were written on revision {branch.head[:7]}, while the pin names {pinned[:7]}."


def describe_unpinned(branch: KbBranch, pinned: str) -> str:
    """Return the statement that the branch is at another revision than the pinned one."""
    return f"KB branch {branch.name!r} is at {branch.head[:7]}, while the pin names {pinned[:7]}."


def form_pin_hint(branch: KbBranch) -> str:
    """Return the hint to move the pin to the branch's head."""
    return hints.suggest_command(f"vmrag pin {branch.head}" if branch.dirty else "vmrag pin", "move the pin there")


def describe_left_revision(branch: KbBranch) -> str:
    """Return the note about a left revision: a pin undoes a reset, a merge restores documents that
    a rebase dropped.
    """
    back = f"run 'vmrag pin {branch.head}' to go back, or 'vmrag merge {branch.head}' to merge its documents"
    return f"{branch.name!r} left revision {branch.head[:7]}, which is kept; {back}"


def describe_stay(code_branch: str) -> str:
    """Return the note about uncommitted documents that stay with a code branch."""
    return f"uncommitted documents stay with {code_branch!r}; run 'git switch {quoted(code_branch)}' to get them back"
