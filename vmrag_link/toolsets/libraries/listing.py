"""What libraries hold: documents page by page, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vmrag_link.documents import import_base
from vmrag_link.errors import EmbeddingError, IndexExtraMissing
from vmrag_link.index.contents import chunk_counts
from vmrag_link.models import LIBRARY, At, Document, Record
from vmrag_link.ops.commits.tables import require
from vmrag_link.ops.documents import named_files
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import Standing, standing, viewed
from vmrag_link.ops.index.index_status import held_now
from vmrag_link.toolsets.libraries import library
from vmrag_link.workspace import Workspace

T = TypeVar("T")

Chunks = Mapping[tuple[str, str], int]
"""Numbers of chunks by collection and document."""


class ListedDocument(Record, frozen=True):
    """`source`: as `named_files.shown_source`; `chunk_count`: as many as the index holds."""

    doc_id: str
    source: str
    title: str
    library: str
    content_hash: str
    created_at: str
    metadata: dict[str, Any]
    chunk_count: int


class DocumentList(Record, frozen=True):
    """A page of `count` documents; `total` counts all."""

    documents: list[ListedDocument]
    count: int
    total: int


class LibrarySize(Record, frozen=True):
    library: str
    document_count: int
    chunk_count: int


class LibraryList(Record, frozen=True):
    libraries: list[LibrarySize]


def documents(
    ws: Workspace, name: str | None, *, limit: int, offset: int, table: str | None = None
) -> tuple[DocumentList, Standing]:
    """The documents of one library or of all, newest first; none of one that is not there.

    `table`: those of all collections of this table instead. Raises `TableMissing`.
    """
    only = None if table is None else require(table)

    def look(at: At, chunks: Chunks) -> DocumentList:
        names = [
            each.name
            for each in ws.engine.collections(at)
            if name in (None, each.name) and (only is not None or each.kind == LIBRARY)
        ]
        # Their texts go as they come: only those of the page are kept.
        found = [
            (each.created_at, each.key) for one in names for each in ws.engine.documents(at, collection=one, table=only)
        ]
        found.sort(key=lambda each: each[1])
        found.sort(key=lambda each: each[0], reverse=True)
        page = [key for _, key in found[offset : offset + limit]]
        rows = (ws.engine.document(at, *key) for key in page)
        listed = [_listed(ws, each, chunks.get(each.key, 0)) for each in rows if each]
        return DocumentList(listed, len(listed), len(found))

    return _reading(ws, look)


def libraries(ws: Workspace) -> tuple[LibraryList, Standing]:
    """All libraries by name."""

    def look(at: At, chunks: Chunks) -> LibraryList:
        sizes = [
            LibrarySize(
                each.name,
                ws.engine.count(at, collection=each.name),
                sum(number for (name, _), number in chunks.items() if name == each.name),
            )
            for each in library.libraries(ws, at)
        ]
        return LibraryList(sizes)

    return _reading(ws, look)


def _reading(ws: Workspace, look: Callable[[At, Chunks], T]) -> tuple[T, Standing]:
    """What `look` returns of the documents and of the index that holds them.

    If the index cannot be brought there, because a model is missing, of what it holds now.
    """
    try:
        return read_consistently(
            ws, lambda: ws.reader.read(lambda view: (look(view.at, chunk_counts(view.folder)), viewed(ws, view)))
        )
    except (EmbeddingError, IndexExtraMissing):
        return read_consistently(ws, lambda: _without_index(ws, look), index=False)


def _without_index(ws: Workspace, look: Callable[[At, Chunks], T]) -> tuple[T, Standing]:
    here = standing(ws)
    return look(here.at, held_now(ws, ws.reader.moment()).chunks), here


def _listed(ws: Workspace, document: Document, chunks: int) -> ListedDocument:
    return ListedDocument(
        document.doc_id,
        named_files.shown_source(ws, document),
        document.title,
        document.collection,
        document.content_hash,
        document.created_at,
        import_base.shown_metadata(document),
        chunks,
    )
