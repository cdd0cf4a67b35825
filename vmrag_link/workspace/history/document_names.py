"""Which documents a name on the command line means: one rule for every command.

`COLLECTION/DOC` is a document's full name. Both parts may have slashes, so the existing collections
decide where the first one ends; `COLLECTION//DOC` has one reading only. `DOC` alone is a document's
id, if a single collection has it. The path of a source's file goes first, then full names, then
ids. `shown_names` has the other direction.

`select` takes more: folders, collections, and patterns, in which `*` matches slashes, too, as in
git.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from collections.abc import Collection as Several
from typing import TYPE_CHECKING, Protocol

from vmrag_link.errors import (
    CollectionMissing,
    DocumentAmbiguous,
    DocumentMissing,
    GitReferenceMissing,
    UsageInvalid,
    VmragError,
    closest,
    no_collection,
    quoted,
)
from vmrag_link.models import At, Collection, Document, DocumentHeader, Record
from vmrag_link.workspace import Workspace, local_store
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import revparse

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore

EVERYTHING = "."
"""What `select` takes for all collections."""

_SEPARATORS = ("/", "//")

_LINES_BEHIND = re.compile(r"(?<=.):\d{1,9}(?:-\d{1,9})?\Z", re.DOTALL)

_LISTED = 10
"""Candidates that an error names in its hint; the details have all."""


class NamedRows(Protocol):
    """What names are looked up in: a knowledge base, or the files of sources."""

    def list_collections(self, at: At) -> list[Collection]: ...

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]: ...

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None: ...


class DocumentName(Record, frozen=True, order=True):
    """The key of a document; as a text its full name."""

    collection: str
    doc_id: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)

    def __str__(self) -> str:
        return f"{self.collection}/{self.doc_id}"


class DocumentPlace(Record, frozen=True):
    """Where a document is looked up; `revision`: of a working set the one that it is based on."""

    at: At
    revision: str


class NamedSelection(Record, frozen=True):
    """`documents` are sorted; `collections` were meant as a whole, and may be empty.

    `exact`: each name was that of one document.
    """

    documents: tuple[DocumentName, ...]
    collections: tuple[str, ...] = ()
    exact: bool = False


# -- one document


def find_document(rows: NamedRows, places: Sequence[At], name: str) -> DocumentName:
    """The document that a name means at the first of these places that has one.

    Raises `DocumentAmbiguous`, and `DocumentMissing` or `CollectionMissing` with what is near.
    """
    for at in places:
        if found := find_candidates(rows, at, name):
            _require_one(name, found)
            return found[0]
    raise missing_document(rows, places[0], name)


def find_candidates(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    """The documents that a name may mean at a place; looks up, reads no list of documents."""
    return _named_by_path(rows, at, name) or named_in_full(rows, at, name) or _named_by_id(rows, at, name)


def _named_by_path(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    """Return the files of this path. The id of a note is not a path."""
    sources = [row.name for row in rows.list_collections(at) if row.has_paths_as_ids] if name else []
    return [DocumentName(source, name) for source in sources if _has(rows, at, source, name)]


def named_in_full(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    """Return the documents with this full name; two if it can be read in two ways."""
    there = [collection.name for collection in rows.list_collections(at)]
    for separator in _SEPARATORS:
        parts = {(each, name.removeprefix(each + separator)) for each in there if name.startswith(each + separator)}
        parts.add((name.partition(separator)[0], name.partition(separator)[2]))  # its collection may have no row
        if found := [DocumentName(*part) for part in sorted(parts) if part[1] and _has(rows, at, *part)]:
            return found
    return []


def _named_by_id(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    return [DocumentName(*header.key) for header in rows.read_headers(at, ids=[name])] if name else []


def without_line(name: str) -> str:
    """Return the name in a place that an answer shows, such as `src/session.py:10-42`."""
    return name[: match.start()] if (match := _LINES_BEHIND.search(name)) else name


def find_at(ws: DocumentStore, name: str) -> tuple[DocumentPlace, DocumentName]:
    """The document that `[REF:]NAME` means, and where; without REF, or with `WORKING`: here.

    REF is anything that `revparse.resolve_rev` takes, and ends as `revparse.separate_ref` has it. A
    document's name can also contain colons: `WORKING:NAME` names one that begins like a REF. Raises
    as `find` and `resolve_rev`. A document that is not versioned has no REF and no revision.
    """
    if not isinstance(ws, Workspace):
        return DocumentPlace(local_store.AT, ""), find_document(ws.engine, [local_store.AT], name)
    place, rest = split_ref(ws, name)
    return place, find_in(ws.engine, place, rest)


def find_in(rows: NamedRows, place: DocumentPlace, name: str) -> DocumentName:
    """As `find`; of a document that was removed since it was committed, the error says so."""
    try:
        return find_document(rows, [place.at], name)
    except DocumentMissing as error:
        removed = [] if place.at == place.revision else find_candidates(rows, place.revision, name)
        if not removed:
            raise
        message = f"{removed[0]} was removed here; the removal is not committed."
        raise DocumentMissing(message, hint=command_of("restore", [str(removed[0])]), **error.details) from None


def split_ref(ws: Workspace, name: str) -> tuple[DocumentPlace, str]:
    """The place and NAME of `[REF:]NAME`, which is not looked up there. Raises as `find_at`."""
    unknown: GitReferenceMissing | None = None
    if parts := revparse.separate_ref(name):
        ref, rest = parts
        if ref == revparse.WORKING:
            return _here(ws), rest
        try:
            revision = revparse.resolve_rev(ws, ref)
        except GitReferenceMissing as error:
            unknown = error
        else:
            return DocumentPlace(revision, revision), rest
    here = _here(ws)
    if unknown is None or find_candidates(ws.engine, here.at, name):
        return here, name
    if any(name.startswith(f"{collection.name}/") for collection in ws.engine.list_collections(here.at)):
        return here, name
    raise unknown


def _here(ws: Workspace) -> DocumentPlace:
    follow_and_warn(ws)
    return DocumentPlace(ws.locate_documents(), ws.require_revision())


def find_among(there: Several[DocumentName], name: str) -> DocumentName | None:
    """The one of these that a name means; None if it means none. Raises `DocumentAmbiguous`."""
    for text in (str, _apart, _by_id):
        if found := [each for each in there if text(each) == name]:
            _require_one(name, found)
            return found[0]
    return None


def _has(rows: NamedRows, at: At, collection: str, doc_id: str) -> bool:
    return any(True for _ in rows.read_headers(at, collection=collection, ids=[doc_id]))


# -- several


def select_named(
    rows: NamedRows, places: Sequence[At], names: Iterable[str], *, within: str | None = None
) -> NamedSelection:
    """The documents that are at any of these places and that these names mean.

    A name is, in this order, that of a document, of a folder or a collection, or a pattern; first
    of full names, then of ids in a single collection. `within`: names are those of this collection,
    taken without its name. Raises as `find` for a name that means nothing.
    """
    reading = _Reading(rows, places, within)
    found = [reading.meant(name) for name in names]
    documents = {document for each in found for document in each.documents}
    whole = {collection for each in found for collection in each.collections}
    return NamedSelection(tuple(sorted(documents)), tuple(sorted(whole)), all(each.exact for each in found))


class _Reading:
    """The documents at some places; a list of them is read only for what is no document's name."""

    def __init__(self, rows: NamedRows, places: Sequence[At], within: str | None) -> None:
        self._rows, self._places, self._within = rows, places, within
        self._listed: list[DocumentName] | None = None
        self._collections = sorted({collection.name for at in places for collection in rows.list_collections(at)})
        if within is not None and within not in self._collections and not self._all():
            raise no_collection(within, self._collections)

    def meant(self, name: str) -> NamedSelection:
        if name == EVERYTHING:
            whole = self._collections if self._within is None else [self._within]
            return NamedSelection(tuple(self._all()), tuple(whole))
        collection = name.rstrip("/")
        if self._within is None and collection in self._collections:
            return self._collection(name, collection)
        if exact := self._exact(name):
            return NamedSelection(tuple(exact), exact=True)
        if found := self._folder(collection) or self._pattern(name):
            return NamedSelection(tuple(found))
        raise missing_document(self._rows, self._places[0], name, within=self._within)

    def _collection(self, name: str, collection: str) -> NamedSelection:
        """A document of that id is no less meant, unless a slash follows the name."""
        if name == collection and (found := self._exact(name)):
            raise _ambiguous(name, [f"{collection}/", *map(str, found)])
        return NamedSelection(tuple(each for each in self._all() if each.collection == collection), (collection,))

    def _exact(self, name: str) -> list[DocumentName]:
        for at in self._places:
            if self._within is None:
                found = find_candidates(self._rows, at, name)
            else:
                found = [DocumentName(self._within, name)] if _has(self._rows, at, self._within, name) else []
            if found:
                _require_one(name, found)
                return found
        return []

    def _folder(self, folder: str) -> list[DocumentName]:
        for text in self._texts():
            if found := [each for each in self._all() if text(each).startswith(f"{folder}/")]:
                _require_one_collection(folder, found)
                return found
        return []

    def _pattern(self, name: str) -> list[DocumentName]:
        if not re.search(r"[*?\[]", name):
            return []
        matches = re.compile(fnmatch.translate(name)).match
        for text in self._texts():
            if found := [each for each in self._all() if matches(text(each))]:
                if text is _by_id:
                    _require_one_collection(name, found)
                return found
        return []

    def _texts(self) -> tuple[Callable[[DocumentName], str], ...]:
        """How documents may be named, in the order in which it counts."""
        return (str, _apart, _by_id) if self._within is None else (_by_id,)

    def _all(self) -> list[DocumentName]:
        if self._listed is None:
            keys = (
                header.key for at in self._places for header in self._rows.read_headers(at, collection=self._within)
            )
            self._listed = sorted({DocumentName(*key) for key in keys})
        return self._listed


def _by_id(name: DocumentName) -> str:
    return name.doc_id


def _apart(name: DocumentName) -> str:
    return f"{name.collection}//{name.doc_id}"


def _require_one(name: str, found: Sequence[DocumentName]) -> None:
    """Two readings of one full name are written with the slashes that tell them apart."""
    if len(found) > 1:
        alike = len({str(each) for each in found}) < len(found)
        raise _ambiguous(name, [_apart(each) if alike else str(each) for each in found])


def _require_one_collection(name: str, found: Sequence[DocumentName]) -> None:
    homes = dict.fromkeys(each.collection for each in found)
    if len(homes) > 1:
        raise _ambiguous(
            name, [_apart(DocumentName(home, name)) if "/" in home else f"{home}/{name}" for home in homes]
        )


def command_of(command: str, names: Sequence[str], within: str | None = None, *, source: str | None = None) -> str:
    """What to type for `vmrag rm` or `vmrag restore` of these names; see `select`."""
    options = [] if source is None else ["--source", quoted(source)]
    options += [] if within is None else ["--collection", quoted(within)]
    return " ".join(["vmrag", command, *options, *map(quoted, names)])


# -- errors


def missing_document(rows: NamedRows, at: At, name: str, *, within: str | None = None) -> VmragError:
    """The error for a name that means no document at a place."""
    if within is not None:
        return no_document(rows, at, within, name)
    there = [each.name for each in rows.list_collections(at)]
    collection = max(
        (each for each in there if name.startswith(f"{each}/") and name != f"{each}/"), key=len, default=""
    )
    if collection:
        return no_document(rows, at, collection, name.removeprefix(f"{collection}/"))
    if name.rstrip("/") in there:
        return UsageInvalid(
            f"{name!r} is a collection, not a document.", hint=f"vmrag list --collection {quoted(name.rstrip('/'))}"
        )
    near = _closest(rows, at, name)
    if "/" not in name:
        where = f" Is it {near[0]!r}?" if near else ""
        return DocumentMissing(
            f"No collection has a document {name!r}.{where}", hint=_with_closest("vmrag list", near), doc_id=name
        )
    error = no_collection(name.partition("/")[0], there)
    if near:
        error.message = f"There is no collection {error.collection!r}, and no document {name!r}. Is it {near[0]!r}?"
        error.hint = _with_closest("vmrag list", near)
    return error


def _with_closest(command: str, names: Sequence[str]) -> str:
    return f"{command}   (closest: {', '.join(map(quoted, names))})" if names[1:] else command


def no_document(rows: NamedRows, at: At, collection: str, doc_id: str) -> DocumentMissing | CollectionMissing:
    """The error for a document that its collection does not have, or without the collection."""
    there = [each.name for each in rows.list_collections(at)]
    if collection not in there:
        return no_collection(collection, there)
    near = closest(doc_id, [header.doc_id for header in rows.read_headers(at, collection=collection)])
    return DocumentMissing(
        f"There is no document {doc_id!r} in collection {collection!r}." + (f" Is it {near[0]!r}?" if near else ""),
        hint=_with_closest(f"vmrag list --collection {quoted(collection)}", near),
        collection_name=collection,
        doc_id=doc_id,
    )


def _closest(rows: NamedRows, at: At, name: str) -> list[str]:
    """Return the full names of the documents whose full names or ids are the most similar."""
    texts: dict[str, str] = {}
    for header in rows.read_headers(at):
        full = str(DocumentName(*header.key))
        texts.setdefault(header.doc_id, full)
        texts[full] = full
    return [*dict.fromkeys(texts[near] for near in closest(name, [*texts]))]


def _ambiguous(name: str, names: Sequence[str]) -> DocumentAmbiguous:
    more = f" … ({len(names)} in all)" if len(names) > _LISTED else ""
    return DocumentAmbiguous(
        f"{name!r} is ambiguous: there are {len(names)} of that name.",
        hint=f"Write one of: {', '.join(map(quoted, names[:_LISTED]))}{more}",
        name=name,
        candidates=list(names),
    )
