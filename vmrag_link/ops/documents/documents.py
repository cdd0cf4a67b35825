"""Documents in and out: import, add, rm, list, show."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from vmrag_link import clock
from vmrag_link.documents import importing
from vmrag_link.documents.importing import ImportedDocument, Skipped
from vmrag_link.engines.base import Write
from vmrag_link.errors import (
    Busy,
    CollectionMissing,
    ContentRefused,
    DocumentMissing,
    FileSystemError,
    GitReferenceMissing,
    IndexFailed,
    UsageInvalid,
    quoted,
)
from vmrag_link.index.contents import chunk_counts
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.models import (
    At,
    ChangeCounts,
    Chunking,
    Collection,
    Document,
    DocumentHeader,
    Record,
    Working,
    canonical_json,
    content_hash,
)
from vmrag_link.ops.documents import names, writing
from vmrag_link.ops.documents.overwriting import Overwritten, comes_from_another_file, refused
from vmrag_link.ops.follow.recover import move_and_warn
from vmrag_link.ops.history import revparse
from vmrag_link.suggest import nearest, no_collection
from vmrag_link.sync import apply
from vmrag_link.workspace import Workspace


class ImportReport(Record, frozen=True):
    """Numbers of documents; `skipped` files with the reasons. `pending`: why the index did not follow yet."""

    collection: str
    created: bool
    changes: ChangeCounts
    unchanged: int
    skipped: tuple[Skipped, ...]
    branch: str | None
    pending: str = ""


class RemoveReport(Record, frozen=True):
    removed: tuple[str, ...]
    branch: str
    pending: str = ""


class DocumentRow(Record, frozen=True):
    """`chunks` is None where the index does not hold the document (yet), and where no index is there that stands at what is listed."""

    collection: str
    doc_id: str
    title: str
    content_hash: str
    metadata: dict[str, Any]
    chunks: int | None
    uncommitted: Literal["added", "modified", "removed"] | None


class ListReport(Record, frozen=True):
    documents: list[DocumentRow]


class ShowReport(Record, frozen=True):
    collection: str
    doc_id: str
    title: str
    content: str
    content_hash: str
    metadata: dict[str, Any]
    revision: str


# -- in -----------------------------------------------------------------------------------------------------------------


def import_files(
    ws: Workspace, sources: Sequence[Path], collection: str, *, prune: bool = False, replace: bool = False
) -> ImportReport:
    """Store files as documents, one each; those whose text, title and metadata are stored already are left alone.

    `prune` removes the documents of the collection whose file is gone. Raises `DocumentExists` where a document came from another file,
    unless `replace` is given: then nothing is stored, as with two files of one id. Raises as `writing.write`, and `FileFailed`.
    """
    names.check(collection)
    writing.writable(ws)
    scan = importing.scan(sources)
    skipped = list(scan.skipped)
    read: list[ImportedDocument] = []
    with ws.progress.task("reading", len(scan.files)) as task:
        for file in scan.files:
            document = importing.read(file, work_tree=ws.places.top)
            skipped.append(document) if isinstance(document, Skipped) else read.append(document)
            task.advance()
    folders = [Path(os.path.abspath(source)) for source in sources if source.is_dir()] if prune else []  # noqa: PTH100
    return _store(ws, collection, read, tuple(skipped), prune=folders, replace=replace)


def add(
    ws: Workspace, collection: str, doc_id: str, text: str, *, title: str, metadata: dict[str, Any]
) -> ImportReport:
    """Store one document from text; one of that id is replaced."""
    names.check(collection)
    names.check_document(doc_id)
    document = ImportedDocument(
        doc_id=doc_id,
        title=title,
        content=text,
        content_hash=content_hash(text),
        file_type="text",
        metadata=canonical_json(metadata),
        source="",
        last_modified="",
    )
    return _store(ws, collection, [document], (), prune=[], replace=True)


class _Planned(Record, frozen=True):
    """What an import does to the documents of one place; `rows` None: nothing."""

    created: bool
    changes: ChangeCounts
    rows: Write | None


def _store(
    ws: Workspace,
    name: str,
    read: list[ImportedDocument],
    skipped: tuple[Skipped, ...],
    *,
    prune: Sequence[Path],
    replace: bool,
) -> ImportReport:
    planned: _Planned | None = None

    def plan(at: At) -> Write | None:
        nonlocal planned
        planned = _plan(ws, at, name, read, skipped, prune=prune, replace=replace)
        return planned.rows

    landed = writing.write(ws, plan, f"write to {name}")
    assert planned is not None  # noqa: S101  `write` has asked
    changes = planned.changes
    unchanged = len(read) - changes.added - changes.modified
    if landed is None:
        return ImportReport(name, created=False, changes=changes, unchanged=unchanged, skipped=skipped, branch=None)
    return ImportReport(name, planned.created, changes, unchanged, skipped, landed.branch, landed.pending)


def _plan(
    ws: Workspace,
    at: At,
    name: str,
    read: list[ImportedDocument],
    skipped: tuple[Skipped, ...],
    *,
    prune: Sequence[Path],
    replace: bool,
) -> _Planned:
    present = {each.doc_id: each for each in ws.engine.headers(at, collection=name)}
    new = _new_collection(ws, at, name)
    changed = [each for each in read if not _same(present.get(each.doc_id), each)]
    kept = {each.doc_id for each in read} | {each.name for each in skipped}
    gone = sorted(_gone(ws, at, name, kept, prune)) if prune else []
    changes = ChangeCounts(
        added=sum(each.doc_id not in present for each in changed),
        modified=sum(each.doc_id in present for each in changed),
        removed=len(gone),
    )
    if not changed and not gone and not (new and not skipped):
        return _Planned(created=False, changes=changes, rows=None)
    rows = Write(
        put_collections=[new] if new else [],
        put_documents=_rows(ws, at, name, changed, present.keys(), replace=replace),
        remove_documents=[(name, doc_id) for doc_id in gone],
    )
    return _Planned(new is not None, changes, rows)


def _gone(ws: Workspace, at: At, name: str, kept: set[str], folders: Sequence[Path]) -> Iterator[str]:
    """Documents that came from a file in one of these folders which is not there any more."""
    for document in ws.engine.documents(at, collection=name):
        if document.doc_id in kept or not document.source:
            continue  # imported just now; or it never had a file
        path = ws.places.top / document.source  # an absolute source stays as it is
        if any(path.is_relative_to(folder) for folder in folders) and not path.exists():
            yield document.doc_id


def _new_collection(ws: Workspace, at: At, name: str) -> Collection | None:
    if any(each.name == name for each in ws.engine.collections(at)):
        return None
    model = ws.model(ws.config.embedding.model)
    return Collection(
        name=name,
        embedding_function=model.name,
        embedding_model=model.fingerprint,
        embedding_dimensions=model.dimensions,
        chunking=Chunking(size=ws.config.chunking.size, overlap=ws.config.chunking.overlap),
        created_at=clock.now(),
    )


def _same(present: DocumentHeader | None, read: ImportedDocument) -> bool:
    if present is None:
        return False
    return (present.title, present.content_hash, present.metadata) == (read.title, read.content_hash, read.metadata)


def _rows(
    ws: Workspace, at: At, name: str, changed: list[ImportedDocument], present: Container[str], *, replace: bool
) -> list[Document]:
    """Raises `DocumentExists` for those that came from another file, unless `replace`."""
    now = clock.now()
    rows: list[Document] = []
    overwritten: list[Overwritten] = []
    for each in changed:
        before = ws.engine.document(at, name, each.doc_id) if each.doc_id in present else None
        if before and not replace and comes_from_another_file(ws.places.top, before.source, each.source):
            overwritten.append(Overwritten(each.doc_id, before.source, each.source))
        rows.append(_row(name, each, now, before))
    if overwritten:
        raise refused(name, overwritten)
    return rows


def _row(name: str, read: ImportedDocument, now: str, before: Document | None) -> Document:
    reserved = RESERVED_METADATA.intersection(msgspec.json.decode(read.metadata, type=dict[str, Any]))
    if reserved:
        raise ContentRefused(
            f"The metadata of {read.doc_id!r} uses {', '.join(sorted(reserved))}, which the index needs for itself.",
            hint="Rename the key in the document's front matter.",
            doc_id=read.doc_id,
        )
    return Document(
        collection=name,
        doc_id=read.doc_id,
        title=read.title,
        content=read.content,
        content_hash=read.content_hash,
        metadata=read.metadata,
        source=read.source,
        source_key=read.source,
        file_type=read.file_type,
        last_modified=read.last_modified,
        created_at=before.created_at if before else now,
        updated_at=now,
    )


# -- out ----------------------------------------------------------------------------------------------------------------


def remove(ws: Workspace, collection: str, doc_ids: Sequence[str]) -> RemoveReport:
    """The index follows when it is asked next. Raises `CollectionMissing`, `DocumentMissing` (then nothing is removed), and as
    `writing.write`.
    """

    def plan(at: At) -> Write:
        for doc_id in doc_ids:
            if ws.engine.document(at, collection, doc_id) is None:
                raise no_document(ws, at, collection, doc_id)
        return Write(remove_documents=[(collection, doc_id) for doc_id in dict.fromkeys(doc_ids)])

    landed = writing.write(ws, plan, f"remove from {collection}", follow=False)
    assert landed is not None  # noqa: S101  there is always something to remove
    return RemoveReport(tuple(doc_ids), landed.branch, landed.pending)


def list_documents(ws: Workspace, collection: str | None) -> ListReport:
    """Documents of the workspace, uncommitted ones included; removed ones that are not committed yet stand there, too."""
    move_and_warn(ws)
    at = ws.at()
    if collection is not None and all(each.name != collection for each in ws.engine.collections(at)):
        raise no_collection(collection, [each.name for each in ws.engine.collections(at)])
    changes = {}
    if isinstance(at, Working):
        changes = {change.key: change for change in ws.engine.diff(ws.revision(), at).documents}
    chunks = _chunk_counts(ws, at)
    headers = {each.key: each for each in ws.engine.headers(at, collection=collection)}
    for key, change in changes.items():
        if change.before and change.kind == "removed" and collection in (None, key[0]):
            headers[key] = change.before
    rows = [
        DocumentRow(
            collection=each.collection,
            doc_id=each.doc_id,
            title=each.title,
            content_hash=each.content_hash,
            metadata=msgspec.json.decode(each.metadata, type=dict[str, Any]),
            chunks=chunks.get(key),
            uncommitted=changes[key].kind if key in changes else None,
        )
        for key, each in sorted(headers.items())
    ]
    return ListReport(rows)


def _chunk_counts(ws: Workspace, at: At) -> dict[tuple[str, str], int]:
    """By document, if an index is there that holds what is read at a place; nobody waits for it."""
    revision = ws.revision()
    try:
        if isinstance(at, str):
            return {} if ws.shelf.problem(at) else chunk_counts(ws.shelf.path(at))
        copy = apply.working_copy(ws.parts._replace(lock_timeout=0), at.branch, revision)
        with copy.reading() as problem:
            return {} if problem else chunk_counts(copy.path)
    except (Busy, FileSystemError, IndexFailed):
        return {}


def show(ws: Workspace, name: str) -> ShowReport:
    """`[REF:]COLLECTION/DOC`; REF is anything that `revparse.resolve_at` takes. Raises `DocumentMissing` and kin."""
    at: At
    revision, collection, doc_id = _address(ws, name)
    if revision is None:
        move_and_warn(ws)
        revision, at = ws.revision(), ws.at()
    else:
        at = revision
    document = ws.engine.document(at, collection, doc_id)
    if document is None:
        raise no_document(ws, at, collection, doc_id)
    metadata = msgspec.json.decode(document.metadata, type=dict[str, Any])
    return ShowReport(collection, doc_id, document.title, document.content, document.content_hash, metadata, revision)


_ADDRESS = re.compile(r"(?:(?P<ref>.+?):(?=[A-Za-z0-9._-]+/))?(?P<collection>[^/]*)/(?P<doc>.+)", re.DOTALL)


def _address(ws: Workspace, name: str) -> tuple[str | None, str, str]:
    """The revision (None: the workspace), the collection and the document of `[REF:]COLLECTION/DOC`.

    REF ends at the first colon that what can be a collection's name and a slash follow. References and documents may both
    have slashes and colons, collections neither: only in `a/b:c/d` the colon may belong to the document. It is REF's if there is
    such a place; `WORKING:a/b:c/d` names the document in any case.
    """
    match = _ADDRESS.fullmatch(name)
    if match is None:
        raise UsageInvalid(f"{name!r} is not COLLECTION/DOCUMENT.", hint="vmrag list (shows what there is)")
    reference, collection, doc_id = match.groups()
    if reference is None or reference == revparse.WORKING:
        return None, collection, doc_id
    try:
        return revparse.resolve_rev(ws, reference), collection, doc_id
    except GitReferenceMissing:
        if "/" not in reference:
            raise
    collection, _, doc_id = name.partition("/")
    return None, collection, doc_id


def no_document(ws: Workspace, at: At, collection: str, doc_id: str) -> DocumentMissing | CollectionMissing:
    there = [each.name for each in ws.engine.collections(at)]
    if collection not in there:
        return no_collection(collection, there)
    near = nearest(doc_id, (each.doc_id for each in ws.engine.headers(at, collection=collection)))
    return DocumentMissing(
        f"There is no document {doc_id!r} in collection {collection!r}." + (f" Is it {near!r}?" if near else ""),
        hint=f"vmrag list --collection {quoted(collection)}",
        collection_name=collection,
        doc_id=doc_id,
    )
