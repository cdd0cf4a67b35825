"""Making the revision that holds the changes of two others.

No branch moves; the result is anchored.
"""

from __future__ import annotations

from vmrag_link.engines.base import Engine, Write
from vmrag_link.merging import losses, messages
from vmrag_link.merging.conflicts import Choice, Conflict, Decisions, decide_all
from vmrag_link.merging.threeway import Derived, as_rows, merge, stored_alone
from vmrag_link.models import At, Record, Working


class Outcome(Record, frozen=True):
    """`revision` is None while something is in conflict."""

    revision: str | None
    conflicts: tuple[Conflict, ...] = ()


class Signature(Record, frozen=True):
    """Author, message and time (ISO 8601 UTC) of a merged revision."""

    message: str
    author: str
    date: str

    @classmethod
    def derived(cls, engine: Engine, *, base: str, ours: str, theirs: str, joins: bool) -> Signature:
        """From the inputs alone, so that equal merges give equal revisions.

        What is replayed keeps message, author and date of theirs, as git's own commits do.
        """
        info = engine.info(theirs)
        if not joins:
            return cls(messages.of_replay(engine, base=base, theirs=theirs), info.author, info.date)
        message = messages.of_merge(base=base, ours=ours, theirs=theirs)
        return cls(message, info.author, max(engine.info(ours).date, info.date))

    @classmethod
    def decided(
        cls, engine: Engine, *, base: str, ours: str, theirs: str, joins: bool, author: str, date: str
    ) -> Signature:
        """Of a merge that a person decided: theirs, with the time of the last decision. What is
        replayed stays its author's, and names the person.
        """
        if joins:
            return cls(messages.of_merge(base=base, ours=ours, theirs=theirs), author, date)
        info = engine.info(theirs)
        message = messages.of_replay(engine, base=base, theirs=theirs, decided_by=author)
        return cls(message, info.author, info.date)


def merged_revision(
    engine: Engine,
    *,
    base: str,
    ours: str,
    theirs: str,
    joins: bool,
    decisions: Decisions | None = None,
    working: Working | None = None,
    signature: Signature | None = None,
    derived: Derived = stored_alone,
) -> Outcome:
    """The revision that holds `ours` and the changes from `base` to `theirs`.

    `joins`: theirs becomes a parent, as in a merge of branches. Otherwise the result only descends
    from `ours`, as after a cherry-pick or a revert, and its trailers name the merge. `working` is a
    working set on `ours` that goes into the result. `derived` as in `merge`. Raises
    `SchemaTooNew` for what a newer program wrote, also where all of theirs is the result.
    """
    engine.count(theirs)
    if working is None and theirs in (ours, base):
        return Outcome(ours)
    if working is None and ours == base:
        return Outcome(theirs)
    merged = merge(engine, base=base, ours=working or ours, theirs=theirs, decisions=decisions, derived=derived)
    if merged.conflicts:
        return Outcome(None, merged.conflicts)
    if (
        working is None
        and not decisions
        and engine.is_ancestor(ours, theirs)
        and _holds(engine, base, theirs, ours, derived)
    ):
        return Outcome(theirs)
    rows: list[Write] = [as_rows(engine.diff(ours, working))] if working else []
    signed = signature or Signature.derived(engine, base=base, ours=ours, theirs=theirs, joins=joins)
    made = engine.commit_onto(
        ours,
        [*rows, merged.rows],
        joining=theirs if joins else None,
        message=signed.message,
        author=signed.author,
        date=signed.date,
    )
    if made == ours and any(not losses.is_accepted(engine, ours, each) for each in losses.recorded(signed.message)):
        made = losses.record(engine, ours, message=signed.message, author=signed.author, date=signed.date)
    return Outcome(made)


def virtual_base(
    engine: Engine, *, base: str, ours: str, theirs: str, joins: bool = True, derived: Derived = stored_alone
) -> str:
    """One merge base made of two, as git does where histories cross.

    A field in conflict equals neither: a side that resolved it has changed it, and two that did so
    differently conflict.
    """
    outcome = merged_revision(engine, base=base, ours=ours, theirs=theirs, joins=joins, derived=derived)
    if outcome.revision is None:
        decisions = decide_all(outcome.conflicts, Choice("neither"))
        outcome = merged_revision(
            engine, base=base, ours=ours, theirs=theirs, joins=joins, decisions=decisions, derived=derived
        )
    assert outcome.revision is not None  # noqa: S101  all is decided
    return outcome.revision


def _holds(engine: Engine, base: str, whole: str, part: At, derived: Derived) -> bool:
    """Whether `whole` holds everything that changed from the base to `part`."""
    back = merge(engine, base=base, ours=whole, theirs=part, derived=derived)
    return back.empty and not back.conflicts
