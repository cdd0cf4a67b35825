"""Names of documents for users: the path of a source's file, else COLLECTION/DOC.

`document_names` finds the document by such a name again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Sequence
from typing import Protocol

from vmrag_link.models import At, Collection, DocumentHeader

DocumentKey = tuple[str, str]
Finder = Callable[[str, Sequence[str]], Container[str]]
"""Returns which of these ids a collection has."""


def name_documents(
    keys: Iterable[DocumentKey], sources: Container[str], collections: Iterable[str], find_ids: Finder
) -> dict[DocumentKey, str]:
    """Return a name for each document that no other document has.

    A path gets its collection only if several of `collections` have a document with that id.
    `sources` has the collections whose documents are files.
    """
    unique = list(dict.fromkeys(keys))
    files = {key for key in unique if key[0] in sources}
    if not files and not any(name in sources for name in collections):
        return {key: "/".join(key) for key in unique}
    collection_names = list(collections)
    paths = sorted({path for _, path in files})
    ids_by_collection = {name: find_ids(name, paths) for name in collection_names} if paths else {}
    names: dict[DocumentKey, str] = {}
    for collection, path in files:
        if not any(path in ids for name, ids in ids_by_collection.items() if name != collection):
            names[collection, path] = path
    full_names = {key: "/".join(key) for key in unique if key not in names}
    sources_here = [name for name in collection_names if name in sources] if full_names else []
    files_named_so = [find_ids(name, list(full_names.values())) for name in sources_here]
    for key, name in full_names.items():
        is_also_path = any(name in ids for ids in files_named_so)
        names[key] = "//".join(key) if is_also_path else name
    return names


def name_among(keys: Sequence[DocumentKey], sources: Container[str]) -> dict[DocumentKey, str]:
    """Return names that are unique among these documents."""
    ids: dict[str, set[str]] = {}
    for name, doc_id in keys:
        ids.setdefault(name, set()).add(doc_id)
    return name_documents(keys, sources, ids, lambda name, _: ids[name])


class HeaderRows(Protocol):
    """Documents whose headers can be read."""

    def list_collections(self, at: At) -> list[Collection]: ...

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]: ...


def name_in_rows(
    keys: Iterable[DocumentKey], sources: Container[str], at: At, rows: HeaderRows
) -> dict[DocumentKey, str]:
    """Return names that are unique among all documents of these rows."""

    def find_ids(collection: str, ids: Sequence[str]) -> set[str]:
        return {header.doc_id for header in rows.read_headers(at, collection=collection, ids=ids)}

    return name_documents(keys, sources, (row.name for row in rows.list_collections(at)), find_ids)
