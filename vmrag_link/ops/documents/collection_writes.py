"""Collections that clients make, change and remove: each call all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from vmrag_link import clock
from vmrag_link.documents.chunking import require_possible
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
from vmrag_link.index.metadata import HNSW, HNSW_PREFIX
from vmrag_link.merging.replay import AUTHOR
from vmrag_link.merging.threeway import as_rows
from vmrag_link.models import At, Chunking, Collection, Record, canonical_json
from vmrag_link.ops.documents import names, writing
from vmrag_link.ops.documents.collection_metadata import SPACE, flat, replaced, unapplied
from vmrag_link.ops.documents.collections import find
from vmrag_link.sync.indexer import checked
from vmrag_link.workspace import Workspace


class Created(Record, frozen=True):
    """`created` False: it was there already, and nothing was changed. `pending`: why the index did not follow yet.

    `ignored`: the keys of HNSW settings that are recorded, but that no index here has.
    """

    collection: Collection
    created: bool
    ignored: tuple[str, ...] = ()
    pending: str = ""


class Modified(Record, frozen=True):
    """`unapplied`: the keys of HNSW settings that were recorded, but which the index that is there keeps as it was made."""

    collection: Collection
    renamed: bool
    described: bool
    unapplied: tuple[str, ...]
    pending: str = ""


class Deleted(Record, frozen=True):
    """`kept`: the revision that holds those of its `documents` that were never committed; empty for none."""

    name: str
    documents: int
    uncommitted: int
    kept: str
    pending: str = ""


def create(
    ws: Workspace,
    name: str,
    *,
    metadata: Mapping[str, Any],
    embedding_function: str = "",
    chunking: Mapping[str, Any] | None = None,
    get_or_create: bool = False,
) -> Created:
    """Make an empty collection, whose distance is l2 unless `hnsw:space` in its metadata says otherwise.

    `embedding_function` and `chunking` are what the settings say unless they are given. Raises `NameInvalid`, `CollectionExists`,
    `ContentRefused` for metadata, `UsageInvalid` for chunking, `Embedding` errors for a model that cannot work here, and as
    `writing.write`.
    """
    names.check(name)
    given = flat(metadata)
    distance = given.pop(SPACE, "l2")
    cut = _chunking(ws, chunking or {})
    found: Collection | None = None

    def plan(at: At) -> Write | None:
        nonlocal found
        found = next((each for each in ws.engine.collections(at) if each.name == name), None)
        if found and not get_or_create:
            raise _exists(name)
        if found:
            return None
        model = working_model(ws, embedding_function or ws.config.embedding.model)
        found = Collection(
            name=name,
            metadata=canonical_json(given),
            embedding_function=model.name,
            embedding_model=model.fingerprint,
            embedding_dimensions=model.dimensions,
            distance=distance,
            chunking=cut,
            created_at=clock.now(),
        )
        return Write(put_collections=[found])

    landed = writing.write(ws, plan, f"create collection {name}")
    assert found is not None  # noqa: S101  `write` has asked
    ignored = tuple(key for key in given if key.startswith(HNSW_PREFIX) and key not in HNSW)
    return Created(found, landed is not None, ignored, landed.pending if landed else "")


def modify(
    ws: Workspace, name: str, *, new_name: str | None = None, metadata: Mapping[str, Any] | None = None
) -> Modified:
    """Rename a collection, replace its metadata, or both. HNSW settings that the new metadata does not name stay recorded.

    A renamed collection's documents move; it is the same one to who compares, and its vectors come from the cache.
    Raises `CollectionMissing`, `CollectionExists`, `NameInvalid`, `ContentRefused`, `UsageInvalid`, `EmbeddingMismatch`, and as
    `writing.write`.
    """
    if new_name is None and metadata is None:
        raise UsageInvalid(
            "Neither a new name nor new metadata is given.", hint="Give new_name, new_metadata, or both."
        )
    if new_name is not None:
        names.check(new_name)
    given = None if metadata is None else flat(metadata)
    before = after = Collection("")

    def plan(at: At) -> Write | None:
        nonlocal before, after
        before = find(ws, at, name)
        after = msgspec.structs.replace(
            before,
            name=new_name or before.name,
            metadata=before.metadata if given is None else replaced(before, given),
        )
        if after == before:
            return None
        if after.name == before.name:
            return Write(put_collections=[after])
        if any(each.name == after.name for each in ws.engine.collections(at)):
            raise _exists(after.name)
        checked(ws.models.of(before), before)  # its documents are indexed under the new name
        moved = ws.engine.documents(at, collection=before.name)  # read while they are written: all as of one moment
        return Write(
            put_collections=[after],
            remove_collections=[before.name],
            put_documents=(msgspec.structs.replace(each, collection=after.name) for each in moved),
        )

    landed = writing.write(ws, plan, f"modify collection {name}")
    return Modified(
        after,
        after.name != before.name,
        after.metadata != before.metadata,
        unapplied(before, after, given or {}),
        landed.pending if landed else "",
    )


def delete(ws: Workspace, name: str, *, confirmed: bool) -> Deleted:
    """Remove a collection with its documents; what was never committed of it stays reachable.

    Raises `CollectionMissing`, `ConfirmationMissing` unless it is `confirmed`, and as `writing.write`.
    """
    report = Deleted("", 0, 0, "")

    def plan(at: At) -> Write:
        nonlocal report
        collection = find(ws, at, name)
        count = ws.engine.count(at, collection=collection.name)
        changed = _uncommitted(ws, at, collection.name)
        if not confirmed:
            raise _unconfirmed(collection.name, count, changed)
        report = Deleted(collection.name, count, changed, _kept(ws, at, collection.name) if changed else "")
        return Write(remove_collections=[collection.name])

    landed = writing.write(ws, plan, f"delete collection {name}")
    return msgspec.structs.replace(report, pending=landed.pending if landed else "")


def _exists(name: str) -> CollectionExists:
    return CollectionExists(f"There is a collection {name!r} already.", hint="vmrag list", collection_name=name)


def _uncommitted(ws: Workspace, at: At, name: str) -> int:
    """The number of documents with a content that no revision holds."""
    if isinstance(at, str):
        return 0
    head = ws.kb_branch()
    changes = ws.engine.diff(head.head, at).documents if head else ()
    return sum(each.after is not None and each.key[0] == name for each in changes)


def _unconfirmed(name: str, count: int, uncommitted: int) -> ConfirmationMissing:
    lost = f", {uncommitted} of them with a text that was never committed" if uncommitted else ", all of them committed"
    return ConfirmationMissing(
        f"This would delete collection {name!r} with {plural(count, 'document')}{lost if count else ''}.",
        hint="confirm=true deletes it",
        collection_name=name,
        document_count=count,
        uncommitted_count=uncommitted,
    )


def _kept(ws: Workspace, at: At, name: str) -> str:
    """A revision, which nothing lets go of, with everything that is uncommitted now."""
    head = ws.kb_branch()
    assert head is not None  # noqa: S101  there are uncommitted documents
    return ws.engine.commit_onto(
        head.head,
        [as_rows(ws.engine.diff(head.head, at))],
        message=f"Uncommitted documents of {head.name}, before collection {name} was deleted",
        author=AUTHOR,
        date=clock.now(),
    )


# -- how the documents will be indexed -----------------------------------------------------------------------------------


class _Chunking(Record, frozen=True, forbid_unknown_fields=True):
    strategy: Literal["characters"]
    size: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    overlap: Annotated[int, msgspec.Meta(ge=0, le=99_999)]


def _chunking(ws: Workspace, given: Mapping[str, Any]) -> Chunking:
    """Raises `UsageInvalid`."""
    usual = ws.config.chunking
    whole = {"strategy": "characters", "size": usual.size, "overlap": usual.overlap, **given}
    try:
        found = msgspec.convert(whole, type=_Chunking, strict=False)
    except msgspec.ValidationError as error:
        raise UsageInvalid(
            f"chunking cannot be used: {error}.",
            hint='For example: {"size": 512, "overlap": 50}',
            parameter="chunking",
        ) from None
    chunking = Chunking(found.strategy, found.size, found.overlap)
    require_possible(chunking)
    return chunking


def working_model(ws: Workspace, name: str) -> Model:
    """The embedding model of that name, which has embedded something: a collection without one would be of no use.

    Raises `EmbeddingFailed`, also for what is not installed, and `EmbeddingMismatch`.
    """
    try:
        model = ws.models.named(name)
        model.embed([name])
    except (UsageInvalid, IndexExtraMissing) as error:
        raise EmbeddingFailed(error.message, hint=error.hint, embedding_function=name) from error
    return model
