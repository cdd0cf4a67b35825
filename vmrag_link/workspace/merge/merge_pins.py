"""Merge three versions of `.dolt-version`, with the documents of the revisions that they pin.

git's merge driver (`vmrag_hooks.merge_driver`) calls `merge_pins`, and `vmrag resolve` calls it
again with the resolved conflicts. git chooses the base: for a cherry-pick it is the parent of the
picked commit, and for a revert it is the reverted commit. So only the difference between base and
theirs is merged, not everything that theirs contains.
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
"""The remote in a virtual base if the remotes conflict. It differs from the remotes of both sides.
"""


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
    """Return the bytes of the merged pin.

    * `base`, `ours`, `theirs`: the bytes of the pins. `base` is empty if both sides added a pin.
    * `joins`: theirs becomes a parent of the merged revision.
    * `virtual`: git merges several merge bases into one. Conflicts then do not stop the merge, and
      the conflicting part equals neither side.
    * `revision`: the merged revision, if conflicts were resolved before.
    * `remote`: the remote to take if both sides changed it.
    * `derived`: see `threeway.merge`.

    The knowledge base must have the revisions (`accepted_losses.require_sides`). Raises
    `PinConflict`, `PinMalformed`, and `EngineFailed` for unrelated histories.
    """
    our_pin = migrated.read_pin(engine.folder, ours, source="our pin")
    their_pin = migrated.read_pin(engine.folder, theirs, source="their pin")
    base_pin = migrated.read_pin(engine.folder, base, source="the base's pin") if base else None
    if not revision:
        revision = _merge_revisions(engine, base_pin, our_pin, their_pin, joins=joins, virtual=virtual, derived=derived)
    merged = Pin(
        dolt_remote=_merge_remote(base_pin, our_pin, their_pin, preferred=remote, virtual=virtual),
        dolt_branch=our_pin.dolt_branch if joins else _merge_field("dolt_branch", base_pin, our_pin, their_pin),
        dolt_commit=revision,
        linked_at=engine.read_revision(revision).date,
        extra=_merge_extra(base_pin, our_pin, their_pin),
    )
    return ours if merged.is_same_state(our_pin) and merged.extra == our_pin.extra else pins.format_pin(merged)


def find_base_revision(engine: Engine, base_pin: Pin | None, our_pin: Pin, their_pin: Pin) -> str:
    """Return the base revision for a merge of the pins.

    git's base pins it. Without such a pin, or if its revision is lost, this is the engine's merge
    base. Raises `EngineFailed` for unrelated histories.
    """
    has_both = all(engine.has_revision(pin.dolt_commit) for pin in (our_pin, their_pin))
    if base_pin is not None and (not has_both or engine.has_revision(base_pin.dolt_commit)):
        return base_pin.dolt_commit
    base = engine.merge_base(our_pin.dolt_commit, their_pin.dolt_commit)
    if base is None:
        raise EngineFailed(
            "the two sides pin knowledge bases without a common history.",
            hint="run 'git checkout --ours .dolt-version && git add .dolt-version', or the same with --theirs to keep "
            "the other one",
        )
    return base


def find_surviving_side(engine: Engine, base: str, ours: str, theirs: str) -> str | None:
    """Return the revision that replaces the merge if the revision of a side is lost.

    This is the other side, or the base if both are lost. None if the knowledge base has both sides.
    Raises `EngineFailed` if it has none of the three.
    """
    if engine.has_revision(ours):
        return None if engine.has_revision(theirs) else ours
    survivor = next((revision for revision in (theirs, base) if engine.has_revision(revision)), None)
    if survivor is None:
        raise EngineFailed(
            "this knowledge base lacks the revisions of both sides and of their base.",
            hint="run 'git status' and end git's merge, then run 'vmrag pin --accept-loss REVISION'",
        )
    return survivor


def _merge_revisions(
    engine: Engine, base_pin: Pin | None, our_pin: Pin, their_pin: Pin, *, joins: bool, virtual: bool, derived: Derived
) -> str:
    """Return the merged revision. Raises `PinConflict`."""
    base = find_base_revision(engine, base_pin, our_pin, their_pin)
    ours = our_pin.dolt_commit
    theirs = their_pin.dolt_commit
    if survivor := find_surviving_side(engine, base, ours, theirs):
        return survivor
    if virtual:
        return make_virtual_base(engine, base=base, ours=ours, theirs=theirs, joins=joins, derived=derived)
    outcome = merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=joins, derived=derived)
    if outcome.revision is None:
        count = len(outcome.conflicts)
        conflict_text = f"{count} conflicts" if count > 1 else f"a conflict in {outcome.conflicts[0].id}"
        raise PinConflict(
            f"the knowledge bases of the two sides have {conflict_text}.",
            hint="run 'vmrag resolve' to resolve the conflicts",
            conflicts=[conflict.id for conflict in outcome.conflicts],
        )
    return outcome.revision


def _merge_remote(base_pin: Pin | None, our_pin: Pin, their_pin: Pin, *, preferred: str, virtual: bool) -> str:
    """Return the merged remote.

    If both sides changed it differently, take `preferred` if it is one of the two remotes.
    """
    sides = (our_pin.dolt_remote, their_pin.dolt_remote)
    base_remote = base_pin.dolt_remote if base_pin else None
    if sides[0] == sides[1] or base_remote in sides:
        return _merge_field("dolt_remote", base_pin, our_pin, their_pin)
    if virtual:
        return UNDECIDED_REMOTE
    if preferred in sides:
        return preferred
    raise PinConflict(
        f"both sides changed dolt_remote: {sides[0]!r} and {sides[1]!r}.",
        hint="set `remote` in .vmrag.yaml to one of them, then run 'vmrag trust && vmrag resolve'",
    )


def _merge_field(name: str, base_pin: Pin | None, our_pin: Pin, their_pin: Pin) -> str:
    """Return their value of a field if only they changed it, else ours."""
    ours: str = getattr(our_pin, name)
    theirs: str = getattr(their_pin, name)
    return theirs if base_pin and ours == getattr(base_pin, name) else ours


def _merge_extra(base_pin: Pin | None, our_pin: Pin, their_pin: Pin) -> tuple[tuple[str, str], ...]:
    """Merge the keys of newer versions one by one. Ours wins if both changed a key."""
    base = dict(base_pin.extra) if base_pin else {}
    ours = dict(our_pin.extra)
    theirs = dict(their_pin.extra)
    merged = {}
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        value = theirs.get(key) if ours.get(key) == base.get(key) else ours.get(key)
        if value is not None:
            merged[key] = value
    return tuple(merged.items())
