"""The tables that tools name: documents of some kinds of collections form tables of their own."""

from __future__ import annotations

DOCUMENTS = "documents"
COLLECTIONS = "collections"
"""The settings of collections: rows, but no documents."""

_BY_KIND = {"issues": "issue_logs", "knowledge": "knowledge_docs"}

TABLES = (DOCUMENTS, *_BY_KIND.values())
"""All tables with documents."""


def table_of(kind: str) -> str:
    """Where the documents of a collection of this kind are."""
    return _BY_KIND.get(kind, DOCUMENTS)
