"""What is known at a place: documents of the knowledge base there, and files of the code's tree.

A git ref has both, the files as its own `sources` name them; a revision or branch of the knowledge
base has no files.
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
    """`at`: None where no knowledge is pinned. `tree`: None where no sources are named. `code`:
    whose files these are, a commit by full hash or `WORKING`; empty for what has no files.
    """

    at: At | None
    tree: SourceTree | None = None
    code: str = ""
    lacks_documents: bool = False
    """True if the stored documents of this place are missing in this clone."""


class DiffEnds(NamedTuple):
    """What a diff is between."""

    old: NamedPlace
    new: NamedPlace


class JoinedRows:
    """Documents of several stores. If two of them have a name, the later one applies."""

    def __init__(self, *rows: NamedRows) -> None:
        self._rows = rows

    def list_collections(self, at: At) -> list[Collection]:
        named = {row.name: row for rows in self._rows for row in rows.list_collections(at)}
        return [named[name] for name in sorted(named)]

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        wanted = None if ids is None else list(ids)
        later: set[str] = set()
        for rows in reversed(self._rows):
            names = {row.name for row in rows.list_collections(at)}
            headers = rows.read_headers(at, collection=collection, ids=wanted)
            yield from (header for header in headers if header.collection not in later)
            later |= names

    def find_document(self, at: At, collection: str, doc_id: str) -> Document | None:
        documents = (rows.find_document(at, collection, doc_id) for rows in reversed(self._rows))
        return next((document for document in documents if document), None)


class PlaceNames:
    """The names of what is known at some places."""

    def __init__(self, ws: Workspace, *places: NamedPlace) -> None:
        files = FileNames(*(place.tree for place in places))
        self.places: list[At] = [place.at for place in places if place.at is not None] or [""]
        self.rows: NamedRows = JoinedRows(ws.engine, files) if any(place.at is not None for place in places) else files

    def shown_names(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return names for documents at the first place (`shown_names`)."""
        at = self.places[0]
        sources = {row.name for row in self.rows.list_collections(at) if row.has_paths_as_ids}
        return name_in_rows(keys, sources, at, self.rows)

    def has_name(self, name: str) -> bool:
        return any(document_names.find_candidates(self.rows, at, name) for at in self.places)


# -- places


def find_working_place(ws: Workspace) -> NamedPlace:
    """The work tree, with what is not committed. Raises as `Workspace.at`, where there are no files
    either.
    """
    at = _place_or_error(ws, lambda: _moved(ws), pinned=True)
    return _required(
        at,
        NamedPlace(at if not isinstance(at, Exception) else None, source_tree.read_work_tree(ws), WORKING),
        pinned=True,
    )


def find_committed_place(ws: Workspace, here: NamedPlace) -> NamedPlace:
    """What the work tree is based on: HEAD's files, by the sources of the work tree."""
    commit = plumbing.read_head(ws.places).commit
    tree = source_tree.read_commit(ws, commit, ws.sources.config, stored=_names(ws, here.at)) if commit else None
    at = None if here.at is None else ws.require_stored_revision()
    return NamedPlace(at, tree, commit or "", here.lacks_documents)


def find_named_place(ws: Workspace, name: str) -> NamedPlace:
    """Return the place that a name means. A commit of git without a pin has no stored documents.

    Raises the errors of `revparse.resolve_at`, except that one.
    """
    if name == WORKING:
        return find_working_place(ws)
    commit = git_commit(ws, name)
    pinned = bool(commit) and plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}") is not None
    at = _place_or_error(ws, lambda: revparse.resolve_rev(ws, name), pinned=pinned)
    if isinstance(at, NotInitialized) and not commit and ws.sources.configured:
        plumbing.resolve_commit(ws.places, name)  # raises: there is no knowledge base that could know the name
    found = None if isinstance(at, Exception) else at
    place = NamedPlace(found, _tree(ws, commit, found), commit)
    return place if commit and isinstance(at, PinMissing) else _required(at, place, pinned=pinned)


def find_diff_ends(ws: Workspace, names: Sequence[str]) -> DiffEnds:
    """As `ranges.ends`, of a range or of two names."""
    asked = ranges.parse_range(names[0])
    if asked is None or len(names) > 1:
        old, new = ranges.split_range(ws, names)  # refuses a range here
        return DiffEnds(find_named_place(ws, old or WORKING), find_named_place(ws, new or WORKING))
    if asked.dots == "..":
        return DiffEnds(find_named_place(ws, asked.old), find_named_place(ws, asked.new))
    return DiffEnds(_base(ws, names[0], asked), find_named_place(ws, asked.new))


def git_commit(ws: Workspace, name: str) -> str:
    """The commit of git's that a name means; empty for what only the knowledge base knows."""
    if ws.is_initialized and ws.engine.has_revision(name):
        return ""
    try:
        return plumbing.resolve_commit(ws.places, name)
    except GitReferenceMissing:
        return ""


# -- one file


class FoundFile(NamedTuple):
    tree: SourceTree
    name: DocumentName


def find_file(ws: Workspace, name: str) -> FoundFile | None:
    """The file of a source that `[REF:]NAME` means; None if it means no file.

    Raises `DocumentAmbiguous`.
    """
    for tree, rest in _read_listings(ws, name):
        if note := tree.find_note(rest):
            return FoundFile(tree, DocumentName(*note))
        names = FileNames(tree)
        if document_names.find_candidates(names, "", rest):
            return FoundFile(tree, document_names.find_document(names, [""], rest))
    return None


@contextlib.contextmanager
def explain_missing_file(ws: Workspace, name: str) -> Iterator[None]:
    """What keeps `[REF:]NAME` from being found is said of files, too, where there are some."""
    try:
        yield
    except (CollectionMissing, GitReferenceMissing, *NO_DOCUMENTS) as why:
        of_file = any(name.startswith(f"{each.collection}/") for each in ws.sources.configured)
        if isinstance(why, KnowledgeElsewhere | PinRevisionMissing | GitReferenceMissing) and not of_file:
            raise
        if isinstance(why, PinMissing) and git_commit(ws, name):
            raise
        at: At = ""
        with contextlib.suppress(*NO_DOCUMENTS, GitReferenceMissing):
            at = _moved(ws)
        for tree, rest in _read_listings(ws, name):
            names = FileNames(tree)
            raise _left_out(ws, tree, rest) or document_names.missing_document(
                JoinedRows(ws.engine, names) if at else names, at, rest
            ) from None
        raise


def _left_out(ws: Workspace, tree: SourceTree, name: str) -> CollectionMissing | DocumentMissing | None:
    """The error for what a source keeps from being a document; None for anything else."""
    for collection in (*tree.unavailable, *(each.collection for each in tree.sources)):
        path = name.removeprefix(f"{collection}/").lstrip("/")
        if not path or not name.startswith(f"{collection}/"):
            continue
        if error := unavailable_source(ws, collection):
            return error
        source = tree.find_source(collection)
        reasons = {each.path: f"it {each.reason}" for each in tree.listing.left_out}
        reasons |= {key[1]: "of what is in it" for key in tree.files if key[0] == collection}
        if source and path in reasons and rules.is_named(source, path):
            return DocumentMissing(
                f"The file {path} is left out of the source {collection!r}, because {reasons[path]}.",
                hint="vmrag sources -v",
                collection_name=collection,
                doc_id=path,
            )
    return None


def unavailable_source(ws: Workspace, collection: str) -> CollectionMissing | None:
    """The error for a source that cannot be read here; None for one that can, and for others."""
    _, reasons = ws.sources.select_available(ws.sources.config, ws.list_stored_collections())
    if collection not in reasons:
        return None
    return CollectionMissing(
        f"The collection {collection!r}, of files of this repository, cannot be read here: {reasons[collection]}",
        hint="vmrag sources   (shows what can be read here)",
        collection_name=collection,
    )


@contextlib.contextmanager
def explain_missing_collection(ws: Workspace, names: Iterable[str]) -> Iterator[None]:
    """Improve the error of a block that does not find one of these collections: it names why a
    source cannot be read here, or the collections that exist, of sources, too.
    """
    try:
        yield
    except (CollectionMissing, *NO_DOCUMENTS) as missing:
        names = list(names)
        for name in names:
            if error := unavailable_source(ws, name):
                raise error from None
        of_files = {source.collection for source in ws.sources.configured}
        unknown = [name for name in names if name not in of_files]
        if unknown and ("collections" in missing.details or ws.stores_nothing):
            raise no_collection(unknown[0], sorted({*of_files, *missing.details.get("collections", ())})) from None
        raise


def _read_listings(ws: Workspace, name: str) -> Iterator[tuple[SourceTree, str]]:
    """The trees in which `[REF:]NAME` may be looked up, with NAME; the work tree last. A name may
    end in the line that an answer shows.
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
    """Return the files of a commit, or of the work tree. A commit before anything was set up has
    the sources of the work tree, so that the same files have the same names.
    """
    if not commit:
        return source_tree.read_work_tree(ws)
    config = ws.sources.read_config_at(commit, default=ws.sources.config)
    return source_tree.read_commit(ws, commit, config, stored=stored)


# -- parts


def _moved(ws: Workspace) -> At:
    follow_and_warn(ws)
    return ws.locate_documents()


def _place_or_error(ws: Workspace, look: Callable[[], At], *, pinned: bool) -> At | VmragError:
    """Return where documents are read, or why there are none.

    A note tells if they are pinned and missing.
    """
    try:
        return look()
    except NO_DOCUMENTS as why:
        if pinned and ws.sources.configured:
            for note in reasons.explain_missing_documents(why):
                ws.progress.note(note)
        return why


def _required(at: At | VmragError, place: NamedPlace, *, pinned: bool) -> NamedPlace:
    """Raises why nothing is known at a place."""
    if isinstance(at, Exception) and place.tree is None:
        raise at
    lacks = pinned and isinstance(at, KnowledgeElsewhere | KnowledgeLost | PinRevisionMissing)
    return place._replace(lacks_documents=lacks)


def _tree(ws: Workspace, commit: str, at: At | None) -> SourceTree | None:
    return tree_at(ws, commit, _names(ws, at)) if commit else None


def _names(ws: Workspace, at: At | None) -> list[str]:
    return [] if at is None else [collection.name for collection in ws.engine.list_collections(at)]


def _base(ws: Workspace, shown: str, asked: ranges.NamedRange) -> NamedPlace:
    """The merge base of a range. Raises `HistoryMissing`, `UsageInvalid`."""
    old, new = (git_commit(ws, "HEAD" if each == WORKING else each) for each in (asked.old, asked.new))
    commit = _merge_base(ws, old, new, asked) if old and new else ""
    pinned = bool(commit) and plumbing.read_blob(ws.places, f"{commit}:{PIN_NAME}") is not None
    at = _place_or_error(ws, lambda: ranges.split_range(ws, [shown])[0] or "", pinned=pinned)
    found = None if isinstance(at, Exception) else at
    return _required(at, NamedPlace(found, _tree(ws, commit, found), commit), pinned=pinned)


def _merge_base(ws: Workspace, old: str, new: str, asked: ranges.NamedRange) -> str:
    found = MergeBases(ws.places, new, old).find_bases(new, old)
    if found:
        return found[0]
    if found is None:
        raise HistoryMissing(
            f"Where {asked.new} left {asked.old} cannot be said: this clone is shallow, and ends too early.",
            hint="git fetch --unshallow",
        )
    raise UsageInvalid(
        f"The histories of {asked.old} and {asked.new} have nothing in common.",
        hint=f"vmrag diff {quoted(asked.old)} {quoted(asked.new)}",
    )
