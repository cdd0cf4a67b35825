"""Store new and changed documents in a collection: all of them or none.

`vmrag add`, `vmrag import` and the tools describe the documents in a `PutRequest`. An import must
not overwrite the text of another file: two files may have the same id, because an id is a path
below the import base, and this folder can change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vmrag_link import clock
from vmrag_link.documents.import_base import ImportBase
from vmrag_link.documents.importing import ImportedDocument, SkippedFile
from vmrag_link.engines.base import Write
from vmrag_link.errors import DocumentExists, KnowledgeMoved, plural, quoted
from vmrag_link.models import At, ChangeCounts, Chunking, Collection, Document, DocumentHeader, Record, parse_metadata
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.documents.drafts import refuse_reserved, refused_ids
from vmrag_link.workspace.documents.import_reports import PutCounts
from vmrag_link.workspace.documents.placing import Placing
from vmrag_link.workspace.documents.writing import Planned, WriteResult

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore

Existing = Literal["refuse", "replace", "replace_same_file"]
"""The treatment of an existing document with the same id.

`replace_same_file` refuses a document that came from another file.
"""
_MAX_LISTED_FILES = 5
Version = tuple[str, str, str]
"""Title, hash of the text, and metadata of a document."""


class PlacedFiles(Record, frozen=True):
    """Documents from files, with ids and sources relative to an import base."""

    base: ImportBase
    """The folder below which the files are."""
    placed: Placing
    """The documents. If a file moved, its new source is stored even if the text is equal."""
    gone: Sequence[str]
    """Ids of documents to remove."""
    insist: bool
    """True to record the base even if nothing else is stored."""


class PutRequest(Record, frozen=True):
    """Documents to store in a collection."""

    collection: str
    documents: Sequence[ImportedDocument]
    existing: Existing = "refuse"
    create: bool = False
    """True to create the collection if it is missing."""
    skipped: Sequence[SkippedFile] = ()
    """Files that were skipped. A new collection with skipped files only is not created."""
    arrange: Callable[[At, Collection], PlacedFiles] | None = None
    """Return the documents from files for the stored collection, instead of `documents`."""
    follow: bool = True
    """False to leave the index to its next reader."""
    embed_first: bool = False
    """True to store nothing if the embedding model fails."""
    expected: Mapping[str, Version] = {}
    """By id, the version that the caller read. If it differs now, raise `KnowledgeMoved`."""


def version_of(document: Document | DocumentHeader | ImportedDocument) -> Version:
    """Return the parts of a document that a user can change."""
    return document.title, document.content_hash, document.metadata


def put_documents(ws: DocumentStore, request: PutRequest) -> WriteResult[PutCounts]:
    """Store the documents that differ from the stored ones. Documents of a writable source become
    files.

    Nothing is stored if this raises `NameInvalid`, `CollectionMissing`, `UsageInvalid` for a
    library, `DocumentExists`, `ContentRefused`, `KnowledgeMoved`, `EmbeddingError` with
    `embed_first`, or an error of `writing.write_rows`.
    """
    if request.create:
        collections.require_name(request.collection)
    if isinstance(ws, Workspace) and (source := ws.sources.find_writable(request.collection)):
        if request.arrange:
            raise collections.source_read_only(source.collection)
        return _put_notes(ws, source, request)
    plan = functools.partial(_plan_put, ws, request)
    return writing.write_rows(ws, plan, f"write to {request.collection}", follow=request.follow)


def _put_notes(ws: Workspace, source: SourceSettings, request: PutRequest) -> WriteResult[PutCounts]:
    """Write the documents as files of a writable source."""
    from vmrag_link.documents.chunking import split_document
    from vmrag_link.sources.documents import CHUNKING
    from vmrag_link.workspace.documents import note_writes

    existing: Literal["refuse", "replace"] = "refuse" if request.existing == "refuse" else "replace"
    result = note_writes.put_notes(ws, source, request.documents, existing)
    rows = (_form_row(source.collection, document, "", "") for document in request.documents)
    return result._replace(chunks=sum(len(split_document(row, CHUNKING[source.kind])) for row in rows))


def _plan_put(ws: DocumentStore, request: PutRequest, at: At) -> Planned[PutCounts]:
    """Return the rows to store, by the documents that are stored `at` a branch or revision."""
    stored_collection, is_new = _find_collection(ws, at, request)
    collections.require_open(stored_collection)
    collection = stored_collection
    documents = request.documents
    files = request.arrange(at, collection) if request.arrange else None
    if files:
        collection = msgspec.structs.replace(collection, import_base=files.base.recorded)
        documents = files.placed.documents
    name = collection.name
    ids = [document.doc_id for document in documents]
    present = {header.doc_id: header for header in ws.engine.read_headers(at, collection=name, ids=ids)}
    if present and request.existing == "refuse":
        raise refused_ids(present, f"are in collection {name!r} already")
    _require_expected(name, request.expected, present, documents)
    equal_ids = {document.doc_id for document in documents if _is_same(present.get(document.doc_id), document)}
    moved: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()
    gone: Sequence[str] = ()
    guarded = None
    if files:
        moved = files.placed.moved & equal_ids
        renamed = frozenset(pair.doc_id for pair in files.placed.renamed)
        gone = files.gone
        guarded = files.base if request.existing != "replace" else None
    changed = [document for document in documents if document.doc_id not in equal_ids or document.doc_id in moved]
    added_count = sum(document.doc_id not in present for document in changed)
    changes = ChangeCounts(added=added_count, modified=len(changed) - added_count, removed=len(gone))
    counts = PutCounts(name, is_new, changes, len(documents) - len(changed))
    has_new_base = collection != stored_collection
    must_store_base = has_new_base and files is not None and files.insist
    must_store_collection = not request.skipped if is_new else must_store_base
    if not changed and not gone and not must_store_collection:
        return Planned(None, msgspec.structs.replace(counts, created=False))
    rows = _form_rows(ws, at, name, changed, present, guarded=guarded, moved=moved | renamed)
    if request.embed_first:
        ws.create_indexer().embed_documents(collection, rows)
    write = Write(
        put_collections=[collection] if is_new or has_new_base else [],
        put_documents=rows,
        remove_documents=[(name, doc_id) for doc_id in gone],
    )
    return Planned(write, counts)


def _find_collection(ws: DocumentStore, at: At, request: PutRequest) -> tuple[Collection, bool]:
    """Return the collection of a request, and whether it is new."""
    if not request.create:
        return collections.find_collection(ws, at, request.collection), False
    for collection in ws.engine.list_collections(at):
        if collection.name == request.collection:
            return collection, False
    chunking = Chunking(size=ws.config.chunking.size, overlap=ws.config.chunking.overlap)
    model = ws.models.load_named(ws.config.embedding.model)
    return collections.make_collection(request.collection, model, chunking), True


def _require_expected(
    collection: str,
    expected: Mapping[str, Version],
    present: Mapping[str, DocumentHeader],
    documents: Sequence[ImportedDocument],
) -> None:
    """Raise `KnowledgeMoved` for a document that another process changed or removed."""
    new = {document.doc_id: document for document in documents}
    for doc_id, version in expected.items():
        stored = present.get(doc_id)
        if stored and (version_of(stored) == version or _is_same(stored, new[doc_id])):
            continue
        name = f"{collection}/{doc_id}"
        hint = f"run 'vmrag add FILE --collection {quoted(collection)} --id {quoted(doc_id)}'"
        if stored:
            hint = f"run 'vmrag edit {quoted(name)}' to copy your changes into the present text"
        raise KnowledgeMoved(
            f"{name} was {'changed' if stored else 'removed'} by another process, so nothing was stored",
            hint=hint,
            collection_name=collection,
            doc_id=doc_id,
        )


def _is_same(present: DocumentHeader | None, new: ImportedDocument) -> bool:
    return present is not None and version_of(present) == version_of(new)


def _form_rows(
    ws: DocumentStore,
    at: At,
    name: str,
    changed: Sequence[ImportedDocument],
    present: Container[str],
    *,
    guarded: ImportBase | None,
    moved: Container[str],
) -> list[Document]:
    """Return the rows for the changed documents.

    `guarded`: the import base; with it, raise `DocumentExists` for documents that came from another
    file. `moved`: ids of documents whose file moved, which are not refused.
    """
    now = clock.now()
    rows: list[Document] = []
    overwritten: list[Overwritten] = []
    replaced = [document.doc_id for document in changed if document.doc_id in present]
    stored = ws.engine.read_documents(at, collection=name, ids=replaced) if replaced else ()
    origins = {row.doc_id: (row.source, row.created_at) for row in stored}
    for document in changed:
        source, created_at = origins.get(document.doc_id, ("", now))
        is_guarded = guarded and document.doc_id not in moved
        if guarded and is_guarded and comes_from_another_file(guarded, document.doc_id, source, document.source):
            overwritten.append(Overwritten(document.doc_id, source, document.source))
        rows.append(_form_row(name, document, now, created_at))
    if overwritten:
        raise overwriting_refusal(name, overwritten)
    return rows


def _form_row(name: str, new: ImportedDocument, now: str, created_at: str) -> Document:
    refuse_reserved(parse_metadata(new), new.doc_id)
    return Document(
        **msgspec.structs.asdict(new),
        collection=name,
        source_key=new.source,
        created_at=created_at,
        updated_at=now,
    )


class Overwritten(Record, frozen=True):
    """A document that would get the text of another file. Paths are relative to the import base."""

    doc_id: str
    source: str
    """The file that it came from."""
    file: str
    """The file with the new text."""


def comes_from_another_file(base: ImportBase, doc_id: str, stored: str, source: str) -> bool:
    """Return whether the stored source of a document and the read file are two files.

    A link to the same file is not another file. A document without a file has nothing to lose.
    """
    for _, before in base.list_sources([(doc_id, stored)]):
        return before != source and not _same_file(base.source_folder / before, base.source_folder / source)
    return False


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # the stored file is gone, so its text may exist only here
        return False


def overwriting_refusal(collection: str, overwritten: Sequence[Overwritten]) -> DocumentExists:
    """Return the error with both files of each document."""
    shown = "; ".join(
        f"{row.doc_id!r} comes from {row.source!r}, not from {row.file!r}" for row in overwritten[:_MAX_LISTED_FILES]
    )
    more = f"; and {len(overwritten) - _MAX_LISTED_FILES} more" if len(overwritten) > _MAX_LISTED_FILES else ""
    number = plural(len(overwritten), "document")
    return DocumentExists(
        f"{number} of collection {collection!r} would be overwritten by another file's text: {shown}{more}.",
        hint="use another --collection or --base, or add --replace to store the new text",
        documents=[{"doc_id": row.doc_id, "source": row.source, "file": row.file} for row in overwritten],
    )
