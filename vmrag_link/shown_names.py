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
    homes = list(collections)
    paths = sorted({path for _, path in files})
    owners = {name: find_ids(name, paths) for name in homes} if paths else {}
    alone = {key for key in files if not any(key[1] in ids for name, ids in owners.items() if name != key[0])}
    full = {key: "/".join(key) for key in unique if key not in alone}
    taken = [find_ids(name, list(full.values())) for name in homes if name in sources] if full else []
    names = {key: key[1] for key in alone}
    for key, name in full.items():
        is_path = any(name in ids for ids in taken)
        names[key] = "//".join(key) if is_path else name
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
