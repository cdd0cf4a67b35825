"""`vmrag restore`: take documents as a revision has them, as `git restore` takes files.

What no revision holds of the present ones stays reachable.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import ConfirmationMissing, plural
from vmrag_link.merging.threeway import as_rows
from vmrag_link.models import At, ChangeKind, Difference, Record
from vmrag_link.ops.documents import unsaved, writing
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.ops.history import document_names, revparse
from vmrag_link.ops.history.document_names import EVERYTHING, DocumentName, command_of
from vmrag_link.ops.merge import merge_state
from vmrag_link.workspace import Workspace

_NAMED = 3
"""Documents that the refusal names."""


class RestoredDocument(Record, frozen=True):
    """`kind`: what happened to it here."""

    collection: str
    doc_id: str
    kind: ChangeKind


class RestoredCollection(Record, frozen=True):
    """A collection's settings; `kind` as in `RestoredDocument`."""

    name: str
    kind: ChangeKind


class Restoration(Record, frozen=True):
    """What is as in `source` now, and was not before.

    `kept`: the revision that holds what was here, where no other does; empty for none. `unsaved`:
    its documents.
    """

    source: str
    documents: tuple[RestoredDocument, ...]
    collections: tuple[RestoredCollection, ...]
    unsaved: tuple[DocumentName, ...]
    kept: str


def restore(
    ws: Workspace,
    names: Sequence[str],
    *,
    source: str | None = None,
    within: str | None = None,
    confirmed: bool = False,
) -> Landed[Restoration]:
    """Take what these names mean as `source` has it, by default as it was committed here.

    Names are those of `document_names.select`, of what is here or there; none mean everything. What
    is here and not there is removed. Raises `ConfirmationMissing` unless `confirmed` where
    everything is taken and texts were never committed; `MergeConflict` where everything is taken
    while a merge is open; and as `revparse.resolve_rev`, `select` and `writing.write`. Then nothing
    has changed.
    """
    everything = within is None and (not names or EVERYTHING in names)
    target = writing.writable(ws, index=False)
    if everything:
        merge_state.refuse_if_open(ws)
    revision = target.revision if source is None else revparse.resolve_rev(ws, source)

    def plan(at: At) -> Planned[Restoration]:
        if everything:
            found = ws.engine.diff(at, revision)
        else:
            wanted = document_names.select(ws.engine, [at, revision], names or [EVERYTHING], within=within)
            found = _part(ws, at, revision, wanted)
        keys = {each.key for each in found.documents}
        lost = unsaved.of(ws, at, keys.__contains__, {each.key for each in found.collections})
        if everything and not lost.empty and not confirmed:
            raise _confirmation_missing(lost, command_of("restore", names, source=source))
        kept = unsaved.keep(ws, at, lost, before="they were restored")
        report = Restoration(
            revision,
            tuple(RestoredDocument(*each.key, each.kind) for each in found.documents),
            tuple(RestoredCollection(each.key, each.kind) for each in found.collections),
            tuple(DocumentName(*each.key) for each in lost.documents),
            kept,
        )
        return Planned(None if found.empty else as_rows(found), report)

    return writing.write(ws, plan, "restore documents", follow=False)


def _part(ws: Workspace, at: At, revision: str, wanted: document_names.NamedSelection) -> Difference:
    """What differs of what is wanted; a document that comes back brings its collection."""
    found = ws.engine.diff_headers(at, revision)
    names = {each.key for each in wanted.documents}
    documents = [each for each in found.documents if each.key in names]
    homes = {each.key[0] for each in documents if each.after}
    collections = tuple(
        each for each in found.collections if each.key in wanted.collections or (not each.before and each.key in homes)
    )
    return Difference(collections, unsaved.with_texts(ws, revision, documents))


def _confirmation_missing(lost: Difference, command: str) -> ConfirmationMissing:
    names = [str(DocumentName(*each.key)) for each in lost.documents]
    what = f"{plural(len(names), 'document')}: {', '.join(names[:_NAMED])}" if names else "settings of collections"
    return ConfirmationMissing(
        f"This would give up what was never committed of {what}{', …' if len(names) > _NAMED else ''}.",
        hint=f"{command} --yes (they can be brought back)",
        uncommitted_count=len(names),
    )
