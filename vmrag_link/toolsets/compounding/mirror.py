"""Mirror the documents of a project: store its files as rows of a collection.

The files are the source of truth, and nothing in this module changes a file. Each tool of the
toolset first calls `mirror_changes`, so rows and files are equal when it reads the rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from vmrag_link.engines.base import Write
from vmrag_link.errors import (
    CollectionExists,
    DriftError,
    EngineUnwritable,
    GitBusy,
    LockError,
    PinError,
    VmragError,
    quoted,
)
from vmrag_link.git.listing import Repositories, refuse_ignored
from vmrag_link.models import COMPOUNDING, At, Chunking, Collection, Document, DocumentHeader, Record
from vmrag_link.toolsets.compounding import documents, folder, project
from vmrag_link.toolsets.compounding.documents import SeenFiles
from vmrag_link.toolsets.compounding.folder import Files, Patterns, SkippedDoc
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.documents.writing import Planned, WriteResult
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import find_origin

DEBOUNCE_SECONDS = 0.5
"""Minimum time between two scans of a folder."""

CHUNKING = Chunking("headings", 1000, 0)
"""Chunks as long as the input of a small model."""

UNWRITABLE = (GitBusy, DriftError, LockError, PinError, EngineUnwritable)
"""Errors that prevent writing rows now. Existing rows still answer."""


class MirrorResult(Record, frozen=True):
    """The result of an update.

    `skipped` are files that are not documents. `indexed` and `removed` are numbers of changed rows.
    `unwritten` is the reason why the rows are not up to date, and `pending` the reason why the
    index is not.
    """

    skipped: tuple[SkippedDoc, ...]
    indexed: int = 0
    removed: int = 0
    unwritten: str = ""
    pending: str = ""


class IndexedFile(Record, frozen=True):
    """A document that was read again. `changed`: it differs from the version before."""

    document: Document
    collection: Collection
    chunks: int
    changed: bool


class _Scan(NamedTuple):
    """The files of a folder at one moment."""

    moment: float
    """The time of the scan (`time.monotonic`)."""
    source: object
    """The folder, and what git has checked out."""
    files: Files


class ActiveProject:
    """The project that a process uses, and its known files.

    `load_project` reads the configuration again, because a checkout can have changed it. Calls from
    several threads wait for each other in `lock`. With `read_only`, no rows are written.
    """

    def __init__(self, config_path: str, *, read_only: bool = False) -> None:
        self.config_path = config_path
        self.read_only = read_only
        self.lock = threading.RLock()
        self.own = SeenFiles()
        """The files of the project's documents."""
        self.external = SeenFiles()
        """The files of its external documentation."""
        self._last_scan: _Scan | None = None
        self.mirrored_state: object = None
        """The state of files and knowledge base in which rows and files were equal."""

    def load_project(self, ws: Workspace) -> DocsProject:
        """Return the project. Raises the errors of `project.load_project`."""
        return project.load_project(ws.places, self.config_path)

    def list_files(self, ws: Workspace, docs_project: DocsProject, *, now: bool) -> Files:
        """Return the files of the project.

        `now` scans the folder even if it was scanned a moment ago.
        """
        source = (docs_project.docs_folder, ws.read_trigger())
        last = self._last_scan
        if last and not now and last.source == source and time.monotonic() - last.moment < DEBOUNCE_SECONDS:
            return last.files
        files = folder.scan_folder(docs_project.docs_folder, Patterns(), Repositories(ws.places).find_hidden)
        self._last_scan = _Scan(time.monotonic(), source, files)
        return files

    def forget_file(self, doc_id: str) -> None:
        """Read a changed file again, and scan the folder."""
        self.own.forget_file(doc_id)
        self._last_scan = None


def _read_document(ws: Workspace, project: DocsProject, doc_id: str) -> Document:
    return documents.project_document(project, doc_id, documents.read_source(ws, project.docs_folder, doc_id))


def mirror_changes(
    ws: Workspace, active: ActiveProject, docs_project: DocsProject, *, now: bool = False
) -> MirrorResult:
    """Update the rows to the current files.

    If rows cannot be written now, they stay, and `unwritten` has the reason. Raises `FileFailed`,
    `CollectionExists` and `EmbeddingError`; then nothing is stored.
    """
    with active.lock:
        files = active.list_files(ws, docs_project, now=now)
        headers, skipped = active.own.read_headers(
            docs_project, files, lambda doc_id: _read_document(ws, docs_project, doc_id)
        )
        mirrored = MirrorResult(tuple(skipped))
        at = read_consistently(ws, lambda: find_origin(ws).at, index=False)
        state = (docs_project, dict(files.stamps), ws.engine.read_stamp(), ws.read_trigger(), at)
        if active.mirrored_state == state:
            return mirrored
        if not _find_differences(ws, at, docs_project, headers):
            active.mirrored_state = state
            return mirrored
        if active.read_only:
            return msgspec.structs.replace(mirrored, unwritten=_READ_ONLY)
        try:
            result = writing.write_rows(
                ws, lambda place: _plan_changes(ws, place, docs_project, headers), f"mirror {docs_project.docs}"
            )
        except UNWRITABLE as why:
            return msgspec.structs.replace(mirrored, unwritten=_describe_unwritten(why))
        return msgspec.structs.replace(result.report, skipped=mirrored.skipped, pending=result.pending)


_READ_ONLY = "Files of the project have changed, and a server that is read-only does not take them in."


def _describe_unwritten(why: VmragError) -> str:
    return f"Could not read changed files of the project: {why.sentence}"


def _find_differences(
    ws: Workspace, at: At, docs_project: DocsProject, headers: Mapping[str, DocumentHeader]
) -> set[str]:
    """Return the documents whose rows differ from their files."""
    stored = {header.doc_id: header for header in ws.engine.read_headers(at, collection=docs_project.collection)}
    return {doc_id for doc_id in stored.keys() | headers.keys() if stored.get(doc_id) != headers.get(doc_id)}


def _plan_changes(
    ws: Workspace, at: At, docs_project: DocsProject, headers: Mapping[str, DocumentHeader]
) -> Planned[MirrorResult]:
    differing = sorted(_find_differences(ws, at, docs_project, headers))
    put = [put_row(ws, at, _read_document(ws, docs_project, doc_id)) for doc_id in differing if doc_id in headers]
    gone = [doc_id for doc_id in differing if doc_id not in headers]
    return Planned(build_write(ws, at, docs_project, put, gone), MirrorResult((), len(put), len(gone)))


def put_row(ws: Workspace, at: At, new: Document) -> Document:
    """Return a new version of a document, with the time at which it was first mirrored."""
    before = ws.engine.find_document(at, *new.key)
    return msgspec.structs.replace(new, created_at=before.created_at) if before else new


def build_write(ws: Workspace, at: At, docs_project: DocsProject, put: list[Document], gone: list[str]) -> Write:
    """Return the write with embedded documents.

    Raises `CollectionExists` and `EmbeddingError`.
    """
    existing = mirror_of(ws, at, docs_project.name)
    collection = existing or _build_collection(ws, docs_project)
    ws.create_indexer().embed_documents(collection, put)
    return Write(
        put_collections=[] if existing or not put else [collection],
        put_documents=put,
        remove_documents=[(collection.name, doc_id) for doc_id in gone],
    )


def mirror_of(ws: Workspace, at: At, name: str) -> Collection | None:
    """Return the collection that mirrors a project. Raises `CollectionExists` for another kind."""
    collection_name = project.collection_of(name)
    collection = collections.find_exact(ws, at, collection_name)
    if collection and collection.kind != COMPOUNDING:
        raise CollectionExists(
            f"the collection {collection_name!r} already exists and does not belong to a project.",
            hint="call chroma_modify_collection to rename it, or give the project another project_name",
            collection_name=collection_name,
            kind=collection.kind,
        )
    return collection


def _build_collection(ws: Workspace, docs_project: DocsProject) -> Collection:
    model = ws.models.load_named(ws.config.embedding.model)
    return collections.make_collection(docs_project.collection, model, CHUNKING, kind=COMPOUNDING)


def index_file(
    ws: Workspace, active: ActiveProject, docs_project: DocsProject, doc_id: str
) -> WriteResult[IndexedFile]:
    """Read one file again and mirror it, even if it has not changed.

    Raises `AccessDenied` for a file that git ignores, `FileFailed`, one of `documents.REFUSALS`,
    and the errors of `write_rows`; then nothing is stored.
    """
    path = docs_project.docs_folder / doc_id
    refuse_ignored(ws.places, [path], hint=f"run 'git add --force {quoted(path)}' to share it")
    with active.lock:
        active.forget_file(doc_id)

        def plan_rows(at: At) -> Planned[IndexedFile]:
            new = put_row(ws, at, _read_document(ws, docs_project, doc_id))
            collection = mirror_of(ws, at, docs_project.name) or _build_collection(ws, docs_project)
            changed = not _is_same(ws, at, new)
            report = IndexedFile(new, collection, len(chunks_of(ws, collection, new)), changed)
            return Planned(build_write(ws, at, docs_project, [new], []) if changed else None, report)

        return writing.write_rows(ws, plan_rows, f"mirror {doc_id}")


def _is_same(ws: Workspace, at: At, new: Document) -> bool:
    stored = next(ws.engine.read_headers(at, collection=new.collection, ids=[new.doc_id]), None)
    return stored == new.header
