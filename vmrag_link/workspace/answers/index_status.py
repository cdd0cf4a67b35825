"""Compare the index with the knowledge base: is each collection indexed as it is stored?

`vmrag status`, `vmrag sync` and tools for clients of Chroma use this. Nothing here updates the
index, except `read_indexed`, which follows the pin like a query.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from vmrag_link import clock
from vmrag_link.errors import Busy, EmbeddingError, IndexExtraMissing, IndexFailed
from vmrag_link.file_access import write_atomically
from vmrag_link.index import view as views
from vmrag_link.index.contents import read_collections, read_contents
from vmrag_link.index.metadata import read_hnsw
from vmrag_link.index.view import indexes_equally
from vmrag_link.models import At, Collection, DocumentHeader, Record, WorkingSet
from vmrag_link.sync.plan import read_collections_at, use_present_model
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.documents.collections import find_collection
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.sync.target import Target
    from vmrag_link.workspace import Moment, ReadableStore, View

Status = Literal["synced", "pending", "error"]
Key = tuple[str, str]
T = TypeVar("T")


class CollectionStatus(Record, frozen=True, rename={"view": "snapshot"}):
    """How one collection is indexed."""

    collection_name: str
    view: str | None
    last_sync_commit: str | None
    """The revision of the index that has the collection."""
    last_sync_at: str | None
    """ISO 8601 UTC."""
    document_count: int
    chunk_count: int
    sync_status: Status
    error_message: str | None
    embedding_model: str
    pending_documents: int
    """Number of documents that are outdated, missing or superfluous in the index."""


class IndexStatus(Record, frozen=True):
    """How all collections are indexed."""

    branch: str | None
    commit: str
    """The revision that the index should have, with uncommitted documents of `branch`."""
    collections: list[CollectionStatus]

    @property
    def in_sync(self) -> bool:
        return all(collection.sync_status == "synced" for collection in self.collections)


class CollectionIndexStatus(Record, frozen=True):
    """A collection with its size in the index."""

    collection: Collection
    documents: int
    chunks: int
    view: str
    hnsw: dict[str, int]
    """Parameters of Chroma's HNSW index, by metadata key."""
    status: Status


class CollectionSize(Record, frozen=True):
    """The size of a collection."""

    collection_name: str
    count: int
    """Number of documents in the knowledge base."""
    chunk_count: int
    """Number of chunks in the present index."""


def read_status(ws: Workspace) -> IndexStatus:
    """Return the status of the index without updating it.

    Raises the errors of `Reader.read_moment`.
    """
    moment = ws.reader.read_moment()
    is_behind = moment.target.state == "pinned" and moment.target.revision != moment.revision
    revision = moment.target.revision if is_behind else moment.revision
    at = _find_pinned_documents(moment.target) if is_behind else moment.at
    if not ws.engine.has_revision(revision):
        raise reasons.explain_unusable(ws, moment.target)
    holdings = read_held_now(ws, moment)
    failures = read_failures(ws)
    differing = count_differing(ws, at, holdings)
    chunks: Counter[str] = Counter()
    for (name, _doc_id), number in holdings.chunks.items():
        chunks[name] += number
    statuses = []
    for collection in ws.engine.list_collections(at):
        name = collection.name
        error = failures.get(name) or holdings.unembedded.get(name)
        is_synced = holdings.current and not is_behind and name not in {*differing, *holdings.unembedded}
        status: Status = "error" if error else "pending"
        folder = holdings.folder if name in holdings.definitions else None
        statuses.append(
            CollectionStatus(
                name,
                view=folder.name if folder else None,
                last_sync_commit=holdings.revision if folder else None,
                last_sync_at=_read_sealing_time(folder) if folder else None,
                document_count=ws.engine.count_documents(at, collection=name),
                chunk_count=chunks[name],
                sync_status="synced" if is_synced else status,
                error_message=None if is_synced else error,
                embedding_model=collection.embedding_model,
                pending_documents=differing.get(name, 0),
            )
        )
    return IndexStatus(at.branch if isinstance(at, WorkingSet) else moment.branch, revision, statuses)


def _find_pinned_documents(target: Target) -> At:
    """Return from where the next command reads documents: the pinned revision, or the KB branch at
    this revision if it has uncommitted documents.
    """
    branch = target.kb_branch
    if branch and branch.dirty and target.attachment == "attached":
        return WorkingSet(branch.name)
    return target.revision


def _read_sealing_time(folder: Path) -> str | None:
    """Return when the index in this folder was completed."""
    with contextlib.suppress(OSError):
        seconds = (folder / views.VIEW_FILE).stat().st_mtime
        return clock.format_file_time(seconds)
    return None


# -- one collection


def read_indexed(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    """Follow the pin, and return a collection with the origin of the answer.

    If the index cannot be updated, for example because a model is missing, return the result of
    `read_known`. Raises `CollectionMissing` and `IndexFailed`.
    """
    try:
        return read_consistently(ws, lambda: _read_view(ws, name))
    except (EmbeddingError, IndexExtraMissing):
        if not isinstance(ws, Workspace):
            raise
        return read_known(ws, name)


def read_known(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    """Return a collection like `read_indexed`, but without updating the index.

    The documents follow the pin. Raises `CollectionMissing`.
    """
    if not isinstance(ws, Workspace):
        return _read_view(ws, name)
    origin = read_consistently(ws, lambda: find_origin(ws), index=False)
    collection = find_collection(ws, origin.at, name)
    status = next(status for status in read_status(ws).collections if status.collection_name == collection.name)
    return origin, CollectionIndexStatus(
        collection=collection,
        documents=status.document_count,
        chunks=status.chunk_count,
        view=status.view or "",
        hnsw=read_hnsw(collection),
        status=status.sync_status,
    )


def read_size(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionSize]:
    """Return a collection's size without updating the index. Raises `CollectionMissing`."""
    if not isinstance(ws, Workspace):
        origin, status = _read_view(ws, name)
        return origin, CollectionSize(status.collection.name, status.documents, status.chunks)
    origin = read_consistently(ws, lambda: find_origin(ws), index=False)
    collection = find_collection(ws, origin.at, name)
    chunks = count_chunks_held(ws, origin, collection.name)
    return origin, CollectionSize(
        collection.name, ws.engine.count_documents(origin.at, collection=collection.name), chunks
    )


def _read_view(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    """Return a collection in the index that answers, which `ws.reader` updates first."""

    def read_collection(view: View) -> tuple[AnswerOrigin, CollectionIndexStatus]:
        collection = find_collection(ws, view.at, name)
        return find_view_origin(ws, view), CollectionIndexStatus(
            collection=collection,
            documents=ws.engine.count_documents(view.at, collection=collection.name),
            chunks=read_collections(view.folder)[collection.name].chunks,
            view=view.folder.name,
            hnsw=read_hnsw(collection),
            status="error" if collection.name in views.read_unembedded(view.folder) else "synced",
        )

    return ws.reader.read(read_collection, files=False)


def collection_id(name: str) -> str:
    """Return a UUID for clients that expect one.

    Chroma gives a collection another UUID in each store.
    """
    import uuid

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"vmrag:collection:{name}"))


# -- failures of the last sync


def read_failures(ws: Workspace) -> dict[str, str]:
    """Return why the last sync could not embed documents, by collection."""
    try:
        return msgspec.json.decode(ws.places.index_failures.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return {}


def write_failures(ws: Workspace, failures: dict[str, str]) -> None:
    """Record why a sync could not embed documents, by collection."""
    if failures:
        write_atomically(ws.places.index_failures, msgspec.json.encode(failures), durable=False)
    else:
        ws.places.index_failures.unlink(missing_ok=True)


# -- contents of an index


class Holdings(Record, frozen=True):
    """The contents of an index, without texts. Without an index, all fields are empty."""

    folder: Path | None = None
    revision: str | None = None
    current: bool = False
    """True if this index answers for the workspace and verifies."""
    definitions: Mapping[str, Collection] = {}
    """Collections by name."""
    headers: Mapping[Key, DocumentHeader] = {}
    """Documents by key."""
    chunks: Mapping[Key, int] = {}
    """Number of chunks by key of the document."""
    unembedded: Mapping[str, str] = {}
    """Reasons for collections that are searched by words only."""


def read_held_now(ws: Workspace, moment: Moment) -> Holdings:
    """Read the index of the workspace, or the index from which it would be built."""
    revision = moment.revision
    holdings = _use_index(
        ws, moment.at, revision, lambda folder, current: read_holdings(folder, revision, current=current)
    )
    return holdings or Holdings()


def count_chunks_held(ws: Workspace, origin: AnswerOrigin, collection: str) -> int:
    """Return the number of a collection's chunks in the index for this origin."""
    size = _use_index(ws, origin.at, origin.revision, lambda folder, _: read_collections(folder).get(collection))
    return size.chunks if size else 0


def _use_index(ws: Workspace, at: At, revision: str, read: Callable[[Path, bool], T]) -> T | None:
    """Return the result of `read`, which gets the folder of the index and whether it is current.

    The index is the working copy if it exists, otherwise the view of the revision. Neither is
    waited for. Return None without an index.
    """
    if isinstance(at, WorkingSet):
        copy = ws.sync_context._replace(lock_timeout=0).working_copy(at.branch, revision)
        with contextlib.suppress(Busy), copy.lock_for_reading() as problem:
            if not copy.find_damage():  # it may still be outdated
                with contextlib.suppress(IndexFailed):  # damaged after it was verified
                    return read(copy.path, not problem)
    path = ws.views.view_path(revision)
    with ws.views.lock_for_reading(path):
        if not ws.views.find_problem(revision):
            with contextlib.suppress(IndexFailed):
                return read(path, isinstance(at, str))
    return None


def read_holdings(folder: Path, revision: str, *, current: bool) -> Holdings:
    """Return the contents of the index in a folder."""
    index_contents = read_contents(folder)
    definitions = {name: held.collection for name, held in index_contents.collections.items()}
    return Holdings(
        folder=folder,
        revision=revision,
        current=current,
        definitions=definitions,
        headers=index_contents.headers,
        chunks=index_contents.chunks,
        unembedded=index_contents.unembedded,
    )


def count_differing(ws: Workspace, at: At, holdings: Holdings) -> dict[str, int]:
    """Return the collections that differ between an index and the stored documents `at`.

    Each has the number of its documents that are outdated, missing or superfluous in the index.
    """
    headers = {header.key: header for header in ws.engine.read_headers(at)}
    collections = read_collections_at(ws.engine, at, sorted({name for name, _ in headers}), ws.models.load_for)
    changed = {name for name, collection in collections.items() if not held_equally(holdings, collection)}
    removed = holdings.definitions.keys() - collections.keys()
    counts = dict.fromkeys((*changed, *removed), 0)
    for key in headers.keys() | holdings.headers.keys():
        name, _doc_id = key
        if name in changed or headers.get(key) != holdings.headers.get(key):
            counts[name] = counts.get(name, 0) + 1
    return counts


def held_equally(holdings: Holdings, collection: Collection) -> bool:
    """Return whether the index was built with the present settings of a stored collection."""
    indexed = holdings.definitions.get(collection.name)
    return indexed is not None and indexes_equally(indexed, use_present_model(collection))
