"""Find the documents that a name on the command line means. All commands use these rules.

A name is one of these, in the order of priority:

1. the path of a file of a source
2. `COLLECTION/DOC`, a full name. Both parts may have slashes, so the existing collections decide
   where the first part ends. `COLLECTION//DOC` is unambiguous.
3. `DOC`, an id, if only one collection has it

`find_document` finds one document. `select_named` finds several, and also accepts folders,
collections and patterns, in which `*` matches slashes, as in git. `shown_names` is the reverse: it
forms names from documents.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from collections.abc import Collection as Several
from typing import TYPE_CHECKING, Protocol

from vmrag_link import hints
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
"""The name of all collections for `select_named`."""

_SEPARATORS = ("/", "//")

_LINES_BEHIND = re.compile(r"(?<=.):\d{1,9}(?:-\d{1,9})?\Z", re.DOTALL)

_MAX_LISTED_CANDIDATES = 10
"""Maximum number of candidates in the hint of an error. The details have all."""


class NamedRows(Protocol):
    """Documents in which names are looked up: those of a knowledge base, or files of sources."""

    def list_collections(self, at: At) -> list[Collection]: ...

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]: ...

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None: ...


class DocumentName(Record, frozen=True, order=True):
    """The key of a document. As a text it is the full name."""

    collection: str
    doc_id: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)

    def __str__(self) -> str:
        return f"{self.collection}/{self.doc_id}"


class DocumentPlace(Record, frozen=True):
    """From where a document is read."""

    at: At
    """A revision, or a KB branch with uncommitted documents."""
    revision: str
    """The revision, or the head of the KB branch."""


class NamedSelection(Record, frozen=True):
    """Selected documents, sorted by name."""

    documents: tuple[DocumentName, ...]
    collections: tuple[str, ...] = ()
    """Collections that were selected as a whole; they may be empty."""
    exact: bool = False
    """True if each name was the name of one document."""


# -- one document


def find_document(rows: NamedRows, places: Sequence[At], name: str) -> DocumentName:
    """Return the document that a name means at the first of these places that has one.

    Raises `DocumentAmbiguous`, and `DocumentMissing` or `CollectionMissing` with similar names.
    """
    for at in places:
        if names := find_candidates(rows, at, name):
            _require_one(name, names)
            return names[0]
    raise missing_document(rows, places[0], name)


def find_candidates(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    """Return the documents that a name may mean. This does not list all documents."""
    return _named_by_path(rows, at, name) or named_in_full(rows, at, name) or _named_by_id(rows, at, name)


def _named_by_path(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    """Return the files with this path, of sources whose ids are paths."""
    if not name:
        return []
    sources = [row.name for row in rows.list_collections(at) if row.has_paths_as_ids]
    return [DocumentName(source, name) for source in sources if _has_document(rows, at, source, name)]


def named_in_full(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    """Return the documents with this full name. There are two if it has two readings."""
    collections = [collection.name for collection in rows.list_collections(at)]
    for separator in _SEPARATORS:
        prefixes = [collection for collection in collections if name.startswith(collection + separator)]
        prefixes.append(name.partition(separator)[0])  # a collection without a row
        readings = sorted({(prefix, name[len(prefix + separator) :]) for prefix in prefixes})
        names = [DocumentName(*key) for key in readings if key[1] and _has_document(rows, at, *key)]
        if names:
            return names
    return []


def _named_by_id(rows: NamedRows, at: At, name: str) -> list[DocumentName]:
    return [DocumentName(*header.key) for header in rows.read_headers(at, ids=[name])] if name else []


def without_line(name: str) -> str:
    """Return a name without lines: `src/session.py` for `src/session.py:10-42`."""
    return _LINES_BEHIND.sub("", name)


def find_at(ws: DocumentStore, name: str) -> tuple[DocumentPlace, DocumentName]:
    """Return the document that `[REF:]NAME` means, and from where it is read.

    REF is any name for `revparse.resolve_rev`. Without REF, or with `WORKING`, the document is read
    in the work tree. `WORKING:NAME` is needed for a NAME that looks like `REF:NAME`. In a
    `LocalStore`, there is no REF. Raises the errors of `find_document` and `revparse.resolve_rev`.
    """
    if not isinstance(ws, Workspace):
        return DocumentPlace(local_store.AT, ""), find_document(ws.engine, [local_store.AT], name)
    place, rest = split_ref(ws, name)
    return place, find_in(ws.engine, place, rest)


def find_in(rows: NamedRows, place: DocumentPlace, name: str) -> DocumentName:
    """Return the document that a name means at a place. Raises the errors of `find_document`.

    If the document was removed after the last commit, the error has the command that restores it.
    """
    try:
        return find_document(rows, [place.at], name)
    except DocumentMissing as error:
        removed = [] if place.at == place.revision else find_candidates(rows, place.revision, name)
        if not removed:
            raise
        message = f"{removed[0]} was removed here; the removal is not committed."
        raise DocumentMissing(
            message, hint=hints.suggest_command(command_of("restore", [str(removed[0])]), "restore it"), **error.details
        ) from None


def split_ref(ws: Workspace, name: str) -> tuple[DocumentPlace, str]:
    """Return the place and the NAME of `[REF:]NAME`. The document need not exist.

    Raises the errors of `find_at`.
    """
    unknown_ref: GitReferenceMissing | None = None
    if parts := revparse.separate_ref(name):
        ref, rest = parts
        if ref == revparse.WORKING:
            return _open_work_tree(ws), rest
        try:
            revision = revparse.resolve_rev(ws, ref)
        except GitReferenceMissing as error:
            unknown_ref = error
        else:
            return DocumentPlace(revision, revision), rest
    place = _open_work_tree(ws)
    if unknown_ref is None or find_candidates(ws.engine, place.at, name):
        return place, name
    if any(name.startswith(f"{collection.name}/") for collection in ws.engine.list_collections(place.at)):
        return place, name
    raise unknown_ref


def _open_work_tree(ws: Workspace) -> DocumentPlace:
    follow_and_warn(ws)
    return DocumentPlace(ws.locate_documents(), ws.require_revision())


def find_among(names: Several[DocumentName], name: str) -> DocumentName | None:
    """Return the one of these names that a name means, or None. Raises `DocumentAmbiguous`."""
    for form in (str, _double_slash_form, _id_form):
        if matches := [candidate for candidate in names if form(candidate) == name]:
            _require_one(name, matches)
            return matches[0]
    return None


def _has_document(rows: NamedRows, at: At, collection: str, doc_id: str) -> bool:
    """Return whether a document exists."""
    return any(True for _ in rows.read_headers(at, collection=collection, ids=[doc_id]))


# -- several


def select_named(
    rows: NamedRows, places: Sequence[At], names: Iterable[str], *, within: str | None = None
) -> NamedSelection:
    """Return the documents at any of these places that the names mean.

    A name is `EVERYTHING`, a collection, a document, a folder or a pattern, the first that exists.
    Full names have priority over ids. `within`: the names are ids, folders and patterns in this
    collection. Raises the errors of `find_document` for a name that means nothing.
    """
    selector = _NameSelector(rows, places, within)
    selections = [selector.select_name(name) for name in names]
    documents = {document for selection in selections for document in selection.documents}
    collections = {collection for selection in selections for collection in selection.collections}
    return NamedSelection(
        tuple(sorted(documents)), tuple(sorted(collections)), exact=all(selection.exact for selection in selections)
    )


class _NameSelector:
    """Select documents at some places. They are listed only for a name that is not a document."""

    def __init__(self, rows: NamedRows, places: Sequence[At], within: str | None) -> None:
        self._rows = rows
        self._places = places
        self._within = within
        self._listed: list[DocumentName] | None = None
        """All documents, after the first call of `_list_all`."""
        self._collections = sorted({collection.name for at in places for collection in rows.list_collections(at)})
        if within is not None and within not in self._collections and not self._list_all():
            raise no_collection(within, self._collections)

    def select_name(self, name: str) -> NamedSelection:
        """Return the documents that one name means."""
        if name == EVERYTHING:
            collections = self._collections if self._within is None else [self._within]
            return NamedSelection(tuple(self._list_all()), tuple(collections))
        collection = name.rstrip("/")
        if self._within is None and collection in self._collections:
            return self._select_collection(name, collection)
        if exact := self._find_exact(name):
            return NamedSelection(tuple(exact), exact=True)
        if matches := self._find_in_folder(collection) or self._match_pattern(name):
            return NamedSelection(tuple(matches))
        raise missing_document(self._rows, self._places[0], name, within=self._within)

    def _select_collection(self, name: str, collection: str) -> NamedSelection:
        """Return the documents of a whole collection.

        Raises `DocumentAmbiguous` if a document has the same id, unless a slash follows the name.
        """
        if name == collection and (matches := self._find_exact(name)):
            raise _ambiguous_name(name, [f"{collection}/", *map(str, matches)])
        documents = (document for document in self._list_all() if document.collection == collection)
        return NamedSelection(tuple(documents), (collection,))

    def _find_exact(self, name: str) -> list[DocumentName]:
        """Return the document with this name, or an empty list. Raises `DocumentAmbiguous`."""
        for at in self._places:
            matches: list[DocumentName] = []
            if self._within is None:
                matches = find_candidates(self._rows, at, name)
            elif _has_document(self._rows, at, self._within, name):
                matches = [DocumentName(self._within, name)]
            if matches:
                _require_one(name, matches)
                return matches
        return []

    def _find_in_folder(self, folder: str) -> list[DocumentName]:
        """Return the documents whose names begin with this folder."""
        for form in self._name_forms():
            if matches := [document for document in self._list_all() if form(document).startswith(f"{folder}/")]:
                _require_one_collection(folder, matches)
                return matches
        return []

    def _match_pattern(self, name: str) -> list[DocumentName]:
        """Return the documents whose names match a pattern."""
        if not re.search(r"[*?\[]", name):
            return []
        matches = re.compile(fnmatch.translate(name)).match
        for form in self._name_forms():
            if documents := [document for document in self._list_all() if matches(form(document))]:
                if form is _id_form:
                    _require_one_collection(name, documents)
                return documents
        return []

    def _name_forms(self) -> tuple[Callable[[DocumentName], str], ...]:
        """Return functions that form a name, in the order of priority."""
        return (str, _double_slash_form, _id_form) if self._within is None else (_id_form,)

    def _list_all(self) -> list[DocumentName]:
        if self._listed is None:
            keys = (
                header.key for at in self._places for header in self._rows.read_headers(at, collection=self._within)
            )
            self._listed = sorted({DocumentName(*key) for key in keys})
        return self._listed


def _id_form(name: DocumentName) -> str:
    return name.doc_id


def _double_slash_form(name: DocumentName) -> str:
    return f"{name.collection}//{name.doc_id}"


def _require_one(name: str, names: Sequence[DocumentName]) -> None:
    """Raise `DocumentAmbiguous` for several documents.

    If two have the same full name, the error lists them with two slashes.
    """
    if len(names) > 1:
        has_equal_names = len({str(document) for document in names}) < len(names)
        form = _double_slash_form if has_equal_names else str
        raise _ambiguous_name(name, list(map(form, names)))


def _require_one_collection(name: str, names: Sequence[DocumentName]) -> None:
    """Raise `DocumentAmbiguous` for documents of several collections."""
    collections = dict.fromkeys(document.collection for document in names)
    if len(collections) > 1:
        separated = (f"{collection}{'//' if '/' in collection else '/'}{name}" for collection in collections)
        raise _ambiguous_name(name, list(separated))


def command_of(command: str, names: Sequence[str], within: str | None = None, *, source: str | None = None) -> str:
    """Return the command `vmrag rm` or `vmrag restore` for these names."""
    options = [] if source is None else ["--source", quoted(source)]
    options += [] if within is None else ["--collection", quoted(within)]
    return " ".join(["vmrag", command, *options, *map(quoted, names)])


# -- errors


def missing_document(rows: NamedRows, at: At, name: str, *, within: str | None = None) -> VmragError:
    """Return the error for a name that does not mean a document. It has the closest names."""
    if within is not None:
        return no_document(rows, at, within, name)
    collections = [row.name for row in rows.list_collections(at)]
    prefixes = [row for row in collections if name.startswith(f"{row}/") and name != f"{row}/"]
    if prefixes:
        collection = max(prefixes, key=len)
        return no_document(rows, at, collection, name.removeprefix(f"{collection}/"))
    if name.rstrip("/") in collections:
        return UsageInvalid(
            f"{name!r} is a collection, not a document.",
            hint=f"run 'vmrag list --collection {quoted(name.rstrip('/'))}' to list its documents",
        )
    similar = _find_closest(rows, at, name)
    if "/" not in name:
        where = f" Did you mean {similar[0]!r}?" if similar else ""
        return DocumentMissing(
            f"no collection has a document {name!r}.{where}", hint=_add_closest("vmrag list", similar), doc_id=name
        )
    error = no_collection(name.partition("/")[0], collections)
    if similar:
        error.message = (
            f"no such collection {error.collection!r}, and no document {name!r}. Did you mean {similar[0]!r}?"
        )
        error.hint = _add_closest("vmrag list", similar)
    return error


def _add_closest(command: str, names: Sequence[str]) -> str:
    """Return the hint to use one of several similar names, or to list the names by a command."""
    names_in_hint = f"use one of the closest names: {', '.join(map(quoted, names))}" if names[1:] else ""
    return hints.join_alternatives(names_in_hint, hints.suggest_command(command, "list the names"))


def no_document(rows: NamedRows, at: At, collection: str, doc_id: str) -> DocumentMissing | CollectionMissing:
    """Return the error for a missing document, or for its missing collection."""
    collections = [row.name for row in rows.list_collections(at)]
    if collection not in collections:
        return no_collection(collection, collections)
    similar = closest(doc_id, [header.doc_id for header in rows.read_headers(at, collection=collection)])
    return DocumentMissing(
        f"no document {doc_id!r} in collection {collection!r}." + (f" Did you mean {similar[0]!r}?" if similar else ""),
        hint=_add_closest(f"vmrag list --collection {quoted(collection)}", similar),
        collection_name=collection,
        doc_id=doc_id,
    )


def _find_closest(rows: NamedRows, at: At, name: str) -> list[str]:
    """Return the full names of the documents whose full names or ids are the most similar."""
    texts: dict[str, str] = {}
    for header in rows.read_headers(at):
        full = str(DocumentName(*header.key))
        texts.setdefault(header.doc_id, full)
        texts[full] = full
    return [*dict.fromkeys(texts[text] for text in closest(name, [*texts]))]


def _ambiguous_name(name: str, names: Sequence[str]) -> DocumentAmbiguous:
    more = f" … ({len(names)} in all)" if len(names) > _MAX_LISTED_CANDIDATES else ""
    return DocumentAmbiguous(
        f"{name!r} is ambiguous: {len(names)} documents match.",
        hint=f"use one of these names: {', '.join(map(quoted, names[:_MAX_LISTED_CANDIDATES]))}{more}",
        name=name,
        candidates=list(names),
    )
