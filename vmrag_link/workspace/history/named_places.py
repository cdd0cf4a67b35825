"""Find the place that a name means: where documents and files are read for a diff or by name.

A place (`NamedPlace`) has stored documents, files of sources, or both. The work tree (`WORKING`)
and a git commit have both. The sources are those of the commit's own settings. A revision or branch
of the knowledge base has no files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

from vmrag_link.errors import (
    NO_DOCUMENTS,
    CollectionMissing,
    DocumentMissing,
    GitReferenceMissing,
    HistoryMissing,
    KnowledgeElsewhere,
    KnowledgeLost,
    NotInitialized,
    PinMissing,
    PinRevisionMissing,
    UsageInvalid,
    VmragError,
    no_collection,
    quoted,
)
from vmrag_link.git import plumbing
from vmrag_link.models import At, Collection, Document, DocumentHeader
from vmrag_link.paths import PIN_NAME
from vmrag_link.shown_names import name_in_rows
from vmrag_link.sources import rules
from vmrag_link.workspace import Workspace, reasons, source_tree
from vmrag_link.workspace.commits.ancestry import MergeBases
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import document_names, ranges, revparse
from vmrag_link.workspace.history.document_names import DocumentName, NamedRows
from vmrag_link.workspace.history.revparse import WORKING
from vmrag_link.workspace.source_tree import FileNames, SourceTree


class NamedPlace(NamedTuple):
    """Stored documents and files that belong together."""

    at: At | None
    """The revision or branch of the stored documents; None if none are pinned."""
    tree: SourceTree | None = None
    """Files of sources; None without sources."""
    code: str = ""
    """The commit of the files by full hash, or `WORKING`; empty without files."""
    lacks_documents: bool = False
    """True if the stored documents of this place are missing in this clone."""


class DiffEnds(NamedTuple):
    """The two places of a diff."""

    old: NamedPlace
    new: NamedPlace


class JoinedRows:
    """The documents of several stores, with the methods of an engine for finding names.

    If two stores have the same collection, the later store hides the one of the earlier store.
    """

    def __init__(self, *rows: NamedRows) -> None:
        self._rows = rows

    def list_collections(self, at: At) -> list[Collection]:
        by_name = {row.name: row for rows in self._rows for row in rows.list_collections(at)}
        return [by_name[name] for name in sorted(by_name)]

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        requested_ids = None if ids is None else list(ids)
        hidden: set[str] = set()
        for rows in reversed(self._rows):
            headers = rows.read_headers(at, collection=collection, ids=requested_ids)
            yield from (header for header in headers if header.collection not in hidden)
            hidden.update(row.name for row in rows.list_collections(at))

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None:
        documents = (rows.find_document(at, collection, doc_id) for rows in reversed(self._rows))
        return next((document for document in documents if document), None)


class PlaceNames:
    """The names of the documents and files at some places."""

    def __init__(self, ws: Workspace, *places: NamedPlace) -> None:
        files = FileNames(*(place.tree for place in places))
        stored = [place.at for place in places if place.at is not None]
        self.places: list[At] = stored or [""]
        """The arguments `at` for reading `rows`, which files ignore."""
        self.rows: NamedRows = JoinedRows(ws.engine, files) if stored else files

    def shown_names(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return the printed names of documents at the first place (`shown_names`)."""
        at = self.places[0]
        sources = {row.name for row in self.rows.list_collections(at) if row.has_paths_as_ids}
        return name_in_rows(keys, sources, at, self.rows)

    def has_name(self, name: str) -> bool:
        """Return whether a name means a document at one of the places."""
        return any(document_names.find_candidates(self.rows, at, name) for at in self.places)


# -- places


def find_working_place(ws: Workspace) -> NamedPlace:
    """Return the work tree with its uncommitted documents. The pin is followed first.

    Raises the errors of `Workspace.locate_documents` if there are no files either.
    """
    at = _find_at(ws, lambda: _follow_at(ws), pinned=True)
    stored_at = None if isinstance(at, Exception) else at
    place = NamedPlace(stored_at, source_tree.read_work_tree(ws), WORKING)
    return _require_documents(at, place, pinned=True)


def find_committed_place(ws: Workspace, working_place: NamedPlace) -> NamedPlace:
    """Return HEAD's commit and the revision without uncommitted documents.

    The sources are those of the work tree, so that both have the same names.
    """
    commit = plumbing.read_head(ws.places).commit
    tree = None
    if commit:
        stored = _list_collections(ws, working_place.at)
        tree = source_tree.read_commit(ws, commit, ws.sources.config, stored=stored)
    at = None if working_place.at is None else ws.require_stored_revision()
    return NamedPlace(at, tree, commit or "", working_place.lacks_documents)


def find_named_place(ws: Workspace, name: str) -> NamedPlace:
    """Return the place that a name means. A git commit without a pin has no stored documents.

    Raises the errors of `revparse.resolve_rev`, except `PinMissing` for such a commit.
    """
    if name == WORKING:
        return find_working_place(ws)
    commit = git_commit(ws, name)
    pinned = bool(commit) and plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}") is not None
    at = _find_at(ws, lambda: revparse.resolve_rev(ws, name), pinned=pinned)
    if isinstance(at, NotInitialized) and not commit and ws.sources.configured:
        plumbing.resolve_commit(ws.places, name)  # raises, because no knowledge base can have the name
    stored_at = None if isinstance(at, Exception) else at
    place = NamedPlace(stored_at, _find_tree(ws, commit, stored_at), commit)
    return place if commit and isinstance(at, PinMissing) else _require_documents(at, place, pinned=pinned)


def find_diff_ends(ws: Workspace, names: Sequence[str]) -> DiffEnds:
    """Return the two places that a range or two names mean.

    Raises the errors of `ranges.split_range` and `revparse.resolve_rev`.
    """
    named_range = ranges.parse_range(names[0])
    if named_range is None or len(names) > 1:
        old, new = ranges.split_range(ws, names)  # refuses a range here
        return DiffEnds(find_named_place(ws, old or WORKING), find_named_place(ws, new or WORKING))
    if named_range.dots == "..":
        return DiffEnds(find_named_place(ws, named_range.old), find_named_place(ws, named_range.new))
    return DiffEnds(_find_base_place(ws, names[0], named_range), find_named_place(ws, named_range.new))


def git_commit(ws: Workspace, name: str) -> str:
    """Return the git commit that a name means. Empty for another name, or a full revision."""
    if ws.is_initialized and ws.engine.has_revision(name):
        return ""
    try:
        return plumbing.resolve_commit(ws.places, name)
    except GitReferenceMissing:
        return ""


# -- one file


class FoundFile(NamedTuple):
    """A file of a source, and the tree that has it."""

    tree: SourceTree
    name: DocumentName


def find_file(ws: Workspace, name: str) -> FoundFile | None:
    """Return the file of a source that `[REF:]NAME` means, or None. Raises `DocumentAmbiguous`."""
    for tree, rest in _read_listings(ws, name):
        if note := tree.find_note(rest):
            return FoundFile(tree, DocumentName(*note))
        names = FileNames(tree)
        if document_names.find_candidates(names, "", rest):
            return FoundFile(tree, document_names.find_document(names, [""], rest))
    return None


@contextlib.contextmanager
def explain_missing_file(ws: Workspace, name: str) -> Iterator[None]:
    """Explain in the error of the block why `[REF:]NAME` is not a file, if it may mean one."""
    try:
        yield
    except (CollectionMissing, GitReferenceMissing, *NO_DOCUMENTS) as error:
        is_in_source = any(name.startswith(f"{source.collection}/") for source in ws.sources.configured)
        if isinstance(error, KnowledgeElsewhere | PinRevisionMissing | GitReferenceMissing) and not is_in_source:
            raise
        if isinstance(error, PinMissing) and git_commit(ws, name):
            raise
        at: At = ""
        with contextlib.suppress(*NO_DOCUMENTS, GitReferenceMissing):
            at = _follow_at(ws)
        for tree, rest in _read_listings(ws, name):
            left_out = _form_left_out_error(ws, tree, rest)
            if left_out:
                raise left_out from None
            names = FileNames(tree)
            rows = JoinedRows(ws.engine, names) if at else names
            raise document_names.missing_document(rows, at, rest) from None
        raise


def _form_left_out_error(ws: Workspace, tree: SourceTree, name: str) -> CollectionMissing | DocumentMissing | None:
    """Return the error for a file that a source leaves out, or None."""
    for collection in (*tree.unavailable, *(source.collection for source in tree.sources)):
        path = name.removeprefix(f"{collection}/").lstrip("/")
        if not path or not name.startswith(f"{collection}/"):
            continue
        if error := unavailable_source(ws, collection):
            return error
        source = tree.find_source(collection)
        reasons = {file.path: f"it {file.reason}" for file in tree.listing.left_out}
        reasons |= {key[1]: "of its contents" for key in tree.files if key[0] == collection}
        if source and path in reasons and rules.is_named(source, path):
            return DocumentMissing(
                f"the source {collection!r} leaves out the file {path}, because {reasons[path]}.",
                hint="run 'vmrag sources -v' to list all files",
                collection_name=collection,
                doc_id=path,
            )
    return None


def unavailable_source(ws: Workspace, collection: str) -> CollectionMissing | None:
    """Return the error for a source that cannot be read here, or None."""
    _, reasons = ws.sources.select_available(ws.sources.config, ws.list_stored_collections())
    if collection not in reasons:
        return None
    return CollectionMissing(
        f"cannot read the source {collection!r} (files of this repository) here: {reasons[collection]}",
        hint="run 'vmrag sources' to list the readable sources",
        collection_name=collection,
    )


@contextlib.contextmanager
def explain_missing_collection(ws: Workspace, names: Iterable[str]) -> Iterator[None]:
    """Explain in the error of the block why one of these collections cannot be read here.

    Otherwise the error lists the existing collections, with those of sources.
    """
    try:
        yield
    except (CollectionMissing, *NO_DOCUMENTS) as missing:
        names = list(names)
        for name in names:
            if error := unavailable_source(ws, name):
                raise error from None
        sources = {source.collection for source in ws.sources.configured}
        unknown = [name for name in names if name not in sources]
        if unknown and ("collections" in missing.details or ws.stores_nothing):
            raise no_collection(unknown[0], sorted({*sources, *missing.details.get("collections", ())})) from None
        raise


def _read_listings(ws: Workspace, name: str) -> Iterator[tuple[SourceTree, str]]:
    """Yield the trees in which `[REF:]NAME` may be a file, each with NAME. The work tree is last.

    An answer prints a name with lines, such as `a.md:3`, so NAME is also tried without them.
    """
    if parts := revparse.separate_ref(name):
        ref, rest = parts
        commit = git_commit(ws, ref) if ref != WORKING else ""
        tree = tree_at(ws, commit) if commit or ref == WORKING else None
        if tree:
            yield tree, rest
            yield tree, document_names.without_line(rest)
    if ws.sources.configured and (tree := source_tree.read_work_tree(ws)):
        yield tree, name
        yield tree, document_names.without_line(name)


def tree_at(ws: Workspace, commit: str, stored: Sequence[str] | None = None) -> SourceTree | None:
    """Return the files of a commit, or of the work tree if `commit` is empty.

    A commit without settings gets the sources of the work tree, so that the same files have the
    same names.
    """
    if not commit:
        return source_tree.read_work_tree(ws)
    config = ws.sources.read_config_at(commit, default=ws.sources.config)
    return source_tree.read_commit(ws, commit, config, stored=stored)


# -- parts


def _follow_at(ws: Workspace) -> At:
    """Follow the pin, and return from where documents are read."""
    follow_and_warn(ws)
    return ws.locate_documents()


def _find_at(ws: Workspace, locate: Callable[[], At], *, pinned: bool) -> At | VmragError:
    """Return the result of `locate`, or its error if no documents can be read.

    If they are pinned but missing and files answer, print a warning.
    """
    try:
        return locate()
    except NO_DOCUMENTS as error:
        if pinned and ws.sources.configured:
            for note in reasons.explain_missing_documents(error):
                ws.progress.note(note)
        return error


def _require_documents(at: At | VmragError, place: NamedPlace, *, pinned: bool) -> NamedPlace:
    """Return the place, or raise the error if it has neither stored documents nor files."""
    if isinstance(at, Exception) and place.tree is None:
        raise at
    lacks = pinned and isinstance(at, KnowledgeElsewhere | KnowledgeLost | PinRevisionMissing)
    return place._replace(lacks_documents=lacks)


def _find_tree(ws: Workspace, commit: str, at: At | None) -> SourceTree | None:
    return tree_at(ws, commit, _list_collections(ws, at)) if commit else None


def _list_collections(ws: Workspace, at: At | None) -> list[str]:
    return [] if at is None else [collection.name for collection in ws.engine.list_collections(at)]


def _find_base_place(ws: Workspace, shown: str, named_range: ranges.NamedRange) -> NamedPlace:
    """Return the merge base of a range. Raises `HistoryMissing` and `UsageInvalid`.

    `shown`: the range as the user wrote it.
    """
    old = git_commit(ws, "HEAD" if named_range.old == WORKING else named_range.old)
    new = git_commit(ws, "HEAD" if named_range.new == WORKING else named_range.new)
    commit = _find_merge_base(ws, old, new, named_range) if old and new else ""
    pinned = bool(commit) and plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}") is not None
    at = _find_at(ws, lambda: ranges.split_range(ws, [shown])[0] or "", pinned=pinned)
    stored_at = None if isinstance(at, Exception) else at
    return _require_documents(at, NamedPlace(stored_at, _find_tree(ws, commit, stored_at), commit), pinned=pinned)


def _find_merge_base(ws: Workspace, old: str, new: str, named_range: ranges.NamedRange) -> str:
    """Return the merge base of two commits. Raises `HistoryMissing` and `UsageInvalid`."""
    bases = MergeBases(ws.places, new, old).find_bases(new, old)
    if bases:
        return bases[0]
    if bases is None:
        raise HistoryMissing(
            f"the merge base of {named_range.old} and {named_range.new} is not in this shallow clone.",
            hint="run 'git fetch --unshallow' to fetch the missing commits",
        )
    raise UsageInvalid(
        f"the histories of {named_range.old} and {named_range.new} have no common commit.",
        hint=f"run 'vmrag diff {quoted(named_range.old)} {quoted(named_range.new)}' to compare them without a merge base",
    )
