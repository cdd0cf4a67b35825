"""Update the index for tools, and report what that changed in each collection.

All collections are updated, or none. The report compares the contents before and after.
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


class SyncedCollection(Record, frozen=True, rename={"view": "snapshot"}):
    """The changes of a sync in one collection: numbers of documents, and of added chunks."""

    collection: str
    view: str
    branch: str | None
    commit: str
    added: int
    modified: int
    deleted: int
    chunks: int
    sync_status: Status


class SyncedAll(Record, frozen=True):
    """The result of a sync."""

    origin: AnswerOrigin
    collections: tuple[SyncedCollection, ...]
    view: str = ""
    failure: VmragError | None = None
    """Why a collection could not be embedded. Its details have the `collection_name`. With a local
    model nothing was changed then. Without its service the collection is searched by words.
    """

    @property
    def failed(self) -> str:
        """The name of the collection that failed; empty if none did."""
        return (self.failure.collection or "") if self.failure else ""

    @property
    def total(self) -> SyncedCollection:
        """The sums, as one collection called `all`."""
        rows = self.collections
        return SyncedCollection(
            collection="all",
            view=self.view,
            branch=self.origin.kb.branch,
            commit=self.origin.revision,
            added=sum(row.added for row in rows),
            modified=sum(row.modified for row in rows),
            deleted=sum(row.deleted for row in rows),
            chunks=sum(row.chunks for row in rows),
            sync_status="error" if self.failure else "synced",
        )

    def find_row(self, ws: Workspace, name: str) -> SyncedCollection:
        """Return the row of the collection that a name means. The sync may have removed it.

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
    """Follow the pin, and bring the index to it, with uncommitted documents.

    Raises errors that no collection caused: `IndexFailed`, `MassDeletion`, `FileFailed`. Without a
    bound index, raises why the pin cannot be followed.
    """
    before = read_held_now(ws, ws.reader.read_moment()) if ws.binding else Holdings()
    try:
        follow(ws, tolerate="git")
        moment = ws.reader.read_moment()
        holdings = read_held_now(ws, moment)
        if holdings.current and (holdings.unembedded or count_differing(ws, moment.at, holdings)):
            # The index passes its checks, but has other contents.
            apply.discard_views(ws.sync_context, ws.resolve_target(), moment.revision)
        report = _form_report(ws, before)
    except (EmbeddingError, IndexExtraMissing, UsageInvalid) as error:
        if error.collection is None:
            raise
        write_failures(ws, {error.collection: error.message})
        return _form_failed(ws, error)
    write_failures(ws, {})
    sync.wait_if_set(ws)
    return report


def rebuild_index(ws: Workspace) -> SyncedAll:
    """Build the index from nothing.

    The present index answers until then, and stays if this fails. The index of files is checked as
    a whole when it is next read. Raises the errors of `sync.sync_to_pin` and of models.
    """
    ws.source_index.distrust_view()
    follow_the_pin(ws, rebuild=True)
    report = _form_report(ws, Holdings())
    write_failures(ws, {})
    return report


def _form_report(ws: Workspace, before: Holdings) -> SyncedAll:
    """Compare the present contents of the index with those `before`."""
    view, holdings = ws.reader.read(
        lambda view: (view, read_holdings(view.folder, view.revision, current=True)), files=False
    )
    rows = []
    for name in sorted(holdings.definitions.keys() | before.definitions.keys()):
        present = _select_collection(name, holdings.headers)
        former = _select_collection(name, before.headers)
        collection = holdings.definitions.get(name)
        is_rebuilt = collection is not None and not held_equally(before, collection)
        changed = {key for key in present.keys() & former.keys() if is_rebuilt or present[key] != former[key]}
        new = present.keys() - former.keys()
        row = SyncedCollection(
            collection=name,
            view=view.folder.name,
            branch=view.branch,
            commit=view.revision,
            added=len(new),
            modified=len(changed),
            deleted=len(former.keys() - present.keys()),
            chunks=sum(holdings.chunks[key] for key in new | changed),
            sync_status="error" if name in holdings.unembedded else "synced",
        )
        if collection or row.deleted:
            rows.append(row)
    failure = _build_failure(holdings.unembedded)
    return SyncedAll(find_view_origin(ws, view), tuple(rows), view=view.folder.name, failure=failure)


def _build_failure(unembedded: Mapping[str, str]) -> VmragError | None:
    """Return the error of the first collection without vectors. `unembedded` has the reasons."""
    if not unembedded:
        return None
    name = min(unembedded)
    hint = "run the command again when the service answers, because until then the collection is searched by words only"
    return EmbeddingFailed(unembedded[name], hint=hint, collection_name=name)


def _select_collection(name: str, headers: Mapping[Key, DocumentHeader]) -> dict[Key, DocumentHeader]:
    return {key: header for key, header in headers.items() if key[0] == name}


def _form_failed(ws: Workspace, error: VmragError) -> SyncedAll:
    """Return the report of a sync that changed nothing."""
    origin = find_origin(ws)
    status = read_status(ws)
    rows = tuple(
        SyncedCollection(
            collection=collection.collection_name,
            view=collection.view or "",
            branch=status.branch,
            commit=origin.revision,
            added=0,
            modified=0,
            deleted=0,
            chunks=0,
            sync_status=collection.sync_status,
        )
        for collection in status.collections
    )
    return SyncedAll(origin, rows, failure=error)
