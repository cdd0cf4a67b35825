"""Read what an index has, and compare it with the knowledge base by collection.

The index is not updated.
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
    from vmrag_link.workspace import Moment, ReadableStore, View

Status = Literal["synced", "pending", "error"]
Key = tuple[str, str]
T = TypeVar("T")


class CollectionStatus(Record, frozen=True, rename={"view": "snapshot"}):
    """The index of one collection."""

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
    """The index of all collections."""

    branch: str | None
    commit: str
    """The revision that the index should have, with uncommitted documents of `branch`."""
    collections: list[CollectionStatus]

    @property
    def in_sync(self) -> bool:
        return all(collection.sync_status == "synced" for collection in self.collections)


class CollectionIndexStatus(Record, frozen=True):
    """A collection, and its part of the index."""

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
    revision, at, moved = _next_place(moment)
    if not ws.engine.has_revision(revision):
        raise reasons.explain_unusable(ws, moment.target)
    holdings = read_held_now(ws, moment)
    failed = read_failures(ws)
    changed = count_differing(ws, at, holdings)
    chunks: Counter[str] = Counter()
    for (name, _), number in holdings.chunks.items():
        chunks[name] += number
    rows = []
    for collection in ws.engine.list_collections(at):
        pending = changed.get(collection.name)
        error = failed.get(collection.name) or holdings.unembedded.get(collection.name)
        synced = holdings.current and not moved and pending is None and collection.name not in holdings.unembedded
        is_indexed = holdings.folder is not None and collection.name in holdings.definitions
        rows.append(
            CollectionStatus(
                collection.name,
                view=holdings.folder.name if holdings.folder and is_indexed else None,
                last_sync_commit=holdings.revision if is_indexed else None,
                last_sync_at=_read_sealing_time(holdings.folder) if holdings.folder and is_indexed else None,
                document_count=ws.engine.count_documents(at, collection=collection.name),
                chunk_count=chunks[collection.name],
                sync_status="synced" if synced else "error" if error else "pending",
                error_message=None if synced else error,
                embedding_model=collection.embedding_model,
                pending_documents=pending or 0,
            )
        )
    return IndexStatus(at.branch if isinstance(at, WorkingSet) else moment.branch, revision, rows)


def _next_place(moment: Moment) -> tuple[str, At, bool]:
    """Return the revision and place that the next command reads, and whether they are new."""
    target = moment.target
    if target.state != "pinned" or target.revision == moment.revision:
        return moment.revision, moment.at, False
    branch = target.kb_branch
    uncommitted = branch is not None and branch.dirty and target.attachment == "attached"
    return target.revision, WorkingSet(branch.name) if branch and uncommitted else target.revision, True


def _read_sealing_time(folder: Path) -> str | None:
    with contextlib.suppress(OSError):
        seconds = (folder / views.VIEW_FILE).stat().st_mtime
        return clock.format_file_time(seconds)
    return None


# -- one collection


def read_indexed(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    """Update the index, and return a collection with its origin.

    If the index cannot be updated, for example because a model is missing, return the known state.
    Raises `CollectionMissing` and `IndexFailed`.
    """
    try:
        return read_consistently(ws, lambda: _read_view(ws, name))
    except (EmbeddingError, IndexExtraMissing):
        if not isinstance(ws, Workspace):
            raise
        return read_known(ws, name)


def read_known(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    """Return a collection without updating the index. `chunks`: those in the present index.

    Raises `CollectionMissing`.
    """
    if not isinstance(ws, Workspace):
        return _read_view(ws, name)
    origin = read_consistently(ws, lambda: find_origin(ws), index=False)
    collection = find_collection(ws, origin.at, name)
    status = next(status for status in read_status(ws).collections if status.collection_name == collection.name)
    hnsw = read_hnsw(collection)
    return origin, CollectionIndexStatus(
        collection=collection,
        documents=status.document_count,
        chunks=status.chunk_count,
        view=status.view or "",
        hnsw=hnsw,
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
    return ws.reader.read(lambda view: (find_view_origin(ws, view), _form_indexed(ws, view, name)), files=False)


def _form_indexed(ws: ReadableStore, view: View, name: str) -> CollectionIndexStatus:
    collection = find_collection(ws, view.at, name)
    size = read_collections(view.folder)[collection.name]
    return CollectionIndexStatus(
        collection=collection,
        documents=ws.engine.count_documents(view.at, collection=collection.name),
        chunks=size.chunks,
        view=view.folder.name,
        hnsw=read_hnsw(collection),
        status="error" if collection.name in views.read_unembedded(view.folder) else "synced",
    )


def collection_id(name: str) -> str:
    """Return a UUID for clients that expect one.

    Chroma gives a collection another UUID in each store.
    """
    import uuid

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"vmrag:collection:{name}"))


# -- what failed last


def read_failures(ws: Workspace) -> dict[str, str]:
    """Return why the last sync could not embed documents, by collection."""
    try:
        return msgspec.json.decode(ws.places.index_failures.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return {}


def write_failures(ws: Workspace, failures: dict[str, str]) -> None:
    if failures:
        write_atomically(ws.places.index_failures, msgspec.json.encode(failures), durable=False)
    else:
        ws.places.index_failures.unlink(missing_ok=True)


class Holdings(Record, frozen=True):
    """The contents of an index."""

    folder: Path | None = None
    revision: str | None = None
    current: bool = False
    """True if this index answers for the workspace and verifies."""
    definitions: Mapping[str, Collection] = {}
    headers: Mapping[Key, DocumentHeader] = {}
    chunks: Mapping[Key, int] = {}
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
    """Return the result of `read` for the folder of the index, and whether it is current.

    Return None if there is no index.
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
    """Return the collections that differ between index and place, with numbers of documents."""
    headers = {header.key: header for header in ws.engine.read_headers(at)}
    collections_by_name = read_collections_at(ws.engine, at, sorted({name for name, _ in headers}), ws.models.load_for)
    changed_names = {name for name, collection in collections_by_name.items() if not held_equally(holdings, collection)}
    numbers = dict.fromkeys((*changed_names, *(holdings.definitions.keys() - collections_by_name.keys())), 0)
    for key in headers.keys() | holdings.headers.keys():
        if key[0] in changed_names or headers.get(key) != holdings.headers.get(key):
            numbers[key[0]] = numbers.get(key[0], 0) + 1
    return numbers


def held_equally(holdings: Holdings, collection: Collection) -> bool:
    held_collection = holdings.definitions.get(collection.name)
    return held_collection is not None and indexes_equally(held_collection, use_present_model(collection))
