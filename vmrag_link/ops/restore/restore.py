"""`vmrag restore`: replace documents by those of a revision, like `git restore` does with files.

Present contents that no revision contains stay reachable.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link import clock, hints
from vmrag_link.engines.base import Write
from vmrag_link.engines.tables import COLLECTIONS, PROJECTS
from vmrag_link.errors import ConfirmationMissing, RowsInvalid, plural, quoted
from vmrag_link.git import identity, plumbing
from vmrag_link.merging.threeway import convert_to_rows
from vmrag_link.models import At, ChangeKind, Difference, DocumentTable, KbBranch, Record, WorkingSet
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import leaving_out, writing
from vmrag_link.workspace.documents.unsaved import find_unsaved, keep_unsaved, with_texts
from vmrag_link.workspace.documents.writing import Planned, WriteResult
from vmrag_link.workspace.history import document_names, revparse
from vmrag_link.workspace.history.document_names import EVERYTHING, DocumentName, command_of
from vmrag_link.workspace.merge import merge_state

_MAX_NAMED = 3
"""Maximum number of documents that the refusal names."""


class RestoredDocument(Record, frozen=True):
    """A document that was added, modified or removed."""

    collection: str
    doc_id: str
    kind: ChangeKind


class RestoredCollection(Record, frozen=True):
    """A collection whose settings were added, modified or removed."""

    name: str
    kind: ChangeKind


class Restoration(Record, frozen=True):
    """The documents and collections that now equal those of `source` and did not before."""

    source: str
    documents: tuple[RestoredDocument, ...]
    collections: tuple[RestoredCollection, ...]
    unsaved: tuple[DocumentName, ...]
    """Replaced documents that no revision contained."""
    kept: str
    """The revision that keeps the `unsaved` documents; empty if there are none."""


def restore(
    ws: Workspace,
    names: Sequence[str],
    *,
    source: str | None = None,
    within: str | None = None,
    confirmed: bool = False,
) -> WriteResult[Restoration]:
    """Replace the named documents and collections by those of `source`, by default the committed
    ones.

    The names are those of `document_names.select_named`, in the present state or in `source`; no
    name means everything. Documents that only the present state has are removed.

    Raises `ConfirmationMissing` unless `confirmed` if everything is replaced and texts were never
    committed, `MergeConflict` if everything is replaced while a merge is open, `RevisionMissing`
    and `RevisionAmbiguous` for the source, `DocumentMissing` for a name, `SourceReadOnly` for the
    name of a file, and the errors of `writing.write_rows`. Nothing has changed then.
    """
    with leaving_out.explain_source_files(ws, names, within, lambda path: _suggest_git_restore(ws, path)):
        everything = within is None and (not names or EVERYTHING in names)
        _replace_invalid_rows(ws, None if everything else names, confirmed=confirmed)
        target = writing.require_writable(ws, index=False)
        if everything:
            merge_state.refuse_if_open(ws)
        revision = target.revision if source is None else revparse.resolve_rev(ws, source)

        def plan_restore(at: At) -> Planned[Restoration]:
            difference = ws.engine.diff(at, revision) if everything else _diff_named(ws, at, revision, names, within)
            documents = {document.key for document in difference.documents}
            collections = {collection.key for collection in difference.collections}
            unsaved = find_unsaved(ws, at, documents.__contains__, collections)
            if everything and not unsaved.is_empty and not confirmed:
                raise _confirmation_error(unsaved, command_of("restore", names, source=source))
            kept = keep_unsaved(ws, at, unsaved, before="they were restored")
            rows = None if difference.is_empty else convert_to_rows(difference)
            return Planned(rows, _build_report(revision, difference, unsaved, kept))

        result = writing.write_rows(ws, plan_restore, "restore documents", follow=False)
        _discard_equal_rows(ws)
        return result


def _build_report(revision: str, difference: Difference, unsaved: Difference, kept: str) -> Restoration:
    return Restoration(
        source=revision,
        documents=tuple(RestoredDocument(*document.key, document.kind) for document in difference.documents),
        collections=tuple(RestoredCollection(collection.key, collection.kind) for collection in difference.collections),
        unsaved=tuple(DocumentName(*document.key) for document in unsaved.documents),
        kept=kept,
    )


def _diff_named(ws: Workspace, at: At, revision: str, names: Sequence[str], within: str | None) -> Difference:
    """Return the differences of the named documents and collections.

    A restored document also restores its collection.
    """
    selection = document_names.select_named(ws.engine, [at, revision], names or [EVERYTHING], within=within)
    difference = ws.engine.diff_headers(at, revision)
    keys = {document.key for document in selection.documents}
    documents = [document for document in difference.documents if document.key in keys]
    needed = {document.key[0] for document in documents if document.after}
    collections = tuple(
        collection
        for collection in difference.collections
        if collection.key in selection.collections or (not collection.before and collection.key in needed)
    )
    return Difference(collections, with_texts(ws, revision, documents))


def _discard_equal_rows(ws: Workspace) -> None:
    """Make the KB branch clean if its uncommitted rows equal the committed ones.

    Another program may have written NULL in place of an empty text.
    """
    branch = ws.find_kb_branch()
    if branch and branch.dirty and ws.engine.diff(branch.head, WorkingSet(branch.name)).is_empty:
        ws.engine.discard_saved_rows(branch.name, kept=branch.head, expected=branch.head)


def _suggest_git_restore(ws: Workspace, path: str) -> str:
    """Return the git command that restores a file; empty if HEAD does not have it."""
    head = plumbing.read_head(ws.places).commit
    committed = plumbing.read_blob(ws.places, f"{head}:{path}") if head else None
    if committed is None:
        return ""
    file = ws.places.top / path
    if file.is_file() and not file.is_symlink() and file.read_bytes() == committed:
        name = quoted(path)
        return f"run 'git restore --source COMMIT {name}' to restore another one than HEAD's, or 'git log {name}' to choose it"
    if not file.exists():
        command = f"git restore --staged --worktree {quoted(path)}"
        return hints.suggest_command(command, "restore the file, which is the document")
    return hints.suggest_command(f"git stash push -- {quoted(path)}", "restore the file and stash its edit")


def _replace_invalid_rows(ws: Workspace, names: Sequence[str] | None, *, confirmed: bool) -> None:
    """Replace invalid rows of these names, which another program wrote, by those of the pinned
    revision.

    `names` None means all rows. Uncommitted rows are replaced directly. If that program committed
    the rows, a new commit on the branch replaces them, and `vmrag pin` pins it. Raises
    `ConfirmationMissing`, because no revision keeps an invalid row in a form that can be restored.
    """
    target = ws.resolve_target()
    branch = target.kb_branch
    if branch is None or target.state != "pinned" or not (branch.dirty or branch.head != target.revision):
        return
    while invalid := _find_invalid_row(ws, branch, target.revision):
        key = invalid.details["key"]
        table = str(invalid.details["table"])
        row_name = str(invalid.details["row"])
        if names is not None and row_name not in names and key[-1] not in names:
            return  # a command that reads the row reports it
        if not confirmed:
            raise ConfirmationMissing(
                f"{invalid.message} You cannot restore the row after it is replaced.",
                hint=f"run 'vmrag restore {quoted(row_name)} OPTION' with --yes as OPTION",
                **invalid.details,
            )
        rows = _plan_row(ws, target.revision, table, key)
        writing.refuse_git_operation(ws)
        _write_row(ws, branch, rows, f"Restore {'/'.join(key)} of {table}")
        branch = ws.engine.find_branch(branch.name) or branch


def _write_row(ws: Workspace, branch: KbBranch, rows: Write, message: str) -> None:
    """Write a row to the uncommitted documents of a branch or, without any, in a new commit."""
    with ws.engine.write_lock("restore a row"):
        if branch.dirty:
            ws.engine.write(branch.name, rows, expected=branch.head)
        else:
            author = identity.read_identity(ws.places)
            revision = ws.engine.commit_onto(branch.head, [rows], message=message, author=author, date=clock.now())
            ws.engine.move_branch(branch.name, revision, expected=branch.head)


def _find_invalid_row(ws: Workspace, branch: KbBranch, pinned: str) -> RowsInvalid | None:
    """Return the error of the first invalid row that a KB branch has changed since the pinned
    revision.
    """
    try:
        ws.engine.require_valid_rows(WorkingSet(branch.name) if branch.dirty else branch.head, since=pinned)
    except RowsInvalid as error:
        if "key" not in error.details:
            raise
        return error
    return None


def _plan_row(ws: Workspace, revision: str, table: str, key: Sequence[str]) -> Write:
    """Return the write that makes a row equal to that of a revision, or removes it."""
    if table == COLLECTIONS.name:
        collections = [row for row in ws.engine.list_collections(revision) if row.name == key[0]]
        return Write(put_collections=collections, remove_collections=[] if collections else key)
    if table == PROJECTS.name:
        projects = list(ws.engine.read_projects(revision, ids=key))
        return Write(put_projects=projects, remove_projects=[] if projects else key)
    stored: DocumentTable = table  # type: ignore[assignment]  # one of the tables of documents
    documents = list(ws.engine.read_documents(revision, ids=key[-1:], table=stored))
    matching = [document for document in documents if table != "documents" or document.collection == key[0]]
    return Write(put_documents=matching, remove_documents=[] if matching else [(key[0], key[-1])])


def _confirmation_error(unsaved: Difference, command: str) -> ConfirmationMissing:
    names = [str(DocumentName(*document.key)) for document in unsaved.documents]
    contents = "settings of collections"
    if names:
        contents = f"{plural(len(names), 'document')}: {', '.join(names[:_MAX_NAMED])}"
    return ConfirmationMissing(
        f"this would discard uncommitted changes of {contents}{', …' if len(names) > _MAX_NAMED else ''}.",
        hint=f"run '{command} --yes' to discard them, and to keep a copy in a revision",
        uncommitted_count=len(names),
    )
