"""Could our own commands have written this row? Asked of each one that a stranger wrote."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from vmrag_link.documents import import_base
from vmrag_link.documents.chunking import require_modest, require_possible
from vmrag_link.embedding import registry
from vmrag_link.embedding.protocols import SERVICES
from vmrag_link.errors import ContentRefused, EmbeddingMismatch, KnowledgeRefused, NameInvalid, UsageInvalid
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.models import (
    Collection,
    Document,
    Project,
    Row,
    content_hash,
    metadata_from_row,
)
from vmrag_link.ops.documents import collections
from vmrag_link.settings import EmbeddingSettings

Using = tuple[str, str, str]
"""A collection's name, its embedding function and model."""


def services_of(rows: Iterable[Collection]) -> frozenset[Using]:
    return frozenset((each.name, each.embedding_function, each.embedding_model) for each in rows)


def check(row: Row, *, allowed: AbstractSet[str] = frozenset(), known: AbstractSet[Using] = frozenset()) -> None:
    """Check a row; raises `ContentRefused`, and `KnowledgeRefused` for an unexpected paid service.

    A paid service would embed the collection on the account of every reader. It is expected if it
    is `allowed`, or the collection is `known` to use it.

    Ollama is not among those: it runs at an address of the reader's own, and takes neither key nor
    money.
    """
    what = f"collection {row.name!r}" if isinstance(row, Collection) else f"document {'/'.join(row.key)}"
    if isinstance(row, Collection):
        _require_agreed(row, allowed, known)
    try:
        match row:
            case Collection():
                _collection(row)
            case Document():
                _document(row)
            case Project():
                collections.require_document_id(row.project_id)
                metadata_from_row(row.metadata)
    except (EmbeddingMismatch, NameInvalid, UsageInvalid, ValueError) as error:
        raise ContentRefused(f"{what}: {error}") from error


def _require_agreed(row: Collection, allowed: AbstractSet[str], known: AbstractSet[Using]) -> None:
    service = SERVICES.get(row.embedding_function)
    if service is None or service.key is None or row.embedding_function in allowed or services_of([row]) <= known:
        return
    raise KnowledgeRefused(
        f"Collection {row.name[:80]!a} would send its documents, and every query for it, to the paid service {row.embedding_function}, "
        "on the account of everybody who reads it. Nothing was taken.",
        hint=f"If that is agreed: vmrag adopt --allow-service {row.embedding_function} SOURCE COMMIT",
        collection=row.name,
        service=row.embedding_function,
    )


def _collection(row: Collection) -> None:
    collections.require_name(row.name)
    metadata_from_row(row.metadata)
    if row.embedding_function not in registry.NAMES:
        raise ValueError(f"nobody here knows the embedding model {row.embedding_function!r}")
    registry.choose_for(row, EmbeddingSettings())
    require_possible(row.chunking)
    require_modest(row.chunking)
    if row.import_base and (why := import_base.problem(row.import_base)):
        raise ValueError(f"its import base {why}")


def _document(row: Document) -> None:
    collections.require_name(row.collection)
    collections.require_document_id(row.doc_id)
    if row.content_hash != content_hash(row.content):
        raise ValueError("its content_hash is not that of its content")
    if used := RESERVED_METADATA.intersection(metadata_from_row(row.metadata)):
        raise ValueError(f"its metadata uses {', '.join(sorted(used))}, which the index needs for itself")
