"""Find the target of the tool `history`: a file or folder in git, or stored documents.

A name can be a path, a collection, a stored document, or any of them in the past. git answers
first, because most names are paths: one call looks them up in HEAD, in git's staging area, and in
the commit to compare with.
"""

from __future__ import annotations

import contextlib
import difflib
import posixpath
from collections.abc import Iterable, Iterator, Sequence

from vmrag_link import hints, terminal_text
from vmrag_link.errors import (
    CollectionMissing,
    DocumentAmbiguous,
    DocumentMissing,
    GitReferenceMissing,
    NotInitialized,
    PinMissing,
    UsageInvalid,
    VmragError,
    shortened,
)
from vmrag_link.git import file_log, listing, path_changes, plumbing
from vmrag_link.models import At, Record
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import rules
from vmrag_link.toolsets.essential import texts
from vmrag_link.toolsets.essential.texts import HOW_TO_FIND, MAX_CLOSEST_NAMES
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.provenance import AnswerOrigin
from vmrag_link.workspace.history import document_history, document_names, file_history, named_places, revparse
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_mcp.call import Call

Lines = tuple[int, int]


class HistoryStart(Record, frozen=True):
    """The ref to compare with."""

    ref: str
    commit: str
    """The git commit; empty if only the knowledge base has the ref."""
    revision: str = ""
    """The revision, if only the knowledge base has the ref."""


class HistoryTarget(Record, frozen=True):
    """The target of a name: a file, pathspecs, a stored document, or a stored collection. Without
    any of them, the target is everything.
    """

    name: str
    path: str = ""
    """A file."""
    lines: Lines | None = None
    """Lines of the file."""
    existed: bool = True
    """The file had this path at the start of the comparison."""
    committed_path: str = ""
    """The path in HEAD of a file with an uncommitted new name."""
    pathspecs: tuple[str, ...] = ()
    """Pathspecs of a folder, or of a collection of files."""
    document: DocumentName | None = None
    """A stored document."""
    collection: str = ""
    """A stored collection."""
    folder: str = ""
    """A folder in the stored collection."""

    @property
    def in_git(self) -> bool:
        return not (self.document or self.collection)

    @property
    def is_single(self) -> bool:
        """True for one file or one document."""
        return bool(self.path or self.document)

    @property
    def is_stored(self) -> bool:
        return not (self.path or self.pathspecs)

    def covers_document(self, key: tuple[str, str]) -> bool:
        """Return whether a stored document is part of the target."""
        if self.document:
            return key == self.document.key
        return self.collection in ("", key[0]) and key[1].startswith(self.folder)


class StoredPlace(Record, frozen=True):
    """The states of the stored documents that `history` compares."""

    origin: AnswerOrigin
    """The current state."""
    old: At | None = None
    """The state at the start; None before the first document."""


def find_target(call: Call, name: str, since: str) -> tuple[HistoryTarget, HistoryStart | None]:
    """Return the current or earlier target of a name, and the start of the comparison.

    Raises `GitReferenceMissing`, `DocumentMissing` and `DocumentAmbiguous`. If git does not know
    the name, also raises the error that prevents reading the knowledge base.
    """
    ws = call.ws
    place = texts.normalize_place(ws, name)
    path = _path_from_top(ws, place)
    bare, numbers = texts.split_place(path)
    paths = [*dict.fromkeys((path, bare))] if path and not _is_outside(path) else []
    old = [since] if plumbing.can_name_commit(since) else []
    since_spec = f"{since}^{{commit}}"
    specs = [since_spec] if old else []
    specs += [f"{ref}:{candidate}" for candidate in paths for ref in ("HEAD", ":0", *old)]
    objects = dict(zip(specs, path_changes.find_objects(ws.places, specs), strict=True))
    start = _find_start(ws, since, objects[since_spec][0] if old else "") if since else None
    if not path:
        return HistoryTarget(""), start
    for candidate in paths:
        _, in_head = objects[f"HEAD:{candidate}"]
        _, staged = objects[f":0:{candidate}"]
        _, at_start = objects[f"{since}:{candidate}"] if old else ("", "")
        kinds = (in_head, staged, at_start)
        if "blob" in kinds:
            target = HistoryTarget(
                name=candidate,
                path=candidate,
                lines=_read_lines(numbers) if candidate != path else None,
                existed=bool(at_start) or not old,
                committed_path=_find_committed_path(ws, candidate) if staged and not in_head else "",
            )
            return target, start
        collection = _find_collection(call, place, has_folder="tree" in kinds) if candidate == path else None
        if collection:
            return collection, start
        if "tree" in kinds:
            return HistoryTarget(f"{candidate}/", pathspecs=(_escape_pathspec(candidate),)), start
    return _find_other(call, place.rstrip("/") or place, path), start


def _path_from_top(ws: Workspace, place: str) -> str:
    """Return a name as a git path; empty for the top."""
    path = posixpath.normpath(place) if place else "."
    return "" if path in (".", "/", str(ws.places.top)) else path


def _is_outside(path: str) -> bool:
    """Return True if no file of the repository can have this path, for which git would fail."""
    return path == ".." or path.startswith(("/", "../"))


def _find_start(ws: Workspace, since: str, commit: str) -> HistoryStart:
    """Return the start.

    Raises `GitReferenceMissing` if neither git nor the knowledge base has the ref.
    """
    if commit:
        return HistoryStart(since, commit)
    with contextlib.suppress(GitReferenceMissing, NotInitialized):
        return HistoryStart(since, "", revparse.resolve_rev(ws, since))
    raise texts.unknown_ref(ws, since)


def _read_lines(numbers: str) -> Lines | None:
    first, _, last = numbers.partition("-")
    lines = (int(first), int(last or first))
    if not 0 < lines[0] <= lines[1]:
        raise UsageInvalid(
            f"invalid lines {numbers!r}.", hint="pass 'name=src/auth.py:10-42'", parameter="name", value=numbers
        )
    return lines


def _find_committed_path(ws: Workspace, path: str) -> str:
    """Return the path in HEAD of a file with an uncommitted new name; empty for a new file."""
    head = plumbing.read_head(ws.places).commit
    changes = path_changes.list_changes(ws.places, head) if head else []
    return next((change.old_path for change in changes if change.path == path), "")


def _find_collection(call: Call, name: str, *, has_folder: bool) -> HistoryTarget | None:
    """Return the collection of a name. `docs/` means a folder rather than a collection."""
    if has_folder and name.endswith("/"):
        return None
    ws = call.ws
    collection = name.rstrip("/")
    stored = _stored_collections(call)
    for source in rules.exclude_notes(ws.sources.configured):
        if source.collection == collection and (source.write or collection not in stored):
            return HistoryTarget(collection, pathspecs=tuple(rules.build_pathspecs(source)))
    return HistoryTarget(collection, collection=collection) if collection in stored else None


def _stored_collections(call: Call) -> set[str]:
    """Return the names of stored collections; none if the knowledge base cannot be read."""
    if not call.ws.is_initialized:
        return set()
    try:
        return {row.name for row in call.ws.engine.list_collections(call.find_origin().at)}
    except VmragError:
        return set()


def _escape_pathspec(path: str) -> str:
    return f":(top,literal){path}"


def _find_other(call: Call, name: str, path: str) -> HistoryTarget:
    """Return the target of a name that is not a git path."""
    ws = call.ws
    with contextlib.suppress(CollectionMissing, DocumentMissing):
        file = named_places.find_file(ws, name)
        if file:
            file_path = file.tree.files[file.name.key].path
            file_history.require_own_file(file.tree, file_path, "log")
            return _make_file_target(name, file_path)
    unreadable: VmragError | None = None
    try:
        target = _find_stored(call, name)
        if target:
            return target
    except VmragError as error:
        if not isinstance(error, PinMissing) and type(error) is not NotInitialized:
            unreadable = error
    tracked = listing.list_tracked_files(ws.places)
    bare = document_names.without_line(path)
    same = [tracked_path for tracked_path in tracked if tracked_path.endswith((f"/{path}", f"/{bare}"))]
    if len(same) > 1:
        raise DocumentAmbiguous(
            f"{name!r} is ambiguous: {len(same)} files have that name.",
            hint=f"pass one of these as name: {_join_names(same[:MAX_CLOSEST_NAMES])}",
            name=name,
            candidates=same[:10],
        )
    if same:
        return _make_file_target(path, same[0])
    target = _find_removed_file(ws, name, bare)
    if target is None and unreadable is None:
        target = _find_removed_document(ws, name)
    if target is None:
        raise _build_unknown(call, name, tracked, unreadable)
    return target


def _make_file_target(name: str, path: str) -> HistoryTarget:
    """Return a file that `name` means, with the lines in the name."""
    numbers = name[len(document_names.without_line(name)) + 1 :]
    return HistoryTarget(path, path=path, lines=_read_lines(numbers) if numbers else None, existed=False)


def _find_stored(call: Call, name: str) -> HistoryTarget | None:
    """Return the stored document or folder of documents that exists."""
    at = call.find_origin().at
    engine = call.ws.engine
    for full_name in dict.fromkeys((name, document_names.without_line(name))):
        if document_names.find_candidates(engine, at, full_name):
            document = document_names.find_document(engine, [at], full_name)
            numbers = name[len(full_name) + 1 :]
            return HistoryTarget(str(document), document=document, lines=_read_lines(numbers) if numbers else None)
    for row in engine.list_collections(at):
        if name.startswith(f"{row.name}/"):
            folder = f"{name.removeprefix(f'{row.name}/')}/"
            headers = engine.read_headers(at, collection=row.name)
            if any(header.doc_id.startswith(folder) for header in headers):
                return HistoryTarget(f"{name}/", collection=row.name, folder=folder)
    return None


def _find_removed_file(ws: Workspace, name: str, path: str) -> HistoryTarget | None:
    """Return a file or folder that no longer exists."""
    head = plumbing.read_head(ws.places).commit
    paths = dict.fromkeys((path, *(file.path for file in file_history.removed_documents(ws, name))))
    for removed in paths if head else ():
        changes = [] if _is_outside(removed) else file_log.read_file_log(ws.places, [str(head)], removed, limit=1)
        if changes:
            if removed in (changes[0].path, changes[0].old_path):
                return HistoryTarget(removed, path=removed)
            return HistoryTarget(f"{removed}/", pathspecs=(_escape_pathspec(removed),))
    return None


def _find_removed_document(ws: Workspace, name: str) -> HistoryTarget | None:
    """Return a stored document that no longer exists."""
    if "/" not in name:
        return None
    with contextlib.suppress(DocumentMissing, CollectionMissing, GitReferenceMissing, NotInitialized, PinMissing):
        steps = document_history.list_history(ws, [ws.require_stored_revision(), name], limit=1).steps
        change = steps[0].document if steps else None
        return HistoryTarget(name, document=DocumentName(*change.key)) if change else None
    return None


def _build_unknown(call: Call, name: str, tracked: list[str], reason: VmragError | None) -> VmragError:
    """Return the error for an unknown name, with the closest names.

    `reason` is the error that prevents reading the knowledge base.
    """
    closest = _find_closest(name, [*tracked, *_stored_names(call)])
    if reason:
        reason.message = f"no file has or had the name {shortened(repr(name))}. {reason.message}"
        if closest:
            reason.hint = hints.join_alternatives(f"use one of the closest names: {_join_names(closest)}", reason.hint)
        return reason
    return DocumentMissing(
        f"no file, folder, document or collection has or had the name {shortened(repr(name))}.",
        hint=f"use one of the closest names: {_join_names(closest)}" if closest else HOW_TO_FIND,
        doc_id=name,
    )


def _stored_names(call: Call) -> Iterator[str]:
    with contextlib.suppress(VmragError):
        at = call.find_origin().at
        yield from (row.name for row in call.ws.engine.list_collections(at))
        yield from (str(DocumentName(*header.key)) for header in call.ws.engine.read_headers(at))


def _find_closest(name: str, names: Iterable[str]) -> list[str]:
    """Return the most similar names, by the whole name or by its last part."""
    by_text: dict[str, str] = {}
    for candidate in names:
        by_text[candidate] = candidate
        by_text.setdefault(posixpath.basename(candidate), candidate)
    similar = difflib.get_close_matches(name, by_text, n=2 * MAX_CLOSEST_NAMES)
    return list(dict.fromkeys(by_text[text] for text in similar))[:MAX_CLOSEST_NAMES]


def _join_names(names: Sequence[str]) -> str:
    return terminal_text.escape_line(", ".join(names))


def open_stored(call: Call, start: HistoryStart | None) -> StoredPlace:
    """Return the states of the stored documents. A commit without a pin has no old state.

    Raises the error that prevents reading them.
    """
    origin = call.find_origin()
    if start is None:
        return StoredPlace(origin)
    try:
        return StoredPlace(origin, start.revision or revparse.resolve_rev(call.ws, start.commit))
    except PinMissing:
        return StoredPlace(origin)


def note_source(ws: Workspace, path: str) -> SourceSettings | None:
    """Return the writable source whose folder has this file; None for a file that is not a note."""
    sources = (source for source in ws.config.sources if source.write)
    return next((source for source in sources if path.startswith(f"{source.folder}/")), None)
