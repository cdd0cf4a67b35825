"""On which page of its document each chunk begins."""

from __future__ import annotations

from vmrag_link.models import PAGE_BREAK, Collection, Document
from vmrag_link.ops.documents.document_selection import chunks_of
from vmrag_link.workspace import Workspace

NO_PAGE = 0
"""The page of a chunk of a text without pages."""


def has_pages(document: Document) -> bool:
    return PAGE_BREAK in document.content


def pages_of(ws: Workspace, collection: Collection, document: Document) -> list[int]:
    """The page, from 1, of the first character that is seen of each chunk. Only for one that
    `has_pages`.
    """
    pages, page, counted = [], 1, 0
    for chunk in chunks_of(ws, collection, document):
        seen = chunk.start + len(chunk.text) - len(chunk.text.lstrip())
        page += document.content.count(PAGE_BREAK, counted, seen)
        counted = max(counted, seen)
        pages.append(page)
    return pages
