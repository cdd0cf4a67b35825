"""Does the index hold what the knowledge base holds? By collection, without bringing it there."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec

from vmrag_link import clock
from vmrag_link.errors import EmbeddingError, IndexExtraMissing
from vmrag_link.index import view as views
from vmrag_link.index.contents import held_collections
from vmrag_link.index.metadata import hnsw_of
from vmrag_link.models import At, Collection, Record, Working
from vmrag_link.ops.documents.collections import find
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import Standing, standing, viewed
from vmrag_link.ops.index.holdings import chunks_held_now, differing, held_now
from vmrag_link.paths import write_atomically
from vmrag_link.workspace import Moment, ReadableStore, View, Workspace, reasons

Status = Literal["synced", "pending", "error"]


class CollectionStatus(Record, frozen=True):
    """`pending`: documents that are stale, missing or left over in the index.

    `last_sync_commit` is the revision of the index that holds the collection; `last_sync_at` ISO
    8601 UTC.
    """

    collection: Collection
    snapshot: str | None
    last_sync_commit: str | None
    last_sync_at: str | None
    documents: int
    chunks: int
    status: Status
    error: str | None
    pending: int


class IndexStatus(Record, frozen=True):
    """`commit`: the revision that the index should stand at, with the uncommitted of `branch`."""

    branch: str | None
    commit: str
    collections: tuple[CollectionStatus, ...]

    @property
    def in_sync(self) -> bool:
        return all(each.status == "synced" for each in self.collections)


class Indexed(Record, frozen=True):
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
    """`documents` of the knowledge base, and the `chunks` that the index holds now."""

    name: str
    documents: int
    chunks: int


def look(ws: Workspace) -> IndexStatus:
    """As far as it is known without bringing anything. Raises as `Workspace.moment`."""
    seen = ws.reader.moment()
    revision, at, moved = _next_place(seen)
    if not ws.engine.has_revision(revision):
        raise reasons.unusable(ws, seen.target)
    held = held_now(ws, seen)
    failed = failures(ws)
    changed = differing(ws, at, held)
    chunks: Counter[str] = Counter()
    for (name, _), number in held.chunks.items():
        chunks[name] += number
    rows = []
    for each in ws.engine.collections(at):
        pending = changed.get(each.name)
        error = failed.get(each.name) or held.unembedded.get(each.name)
        synced = held.current and not moved and pending is None and each.name not in held.unembedded
        there = held.folder is not None and each.name in held.definitions
        rows.append(
            CollectionStatus(
                each,
                snapshot=held.folder.name if held.folder and there else None,
                last_sync_commit=held.revision if there else None,
                last_sync_at=_sealed_at(held.folder) if held.folder and there else None,
                documents=ws.engine.count(at, collection=each.name),
                chunks=chunks[each.name],
                status="synced" if synced else "error" if error else "pending",
                error=None if synced else error,
                pending=pending or 0,
            )
        )
    return IndexStatus(at.branch if isinstance(at, Working) else seen.branch, revision, tuple(rows))


def _next_place(seen: Moment) -> tuple[str, At, bool]:
    """The revision and place that the next command reads, and whether it is elsewhere than now."""
    target = seen.target
    if target.state != "pinned" or target.revision == seen.revision:
        return seen.revision, seen.at, False
    branch = target.kb_branch
    uncommitted = branch is not None and branch.dirty and target.attachment == "attached"
    return target.revision, Working(branch.name) if branch and uncommitted else target.revision, True


def _sealed_at(folder: Path) -> str | None:
    with contextlib.suppress(OSError):
        seconds = (folder / views.FILE).stat().st_mtime
        return clock.at(seconds)
    return None


# -- one collection


def indexed(ws: ReadableStore, name: str) -> tuple[Standing, Indexed]:
    """Bring the index, and show a collection as it holds it, with where that answers from.

    If it cannot be brought, because a model is missing, say: as it is known. Raises
    `CollectionMissing`, `IndexFailed`.
    """
    try:
        return read_consistently(ws, lambda: _read(ws, name))
    except (EmbeddingError, IndexExtraMissing):
        if not isinstance(ws, Workspace):
            raise
        return known(ws, name)


def known(ws: ReadableStore, name: str) -> tuple[Standing, Indexed]:
    """A collection without bringing the index: `chunks` are those that it holds now.

    Raises `CollectionMissing`.
    """
    if not isinstance(ws, Workspace):
        return _read(ws, name)
    at = read_consistently(ws, lambda: standing(ws), index=False)
    found = find(ws, at.at, name)
    each = next(each for each in look(ws).collections if each.collection.name == found.name)
    hnsw = hnsw_of(found)
    return at, Indexed(found, each.documents, each.chunks, each.snapshot or "", hnsw, each.status)


def count(ws: ReadableStore, name: str) -> tuple[Standing, CollectionSize]:
    """A collection's size, without bringing the index. Raises `CollectionMissing`."""
    if not isinstance(ws, Workspace):
        at, indexed_so = _read(ws, name)
        return at, CollectionSize(indexed_so.collection.name, indexed_so.documents, indexed_so.chunks)
    at = read_consistently(ws, lambda: standing(ws), index=False)
    found = find(ws, at.at, name)
    chunks = chunks_held_now(ws, at, found.name)
    return at, CollectionSize(found.name, ws.engine.count(at.at, collection=found.name), chunks)


def _read(ws: ReadableStore, name: str) -> tuple[Standing, Indexed]:
    return ws.reader.read(lambda view: (viewed(ws, view), _as_indexed(ws, view, name)), files=False)


def _as_indexed(ws: ReadableStore, view: View, name: str) -> Indexed:
    collection = find(ws, view.at, name)
    held = held_collections(view.folder)[collection.name]
    return Indexed(
        collection,
        ws.engine.count(view.at, collection=collection.name),
        held.chunks,
        view.folder.name,
        hnsw_of(collection),
        "error" if collection.name in views.unembedded(view.folder) else "synced",
    )


def collection_id(name: str) -> str:
    """A UUID for clients that expect one; Chroma gives a collection another in every store."""
    import uuid

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"vmrag:collection:{name}"))


# -- what failed last


def failures(ws: Workspace) -> dict[str, str]:
    """Why the last sync could not embed the documents, by collection."""
    try:
        return msgspec.json.decode(ws.places.index_failures.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):
        return {}


def remember(ws: Workspace, failures: dict[str, str]) -> None:
    if failures:
        write_atomically(ws.places.index_failures, msgspec.json.encode(failures), durable=False)
    else:
        ws.places.index_failures.unlink(missing_ok=True)
