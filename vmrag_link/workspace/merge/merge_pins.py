"""The merge driver of `.dolt-version`: one pin of three, with the documents of both sides.

git gives the base, and the base counts: a cherry-pick's is the parent of what is picked, a revert's
is what is reverted. A pin is a whole state, so the change that is merged is the difference between
base and theirs, not what theirs contains.
"""

from __future__ import annotations

from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.engines.base import Engine
from vmrag_link.errors import EngineFailed, PinConflict
from vmrag_link.merging.revisions import make_virtual_base, merge_revisions
from vmrag_link.merging.threeway import Derived, stored_alone
from vmrag_link.pin import Pin

UNDECIDED_REMOTE = "in/conflict"
"""What a base that git makes of several names, where they were in conflict: no side's."""


def merge_pins(
    engine: Engine,
    base: bytes,
    ours: bytes,
    theirs: bytes,
    *,
    joins: bool,
    virtual: bool = False,
    revision: str = "",
    remote: str = "",
    derived: Derived = stored_alone,
) -> bytes:
    """The pin of the merged state; `base` is empty where both sides added a pin.

    `joins`: theirs becomes a parent of the merged revision. `virtual`: git makes a base from
    several; then nothing stops it, and what is in conflict is like neither side. `revision`: the
    result of resolved conflicts. `remote`: the name to take where both sides changed it.
    `derived` as in `threeway.merge`. The revisions must be here (`lazy_fetch.require`). Raises
    `PinConflict`, `PinMalformed`, `EngineFailed` for unrelated histories.
    """
    left, right = (
        migrated.read_pin(engine.folder, ours, source="our pin"),
        migrated.read_pin(engine.folder, theirs, source="their pin"),
    )
    before = migrated.read_pin(engine.folder, base, source="the base's pin") if base else None
    if not revision:
        revision = _revision(engine, before, left, right, joins=joins, virtual=virtual, derived=derived)
    merged = Pin(
        dolt_remote=_remote(before, left, right, wanted=remote, virtual=virtual),
        dolt_branch=left.dolt_branch if joins else _field("dolt_branch", before, left, right),
        dolt_commit=revision,
        linked_at=engine.read_revision(revision).date,
        extra=_extra(before, left, right),
    )
    return ours if merged.is_same_state(left) and merged.extra == left.extra else pins.format_pin(merged)


def find_base_revision(engine: Engine, before: Pin | None, left: Pin, right: Pin) -> str:
    """What a merge of the pins starts from: git's base, or the engine's where git has none, or
    its revision is lost. The engine's contains no more than both sides do.
    """
    here = all(engine.has_revision(each.dolt_commit) for each in (left, right))
    if before is not None and (not here or engine.has_revision(before.dolt_commit)):
        return before.dolt_commit
    base = engine.merge_base(left.dolt_commit, right.dolt_commit)
    if base is None:
        raise EngineFailed(
            "The two sides pin knowledge bases that have no history in common.",
            hint="Keep one of them: git checkout --ours .dolt-version (or --theirs), then git add .dolt-version",
        )
    return base


def find_surviving_side(engine: Engine, base: str, ours: str, theirs: str) -> str | None:
    """What a merge goes on from where a side's revision is lost: the other side, or the base where
    both are. None where both are here. Raises `EngineFailed` where nothing is left.
    """
    if engine.has_revision(ours):
        return None if engine.has_revision(theirs) else ours
    left = next((each for each in (theirs, base) if engine.has_revision(each)), None)
    if left is None:
        raise EngineFailed(
            "Neither side's revision is here, nor that of their base.",
            hint="End git's merge (git status says how), then: vmrag pin --accept-loss REVISION",
        )
    return left


def _revision(
    engine: Engine, before: Pin | None, left: Pin, right: Pin, *, joins: bool, virtual: bool, derived: Derived
) -> str:
    base = find_base_revision(engine, before, left, right)
    ours, theirs = left.dolt_commit, right.dolt_commit
    if stands := find_surviving_side(engine, base, ours, theirs):
        return stands
    if virtual:
        return make_virtual_base(engine, base=base, ours=ours, theirs=theirs, joins=joins, derived=derived)
    outcome = merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=joins, derived=derived)
    if outcome.revision is None:
        number = len(outcome.conflicts)
        what = f"{number} conflicts" if number > 1 else f"a conflict in {outcome.conflicts[0].id}"
        raise PinConflict(
            f"The knowledge of the two sides has {what}.",
            hint="vmrag resolve",
            conflicts=[conflict.id for conflict in outcome.conflicts],
        )
    return outcome.revision


def _remote(before: Pin | None, left: Pin, right: Pin, *, wanted: str, virtual: bool) -> str:
    """Where both sides changed it, `wanted` if it is one of theirs."""
    sides = (left.dolt_remote, right.dolt_remote)
    if len({*sides, before.dolt_remote if before else None}) < 3:  # noqa: PLR2004  each has its own
        return _field("dolt_remote", before, left, right)
    if virtual:
        return UNDECIDED_REMOTE
    if wanted in sides:
        return wanted
    raise PinConflict(
        f"Both sides changed dolt_remote: {sides[0]!r} and {sides[1]!r}.",
        hint="Choose one of them as `remote` in .vmrag.yaml, then: vmrag trust && vmrag resolve",
    )


def _field(name: str, before: Pin | None, left: Pin, right: Pin) -> str:
    """Theirs where only they changed it, else ours."""
    ours: str = getattr(left, name)
    theirs: str = getattr(right, name)
    return theirs if before and ours == getattr(before, name) else ours


def _extra(before: Pin | None, left: Pin, right: Pin) -> tuple[tuple[str, str], ...]:
    """Keys of newer versions, each merged by itself; ours where both changed it."""
    base, ours, theirs = dict(before.extra if before else ()), dict(left.extra), dict(right.extra)
    merged = {}
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        value = theirs.get(key) if ours.get(key) == base.get(key) else ours.get(key)
        if value is not None:
            merged[key] = value
    return tuple(merged.items())
