"""Bring the index to what the knowledge base holds, and tell what that did to each collection.

An index is brought for all collections or for none. What a sync did to each is found by comparing
what was held before and after.
"""

from __future__ import annotations

from collections.abc import Mapping

from vmrag_link.errors import (
    CollectionMissing,
    EmbeddingError,
    EmbeddingFailed,
    IndexExtraMissing,
    UsageInvalid,
    VmragError,
)
from vmrag_link.models import DocumentHeader, Record
from vmrag_link.sync import apply
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.index_status import (
    Holdings,
    Key,
    Status,
    count_differing,
    held_equally,
    read_held_now,
    read_holdings,
    read_status,
    write_failures,
)
from vmrag_link.workspace.documents.collections import find_collection
from vmrag_link.workspace.follow import sync
from vmrag_link.workspace.follow.follow_pin import follow
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin, find_view_origin
from vmrag_link.workspace.follow.sync import sync_to_pin as follow_the_pin


class SyncedCollection(Record, frozen=True):
    """What a sync did for one collection: numbers of documents, and of chunks that were added."""

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
    """`failure`: why a collection could not be embedded; its details name it as `collection_name`.

    With a local model nothing was done then; without its service a collection is found by words.
    """

    origin: AnswerOrigin
    collections: tuple[SyncedCollection, ...]
    snapshot: str = ""
    failure: VmragError | None = None

    @property
    def failed(self) -> str:
        """The collection to blame."""
        return (self.failure.collection or "") if self.failure else ""

    @property
    def total(self) -> SyncedCollection:
        """The sums, as of one collection called `all`."""
        rows, at = self.collections, self.origin
        return SyncedCollection(
            "all",
            self.snapshot,
            at.kb.branch,
            at.revision,
            added=sum(row.added for row in rows),
            modified=sum(row.modified for row in rows),
            deleted=sum(row.deleted for row in rows),
            chunks=sum(row.chunks for row in rows),
            sync_status="error" if self.failure else "synced",
        )

    def find_row(self, ws: Workspace, name: str) -> SyncedCollection:
        """What was done for the collection that a name means; the sync may just have removed it.

        Raises `CollectionMissing`.
        """
        rows = {collection.collection: collection for collection in self.collections}
        try:
            name = find_collection(ws, self.origin.at, name).name
        except CollectionMissing:
            if name not in rows:
                raise
        return rows[name]


def bring_index(ws: Workspace) -> SyncedAll:
    """Follow the pin, and bring the index there, uncommitted documents included.

    Raises what is no collection's fault: `IndexFailed`, `MassDeletion`, `FileFailed`, and why the
    pin cannot be followed, where nothing is bound.
    """
    before = _before(ws)
    try:
        follow(ws, tolerate="git")
        seen = ws.reader.read_moment()
        now = read_held_now(ws, seen)
        if now.current and (now.unembedded or count_differing(ws, seen.at, now)):
            apply.discard_views(
                ws.sync_context, ws.resolve_target(), seen.revision
            )  # it verifies, and holds something else
        report = _after(ws, before)
    except (EmbeddingError, IndexExtraMissing, UsageInvalid) as error:
        if error.collection is None:
            raise
        write_failures(ws, {error.collection: error.message})
        return _nothing_done(ws, error)
    write_failures(ws, {})
    sync.wait_if_set(ws)
    return report


def rebuild_index(ws: Workspace) -> SyncedAll:
    """Build the index from nothing; the present one answers until then, and stays if this fails.
    That of files of sources is looked at whole when it is next read.

    Raises as `ops.follow.sync`, and what models raise.
    """
    ws.sources.distrust_view()
    follow_the_pin(ws, rebuild=True)
    report = _after(ws, Holdings())
    write_failures(ws, {})
    return report


def _before(ws: Workspace) -> Holdings:
    return read_held_now(ws, ws.reader.read_moment()) if ws.binding else Holdings()


def _after(ws: Workspace, before: Holdings) -> SyncedAll:
    view, held = ws.reader.read(
        lambda view: (view, read_holdings(view.folder, view.revision, current=True)), files=False
    )
    rows = []
    for name in sorted(held.definitions.keys() | before.definitions.keys()):
        mine, theirs = _of(name, held.headers), _of(name, before.headers)
        there = held.definitions.get(name)
        anew = there is not None and not held_equally(before, there)
        changed = {key for key in mine.keys() & theirs.keys() if anew or mine[key] != theirs[key]}
        new = mine.keys() - theirs.keys()
        row = SyncedCollection(
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
    return SyncedAll(find_view_origin(ws, view), tuple(rows), view.folder.name, _first_failure(held.unembedded))


def _first_failure(unembedded: Mapping[str, str]) -> VmragError | None:
    for name, why in sorted(unembedded.items()):
        hint = "Run it again when the service answers; until then the collection is searched by words alone."
        return EmbeddingFailed(why, hint=hint, collection_name=name)
    return None


def _of(name: str, headers: Mapping[Key, DocumentHeader]) -> dict[Key, DocumentHeader]:
    return {key: header for key, header in headers.items() if key[0] == name}


def _nothing_done(ws: Workspace, error: VmragError) -> SyncedAll:
    at, found = find_origin(ws), read_status(ws)
    rows = tuple(
        SyncedCollection(
            collection.collection_name,
            collection.snapshot or "",
            found.branch,
            at.revision,
            0,
            0,
            0,
            0,
            collection.sync_status,
        )
        for collection in found.collections
    )
    return SyncedAll(at, rows, failure=error)
