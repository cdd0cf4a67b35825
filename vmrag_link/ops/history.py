"""`vmrag log`, `vmrag diff`, `vmrag fingerprint`: what the knowledge base was, and what differs."""

from __future__ import annotations

from vmrag_link.errors import GitReferenceMissing, UsageInvalid
from vmrag_link.models import At, ChangeKind, Changes, Record, Working
from vmrag_link.ops.recover import reconciled_aloud
from vmrag_link.retrieval.fingerprint import fingerprint as hashed
from vmrag_link.workspace import Workspace


class RevisionRow(Record, frozen=True):
    """`changes` against the first parent."""

    revision: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    changes: Changes


class LogReport(Record, frozen=True):
    revisions: list[RevisionRow]


class DocumentDiff(Record, frozen=True):
    kind: ChangeKind
    collection: str
    doc_id: str
    title: str


class DiffReport(Record, frozen=True):
    """`old` and `new` are revisions, or `WORKING`; `collections` are those whose settings differ."""

    old: str
    new: str
    changes: Changes
    documents: list[DocumentDiff]
    collections: list[tuple[ChangeKind, str]]


class FingerprintReport(Record, frozen=True):
    fingerprint: str
    revision: str
    settings: str
    dirty: bool


def log(ws: Workspace, *, ref: str | None, limit: int) -> LogReport:
    """The revisions behind the workspace's (or the one that a git ref pins), newest first."""
    if ref is None:
        reconciled_aloud(ws)
    start = ws.revision_here() if ref is None else ws.pinned_at(ref)
    rows = []
    for each in ws.engine.log(start, limit=limit):
        changes = ws.engine.count_changes(each.parents[0], each.revision) if each.parents else Changes()
        rows.append(RevisionRow(each.revision, each.parents, each.message, each.author, each.date, changes))
    return LogReport(rows)


def diff(ws: Workspace, old: str | None, new: str | None) -> DiffReport:
    """`old` and `new` are git refs, revisions or `WORKING`; by default the pinned revision and the uncommitted documents."""
    reconciled_aloud(ws)
    before, after = _place(ws, ws.revision() if old is None else old), _place(ws, "WORKING" if new is None else new)
    found = ws.engine.diff(before, after)
    documents = []
    for change in found.documents:
        row = change.after or change.before
        assert row is not None  # noqa: S101  a change has at least one side
        documents.append(DocumentDiff(change.kind, row.collection, row.doc_id, row.title))
    collections = []
    for each in found.collections:
        collection = each.after or each.before
        assert collection is not None  # noqa: S101  as above
        collections.append((each.kind, collection.name))
    return DiffReport(_shown(before), _shown(after), found.counts(), documents, collections)


def fingerprint(ws: Workspace, *, ref: str | None = None) -> FingerprintReport:
    """Of the workspace, uncommitted documents included, or of the revision that a git ref pins."""
    if ref is None:
        reconciled_aloud(ws)
    at: At = ws.at() if ref is None else ws.pinned_at(ref)
    value = hashed(ws.shelf.settings, ws.engine.collections(at), ws.engine.headers(at))
    revision = at if isinstance(at, str) else ws.revision()
    return FingerprintReport(value, revision, ws.shelf.settings, dirty=isinstance(at, Working))


def _place(ws: Workspace, name: str) -> At:
    if name == "WORKING":
        return ws.at()
    if ws.engine.has_revision(name):
        return name
    try:
        return ws.pinned_at(name)
    except GitReferenceMissing as error:
        raise UsageInvalid(
            f"{name!r} is neither a git ref, nor a revision of the knowledge base, nor WORKING.",
            hint="git branch -a, vmrag log",
            reference=name,
        ) from error


def _shown(at: At) -> str:
    return at if isinstance(at, str) else "WORKING"
