"""The rows that mirror a project's documents, brought to what the files say. The files are the
source of truth: nothing here changes one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

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
"""For which a folder that was looked at is not looked at again."""

CHUNKING = Chunking("headings", 1000, 0)
"""Chunks as long as what a small model takes in at once."""

UNWRITABLE = (GitBusy, DriftError, LockError, PinError, EngineUnwritable)
"""Why rows cannot be written now; those that are there go on answering."""


class Mirrored(Record, frozen=True):
    """`skipped`: files that are no documents. `indexed`, `removed`: how many rows were changed.

    `unwritten`: why rows do not follow the files yet; `pending`: why the index does not follow the
    rows.
    """

    skipped: tuple[SkippedDoc, ...]
    indexed: int = 0
    removed: int = 0
    unwritten: str = ""
    pending: str = ""


class IndexedFile(Record, frozen=True):
    """A document as it was read just now; `changed`: whether it was another one before."""

    document: Document
    collection: Collection
    chunks: int
    changed: bool


class ActiveProject:
    """The project that a process works with, and what it has seen of its files.

    `load` reads the configuration anew: a checkout may have changed it. Calls from several threads
    wait for each other in `lock`. `read_only`: no rows are written.
    """

    def __init__(self, config_path: str, *, read_only: bool = False) -> None:
        self.config_path = config_path
        self.read_only = read_only
        self.lock = threading.RLock()
        self.own, self.external = SeenFiles(), SeenFiles()
        self._looked: tuple[float, object, Files] | None = None
        self.settled: object = None
        """What rows and files were equal at."""

    def load_project(self, ws: Workspace) -> DocsProject:
        """Raises as `project.load_project`."""
        return project.load_project(ws.places, self.config_path)

    def list_files(self, ws: Workspace, found: DocsProject, *, now: bool) -> Files:
        """`now`: even if they were looked at a moment ago. After a checkout they are others."""
        where = (found.docs_folder, ws.read_trigger())
        if self._looked and not now:
            at, there, files = self._looked
            if there == where and time.monotonic() - at < DEBOUNCE_SECONDS:
                return files
        files = folder.scan_folder(found.docs_folder, Patterns(), Repositories(ws.places).find_hidden)
        self._looked = (time.monotonic(), where, files)
        return files

    def forget_file(self, doc_id: str) -> None:
        """One file is another one by now: it is read again, and the folder looked at."""
        self.own.forget_file(doc_id)
        self._looked = None


def _document(ws: Workspace, found: DocsProject, doc_id: str) -> Document:
    return documents.project_document(found, doc_id, documents.read_source(ws, found.docs_folder, doc_id))


def mirror_changes(ws: Workspace, active: ActiveProject, found: DocsProject, *, now: bool = False) -> Mirrored:
    """Take in what has changed in the folder since the rows were written.

    Where rows cannot be written now, they stay as they are, and `unwritten` says why. Raises
    `FileFailed`, `CollectionExists`, `Embedding` errors: then nothing is stored.
    """
    with active.lock:
        files = active.list_files(ws, found, now=now)
        wanted, skipped = active.own.read_headers(found, files, lambda doc_id: _document(ws, found, doc_id))
        mirrored = Mirrored(tuple(skipped))
        at = read_consistently(ws, lambda: find_origin(ws).at, index=False)
        state = (found, dict(files.stamps), ws.engine.read_stamp(), ws.read_trigger(), at)
        if active.settled == state:
            return mirrored
        if not _differences(ws, at, found, wanted):
            active.settled = state
            return mirrored
        if active.read_only:
            return msgspec.structs.replace(mirrored, unwritten=_READ_ONLY)
        try:
            done = writing.write_rows(ws, lambda place: _plan(ws, place, found, wanted), f"mirror {found.docs}")
        except UNWRITABLE as why:
            return msgspec.structs.replace(mirrored, unwritten=_unwritten(why))
        return msgspec.structs.replace(done.report, skipped=mirrored.skipped, pending=done.pending)


_READ_ONLY = "Files of the project have changed, and a server that is read-only does not take them in."


def _unwritten(why: VmragError) -> str:
    return f"Changed files of the project could not be taken in: {why.sentence}"


def _differences(ws: Workspace, at: At, found: DocsProject, wanted: Mapping[str, DocumentHeader]) -> set[str]:
    """The documents that are not mirrored as they are."""
    there = {header.doc_id: header for header in ws.engine.read_headers(at, collection=found.collection)}
    return {doc_id for doc_id in there.keys() | wanted.keys() if there.get(doc_id) != wanted.get(doc_id)}


def _plan(ws: Workspace, at: At, found: DocsProject, wanted: Mapping[str, DocumentHeader]) -> Planned[Mirrored]:
    differing = sorted(_differences(ws, at, found, wanted))
    put = [put_row(ws, at, _document(ws, found, doc_id)) for doc_id in differing if doc_id in wanted]
    gone = [doc_id for doc_id in differing if doc_id not in wanted]
    return Planned(build_write(ws, at, found, put, gone), Mirrored((), len(put), len(gone)))


def put_row(ws: Workspace, at: At, new: Document) -> Document:
    """A new version of a document, which keeps the time at which it was first mirrored."""
    before = ws.engine.find_document(at, *new.key)
    return msgspec.structs.replace(new, created_at=before.created_at) if before else new


def build_write(ws: Workspace, at: At, found: DocsProject, put: list[Document], gone: list[str]) -> Write:
    """What to store, embedded already. Raises `CollectionExists`, `Embedding` errors."""
    there = mirror_of(ws, at, found.name)
    collection = there or _new(ws, found)
    ws.create_indexer().embed_documents(collection, put)
    return Write(
        put_collections=[] if there or not put else [collection],
        put_documents=put,
        remove_documents=[(collection.name, doc_id) for doc_id in gone],
    )


def mirror_of(ws: Workspace, at: At, name: str) -> Collection | None:
    """The collection that mirrors a project. Raises `CollectionExists` for one of another kind."""
    wanted = project.collection_of(name)
    found = collections.find_exact(ws, at, wanted)
    if found and found.kind != COMPOUNDING:
        raise CollectionExists(
            f"There is a collection {wanted!r} already, and it mirrors no project.",
            hint="Rename it (chroma_modify_collection), or give the project another project_name.",
            collection_name=wanted,
            kind=found.kind,
        )
    return found


def _new(ws: Workspace, found: DocsProject) -> Collection:
    model = ws.models.load_named(ws.config.embedding.model)
    return collections.make_collection(found.collection, model, CHUNKING, kind=COMPOUNDING)


def index_file(ws: Workspace, active: ActiveProject, found: DocsProject, doc_id: str) -> WriteResult[IndexedFile]:
    """Read one file again and mirror it, whatever is known of it.

    Raises `AccessDenied` for one that git ignores, `FileFailed`, one of `documents.REFUSALS`, and
    as `write_rows`: nothing is stored.
    """
    path = found.docs_folder / doc_id
    refuse_ignored(ws.places, [path], hint=f"If it is to be shared: git add --force {quoted(path)}")
    with active.lock:
        active.forget_file(doc_id)

        def plan(at: At) -> Planned[IndexedFile]:
            new = put_row(ws, at, _document(ws, found, doc_id))
            collection = mirror_of(ws, at, found.name) or _new(ws, found)
            changed = not _same(ws, at, new)
            report = IndexedFile(new, collection, len(chunks_of(ws, collection, new)), changed)
            return Planned(build_write(ws, at, found, [new], []) if changed else None, report)

        return writing.write_rows(ws, plan, f"mirror {doc_id}")


def _same(ws: Workspace, at: At, new: Document) -> bool:
    there = next(ws.engine.read_headers(at, collection=new.collection, ids=[new.doc_id]), None)
    return there == new.header
