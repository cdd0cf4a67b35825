"""`vmrag resolve`: decide about conflicts, one by one or all at once; decisions are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vmrag_link import locks
from vmrag_link import pin as pins
from vmrag_link.errors import ContentRefused, DocumentMissing, MergeConflict, UsageInvalid, quoted
from vmrag_link.git import pin_merge, plumbing
from vmrag_link.merging.conflicts import DOCUMENT, Choice, Conflict, Side, find_marker
from vmrag_link.merging.revisions import merged_revision
from vmrag_link.merging.threeway import Merged
from vmrag_link.models import Record, text_of
from vmrag_link.ops.follow import follow_pin, lazy_fetch, recovery
from vmrag_link.ops.merge import merge_state
from vmrag_link.ops.merge.merge_pins import merge_pins
from vmrag_link.ops.merge.merge_state import MergeState
from vmrag_link.ops.pins import pinning
from vmrag_link.ops.pins.pinning import PinBlock
from vmrag_link.paths import write_atomically
from vmrag_link.workspace import Workspace


class ConflictRow(Record, frozen=True):
    """`open`: the fields without a decision.

    `conflict`: base, ours and theirs, None for a missing row.
    """

    id: str
    open: tuple[str, ...]
    conflict: Conflict

    @property
    def has_text(self) -> bool:
        """Whether the text of a document is in conflict, so that one may be written for it."""
        return bool(_text_fields(self.conflict))


class ResolveReport(Record, frozen=True):
    """`conflicts` are those with an open field.

    Once there is none: `next` is what to type, and in a merge of git's the pin is written. `staged`
    False: another git command held the index, so `git add .dolt-version` is left to do.
    """

    kind: merge_state.Kind
    source: str
    base: str
    ours: str
    theirs: str
    conflicts: tuple[ConflictRow, ...]
    decided: int
    pin: PinBlock | None
    staged: bool
    next: str


def conflicts(ws: Workspace, ids: Sequence[str] = ()) -> ResolveReport:
    """The open merge and what is left to decide.

    Raises `MergeConflict` when none is open, `DocumentMissing` for ids not in conflict.
    """
    return _resolve(ws, ids, None)


def resolve(
    ws: Workspace,
    ids: Sequence[str] = (),
    *,
    side: Side | None = None,
    fields: Mapping[str, Side] | None = None,
    text: str | None = None,
) -> ResolveReport:
    """Decide about the conflicts named, by default all open ones: a side, some fields, or a text.

    What was decided before can be decided again. Raises `DocumentMissing` for what is not in
    conflict, `UsageInvalid` for a choice that does not fit, `ContentRefused` for a text that cannot
    be stored or holds a conflict marker of ours, `MergeConflict` when no merge is open,
    `KnowledgeMoved`, `PinRevisionMissing`; then nothing is decided.
    """
    return _resolve(ws, ids, lambda conflict: _choices(conflict, side, fields or {}, text))


def _resolve(
    ws: Workspace, ids: Sequence[str], choose: Callable[[Conflict], dict[str, Choice]] | None
) -> ResolveReport:
    prepare(ws)
    with locks.exclusive(ws.places.workspace_lock, purpose="resolve", timeout=ws.lock_timeout):
        state = merge_state.required(ws)
        merged = merge_state.merged(ws, state)
        chosen = _select(merged, ids)
        if choose:
            decisions = dict(state.decisions)
            for conflict in chosen:
                decisions[conflict.id] = decisions.get(conflict.id, {}) | choose(conflict)
            state = msgspec.structs.replace(state, decisions=decisions)
            merge_state.save(ws, state)
            merged = merge_state.merged(ws, state)
        if merged.conflicts or state.kind != "git":
            return _report(state, merged)
        report = _conclude(ws, state, merged)  # perhaps after a kill, or because the sides agree
    follow_pin.reconcile_for_reading(ws)
    return report


def prepare(ws: Workspace) -> None:
    """Fetch both sides if they are missing: the merge driver may have had no network."""
    recovery.recover(ws)
    if sides := pin_merge.stages(ws.places):
        lazy_fetch.require_sides(ws, *sides)


def _select(merged: Merged, ids: Sequence[str]) -> list[Conflict]:
    if not ids:
        return list(merged.conflicts)
    known = {each.id: each for each in (*merged.conflicts, *merged.decided)}
    for each in ids:
        if each not in known:
            raise DocumentMissing(
                f"{each} is not in conflict.",
                hint="vmrag resolve --list (shows what is)",
                id=each,
                conflicts=sorted(known),
            )
    return [known[each] for each in ids]


def _choices(conflict: Conflict, side: Side | None, fields: Mapping[str, Side], text: str | None) -> dict[str, Choice]:
    choices = {field: Choice(side) for field in conflict.fields} if side else {}
    for field, taken in fields.items():
        if field not in conflict.fields:
            raise UsageInvalid(
                f"The field {field!r} of {conflict.id} is not in conflict; these are: {', '.join(conflict.fields)}.",
                hint=f"vmrag resolve {quoted(conflict.id)} --field {conflict.fields[0]}=theirs",
            )
        choices[field] = Choice(taken)
    if text is not None:
        edited = _text_fields(conflict)
        if not edited:
            raise UsageInvalid(
                f"The text of {conflict.id} is not in conflict; these fields are: {', '.join(conflict.fields)}.",
                hint=f"vmrag resolve {quoted(conflict.id)} --field {conflict.fields[0]}=theirs",
            )
        if "\0" in text:
            raise ContentRefused("The text holds a NUL character.", hint="Remove it; no database stores it exactly.")
        if left := find_marker(text, *(text_of(row) for row in (conflict.ours, conflict.theirs))):
            raise ContentRefused(
                f"Line {left[0]} of the text is still a conflict marker: {left[1]}",
                hint="Take out the lines of markers, and what should not stay of what is between them.",
                line=left[0],
            )
        choices[edited[0]] = Choice("edited", text)
    return choices


def _text_fields(conflict: Conflict) -> list[str]:
    return [field for field in conflict.fields if field in ("content", DOCUMENT)]


def _conclude(ws: Workspace, state: MergeState, merged: Merged) -> ResolveReport:
    """Write the merged pin and stage it: for git, the conflict is over.

    Call it with the workspace's lock held.
    """
    stages = pin_merge.stages(ws.places)
    if stages is None or stages.ours is None or stages.theirs is None:
        raise MergeConflict("git's conflict in .dolt-version is over already.", hint="git status")
    joins = pin_merge.is_merge(ws.places)
    outcome = merged_revision(
        ws.engine, base=state.base, ours=state.ours, theirs=state.theirs, joins=joins, decisions=state.decisions
    )
    assert outcome.revision is not None  # noqa: S101  the callers have looked: nothing is in conflict
    data = merge_pins(
        ws.engine,
        stages.base or b"",
        stages.ours,
        stages.theirs,
        joins=joins,
        revision=outcome.revision,
        remote=ws.config.remote,
    )
    write_atomically(ws.places.pin, data)
    staged = plumbing.stage(ws.places, ws.places.pin)
    if staged:
        merge_state.clear(ws, "git")
    busy = plumbing.busy(ws.places)
    then = plumbing.busy_hint(busy).partition(" (")[0] if busy else "git status"
    report = _report(state, merged)
    return msgspec.structs.replace(
        report, pin=pinning.block(pins.parse(data)), staged=staged, next=then if staged else "git add .dolt-version"
    )


def _report(state: MergeState, merged: Merged) -> ResolveReport:
    rows = tuple(ConflictRow(each.id, each.open(state.decisions.get(each.id, {})), each) for each in merged.conflicts)
    then = "vmrag resolve" if rows else "vmrag commit" if state.written else "vmrag merge --continue"
    decided = len(merged.decided)
    return ResolveReport(
        state.kind, state.source, state.base, state.ours, state.theirs, rows, decided, None, True, then
    )
