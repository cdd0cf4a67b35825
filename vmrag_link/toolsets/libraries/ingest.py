"""Store files and pages in a library: new sources, and sources that have changed.

A library is a collection whose documents are identified by their sources. The hash of a source's
bytes tells whether its document is up to date. A source is converted to Markdown within the limits
of the settings.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from vmrag_link import clock
from vmrag_link.conversion.converter import ConvertedFile, Converter
from vmrag_link.conversion.limits import read_limits
from vmrag_link.documents import library_origin
from vmrag_link.documents.library_origin import Origin
from vmrag_link.engines.base import Write
from vmrag_link.errors import ContentRefused, ConversionFailed, FormatUnsupported, LibraryRefused, VmragError, quoted
from vmrag_link.models import (
    LIBRARY,
    At,
    Chunking,
    Collection,
    Document,
    Record,
    content_hash,
    encode_canonical_json,
    parse_user_json,
)
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.documents.drafts import refuse_reserved
from vmrag_link.workspace.documents.named_files import SourceContent
from vmrag_link.workspace.documents.writing import Planned, WriteResult

DEFAULT = "default"
"""The library of callers that name none."""

CHUNKING = Chunking(size=2048, overlap=256)
"""Longer chunks than in other collections: readers want passages of pages, not facts of notes."""


def require_library_name(name: str) -> None:
    """Raise `NameInvalid` for an invalid name."""
    collections.require_name(name, option="--library")


def find_library(ws: Workspace, at: At, name: str) -> Collection | None:
    """Return the library of exactly this name; None if there is none.

    Raises `LibraryRefused` for another kind of collection.
    """
    collection = collections.find_exact(ws, at, name)
    if collection and collection.kind != LIBRARY:
        raise LibraryRefused(
            f"collection {name!r} exists and is not a library.",
            hint=f"use another library, such as '--library {quoted(collections.similar_name(f'{name}-library'))}'",
            collection_name=name,
            kind=collection.kind,
        )
    return collection


def new_library(ws: Workspace, name: str) -> Collection:
    """Return an empty library with the embedding of new collections."""
    model = ws.models.load_named(ws.config.embedding.model)
    return collections.make_collection(name, model, CHUNKING, kind=LIBRARY)


def all_libraries(ws: Workspace, at: At) -> list[Collection]:
    """Return all libraries by name."""
    return [collection for collection in ws.engine.list_collections(at) if collection.kind == LIBRARY]


Convert = Callable[[SourceContent], ConvertedFile]
"""Raises `FormatUnsupported`, and `ConversionFailed` also for a source without text."""


@contextlib.contextmanager
def open_converter(ws: Workspace) -> Iterator[Convert]:
    """Yield a function that converts sources, until the block ends."""
    with Converter(read_limits(ws.config.ingest)) as converter:

        def convert_source(source: SourceContent) -> ConvertedFile:
            converted = converter.convert(
                source.data, name=source.name, media_type=source.media_type, charset=source.charset
            )
            if not converted.text.strip():
                raise ConversionFailed(
                    f"{source.name} holds no text.",
                    hint="convert it to text first if it is a picture of a text, then import the result",
                    reason="holds no text",
                )
            return converted

        yield convert_source


NAMESPACE = uuid.UUID("6f0d9a52-5d0f-5c53-9a3c-0c1f6a3e7b11")
"""Namespace of the ids of documents in libraries. It never changes: two branches that import the
same source get one document.
"""


SOURCE_ERRORS = (FormatUnsupported, ConversionFailed, ContentRefused)
"""Errors of a source that cannot become a document."""


class Ingested(Record, frozen=True):
    """The result for one source."""

    status: Literal["indexed", "replaced", "skipped"]
    document: Document
    collection: Collection


def ingest_sources(
    ws: Workspace,
    name: str,
    sources: Sequence[SourceContent],
    convert: Convert,
    *,
    metadata: Mapping[str, Any] | None = None,
    refused: dict[str, VmragError] | None = None,
) -> WriteResult[list[Ingested]]:
    """Store the sources in a library, which is created if it is missing; all or none.

    A source whose bytes are already stored is skipped. A changed source replaces the text of its
    document, which keeps its id and, without `metadata`, its earlier metadata. All sources are
    converted and embedded before anything is stored. Their keys must be distinct. With `refused`, a
    source that cannot be converted is left out, and its error is stored there under its key.

    Raises `NameInvalid`, `LibraryRefused` for another kind of collection, `ContentRefused` for
    metadata, the errors of `convert`, `EmbeddingError`, and the errors of `write_rows`.
    """
    require_library_name(name)
    new_metadata = None if metadata is None else checked_metadata(metadata, name)
    converted: dict[str, ConvertedFile] = {}  # the plan can run again, under the lock

    def convert_once(source: SourceContent) -> ConvertedFile:
        if source.key not in converted:
            converted[source.key] = convert(source)
        return converted[source.key]

    def plan_rows(at: At) -> Planned[list[Ingested]]:
        library = find_library(ws, at, name)
        collection = library or new_library(ws, name)
        stored = _read_stored(ws, at, name, [source.key for source in sources])
        new = _make_documents(ws, at, name, [source.key for source in sources if source.key not in stored])
        ingested: list[Ingested] = []
        for source in sources:
            before = stored.get(source.key)
            if before and _has_hash(before, source):
                ingested.append(Ingested("skipped", before, collection))
                continue
            try:
                after = _build_version(source, convert_once(source), before or new[source.key], new_metadata)
            except SOURCE_ERRORS as error:
                if refused is None:
                    raise
                refused[source.key] = error
                continue
            ingested.append(Ingested("replaced" if before else "indexed", after, collection))
        rows = [item.document for item in ingested if item.status != "skipped"]
        ws.create_indexer().embed_documents(collection, rows)
        write = Write(put_collections=[] if library else [collection], put_documents=rows)
        return Planned(write if rows else None, ingested)

    return writing.write_rows(ws, plan_rows, f"take into {name}")


def find_by_source(ws: Workspace, at: At, name: str, key: str) -> Document | None:
    """Return a library's document of a source; None if it has none."""
    return _read_stored(ws, at, name, [key]).get(key)


def _read_stored(ws: Workspace, at: At, name: str, keys: Sequence[str]) -> dict[str, Document]:
    """Return a library's documents of these sources, by source."""
    # Not by their ids alone: these stay with documents whose library is renamed.
    ids = {source: doc_id for doc_id, source in reversed(ws.engine.list_sources(at, name))}
    stored_ids = [ids[key] for key in keys if key in ids]
    documents = ws.engine.read_documents(at, collection=name, ids=stored_ids) if stored_ids else ()
    return {document.source: document for document in documents}


def _make_documents(ws: Workspace, at: At, name: str, keys: Sequence[str]) -> dict[str, Document]:
    """Return empty documents by source, each with its first id that no other document has."""
    documents: dict[str, Document] = {}
    remaining = keys
    now = clock.now()
    number = 0
    while remaining:
        suffix = [number] if number else []
        ids = {key: str(uuid.uuid5(NAMESPACE, encode_canonical_json([name, key, *suffix]))) for key in remaining}
        taken = {header.doc_id for header in ws.engine.read_headers(at, collection=name, ids=ids.values())}
        for key in remaining:
            if ids[key] not in taken:
                documents[key] = Document(name, ids[key], "", "", "", source=key, source_key=key, created_at=now)
        remaining = [key for key in remaining if key not in documents]
        number += 1
    return documents


def _has_hash(document: Document, source: SourceContent) -> bool:
    origin = library_origin.read_origin(document)
    return origin is not None and origin.hash == source.hash


def _build_version(
    source: SourceContent, converted: ConvertedFile, before: Document, new_metadata: Mapping[str, Any] | None
) -> Document:
    """Return the document of a source in its current state.

    `new_metadata` None keeps the earlier metadata. Raises `ContentRefused` for invalid metadata of
    the source.
    """
    given_metadata = library_origin.read_given_metadata(before) if new_metadata is None else new_metadata
    own_metadata = {
        key: value
        for key, value in checked_metadata(converted.metadata, source.name).items()
        if key not in given_metadata
    }
    origin = Origin(source.hash, source.etag, source.media_type, tuple(sorted(own_metadata)))
    return msgspec.structs.replace(
        before,
        title=converted.title or source.name,
        content=converted.text,
        content_hash=content_hash(converted.text),
        metadata=encode_canonical_json(library_origin.add_origin({**own_metadata, **given_metadata}, origin)),
        file_type=source.file_type or converted.file_type,
        last_modified=source.last_modified,
        updated_at=clock.now(),
    )


def check_library(name: str, metadata: Mapping[str, Any] | None) -> None:
    """Raise the errors of `ingest_sources` for a library's name and metadata, before anything is
    read.
    """
    require_library_name(name)
    checked_metadata(metadata or {}, name)


def checked_metadata(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return metadata in the stored form.

    Raises `ContentRefused`, also for a key that the index or the library reserves.
    """
    refuse_reserved(metadata, name)
    if library_origin.KEY in metadata:
        raise ContentRefused(
            f"the metadata of {name!r} has the key {library_origin.KEY!r}, which is reserved for libraries.",
            hint="use another key",
            key=library_origin.KEY,
        )
    try:
        parsed: dict[str, Any] = parse_user_json(json.dumps(metadata))
    except ValueError as error:
        raise ContentRefused(f"the metadata of {name!r} {error}.", hint="use only values of JSON") from None
    return parsed
