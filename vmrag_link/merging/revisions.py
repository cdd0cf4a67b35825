"""Merge two revisions into a new one. Write its message, and find merged changes by such messages.

No branch moves. A new revision is anchored. A message depends only on the merged revisions, so
equal merges give equal messages. It ends with trailers:

* After a cherry-pick, a rebase or a bare merge, only trailers name the merged revision. Anyone can
  write a trailer, so the documents are compared before it is believed.
* A revision is lost when no clone has it any longer. A trailer records that a user accepted the
  loss. It is pushed with later revisions. It applies only while this clone lacks the lost
  revision, so it cannot drop existing documents.
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
    """The result of a merge. With conflicts, there is no `revision`."""

    revision: str | None
    conflicts: tuple[Conflict, ...] = ()


class Signature(Record, frozen=True):
    """Author, message and time (ISO 8601 UTC) of a merged revision."""

    message: str
    author: str
    date: str

    @classmethod
    def from_inputs(cls, engine: Engine, *, base: str, ours: str, theirs: str, joins: bool) -> Signature:
        """Return a signature from the inputs alone, so that equal merges give equal revisions.

        A replayed revision keeps message, author and date of the original, like commits in git.
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
        """Return the signature of a merge that a user decided: the user as author, with the time of
        the last decision. A replayed revision keeps its author, and its message names the user.
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
    """Return a revision with `ours` and the changes from `base` to `theirs`.

    `joins`: theirs becomes a parent, as in a merge of branches. Otherwise the result only descends
    from `ours`, as after a cherry-pick or a revert, and its trailers name the merge. `working`: a
    working set on `ours` that is included in the result. `derived`: as in `threeway.merge`. Raises
    `SchemaTooNew` for a revision of a newer program, even if theirs is the result.
    """
    engine.require_readable(theirs)
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
        and _contains_changes(engine, theirs, base, ours, derived)
    ):
        return MergeOutcome(theirs)
    rows: list[Write] = [convert_to_rows(engine.diff(ours, working))] if working else []
    signature = signature or Signature.from_inputs(engine, base=base, ours=ours, theirs=theirs, joins=joins)
    revision = engine.commit_onto(
        ours,
        [*rows, merged.rows],
        joining=theirs if joins else None,
        message=signature.message,
        author=signature.author,
        date=signature.date,
    )
    losses = read_accepted_losses(signature.message) if revision == ours else []
    if not all(accepts_loss(engine, ours, lost) for lost in losses):
        revision = record_loss(engine, ours, message=signature.message, author=signature.author, date=signature.date)
    return MergeOutcome(revision)


def make_virtual_base(
    engine: Engine, *, base: str, ours: str, theirs: str, joins: bool = True, derived: Derived = stored_alone
) -> str:
    """Return one merge base made of two, like git for histories that cross.

    A field in conflict equals neither side. So a side that resolved it has changed it, and two
    sides that resolved it differently conflict.
    """
    outcome = merge_revisions(engine, base=base, ours=ours, theirs=theirs, joins=joins, derived=derived)
    if outcome.revision is None:
        decisions = decide_all(outcome.conflicts, Choice("neither"))
        outcome = merge_revisions(
            engine, base=base, ours=ours, theirs=theirs, joins=joins, decisions=decisions, derived=derived
        )
    assert outcome.revision is not None  # noqa: S101  every conflict is decided
    return outcome.revision


def _contains_changes(engine: Engine, revision: str, base: str, other: At, derived: Derived = stored_alone) -> bool:
    """Return whether a revision contains all changes from the base to `other`."""
    remaining = merge(engine, base=base, ours=revision, theirs=other, derived=derived)
    return remaining.is_empty and not remaining.conflicts


def lacks_revision(engine: Engine, revision: str, other: str) -> bool:
    """Return whether a merge of `other` would change the revision in a way that was not decided
    before. `other` is not an ancestor of the revision.
    """
    base = engine.merge_base(revision, other)
    if base is None or not is_readable(engine, other):
        return True
    if _contains_changes(engine, revision, base, other):
        return False
    return base == revision or not holds_revision(engine, list_revisions_ahead(engine, revision, other), other)


def holds_revision(engine: Engine, ahead: Sequence[RevisionInfo], other: str) -> bool:
    """Return whether the last revision of `ahead` contains the changes of `other`, from which it
    does not descend.

    `ahead`: its ancestors that are not ancestors of `other`, including itself, parents before
    children.
    """
    picked: dict[str, frozenset[str]] = {}  # by revision, the merged revisions that it contains
    for info in ahead:
        inherited = frozenset[str]().union(*(picked.get(parent, ()) for parent in info.parents))
        theirs = _find_picked_revision(engine, info, inherited)
        picked[info.revision] = inherited | {theirs} if theirs else inherited
    return any(engine.is_ancestor(other, revision) for revision in picked[ahead[-1].revision])


def _find_picked_revision(engine: Engine, info: RevisionInfo, inherited: frozenset[str]) -> str | None:
    """Return the revision that this one contains in addition to its parents, or None.

    `inherited`: the revisions that the parents contain. A trailer names a change, from base to
    theirs. On a revision that lacks the base, the change is only a part of `theirs`.
    """
    change = read_named_change(info.message)
    if change is None or len(info.parents) != 1:
        return None
    base, theirs = change
    if not (engine.has_revision(base) and engine.has_revision(theirs)):
        return None
    if not any(engine.is_ancestor(base, parent) for parent in (*info.parents, *inherited)):
        return None
    return theirs if _has_merged(engine, info, base, theirs) else None


def _has_merged(engine: Engine, info: RevisionInfo, base: str, theirs: str) -> bool:
    """Return whether a revision merged the change from base to theirs into its parent, except
    conflicts.

    Either a second merge changes nothing, or the revision has all rows of the first merge. A second
    merge can differ from the first: repeated lines may merge differently, or conflict.
    """
    remaining = merge(engine, base=base, ours=info.revision, theirs=theirs)
    if remaining.is_empty and not remaining.conflicts:
        return True
    merged = merge(engine, base=base, ours=info.parents[0], theirs=theirs)
    changed = _map_rows(convert_to_rows(engine.diff(info.parents[0], info.revision)))
    applied = {row_id for row_id, row in _map_rows(merged.rows).items() if row_id in changed and changed[row_id] == row}
    missing = (_map_rows(remaining.rows).keys() | {conflict.id for conflict in remaining.conflicts}) - applied
    return missing <= {conflict.id for conflict in merged.conflicts}


def _map_rows(rows: Write) -> dict[str, Row | None]:
    """Return each row by the id of its conflict, None for a removed row."""
    rows_by_id: dict[str, Row | None] = {f"{name}/": None for name in rows.remove_collections}
    rows_by_id |= dict.fromkeys(map("/".join, rows.remove_documents))
    rows_by_id |= dict.fromkeys(map(format_project_id, rows.remove_projects))
    rows_by_id |= {f"{collection.name}/": collection for collection in rows.put_collections}
    rows_by_id |= {"/".join(document.key): document for document in rows.put_documents}
    return rows_by_id | {format_project_id(project.key): project for project in rows.put_projects}


# -- messages

MAX_SUBJECTS = 20
"""Maximum number of revisions, besides the last one, whose subjects are in a message."""

_CHANGE_TRAILERS = re.compile(r"^Vmrag-Base: (\w+)\nVmrag-Theirs: (\w+)$", re.MULTILINE)
_LAST_TRAILERS = re.compile(r"^Vmrag-Base: \w+\nVmrag-Theirs: \w+(?:\nVmrag-(?:Merge|Decided-By): .*)*\Z", re.MULTILINE)


class Change(NamedTuple):
    """The difference between two revisions that was merged, according to the trailers of a
    message.
    """

    base: str
    theirs: str


def read_named_change(message: str) -> Change | None:
    """Return the change that the last trailers of a message name, which vmrag wrote, or None."""
    matches = _CHANGE_TRAILERS.findall(message)
    return Change(*matches[-1]) if matches else None


def strip_trailers(message: str) -> str:
    """Return a message without vmrag's trailers at its end."""
    return _LAST_TRAILERS.sub("", message.strip()).strip()


def format_merge_message(*, base: str, ours: str, theirs: str) -> str:
    """Return the message of a merge of two revisions."""
    return f"Merge {theirs[:12]} into {ours[:12]}\n\n{_format_trailers(base, theirs)}"


def format_replay_message(engine: Engine, *, base: str, theirs: str, decided_by: str = "") -> str:
    """Return the message of a revision that repeats the change from base to theirs elsewhere.

    It has the whole message of `theirs`, and the subjects of the other revisions since the base, so
    that searches find them. If theirs is an ancestor of the base, the change is a revert.
    """
    if engine.is_ancestor(theirs, base):
        text, others = f'Revert "{_get_subject(engine.read_revision(base))}"', []
    else:
        last, *others = reversed(list_revisions_ahead(engine, theirs, base))
        text = strip_trailers(last.message)
        others = [info for info in others if len(info.parents) == 1]
        if others:
            text += "\n\n" + "\n".join(_list_subjects(last, others))
    lost = _list_missing_losses(text, others)
    return f"{text}\n\n{format_loss_trailers(lost)}{_format_trailers(base, theirs, decided_by)}".lstrip()


def _list_missing_losses(text: str, others: list[RevisionInfo]) -> Iterator[str]:
    """Yield the losses that the other revisions accept and that are not in the text."""
    accepted = read_accepted_losses(text)
    losses = (lost for info in others for lost in read_accepted_losses(info.message))
    yield from dict.fromkeys(lost for lost in losses if lost not in accepted)


def _format_trailers(base: str, theirs: str, decided_by: str = "") -> str:
    decided = f"Vmrag-Decided-By: {decided_by}\n" if decided_by else ""
    return f"Vmrag-Base: {base}\nVmrag-Theirs: {theirs}\nVmrag-Merge: {VERSION}\n{decided}"


def _list_subjects(last: RevisionInfo, others: list[RevisionInfo]) -> Iterator[str]:
    yield "Replayed with it:"
    for info in others[:MAX_SUBJECTS]:
        yield f"- {_get_subject(info)}" + (f" ({info.author})" if info.author != last.author else "")
    if len(others) > MAX_SUBJECTS:
        yield f"- and {len(others) - MAX_SUBJECTS} more"


def _get_subject(info: RevisionInfo) -> str:
    return next(iter(info.message.strip().splitlines()), "") or info.revision[:12]


_LOSS_TRAILER = re.compile(r"^Vmrag-Lost: (\w+)$", re.MULTILINE)


def read_accepted_losses(message: str) -> list[str]:
    """Return the revisions whose loss a message accepts."""
    return list(dict.fromkeys(_LOSS_TRAILER.findall(message)))


def format_loss_trailers(lost: Iterable[str]) -> str:
    return "".join(f"Vmrag-Lost: {revision}\n" for revision in lost)


def accepts_loss(engine: Engine, revision: str, lost: str) -> bool:
    """Return whether an existing revision, or one that it contains, accepts the loss of a missing
    one.
    """
    if engine.has_revision(lost) or not engine.has_revision(revision):
        return False
    return any(lost in read_accepted_losses(info.message) for info in engine.log(revision))


def record_loss(engine: Engine, revision: str, *, message: str, author: str, date: str) -> str:
    """Make a revision with the documents of another one and a message that records a loss, and
    return it.
    """
    with engine.write_lock("accept a loss"):
        recorded = engine.recreate_revision([revision], [], message=message, author=author, date=date)
        engine.anchor_revision(recorded, reason="a loss was accepted")
    return recorded
