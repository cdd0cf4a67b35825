"""The tables that tools name: documents of some kinds of collections form tables of their own."""

from __future__ import annotations

from vmrag_link.engines import logical
from vmrag_link.errors import TableMissing, enumerated
from vmrag_link.models import TABLE_OF_KIND, DocumentTable

DOCUMENTS = "documents"
COLLECTIONS = "collections"
"""The settings of collections: rows, but no documents."""

PROJECTS = "projects"
"""What issue logs belong to: rows, but no documents."""

TABLES = (DOCUMENTS, *TABLE_OF_KIND.values())
"""All tables with documents."""


def table_of(kind: str) -> str:
    """Where the documents of a collection of this kind are."""
    return TABLE_OF_KIND.get(kind, DOCUMENTS)


def collection_name(table: str, identifier: str) -> str:
    """The collection that a project, a tool or a collection's name means in a table.

    Raises `TableMissing`.
    """
    require(table)
    kind = next((kind for kind, name in TABLE_OF_KIND.items() if name == table), "")
    return logical.collection_name(kind, identifier) if kind else identifier


def require(table: str) -> DocumentTable:
    """The table with documents of this name. Raises `TableMissing`."""
    if table not in TABLES:
        raise TableMissing(
            f"There is no table {table!r} with documents.", hint=f"It is one of {enumerated(TABLES)}.", table=table
        )
    return table  # type: ignore[return-value]  # one of these
