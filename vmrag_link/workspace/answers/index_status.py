"""What an index holds, and whether that is what the knowledge base holds: by collection, without
bringing it there.
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
from vmrag_link.index import view as views
from vmrag_link.index.contents import read_collections, read_contents
from vmrag_link.index.metadata import read_hnsw
from vmrag_link.index.view import indexes_equally
from vmrag_link.models import At, Collection, DocumentHeader, Record, WorkingSet
from vmrag_link.paths import write_atomically
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


class CollectionStatus(Record, frozen=True):
    """`pending_documents`: those that are stale, missing or left over in the index.

    `last_sync_commit` is the revision of the index that holds the collection; `last_sync_at` ISO
    8601 UTC.
    """

    collection_name: str
    snapshot: str | None
    last_sync_commit: str | None
    last_sync_at: str | None
    document_count: int
    chunk_count: int
    sync_status: Status
    error_message: str | None
    embedding_model: str
    pending_documents: int


class IndexStatus(Record, frozen=True):
    """`commit`: the revision that the index should stand at, with the uncommitted of `branch`."""

    branch: str | None
    commit: str
    collections: list[CollectionStatus]

    @property
    def in_sync(self) -> bool:
        return all(collection.sync_status == "synced" for collection in self.collections)


class CollectionIndexStatus(Record, frozen=True):
    """A collection and what the index holds of it.

    `hnsw`: what Chroma's HNSW index is made with, by the keys of metadata.
    """

    collection: Collection
    documents: int
    chunks: int
    snapshot: str
    hnsw: dict[str, int]
    status: Status


class CollectionSize(Record, frozen=True):
    """`count` of the knowledge base's documents, and of the chunks that the index holds now."""

    collection_name: str
    count: int
    chunk_count: int


def read_status(ws: Workspace) -> IndexStatus:
    """As far as it is known without bringing anything. Raises as `Workspace.moment`."""
    seen = ws.reader.read_moment()
    revision, at, moved = _next_place(seen)
    if not ws.engine.has_revision(revision):
        raise reasons.explain_unusable(ws, seen.target)
    held = read_held_now(ws, seen)
    failed = read_failures(ws)
    changed = count_differing(ws, at, held)
    chunks: Counter[str] = Counter()
    for (name, _), number in held.chunks.items():
        chunks[name] += number
    rows = []
    for collection in ws.engine.list_collections(at):
        pending = changed.get(collection.name)
        error = failed.get(collection.name) or held.unembedded.get(collection.name)
        synced = held.current and not moved and pending is None and collection.name not in held.unembedded
        there = held.folder is not None and collection.name in held.definitions
        rows.append(
            CollectionStatus(
                collection.name,
                snapshot=held.folder.name if held.folder and there else None,
                last_sync_commit=held.revision if there else None,
                last_sync_at=_sealed_at(held.folder) if held.folder and there else None,
                document_count=ws.engine.count_documents(at, collection=collection.name),
                chunk_count=chunks[collection.name],
                sync_status="synced" if synced else "error" if error else "pending",
                error_message=None if synced else error,
                embedding_model=collection.embedding_model,
                pending_documents=pending or 0,
            )
        )
    return IndexStatus(at.branch if isinstance(at, WorkingSet) else seen.branch, revision, rows)


def _next_place(seen: Moment) -> tuple[str, At, bool]:
    """The revision and place that the next command reads, and whether it is elsewhere than now."""
    target = seen.target
    if target.state != "pinned" or target.revision == seen.revision:
        return seen.revision, seen.at, False
    branch = target.kb_branch
    uncommitted = branch is not None and branch.dirty and target.attachment == "attached"
    return target.revision, WorkingSet(branch.name) if branch and uncommitted else target.revision, True


def _sealed_at(folder: Path) -> str | None:
    with contextlib.suppress(OSError):
        seconds = (folder / views.VIEW_FILE).stat().st_mtime
        return clock.format_file_time(seconds)
    return None


# -- one collection


def read_indexed(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    """Bring the index, and show a collection as it holds it, with where that answers from.

    If it cannot be brought, because a model is missing, say: as it is known. Raises
    `CollectionMissing`, `IndexFailed`.
    """
    try:
        return read_consistently(ws, lambda: _read(ws, name))
    except (EmbeddingError, IndexExtraMissing):
        if not isinstance(ws, Workspace):
            raise
        return read_known(ws, name)


def read_known(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    """A collection without bringing the index: `chunks` are those that it holds now.

    Raises `CollectionMissing`.
    """
    if not isinstance(ws, Workspace):
        return _read(ws, name)
    at = read_consistently(ws, lambda: find_origin(ws), index=False)
    found = find_collection(ws, at.at, name)
    each = next(collection for collection in read_status(ws).collections if collection.collection_name == found.name)
    hnsw = read_hnsw(found)
    return at, CollectionIndexStatus(
        found, each.document_count, each.chunk_count, each.snapshot or "", hnsw, each.sync_status
    )


def read_size(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionSize]:
    """A collection's size, without bringing the index. Raises `CollectionMissing`."""
    if not isinstance(ws, Workspace):
        at, indexed_so = _read(ws, name)
        return at, CollectionSize(indexed_so.collection.name, indexed_so.documents, indexed_so.chunks)
    at = read_consistently(ws, lambda: find_origin(ws), index=False)
    found = find_collection(ws, at.at, name)
    chunks = count_chunks_held(ws, at, found.name)
    return at, CollectionSize(found.name, ws.engine.count_documents(at.at, collection=found.name), chunks)


def _read(ws: ReadableStore, name: str) -> tuple[AnswerOrigin, CollectionIndexStatus]:
    return ws.reader.read(lambda view: (find_view_origin(ws, view), _as_indexed(ws, view, name)), files=False)


def _as_indexed(ws: ReadableStore, view: View, name: str) -> CollectionIndexStatus:
    collection = find_collection(ws, view.at, name)
    held = read_collections(view.folder)[collection.name]
    return CollectionIndexStatus(
        collection,
        ws.engine.count_documents(view.at, collection=collection.name),
        held.chunks,
        view.folder.name,
        read_hnsw(collection),
        "error" if collection.name in views.read_unembedded(view.folder) else "synced",
    )


def collection_id(name: str) -> str:
    """A UUID for clients that expect one; Chroma gives a collection another in every store."""
    import uuid

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"vmrag:collection:{name}"))


# -- what failed last


def read_failures(ws: Workspace) -> dict[str, str]:
    """Why the last sync could not embed the documents, by collection."""
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
    """What an index holds.

    `current`: it is the one that answers for the workspace as it stands, and verifies.
    `unembedded`: collections that it finds by words alone, and why.
    """

    folder: Path | None = None
    revision: str | None = None
    current: bool = False
    definitions: Mapping[str, Collection] = {}
    headers: Mapping[Key, DocumentHeader] = {}
    chunks: Mapping[Key, int] = {}
    unembedded: Mapping[str, str] = {}


def read_held_now(ws: Workspace, seen: Moment) -> Holdings:
    """Read the index that answers for the workspace, or else the one that it would be made from."""
    revision = seen.revision
    held = _of_index(ws, seen.at, revision, lambda folder, current: read_holdings(folder, revision, current=current))
    return held or Holdings()


def count_chunks_held(ws: Workspace, at: AnswerOrigin, collection: str) -> int:
    """How many chunks the index holds of a collection that answers where the documents are read."""
    held = _of_index(ws, at.at, at.revision, lambda folder, _: read_collections(folder).get(collection))
    return held.chunks if held else 0


def _of_index(ws: Workspace, at: At, revision: str, look: Callable[[Path, bool], T]) -> T | None:
    """What `look` returns of the index's folder, and of whether it is current; None without one."""
    if isinstance(at, WorkingSet):
        copy = ws.sync_context._replace(lock_timeout=0).working_copy(at.branch, revision)
        with contextlib.suppress(Busy), copy.lock_for_reading() as problem:
            if not copy.find_damage():  # though it may be behind
                with contextlib.suppress(IndexFailed):  # damaged since it was proven
                    return look(copy.path, not problem)
    path = ws.views.view_path(revision)
    with ws.views.lock_for_reading(path):
        if not ws.views.find_problem(revision):
            with contextlib.suppress(IndexFailed):
                return look(path, isinstance(at, str))
    return None


def read_holdings(folder: Path, revision: str, *, current: bool) -> Holdings:
    found = read_contents(folder)
    definitions = {name: held.collection for name, held in found.collections.items()}
    return Holdings(folder, revision, current, definitions, found.headers, found.chunks, found.unembedded)


def count_differing(ws: Workspace, at: At, held: Holdings) -> dict[str, int]:
    """Collections that the index and the place hold differently, with the numbers of documents."""
    headers = {header.key: header for header in ws.engine.read_headers(at)}
    wanted = read_collections_at(ws.engine, at, sorted({name for name, _ in headers}), ws.models.load_for)
    anew = {name for name, each in wanted.items() if not held_equally(held, each)}
    numbers = dict.fromkeys((*anew, *(held.definitions.keys() - wanted.keys())), 0)
    for key in headers.keys() | held.headers.keys():
        if key[0] in anew or headers.get(key) != held.headers.get(key):
            numbers[key[0]] = numbers.get(key[0], 0) + 1
    return numbers


def held_equally(held: Holdings, collection: Collection) -> bool:
    there = held.definitions.get(collection.name)
    return there is not None and indexes_equally(there, use_present_model(collection))
