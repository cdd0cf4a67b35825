"""From three revisions to the one that holds the changes of both sides. Moves no branch; what it makes is anchored."""

from __future__ import annotations

from vmrag_link.engines.base import Engine, Write
from vmrag_link.merging.conflicts import Conflict, Decisions
from vmrag_link.merging.threeway import as_rows, merge
from vmrag_link.models import At, Record, Working


class Outcome(Record, frozen=True):
    """`revision` is None while something is in conflict. `made`: it did not exist before."""

    revision: str | None
    conflicts: tuple[Conflict, ...] = ()
    made: bool = False


def merged_revision(
    engine: Engine,
    *,
    base: str,
    ours: str,
    theirs: str,
    joins: bool,
    decisions: Decisions | None = None,
    working: Working | None = None,
    message: str | None = None,
) -> Outcome:
    """The revision that holds `ours` and what changed from `base` to `theirs`.

    `joins`: theirs becomes a parent, as in a merge of branches; otherwise the result only descends from `ours`, as after a
    cherry-pick or a revert, and its trailers say what was merged. `working` is a working set on `ours` that goes into the result.
    Author and date are derived from the inputs, so that equal merges give equal revisions.
    """
    if working is None and theirs in (ours, base):
        return Outcome(ours)
    if working is None and ours == base:
        return Outcome(theirs)
    merged = merge(engine, base=base, ours=working or ours, theirs=theirs, decisions=decisions)
    if merged.conflicts:
        return Outcome(None, merged.conflicts)
    if working is None and not decisions and engine.is_ancestor(ours, theirs) and _holds(engine, base, theirs, ours):
        return Outcome(theirs)
    rows: list[Write] = [as_rows(engine.diff(ours, working))] if working else []
    made = engine.commit_onto(
        ours,
        [*rows, merged.rows],
        joining=theirs if joins else None,
        message=message or _message(base, ours, theirs),
        author=engine.info(theirs).author,
        date=max(engine.info(ours).date, engine.info(theirs).date),
    )
    return Outcome(made, made=made != ours)


def _holds(engine: Engine, base: str, whole: str, part: At) -> bool:
    """Whether `whole` holds everything that changed from the base to `part`."""
    back = merge(engine, base=base, ours=whole, theirs=part)
    return back.empty and not back.conflicts


def _message(base: str, ours: str, theirs: str) -> str:
    return f"Merge {theirs[:12]} into {ours[:12]}\n\nVmrag-Base: {base}\nVmrag-Theirs: {theirs}\n"
