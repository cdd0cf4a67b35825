"""What only tests ask of Chroma's library: whether it is there, to evaluate filters, and how an
HNSW index was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from vmrag_link.chroma.bindings import DATABASE, TENANT, ChromaStore

MISSING = "" if find_spec("chromadb") else "chromadb is not installed"
needs_chroma = pytest.mark.skipif(bool(MISSING), reason=MISSING)
"""Of tests that make or open a store; nothing else needs Chroma's library."""

REFUSALS = frozenset({"InvalidArgumentError", "InvalidWhereError", "ValueError", "TypeError"})
"""Chroma's errors for an argument that it does not take, by name: importing them takes 2 s."""


class Refused(Exception):
    """Chroma does not take a filter."""


def passing(
    store: ChromaStore,
    collection_id: str,
    where: Mapping[str, Any] | None = None,
    where_document: Mapping[str, Any] | None = None,
) -> set[str]:
    """The ids of the rows that pass, as Chroma decides. Raises `Refused`."""
    filters = [msgspec.json.encode(each).decode() if each else None for each in (where, where_document)]
    try:
        rows = store._rust.get(collection_id, None, filters[0], None, 0, filters[1], [], TENANT, DATABASE)
    except Exception as error:  # its classes take two seconds to import: told by name
        if type(error).__name__ in REFUSALS:
            raise Refused(str(error)) from error
        raise
    return set(rows.ids)


def hnsw_of(store: ChromaStore, name: str) -> dict[str, Any]:
    """The settings that the collection's HNSW index was made with."""
    return dict(store._rust.get_collection(name, TENANT, DATABASE).configuration["hnsw"])
