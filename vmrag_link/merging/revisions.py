"""Making the revision that holds the changes of two others, its message, and finding one that has
the content of another without descending from it.

No branch moves; a revision that is made is anchored. After a cherry-pick, a rebase or a bare merge,
a revision only names the other one in trailers of its message. Anybody can write a trailer, so the
documents are compared.

The message says whose words a merge keeps, which revisions it merged, and which losses a person
accepted. All of it derives from the revisions that are merged, so equal merges give equal messages.
A revision is lost when nobody has it any more. The record of the loss travels as the knowledge does
that goes on from there. It counts only while the lost revision is not here: nobody drops by it what
there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vmrag_link.engines.base import Engine, Write, is_readable, list_revisions_ahead
from vmrag_link.merging.choices import Choice, Decisions
from vmrag_link.merging.conflicts import Conflict, decide_all, format_project_id
from vmrag_link.merging.text import VERSION
from vmrag_link.merging.threeway import Derived, convert_to_rows, merge, stored_alone
from vmrag_link.models import At, Record, RevisionInfo, Row, WorkingSet


class MergeOutcome(Record, frozen=True):
    """`revision` is None while something is in conflict."""

    revision: str | None
    conflicts: tuple[Conflict, ...] = ()


class Signature(Record, frozen=True):
    """Author, message and time (ISO 8601 UTC) of a merged revision."""

    message: str
    author: str
    date: str

    @classmethod
    def from_inputs(cls, engine: Engine, *, base: str, ours: str, theirs: str, joins: bool) -> Signature:
        """From the inputs alone, so that equal merges give equal revisions.

        What is replayed keeps message, author and date of theirs, as git's own commits do.
        """
        info = engine.read_revision(theirs)
        if not joins:
            return cls(format_replay_message(engine, base=base, theirs=theirs), info.author, info.date)
        message = format_merge_message(base=base, ours=ours, theirs=theirs)
        return cls(message, info.author, max(engine.read_revision(ours).date, info.date))

    @classmethod
    def from_decision(
        cls, engine: Engine, *, base: str, ours: str, theirs: str, joins: bool, author: str, date: str
    ) -> Signature:
        """Of a merge that a person decided: theirs, with the time of the last decision. What is
        replayed stays its author's, and names the person.
        """
        if joins:
            return cls(format_merge_message(base=base, ours=ours, theirs=theirs), author, date)
        info = engine.read_revision(theirs)
        message = format_replay_message(engine, base=base, theirs=theirs, decided_by=author)
        return cls(message, info.author, info.date)


def merge_revisions(
    engine: Engine,
    *,
    base: str,
    ours: str,
    theirs: str,
    joins: bool,
    decisions: Decisions | None = None,
    working: WorkingSet | None = None,
    signature: Signature | None = None,
    derived: Derived = stored_alone,
) -> MergeOutcome:
    """The revision that holds `ours` and the changes from `base` to `theirs`.

    `joins`: theirs becomes a parent, as in a merge of branches. Otherwise the result only descends
    from `ours`, as after a cherry-pick or a revert, and its trailers name the merge. `working` is a
    working set on `ours` that goes into the result. `derived` as in `merge`. Raises
    `SchemaTooNew` for what a newer program wrote, also where all of theirs is the result.
    """
    engine.count_documents(theirs)
    if working is None and theirs in (ours, base):
        return MergeOutcome(ours)
    if working is None and ours == base:
        return MergeOutcome(theirs)
    merged = merge(engine, base=base, ours=working or ours, theirs=theirs, decisions=decisions, derived=derived)
    if merged.conflicts:
        return MergeOutcome(None, merged.conflicts)
    if (
        working is None
        and not decisions
        and engine.is_ancestor(ours, theirs)
        and _holds(engine, base, theirs, ours, derived)
    ):
        return MergeOutcome(theirs)
    rows: list[Write] = [convert_to_rows(engine.diff(ours, working))] if working else []
    signed = signature or Signature.from_inputs(engine, base=base, ours=ours, theirs=theirs, joins=joins)
    made = engine.commit_onto(
        ours,
        [*rows, merged.rows],
        joining=theirs if joins else None,
        message=signed.message,
        author=signed.author,
        date=signed.date,
    )
    if made == ours and any(
        not accepts_loss(engine, ours, accepted_loss) for accepted_loss in read_accepted_losses(signed.message)
    ):
        made = record_loss(engine, ours, message=signed.message, author=signed.author, date=signed.date)
    return MergeOutcome(made)


def make_virtual_base(
    engine: Engine, *, base: str, ours: str, theirs: str, joins: bool = True, derived: Derived = stored_alone
) -> str:
    """One merge base made of two, as git does where histories cross.

    A field in conflict equals neither: a side that resolved it has changed it, and two that did so
    differently conflict.
    """
    outcome = merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=joins, derived=derived)
    if outcome.revision is None:
        decisions = decide_all(outcome.conflicts, Choice("neither"))
        outcome = merge_revisions(
            engine, base=base, ours=ours, theirs=theirs, joins=joins, decisions=decisions, derived=derived
        )
    assert outcome.revision is not None  # noqa: S101  all is decided
    return outcome.revision


def _holds(engine: Engine, base: str, whole: str, part: At, derived: Derived) -> bool:
    """Whether `whole` holds everything that changed from the base to `part`."""
    back = merge(engine, base=base, ours=whole, theirs=part, derived=derived)
    return back.is_empty and not back.conflicts


def lacks_revision(engine: Engine, revision: str, part: str) -> bool:
    """Whether a merge of `part`, which is no ancestor of the revision, would bring it anything that
    nobody decided about.
    """
    base = engine.merge_base(revision, part)
    if base is None or not is_readable(engine, part):
        return True
    left = merge(engine, base=base, ours=revision, theirs=part)
    if left.is_empty and not left.conflicts:
        return False
    return base == revision or not holds_revision(engine, list_revisions_ahead(engine, revision, part), part)


def holds_revision(engine: Engine, own: Sequence[RevisionInfo], part: str) -> bool:
    """Whether the last of `own` holds a revision that it does not descend from.

    `own`: what it descends from and the part does not, itself included, parents before children.
    """
    picked: dict[str, frozenset[str]] = {}
    for each in own:
        held = frozenset[str]().union(*(picked.get(parent, ()) for parent in each.parents))
        theirs = _picked_revision(engine, each, held)
        picked[each.revision] = held | {theirs} if theirs else held
    return any(engine.is_ancestor(part, each) for each in picked[own[-1].revision])


def _picked_revision(engine: Engine, info: RevisionInfo, held: frozenset[str]) -> str | None:
    """The revision that this one contains besides its parents; `held`: what those contain.

    A trailer names a change, from base to theirs. It is all of theirs only on top of a revision
    that contains the base.
    """
    said = read_named_change(info.message)
    if said is None or len(info.parents) != 1:
        return None
    base, theirs = said
    if not (engine.has_revision(base) and engine.has_revision(theirs)):
        return None
    if not any(engine.is_ancestor(base, parent) for parent in (*info.parents, *held)):
        return None
    return theirs if _is_merged(engine, info, base, theirs) else None


def _is_merged(engine: Engine, info: RevisionInfo, base: str, theirs: str) -> bool:
    """Whether the revision contains the change from base to theirs, conflicts excepted.

    A second merge finds nothing left to do, or what the first one made is there as it was: lines
    that repeat may merge otherwise, or conflict, once the result takes the place of a side.
    """
    left = merge(engine, base=base, ours=info.revision, theirs=theirs)
    if left.is_empty and not left.conflicts:
        return True
    made = merge(engine, base=base, ours=info.parents[0], theirs=theirs)
    there = _rows(convert_to_rows(engine.diff(info.parents[0], info.revision)))
    done = {name for name, row in _rows(made.rows).items() if name in there and there[name] == row}
    lacking = (_rows(left.rows).keys() | {conflict.id for conflict in left.conflicts}) - done
    return lacking <= {conflict.id for conflict in made.conflicts}


def _rows(rows: Write) -> dict[str, Row | None]:
    """Each row by the id that its conflict would have, None for one that is removed."""
    found: dict[str, Row | None] = {f"{name}/": None for name in rows.remove_collections}
    found |= dict.fromkeys(map("/".join, rows.remove_documents))
    found |= dict.fromkeys(map(format_project_id, rows.remove_projects))
    found |= {f"{put_collection.name}/": put_collection for put_collection in rows.put_collections}
    found |= {"/".join(put_document.key): put_document for put_document in rows.put_documents}
    return found | {format_project_id(put_project.key): put_project for put_project in rows.put_projects}


MOST_SUBJECTS = 20
"""Revisions beside the last one whose subjects a message names."""

_MERGED = re.compile(r"^Vmrag-Base: (\w+)\nVmrag-Theirs: (\w+)$", re.MULTILINE)
_END = re.compile(r"^Vmrag-Base: \w+\nVmrag-Theirs: \w+(?:\nVmrag-(?:Merge|Decided-By): .*)*\Z", re.MULTILINE)


class Change(NamedTuple):
    """What a message's trailers say was merged: the difference between two revisions."""

    base: str
    theirs: str


def read_named_change(message: str) -> Change | None:
    """The change that the last trailers of a message name: the ones that we wrote."""
    found = _MERGED.findall(message)
    return Change(*found[-1]) if found else None


def strip_trailers(message: str) -> str:
    """What a message says besides the trailers of ours at its end."""
    return _END.sub("", message.strip()).strip()


def format_merge_message(*, base: str, ours: str, theirs: str) -> str:
    return f"Merge {theirs[:12]} into {ours[:12]}\n\n{_trailers(base, theirs)}"


def format_replay_message(engine: Engine, *, base: str, theirs: str, decided_by: str = "") -> str:
    """The message of theirs, whose change since the base becomes a revision elsewhere.

    One code commit may have moved its pin by several revisions. It names the last one, so that
    one's words are kept whole; of the others the subjects, by which they are searched for. Where
    theirs is what the base was made of, the change is a revert.
    """
    if engine.is_ancestor(theirs, base):
        said, others = f'Revert "{_subject(engine.read_revision(base))}"', []
    else:
        last, *others = reversed(list_revisions_ahead(engine, theirs, base))
        said = strip_trailers(last.message)
        others = [each for each in others if len(each.parents) == 1]
        if others:
            said += "\n\n" + "\n".join(_list(last, others))
    lost = _unsaid_losses(said, others)
    return f"{said}\n\n{format_loss_trailers(lost)}{_trailers(base, theirs, decided_by)}".lstrip()


def _unsaid_losses(said: str, others: list[RevisionInfo]) -> Iterator[str]:
    """The losses that the other revisions accept, whose messages are not kept."""
    known = read_accepted_losses(said)
    yield from dict.fromkeys(
        accepted_loss
        for info in others
        for accepted_loss in read_accepted_losses(info.message)
        if accepted_loss not in known
    )


def _trailers(base: str, theirs: str, decided_by: str = "") -> str:
    decided = f"Vmrag-Decided-By: {decided_by}\n" if decided_by else ""
    return f"Vmrag-Base: {base}\nVmrag-Theirs: {theirs}\nVmrag-Merge: {VERSION}\n{decided}"


def _list(last: RevisionInfo, others: list[RevisionInfo]) -> Iterator[str]:
    yield "Replayed with it:"
    for each in others[:MOST_SUBJECTS]:
        yield f"- {_subject(each)}" + (f" ({each.author})" if each.author != last.author else "")
    if len(others) > MOST_SUBJECTS:
        yield f"- and {len(others) - MOST_SUBJECTS} more"


def _subject(info: RevisionInfo) -> str:
    return next(iter(info.message.strip().splitlines()), "") or info.revision[:12]


_LOST = re.compile(r"^Vmrag-Lost: (\w+)$", re.MULTILINE)


def read_accepted_losses(message: str) -> list[str]:
    """The revisions whose loss a message accepts."""
    return list(dict.fromkeys(_LOST.findall(message)))


def format_loss_trailers(lost: Iterable[str]) -> str:
    return "".join(f"Vmrag-Lost: {each}\n" for each in lost)


def accepts_loss(engine: Engine, revision: str, lost: str) -> bool:
    """Whether a revision that is here, or one that it contains, accepts the loss of one that is
    not.
    """
    if engine.has_revision(lost) or not engine.has_revision(revision):
        return False
    return any(lost in read_accepted_losses(info.message) for info in engine.log(revision))


def record_loss(engine: Engine, revision: str, *, message: str, author: str, date: str) -> str:
    """A revision with the documents of another one, and a message that records a loss."""
    with engine.write_lock("accept a loss"):
        made = engine.recreate_revision([revision], [], message=message, author=author, date=date)
        engine.anchor_revision(made, reason="a loss was accepted")
    return made
