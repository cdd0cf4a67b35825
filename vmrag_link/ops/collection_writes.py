"""Create, modify and delete collections for tools. Each call makes all its changes or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from vmrag_link.documents.chunking import require_valid_sizes
from vmrag_link.embedding.base import Model
from vmrag_link.engines.base import Write
from vmrag_link.errors import (
    CollectionExists,
    ConfirmationMissing,
    EmbeddingFailed,
    IndexExtraMissing,
    UsageInvalid,
    plural,
)
from vmrag_link.index.metadata import HNSW_PREFIX, HNSW_SETTINGS
from vmrag_link.models import (
    At,
    Chunking,
    Collection,
    Record,
    encode_canonical_json,
)
from vmrag_link.ops import collection_metadata
from vmrag_link.sync.adding import check_model
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.documents.collections import find_collection, find_exact, make_collection, require_plain
from vmrag_link.workspace.documents.unsaved import find_unsaved, keep_unsaved
from vmrag_link.workspace.documents.writing import Planned, WriteResult


class CollectionCreation(Record, frozen=True):
    """The result of creating a collection."""

    collection: Collection
    created: bool
    """False if the collection already existed. Nothing was changed then."""
    ignored: tuple[str, ...]
    """Keys of HNSW settings that are recorded, but that no index of this program uses."""


class ModifiedCollection(Record, frozen=True):
    """The result of modifying a collection."""

    collection: Collection
    renamed: bool
    described: bool
    """True if the metadata changed."""
    unapplied: tuple[str, ...]
    """Recorded keys of HNSW settings that the present index does not use."""


class DeletedCollection(Record, frozen=True):
    """The result of deleting a collection."""

    name: str
    documents: int
    uncommitted: int
    kept: str
    """The revision that keeps its uncommitted documents; empty if there are none."""


def create_collection(
    ws: Workspace,
    name: str,
    *,
    metadata: Mapping[str, Any],
    embedding_function: str = "",
    chunking: Mapping[str, Any] | None = None,
    get_or_create: bool = False,
) -> WriteResult[CollectionCreation]:
    """Create an empty collection. Its distance is l2 unless the metadata has `hnsw:space`.

    `embedding_function` and `chunking` default to the settings. Raises `NameInvalid`,
    `CollectionExists`, `ContentRefused` for metadata, `UsageInvalid` for chunking, `EmbeddingError`
    errors for a model that does not work here, and the errors of `writing.write_rows`.
    """
    collections.require_name(name)
    flat = collection_metadata.flatten_metadata(metadata)
    distance = flat.pop(collection_metadata.SPACE, "l2")
    chunking_settings = _read_chunking(ws, chunking or {})
    ignored = tuple(key for key in flat if key.startswith(HNSW_PREFIX) and key not in HNSW_SETTINGS)

    def plan_creation(at: At) -> Planned[CollectionCreation]:
        existing = find_exact(ws, at, name)
        if existing and not get_or_create:
            raise _collection_exists(name)
        if existing:
            return Planned(None, CollectionCreation(existing, created=False, ignored=ignored))
        model = load_working_model(ws, embedding_function or ws.config.embedding.model)
        new = make_collection(name, model, chunking_settings, metadata=encode_canonical_json(flat), distance=distance)
        return Planned(Write(put_collections=[new]), CollectionCreation(new, created=True, ignored=ignored))

    return writing.write_rows(ws, plan_creation, f"create collection {name}")


def modify_collection(
    ws: Workspace, name: str, *, new_name: str | None = None, metadata: Mapping[str, Any] | None = None
) -> WriteResult[ModifiedCollection]:
    """Rename a collection, replace its metadata, or both.

    HNSW settings that the new metadata does not name stay recorded. A new name moves the documents.
    A diff shows the same collection, and the cache provides its vectors. Raises
    `CollectionMissing`, `CollectionExists`, `NameInvalid`, `ContentRefused`, `UsageInvalid`,
    `EmbeddingMismatch`, and the errors of `writing.write_rows`.
    """
    if new_name is None and metadata is None:
        raise UsageInvalid(
            "the call has neither a new name nor new metadata.", hint="pass new_name, new_metadata, or both"
        )
    if new_name is not None:
        collections.require_name(new_name)
    flat = None if metadata is None else collection_metadata.flatten_metadata(metadata)

    def plan_change(at: At) -> Planned[ModifiedCollection]:
        before = find_collection(ws, at, name)
        recorded = before.metadata if flat is None else collection_metadata.replace_metadata(before, flat)
        after = msgspec.structs.replace(before, name=new_name or before.name, metadata=recorded)
        report = ModifiedCollection(
            after,
            renamed=after.name != before.name,
            described=recorded != before.metadata,
            unapplied=collection_metadata.list_unapplied(before, after, flat or {}),
        )
        if after == before:
            return Planned(None, report)
        write = _plan_rename(ws, at, before, after) if report.renamed else Write(put_collections=[after])
        return Planned(write, report)

    return writing.write_rows(ws, plan_change, f"modify collection {name}")


def delete_collection(ws: Workspace, name: str, *, confirmed: bool) -> WriteResult[DeletedCollection]:
    """Delete a collection with its documents.

    Uncommitted documents stay in a revision of their own. Raises `CollectionMissing`,
    `ConfirmationMissing` unless `confirmed` is true, and the errors of `writing.write_rows`.
    """

    def plan_deletion(at: At) -> Planned[DeletedCollection]:
        collection = find_collection(ws, at, name)
        count = ws.engine.count_documents(at, collection=collection.name)
        unsaved = find_unsaved(ws, at, lambda key: key[0] == collection.name)
        changed = len(unsaved.documents)
        if not confirmed:
            raise _confirmation_missing(collection.name, count, changed)
        kept_revision = keep_unsaved(ws, at, unsaved, before=f"collection {collection.name} was deleted")
        return Planned(
            Write(remove_collections=[collection.name]),
            DeletedCollection(collection.name, count, changed, kept_revision),
        )

    return writing.write_rows(ws, plan_deletion, f"delete collection {name}")


def load_working_model(ws: Workspace, name: str) -> Model:
    """Return the embedding model with this name after it has embedded a word as a test.

    Raises `EmbeddingFailed`, also if a package is missing, and `EmbeddingMismatch`.
    """
    try:
        model = ws.models.load_named(name)
        model.embed([name])
    except (UsageInvalid, IndexExtraMissing) as error:
        raise EmbeddingFailed(error.message, hint=error.hint, embedding_function=name) from error
    return model


class _ChunkingArgument(Record, frozen=True, forbid_unknown_fields=True):
    """The argument `chunking` of a tool, with limits."""

    strategy: Literal["characters"]
    size: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    overlap: Annotated[int, msgspec.Meta(ge=0, le=99_999)]


def _read_chunking(ws: Workspace, argument: Mapping[str, Any]) -> Chunking:
    """Return the chunking settings of a call, with defaults from the settings.

    Raises `UsageInvalid`.
    """
    defaults = ws.config.chunking
    settings = {"strategy": "characters", "size": defaults.size, "overlap": defaults.overlap, **argument}
    try:
        converted = msgspec.convert(settings, type=_ChunkingArgument, strict=False)
    except msgspec.ValidationError as error:
        raise UsageInvalid(
            f"invalid chunking: {error}.",
            hint='pass an object, such as \'{"size": 512, "overlap": 50}\'',
            parameter="chunking",
        ) from None
    chunking = Chunking(converted.strategy, converted.size, converted.overlap)
    require_valid_sizes(chunking)
    return chunking


def _collection_exists(name: str) -> CollectionExists:
    return CollectionExists(
        f"the collection {name!r} already exists.",
        hint="run 'vmrag list' to list the collections",
        collection_name=name,
    )


def _plan_rename(ws: Workspace, at: At, before: Collection, after: Collection) -> Write:
    require_plain(before)
    if any(collection.name == after.name for collection in ws.engine.list_collections(at)):
        raise _collection_exists(after.name)
    check_model(ws.models.load_for(before), before)  # its documents are indexed under the new name
    documents = ws.engine.read_documents(at, collection=before.name)
    return Write(
        put_collections=[after],
        remove_collections=[before.name],
        # The generator is read during the write, so all documents are of one revision.
        put_documents=(msgspec.structs.replace(document, collection=after.name) for document in documents),
    )


def _confirmation_missing(name: str, count: int, uncommitted: int) -> ConfirmationMissing:
    suffix = f", {uncommitted} of them with an uncommitted text" if uncommitted else ", all of them committed"
    return ConfirmationMissing(
        f"this call would delete the collection {name!r} with {plural(count, 'document')}{suffix if count else ''}.",
        hint="use confirm=true to delete it",
        collection_name=name,
        document_count=count,
        uncommitted_count=uncommitted,
    )
