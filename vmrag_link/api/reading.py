"""Read documents for the API: call an operation, and convert its report to results."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.api.results import (
    AnswerPosition,
    ChangedDocument,
    DiffResults,
    DocumentEntry,
    DocumentText,
    DocumentVersion,
    FileCount,
    LineMatches,
    MatchingLine,
)
from vmrag_link.errors import CollectionMissing, DocumentMissing, UsageInvalid
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.provenance import KbBlock

_MAX_VERSIONS = 10_000
_LIST_HINT = "run 'vmrag list' to list the names"


def position_of(kb: KbBlock) -> AnswerPosition:
    commit = kb.sources.commit if kb.sources and kb.sources.commit else kb.git_head
    return AnswerPosition(commit or "", kb.commit, kb.branch or "", kb.dirty, kb.in_sync)


def get(ws: Workspace, full: str, name: str) -> DocumentText:
    """Return the document `[REF:]NAME`. `full`: the name with the ref, as commands take it.

    Raises `DocumentMissing`, also for an unknown folder.
    """
    from vmrag_link.ops import show
    from vmrag_link.ops.show import ShowReport
    from vmrag_link.ops.stores import stores

    store = stores.find_store(ws, full.partition("/")[0])  # with a ref the knowledge base: only it has versions
    try:
        shown = show.show_stored(store, full) if store is not ws else show.show_name(ws, full)
    except CollectionMissing:
        raise DocumentMissing(f"no such file or document: {name!r}.", hint=_LIST_HINT, doc_id=name) from None
    if not isinstance(shown, ShowReport):
        raise DocumentMissing(f"{name!r} is the name of a revision, not of a document.", hint=_LIST_HINT, doc_id=name)
    return DocumentText(
        collection=shown.collection,
        doc_id=shown.doc_id,
        title=shown.title,
        text=shown.content,
        content_hash=shown.content_hash,
        metadata=shown.metadata,
        version=shown.revision,
    )


def grep(
    ws: Workspace,
    pattern: str,
    *,
    fixed: bool,
    ignore_case: bool,
    path: str,
    collections: Sequence[str],
    context: int,
    limit: int | None,
    ref: str | None,
) -> LineMatches:
    from vmrag_link.workspace.documents import grep as operation

    if context < 0 or (limit is not None and limit < 0):
        raise UsageInvalid(
            "context and limit must be 0 or more lines.", hint="pass numbers, such as 'context=2, limit=50'"
        )
    parsed = operation.Pattern(pattern, fixed=fixed, ignore_case=ignore_case, linear=True)
    report = operation.grep_texts(ws, parsed, context=context, limit=limit, collections=collections, ref=ref, path=path)
    lines = [
        MatchingLine(name=document.name, line=line.number, text=line.text, matched=line.matched)
        for document in report.documents
        for line in document.lines
    ]
    notes = (*report.notes, *report.warnings)
    return LineMatches(lines=tuple(lines), count=report.count, position=position_of(report.kb), notes=notes)


def list_documents(ws: Workspace, collection: str | None) -> tuple[DocumentEntry, ...]:
    from vmrag_link.ops import listing
    from vmrag_link.ops.stores import stores

    store = stores.find_store(ws, collection) if collection else ws
    return tuple(
        DocumentEntry(
            name=row.name,
            collection=row.collection,
            doc_id=row.doc_id,
            title=row.title,
            content_hash=row.content_hash,
            metadata=row.metadata,
            chunks=row.chunks,
            uncommitted=row.uncommitted,
        )
        for row in listing.list_documents(store, collection).documents
    )


def diff(ws: Workspace, old: str | None, new: str | None, only: Sequence[str], *, code: bool) -> DiffResults:
    from vmrag_link import worddiff
    from vmrag_link.workspace.history import compare
    from vmrag_link.workspace.history.word_diff import Words

    if new is not None and old is None:
        raise UsageInvalid(
            "diff needs a revision to compare with.", hint='pass names, such as \'kb.diff("main", "HEAD")\''
        )
    places = [place for place in (old, new) if place is not None]
    difference = compare.compare_places(ws, places, only=only, detail="text", code=code)
    report = difference.form_report()
    changes = []
    for row in report.documents:
        words = row.words or Words()
        change = ChangedDocument(
            kind=row.kind,
            name=difference.names[f"{row.collection}/{row.doc_id}"],
            collection=row.collection,
            doc_id=row.doc_id,
            title=row.title,
            old_name=difference.names[row.old_name] if row.old_name else "",
            inserted=words.inserted,
            deleted=words.deleted,
            text=worddiff.render_pieces(row.text),
        )
        changes.append(change)
    files = tuple(
        FileCount(collection=row.collection, added=row.added, modified=row.modified, removed=row.removed)
        for row in report.files
    )
    return DiffResults(
        old=report.old,
        new=report.new,
        old_commit=report.old_commit,
        new_commit=report.new_commit,
        changes=tuple(changes),
        files=files,
    )


def history(ws: Workspace, name: str, limit: int, ref: str | None) -> tuple[DocumentVersion, ...]:
    from vmrag_link.workspace.history import document_history as operation
    from vmrag_link.workspace.history import file_history, named_places

    if not 0 < limit <= _MAX_VERSIONS:
        raise UsageInvalid(f"limit must be 1 to {_MAX_VERSIONS:,}.", hint="pass a number, such as 'limit=20'")
    names = [ref, name] if ref is not None else [name]
    file = file_history.file_history(ws, names, limit=limit)
    if file:
        return tuple(
            DocumentVersion(
                version=row.commit,
                kind=row.kind,
                name=row.name,
                author=row.author,
                date=row.date,
                message=row.message,
                commits=(row.commit,),
            )
            for row in file.list_reports(None)
        )
    with named_places.explain_missing_file(ws, name):
        revisions = operation.list_history(ws, names, limit=limit)
    versions = []
    for step in revisions.steps:
        change = step.document
        header = (change.after or change.before) if change else None
        if change is None or header is None:
            raise DocumentMissing(f"{name!r} is not a document.", hint=_LIST_HINT, doc_id=name)
        version = DocumentVersion(
            version=step.info.revision,
            kind=change.kind,
            name="/".join(header.key),
            author=step.info.author,
            date=step.info.date,
            message=step.info.message,
            commits=tuple(commit.commit for commit in step.info.commits),
        )
        versions.append(version)
    return tuple(versions)
