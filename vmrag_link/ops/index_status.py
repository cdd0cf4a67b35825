"""Whether the index holds what the knowledge base holds, collection by collection; and bringing it there.

An index is one whole: it is brought for all collections or for none. What a sync did to each is seen by comparing what
was held before and after.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from vmrag_link.errors import Embedding, EmbeddingFailed, IndexExtraMissing, IndexFailed, UsageInvalid, VmragError
from vmrag_link.index import manifest
from vmrag_link.index.store import HNSW, contents, held_collections, hnsw_of, indexes_equally, unembedded
from vmrag_link.models import At, Collection, DocumentHeader, Record, Working
from vmrag_link.ops.collections import find
from vmrag_link.ops.recover import reconciled_for_reading
from vmrag_link.ops.standing import Standing, standing, viewed
from vmrag_link.ops.sync import sync as follow_the_pin
from vmrag_link.paths import write_atomically
from vmrag_link.sync import apply
from vmrag_link.workspace import Moment, View, Workspace

Status = Literal["synced", "pending", "error"]
Key = tuple[str, str]


class CollectionStatus(Record, frozen=True):
    """`pending`: documents that the index holds otherwise than the knowledge base, or not at all, or still.

    `last_sync_commit` is the revision that the index stands at which holds the collection; `last_sync_at` ISO 8601 UTC.
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
    """`commit` is what the index should stand at, with the uncommitted documents of `branch`, if it has some."""

    branch: str | None
    commit: str
    collections: tuple[CollectionStatus, ...]

    @property
    def in_sync(self) -> bool:
        return all(each.status == "synced" for each in self.collections)


class Synced(Record, frozen=True):
    """What a sync did for one collection: numbers of documents, and of the chunks that were put in."""

    collection: str
    snapshot: str
    branch: str | None
    commit: str
    added: int
    modified: int
    deleted: int
    chunks: int
    sync_status: Status


class SyncedAll(Record, frozen=True):
    """`failure`: why a collection could not be embedded, which its details' `collection_name` names. With a local model nothing was done
    then; what a service did not embed is in the index by its words.
    """

    standing: Standing
    collections: tuple[Synced, ...]
    failure: VmragError | None = None

    @property
    def failed(self) -> str:
        """The collection to blame."""
        return str(self.failure.details["collection_name"]) if self.failure else ""


class Indexed(Record, frozen=True):
    """A collection and what the index holds of it. `id` is Chroma's own, another one after each rebuild; empty if there is none.

    `hnsw`: what Chroma's HNSW index was made with, by the keys of metadata, if it was asked for; else, or if there is none, as it will be.
    """

    collection: Collection
    id: str
    documents: int
    chunks: int
    snapshot: str
    hnsw: dict[str, int]
    status: Status


class _Holdings(Record, frozen=True):
    """What an index holds. `current`: it is the one that answers for the workspace as it stands, and verifies.

    `unembedded`: collections that it finds by words alone, and why.
    """

    folder: Path | None = None
    revision: str | None = None
    current: bool = False
    definitions: Mapping[str, Collection] = {}
    headers: Mapping[Key, DocumentHeader] = {}
    chunks: Mapping[Key, int] = {}
    unembedded: Mapping[str, str] = {}


# -- looking ------------------------------------------------------------------------------------------------------------


def look(ws: Workspace) -> IndexStatus:
    """As far as it is known without bringing anything. Raises as `Workspace.moment`."""
    seen = ws.moment()
    revision, at, moved = _wanted(seen)
    if not ws.engine.has_revision(revision):
        raise ws.unusable(seen.target)
    held = _holdings(ws, seen)
    failures = _failures(ws)
    differing = _differing(ws, at, held)
    chunks: Counter[str] = Counter()
    for (name, _), number in held.chunks.items():
        chunks[name] += number
    rows = []
    for each in ws.engine.collections(at):
        pending = differing.get(each.name)
        error = failures.get(each.name) or held.unembedded.get(each.name)
        synced = held.current and not moved and pending is None and each.name not in held.unembedded
        there = held.folder is not None and each.name in held.definitions
        rows.append(
            CollectionStatus(
                each,
                snapshot=held.folder.name if held.folder and there else None,
                last_sync_commit=held.revision if there else None,
                last_sync_at=_sealed(held.folder) if held.folder and there else None,
                documents=ws.engine.count(at, collection=each.name),
                chunks=chunks[each.name],
                status="synced" if synced else "error" if error else "pending",
                error=None if synced else error,
                pending=pending or 0,
            )
        )
    return IndexStatus(at.branch if isinstance(at, Working) else seen.branch, revision, tuple(rows))


def _wanted(seen: Moment) -> tuple[str, At, bool]:
    """The revision that the next command will answer from, where it will read, and whether that is elsewhere than now."""
    target = seen.target
    if target.state != "pinned" or target.revision == seen.revision:
        return seen.revision, seen.at, False
    branch = target.kb_branch
    uncommitted = branch is not None and branch.dirty and target.attachment == "attached"
    return target.revision, Working(branch.name) if branch and uncommitted else target.revision, True


def _holdings(ws: Workspace, seen: Moment) -> _Holdings:
    """Of the index that answers for the workspace; if it cannot, of the one that it would be made from."""
    if seen.branch and seen.dirty:
        copy = apply.working_copy(ws.parts, seen.branch, seen.revision)
        with copy.reading() as problem:
            if not copy.damage():  # though it may be behind
                with contextlib.suppress(IndexFailed):  # of the right size, but damaged
                    return _read(copy.path, seen.revision, current=not problem)
    path = ws.shelf.path(seen.revision)
    with ws.shelf.reading(path):
        if not ws.shelf.problem(seen.revision):
            with contextlib.suppress(IndexFailed):
                return _read(path, seen.revision, current=not seen.dirty)
    return _Holdings()


def _read(folder: Path, revision: str, *, current: bool) -> _Holdings:
    found = contents(folder)
    definitions = {name: held.collection for name, held in found.collections.items()}
    return _Holdings(folder, revision, current, definitions, found.headers, found.chunks, found.unembedded)


def _differing(ws: Workspace, at: At, held: _Holdings) -> dict[str, int]:
    """The collections of either side that are not held as they are at a place, with the numbers of documents that this concerns."""
    wanted = {each.name: each for each in ws.engine.collections(at)}
    anew = {name for name, each in wanted.items() if not _held_equally(held, each)}
    numbers = dict.fromkeys((*anew, *(held.definitions.keys() - wanted.keys())), 0)
    headers = {each.key: each for each in ws.engine.headers(at)}
    for key in headers.keys() | held.headers.keys():
        if key[0] in anew or headers.get(key) != held.headers.get(key):
            numbers[key[0]] = numbers.get(key[0], 0) + 1
    return numbers


def _held_equally(held: _Holdings, collection: Collection) -> bool:
    there = held.definitions.get(collection.name)
    return there is not None and indexes_equally(there, collection)


def _sealed(folder: Path) -> str | None:
    with contextlib.suppress(OSError):
        seconds = (folder / manifest.FILE).stat().st_mtime
        return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return None


# -- one collection -----------------------------------------------------------------------------------------------------


def indexed(ws: Workspace, at: Standing, name: str, *, hnsw: bool = False) -> tuple[Standing, Indexed]:
    """A collection as the index holds it, which is brought first, and where that answers from.

    If it cannot be brought, because a model is missing, say: as it is known. Raises `CollectionMissing`, `IndexFailed`.
    """
    try:
        return ws.read(lambda view: (viewed(ws, view), _indexed(ws, view, name, hnsw=hnsw)))
    except (Embedding, IndexExtraMissing):
        found = find(ws, at.at, name)
        each = next(each for each in look(ws).collections if each.collection.name == found.name)
        usual = {key: setting.usual for key, setting in HNSW.items()}
        return at, Indexed(found, "", each.documents, each.chunks, each.snapshot or "", usual, each.status)


def _indexed(ws: Workspace, view: View, name: str, *, hnsw: bool) -> Indexed:
    collection = find(ws, view.at, name)
    held = held_collections(view.folder)[collection.name]
    return Indexed(
        collection,
        held.chroma_id,
        ws.engine.count(view.at, collection=collection.name),
        held.slots - held.dead,
        view.folder.name,
        hnsw_of(view.folder, collection.name) if hnsw else {},
        "error" if collection.name in unembedded(view.folder) else "synced",
    )


# -- bringing -----------------------------------------------------------------------------------------------------------


def bring(ws: Workspace) -> SyncedAll:
    """Bring the index to what the workspace stands at, uncommitted documents included; the pin is followed first.

    Raises what is no collection's fault: `IndexFailed`, `MassDeletion`, `FileFailed`, and why the pin cannot be followed, where
    nothing is bound.
    """
    before = _before(ws)
    try:
        reconciled_for_reading(ws)
        seen = ws.moment()
        now = _holdings(ws, seen)
        if now.current and (now.unembedded or _differing(ws, seen.at, now)):
            apply.throw_away(ws.parts, ws.target(), seen.revision)  # it verifies, and holds something else
        report = _after(ws, before)
    except (Embedding, IndexExtraMissing, UsageInvalid) as error:
        if "collection_name" not in error.details:
            raise
        _remember(ws, {str(error.details["collection_name"]): error.message})
        return _nothing_done(ws, error)
    _remember(ws, {})
    return report


def rebuild(ws: Workspace) -> SyncedAll:
    """Build the index from nothing; the one that is there answers until then, and goes on if this fails.

    Raises as `ops.sync`, and what models raise.
    """
    follow_the_pin(ws, rebuild=True)
    report = _after(ws, _Holdings())
    _remember(ws, {})
    return report


def _before(ws: Workspace) -> _Holdings:
    return _holdings(ws, ws.moment()) if ws.binding else _Holdings()


def _after(ws: Workspace, before: _Holdings) -> SyncedAll:
    view, held = ws.read(lambda view: (view, _read(view.folder, view.revision, current=True)))
    rows = []
    for name in sorted(held.definitions.keys() | before.definitions.keys()):
        mine, theirs = _of(name, held.headers), _of(name, before.headers)
        there = held.definitions.get(name)
        anew = there is not None and not _held_equally(before, there)
        changed = {key for key in mine.keys() & theirs.keys() if anew or mine[key] != theirs[key]}
        new = mine.keys() - theirs.keys()
        row = Synced(
            name,
            view.folder.name,
            view.branch,
            view.revision,
            added=len(new),
            modified=len(changed),
            deleted=len(theirs.keys() - mine.keys()),
            chunks=sum(held.chunks[key] for key in new | changed),
            sync_status="error" if name in held.unembedded else "synced",
        )
        if there or row.deleted:
            rows.append(row)
    return SyncedAll(viewed(ws, view), tuple(rows), _first_failure(held.unembedded))


def _first_failure(unembedded: Mapping[str, str]) -> VmragError | None:
    for name, why in sorted(unembedded.items()):
        hint = "Run it again when the service answers; until then the collection is searched by words alone."
        return EmbeddingFailed(why, hint=hint, collection_name=name)
    return None


def _of(name: str, headers: Mapping[Key, DocumentHeader]) -> dict[Key, DocumentHeader]:
    return {key: each for key, each in headers.items() if key[0] == name}


def _nothing_done(ws: Workspace, error: VmragError) -> SyncedAll:
    at, found = standing(ws), look(ws)
    rows = tuple(
        Synced(each.collection.name, each.snapshot or "", found.branch, at.revision, 0, 0, 0, 0, each.status)
        for each in found.collections
    )
    return SyncedAll(at, rows, error)


# -- what failed last ---------------------------------------------------------------------------------------------------


def _failures(ws: Workspace) -> dict[str, str]:
    """By collection, why the last sync could not embed its documents."""
    try:
        return msgspec.json.decode(ws.places.index_failures.read_bytes(), type=dict[str, str])
    except (FileNotFoundError, msgspec.DecodeError):
        return {}


def _remember(ws: Workspace, failures: dict[str, str]) -> None:
    if failures:
        write_atomically(ws.places.index_failures, msgspec.json.encode(failures))
    else:
        ws.places.index_failures.unlink(missing_ok=True)
