"""The merge driver of `.dolt-version`: three pins become one, whose revision holds the documents of both sides.

git gives the base, and the base counts: a cherry-pick's is the parent of what is picked, a revert's is what is reverted. A pin is a whole
state, so the change that is merged is the difference between base and theirs, not what theirs contains.
"""

from __future__ import annotations

from vmrag_link import pin as pins
from vmrag_link.engines.base import Engine
from vmrag_link.errors import EngineFailed, PinConflict, PinRevisionMissing
from vmrag_link.merging.conflicts import DOCUMENT, Choice, Conflict, Decisions
from vmrag_link.merging.revisions import Outcome, merged_revision
from vmrag_link.models import Document
from vmrag_link.pin import Pin


def merge_pins(
    engine: Engine, base: bytes, ours: bytes, theirs: bytes, *, joins: bool, virtual: bool = False, revision: str = ""
) -> bytes:
    """The pin of the merged state; `base` is empty where both sides added a pin.

    `joins`: theirs becomes a parent of the merged revision. `virtual`: git makes a base from several; then documents in conflict hold both
    texts between markers, which differ from either side. `revision`: what a person has made of the conflicts.
    Raises `PinConflict`, `PinMalformed`, `PinRevisionMissing`, `EngineFailed` for unrelated histories.
    """
    left, right = pins.parse(ours, source="our pin"), pins.parse(theirs, source="their pin")
    before = pins.parse(base, source="the base's pin") if base else None
    if not revision:
        revision = _revision(engine, before, left, right, joins=joins, virtual=virtual)
        if len({each.dolt_remote for each in (before, left, right) if each}) == 3:  # noqa: PLR2004  each has its own
            raise PinConflict(
                f"Both sides changed dolt_remote: {left.dolt_remote!r} and {right.dolt_remote!r}.",
                hint="Choose one in .dolt-version, then: git add .dolt-version",
            )
    merged = Pin(
        dolt_remote=_field("dolt_remote", before, left, right),
        dolt_branch=left.dolt_branch if joins else _field("dolt_branch", before, left, right),
        dolt_commit=revision,
        linked_at=engine.info(revision).date,
        extra=_extra(before, left, right),
    )
    return ours if merged.same_state(left) and merged.extra == left.extra else pins.format(merged)


def base_revision(engine: Engine, before: Pin | None, left: Pin, right: Pin) -> str:
    """What a merge of the pins starts from: git's base, or the engine's where git has none."""
    if before is not None:
        return before.dolt_commit
    base = engine.merge_base(left.dolt_commit, right.dolt_commit)
    if base is None:
        raise EngineFailed(
            "The two sides pin knowledge bases that have no history in common.",
            hint="Keep one of them: git checkout --ours .dolt-version (or --theirs), then git add .dolt-version",
        )
    return base


def _revision(engine: Engine, before: Pin | None, left: Pin, right: Pin, *, joins: bool, virtual: bool) -> str:
    for side, pin in (("our", left), ("their", right), ("the base's", before)):
        if pin and not engine.has_revision(pin.dolt_commit):
            raise PinRevisionMissing(
                f"The revision {pin.dolt_commit} of {side} pin is not in this knowledge base.",
                hint="Get it, then run git's command again; see what is here: vmrag log",
                revision=pin.dolt_commit,
            )
    base = base_revision(engine, before, left, right)

    def outcome_of(decisions: Decisions) -> Outcome:
        ours, theirs = left.dolt_commit, right.dolt_commit
        return merged_revision(engine, base=base, ours=ours, theirs=theirs, joins=joins, decisions=decisions)

    outcome = outcome_of({})
    if outcome.revision is None and virtual:
        outcome = outcome_of({each.id: dict.fromkeys(each.fields, _both(each)) for each in outcome.conflicts})
    if outcome.revision is None:
        number = len(outcome.conflicts)
        what = f"{number} conflicts" if number > 1 else f"a conflict in {outcome.conflicts[0].id}"
        raise PinConflict(
            f"The knowledge of the two sides has {what}.",
            hint="vmrag resolve",
            conflicts=[each.id for each in outcome.conflicts],
        )
    return outcome.revision


def _both(conflict: Conflict) -> Choice:
    texts = [side.content if isinstance(side, Document) else "" for side in (conflict.ours, conflict.theirs)]
    if conflict.fields != (DOCUMENT,) and "content" not in conflict.fields:
        return Choice("ours")
    return Choice("edited", f"<<<<<<< ours\n{texts[0]}\n=======\n{texts[1]}\n>>>>>>> theirs\n")


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
