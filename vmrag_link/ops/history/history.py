"""`vmrag log`, `vmrag diff`, `vmrag fingerprint`: what the knowledge base was, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from vmrag_link import worddiff
from vmrag_link.errors import KnowledgeMoved
from vmrag_link.git import history as git_history
from vmrag_link.models import (
    At,
    ChangeCounts,
    ChangeKind,
    Collection,
    Document,
    DocumentChange,
    Record,
    Working,
    canonical_json,
)
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.follow.recover import move_and_warn, sync_and_warn
from vmrag_link.ops.history.revparse import WORKING, resolve_at, resolve_rev
from vmrag_link.ops.pins import history_pins
from vmrag_link.retrieval.fingerprint import fingerprint as hashed
from vmrag_link.worddiff import Piece
from vmrag_link.workspace import Workspace

Detail = Literal["names", "stat", "text"]

DOCUMENT_FIELDS = ("title", "metadata", "source", "file_type")
COLLECTION_FIELDS = tuple(name for name in Collection.__struct_fields__ if name != "name")


class GitCommit(Record, frozen=True):
    commit: str
    subject: str


class RevisionRow(Record, frozen=True):
    """`changes` against the first parent; `commits` of git that introduced a pin on it, newest first."""

    revision: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    changes: ChangeCounts
    commits: tuple[GitCommit, ...]


class LogReport(Record, frozen=True):
    revisions: list[RevisionRow]


class Words(Record, frozen=True):
    """Numbers of words, separated by blanks."""

    inserted: int = 0
    deleted: int = 0


class FieldDiff(Record, frozen=True):
    """Texts; what is no text in the knowledge base (numbers, chunking) as JSON."""

    name: str
    before: str
    after: str


class DocumentDiff(Record, frozen=True):
    """`words` None: not counted. `fields` and `text` (long equal stretches cut out) of modified documents, if asked for."""

    kind: ChangeKind
    collection: str
    doc_id: str
    title: str
    words: Words | None = None
    fields: tuple[FieldDiff, ...] = ()
    text: tuple[Piece, ...] = ()


class CollectionDiff(Record, frozen=True):
    """A collection's settings; `fields` of modified ones."""

    kind: ChangeKind
    name: str
    fields: tuple[FieldDiff, ...]


class DiffReport(Record, frozen=True):
    """`old` and `new` are revisions, or `WORKING`; `changes` and `words` are sums over the documents."""

    old: str
    new: str
    changes: ChangeCounts
    words: Words | None
    documents: list[DocumentDiff]
    collections: list[CollectionDiff]


class FingerprintReport(Record, frozen=True):
    fingerprint: str
    revision: str
    settings: str
    dirty: bool


# -- log ----------------------------------------------------------------------------------------------------------------


def log(ws: Workspace, *, ref: str | None, limit: int) -> LogReport:
    """The revisions behind the workspace's, or behind the `place` that `ref` names, newest first."""
    if ref is None or ref == WORKING:
        move_and_warn(ws)
        start = ws.revision_here()
    else:
        start = resolve_rev(ws, ref)
    found = list(ws.engine.log(start, limit=limit))
    commits = _pinning(ws, {each.revision for each in found})
    rows = []
    for each in found:
        changes = ws.engine.count_changes(each.parents[0], each.revision) if each.parents else ChangeCounts()
        pinned = tuple(commits.get(each.revision, ()))
        rows.append(RevisionRow(each.revision, each.parents, each.message, each.author, each.date, changes, pinned))
    return LogReport(rows)


def _pinning(ws: Workspace, revisions: set[str]) -> dict[str, list[GitCommit]]:
    """The commits that a ref reaches and that introduced a pin on one of these revisions, newest first."""
    pinned: dict[str, str] = {}
    for pin, introducing in history_pins.read(ws.places, reflogs=False):
        if pin.dolt_commit in revisions:
            pinned.update(dict.fromkeys(introducing, pin.dolt_commit))
    rows: dict[str, list[GitCommit]] = {}
    for commit, subject in git_history.subjects(ws.places, pinned).items():
        rows.setdefault(pinned[commit], []).append(GitCommit(commit, subject))
    return rows


# -- diff ---------------------------------------------------------------------------------------------------------------


def diff(
    ws: Workspace, old: str | None = None, new: str | None = None, *, only: str | None = None, detail: Detail = "text"
) -> DiffReport:
    """What turns `old` into `new`, as `place` names them; by default the bound revision and the uncommitted documents.

    `only`: `COLLECTION` or `COLLECTION/DOC`. `detail`: names alone; with numbers of words; with what changed in the texts.
    """
    move_and_warn(ws)
    before = ws.revision_here() if old is None else resolve_at(ws, old)
    after = resolve_at(ws, WORKING if new is None else new)
    found = ws.engine.diff(before, after)
    collection, _, doc_id = (only or "").partition("/")
    documents = [
        _document_diff(ws, before, change, detail)
        for change in found.documents
        if collection in ("", change.key[0]) and doc_id in ("", change.key[1])
    ]
    collections = [
        CollectionDiff(each.kind, each.key, _fields(each.before, each.after, COLLECTION_FIELDS))
        for each in found.collections
        if collection in ("", each.key) and not doc_id
    ]
    kinds = [each.kind for each in documents]
    changes = ChangeCounts(kinds.count("added"), kinds.count("modified"), kinds.count("removed"))
    words = None if detail == "names" else _sum(each.words for each in documents if each.words)
    return DiffReport(_shown(before), _shown(after), changes, words, documents, collections)


def _sum(counts: Iterable[Words]) -> Words:
    counted = list(counts)
    return Words(sum(each.inserted for each in counted), sum(each.deleted for each in counted))


def _document_diff(ws: Workspace, at: At, change: DocumentChange, detail: Detail) -> DocumentDiff:
    row = change.after or change.before
    assert row is not None  # noqa: S101  a change has at least one side
    named = DocumentDiff(change.kind, row.collection, row.doc_id, row.title)
    if detail == "names":
        return named
    same_text = change.before and change.after and change.before.content_hash == change.after.content_hash
    # The new documents came with the difference; an old one is read only for what is asked.
    before = _old(ws, at, change.before.key) if change.before and not (same_text and detail == "stat") else None
    old, new = before.content if before else "", change.after.content if change.after else ""
    pieces = () if same_text else worddiff.difference(old, new)
    words = Words(worddiff.words(pieces, "insert"), worddiff.words(pieces, "delete"))
    counted = msgspec.structs.replace(named, words=words)
    if detail == "stat" or change.kind != "modified":
        return counted
    fields = _fields(before, change.after, DOCUMENT_FIELDS)
    return msgspec.structs.replace(counted, fields=fields, text=worddiff.cut(pieces))


def _old(ws: Workspace, at: At, key: tuple[str, str]) -> Document:
    found = ws.engine.document(at, *key)
    if found is None:
        raise KnowledgeMoved(
            f"{'/'.join(key)} was removed while it was compared.", hint="Run the command again.", doc_id=key[1]
        )
    return found


def _fields(before: Record | None, after: Record | None, names: Sequence[str]) -> tuple[FieldDiff, ...]:
    if before is None or after is None:
        return ()
    found = (FieldDiff(name, _text(getattr(before, name)), _text(getattr(after, name))) for name in names)
    return tuple(each for each in found if each.before != each.after)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def _shown(at: At) -> str:
    return at if isinstance(at, str) else WORKING


# -- fingerprint --------------------------------------------------------------------------------------------------------


def fingerprint(ws: Workspace, *, ref: str | None = None) -> FingerprintReport:
    """Of the workspace, uncommitted documents included, or of the revision that a git ref pins."""
    if ref is None:
        sync_and_warn(ws)
    at: At = ws.at() if ref is None else lazy_fetch.pinned_at(ws, ref)
    value = hashed(ws.shelf.settings, ws.engine.collections(at), ws.engine.headers(at))
    revision = at if isinstance(at, str) else ws.revision()
    return FingerprintReport(value, revision, ws.shelf.settings, dirty=isinstance(at, Working))
