"""`vmrag restore`: take documents as a revision has them, as `git restore` takes files.

What no revision holds of the present ones stays reachable.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link import clock
from vmrag_link.engines.base import Write
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS
from vmrag_link.errors import ConfirmationMissing, RowsInvalid, plural, quoted
from vmrag_link.git import plumbing
from vmrag_link.merging.threeway import convert_to_rows
from vmrag_link.models import At, ChangeKind, Difference, DocumentTable, KbBranch, Record, WorkingSet
from vmrag_link.ops import rm
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import leaving_out, writing
from vmrag_link.workspace.documents.writing import Planned, WriteResult
from vmrag_link.workspace.history import document_names, revparse
from vmrag_link.workspace.history.document_names import EVERYTHING, DocumentName, command_of
from vmrag_link.workspace.merge import merge_state

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
) -> WriteResult[Restoration]:
    """Take what these names mean as `source` has it, by default as it was committed here.

    Names are those of `document_names.select`, of what is here or there; none mean everything. What
    is here and not there is removed. Raises `ConfirmationMissing` unless `confirmed` where
    everything is taken and texts were never committed; `MergeConflict` where everything is taken
    while a merge is open; and as `revparse.resolve_rev`, `select` and `writing.write`. Then nothing
    has changed. Raises `SourceReadOnly` for a name that means a file.
    """
    with leaving_out.explain_source_files(ws, names, within, lambda path: _of_file(ws, path)):
        return _restored(ws, names, source=source, within=within, confirmed=confirmed)


def _restored(
    ws: Workspace, names: Sequence[str], *, source: str | None, within: str | None, confirmed: bool
) -> WriteResult[Restoration]:
    everything = within is None and (not names or EVERYTHING in names)
    _give_up_invalid_rows(ws, None if everything else names, confirmed=confirmed)
    target = writing.require_writable(ws, index=False)
    if everything:
        merge_state.refuse_if_open(ws)
    revision = target.revision if source is None else revparse.resolve_rev(ws, source)

    def plan(at: At) -> Planned[Restoration]:
        if everything:
            found = ws.engine.diff(at, revision)
        else:
            wanted = document_names.select_named(ws.engine, [at, revision], names or [EVERYTHING], within=within)
            found = _part(ws, at, revision, wanted)
        keys = {document.key for document in found.documents}
        lost = rm.find_unsaved(ws, at, keys.__contains__, {collection.key for collection in found.collections})
        if everything and not lost.is_empty and not confirmed:
            raise _confirmation_missing(lost, command_of("restore", names, source=source))
        kept = rm.keep_unsaved(ws, at, lost, before="they were restored")
        report = Restoration(
            revision,
            tuple(RestoredDocument(*document.key, document.kind) for document in found.documents),
            tuple(RestoredCollection(collection.key, collection.kind) for collection in found.collections),
            tuple(DocumentName(*document.key) for document in lost.documents),
            kept,
        )
        return Planned(None if found.is_empty else convert_to_rows(found), report)

    result = writing.write_rows(ws, plan, "restore documents", follow=False)
    _discard_equal_rows(ws)
    return result


def _discard_equal_rows(ws: Workspace) -> None:
    """Make the KB branch clean if its uncommitted rows equal the committed ones.

    Another program may have written NULL in place of an empty text.
    """
    branch = ws.find_kb_branch()
    if branch and branch.dirty and ws.engine.diff(branch.head, WorkingSet(branch.name)).is_empty:
        ws.engine.discard_saved_rows(branch.name, kept=branch.head, expected=branch.head)


def _of_file(ws: Workspace, path: str) -> str:
    """How a file comes back."""
    here = plumbing.read_head(ws.places).commit
    committed = plumbing.read_blob(ws.places, f"{here}:{path}") if here else None
    if committed is None:
        return ""
    file = ws.places.top / path
    if file.is_file() and not file.is_symlink() and file.read_bytes() == committed:
        name = quoted(path)
        return f"git log {name}   (it is as it was committed; as of another commit: git restore --source COMMIT {name})"
    if not file.exists():
        return f"git restore --staged --worktree {quoted(path)}   (the file is the document)"
    return f"git stash push -- {quoted(path)}   (the file is the document; git stash pop brings the edit back)"


def _give_up_invalid_rows(ws: Workspace, names: Sequence[str] | None, *, confirmed: bool) -> None:
    """Replace, as the pin's revision has them, the rows of these names that another program wrote
    and that nothing can read; None: all of them.

    Uncommitted ones are replaced where they stand. Where that program committed them, a commit on
    the branch replaces them, which `vmrag pin` takes. Raises `ConfirmationMissing`: no revision
    holds what is given up in a form that could be brought back.
    """
    target = ws.resolve_target()
    branch = target.kb_branch
    if branch is None or target.state != "pinned" or not (branch.dirty or branch.head != target.revision):
        return
    while invalid := _invalid_row(ws, branch, target.revision):
        key, table = invalid.details["key"], str(invalid.details["table"])
        if names is not None and not {str(invalid.details["row"]), key[-1]}.intersection(names):
            return  # whatever reads it says so
        if not confirmed:
            raise ConfirmationMissing(
                f"{invalid.message} What it holds cannot be brought back once it is given up.",
                hint=f"vmrag restore {quoted(str(invalid.details['row']))} OPTION, where OPTION is --yes",
                **invalid.details,
            )
        rows = _as_pinned(ws, target.revision, table, key)
        writing.refuse_git_operation(ws)
        with ws.engine.write_lock("restore a row"):
            if branch.dirty:
                ws.engine.write(branch.name, rows, expected=branch.head)
            else:
                message = f"Restore {'/'.join(key)} of {table}"
                who = plumbing.read_identity(ws.places)
                made = ws.engine.commit_onto(branch.head, [rows], message=message, author=who, date=clock.now())
                ws.engine.move_branch(branch.name, made, expected=branch.head)
        branch = ws.engine.find_branch(branch.name) or branch


def _invalid_row(ws: Workspace, branch: KbBranch, pinned: str) -> RowsInvalid | None:
    """The first row that a KB branch has changed since the pinned revision, and that is none."""
    try:
        ws.engine.require_valid_rows(WorkingSet(branch.name) if branch.dirty else branch.head, since=pinned)
    except RowsInvalid as error:
        if "key" not in error.details:
            raise
        return error
    return None


def _as_pinned(ws: Workspace, revision: str, table: str, key: Sequence[str]) -> Write:
    """What puts a row there as a revision has it, or takes it away."""
    if table == COLLECTIONS.name:
        collections = [
            collection for collection in ws.engine.list_collections(revision) if [collection.name] == list(key)
        ]
        return Write(put_collections=collections, remove_collections=[] if collections else key)
    if table == PROJECTS.name:
        projects = list(ws.engine.read_projects(revision, ids=key))
        return Write(put_projects=projects, remove_projects=[] if projects else key)
    stored: DocumentTable = table  # type: ignore[assignment]  # one of the tables of documents
    documents = list(ws.engine.read_documents(revision, ids=key[-1:], table=stored))
    found = [document for document in documents if table != "documents" or document.collection == key[0]]
    return Write(put_documents=found, remove_documents=[] if found else [(key[0], key[-1])])


def _part(ws: Workspace, at: At, revision: str, wanted: document_names.NamedSelection) -> Difference:
    """What differs of what is wanted; a document that comes back brings its collection."""
    found = ws.engine.diff_headers(at, revision)
    names = {document.key for document in wanted.documents}
    documents = [document for document in found.documents if document.key in names]
    homes = {document.key[0] for document in documents if document.after}
    collections = tuple(
        collection
        for collection in found.collections
        if collection.key in wanted.collections or (not collection.before and collection.key in homes)
    )
    return Difference(collections, rm.with_texts(ws, revision, documents))


def _confirmation_missing(lost: Difference, command: str) -> ConfirmationMissing:
    names = [str(DocumentName(*document.key)) for document in lost.documents]
    what = f"{plural(len(names), 'document')}: {', '.join(names[:_NAMED])}" if names else "settings of collections"
    return ConfirmationMissing(
        f"This would give up what was never committed of {what}{', …' if len(names) > _NAMED else ''}.",
        hint=f"{command} --yes (they can be brought back)",
        uncommitted_count=len(names),
    )
