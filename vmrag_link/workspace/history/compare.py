"""Compare the documents of two places, or two single documents: `vmrag diff`.

A place (`NamedPlace`) has stored documents `at` a revision or KB branch, and files of sources in a
`tree`. Both are compared, and joined by name: a stored document that became a file of the same name
is modified, not removed and added. Files are compared by their blobs. Only files that differ are
read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import GitReferenceMissing, NotInitialized, PinMissing, UsageInvalid
from vmrag_link.models import At, ChangeKind, Document, DocumentHeader, HeaderChange
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import diff as diffs
from vmrag_link.workspace.history import document_names, named_places, ranges
from vmrag_link.workspace.history.diff import Diff, DiffTexts, FileCounts, TextReader
from vmrag_link.workspace.history.named_places import DiffEnds, NamedPlace, PlaceNames
from vmrag_link.workspace.history.revparse import WORKING
from vmrag_link.workspace.history.word_diff import Detail, WordDiff
from vmrag_link.workspace.source_tree import Key, SourceTree

_MAX_PLACES = 2
_BATCH_FILES = 250
"""Number of files whose texts are in memory at the same time."""

KeyFilter = Callable[[Key], bool]


def compare_places(
    ws: Workspace, names: Sequence[str], *, only: Sequence[str] = (), detail: Detail = "text", code: bool = False
) -> WordDiff:
    """Return the differences that the arguments of `vmrag diff` request.

    `names` has one of two forms:

    * `[OLD [NEW]] [DOCUMENT]...`: two places, which may be a range (`ranges.split_range`), and the
      documents to compare (`document_names.select_named`).
    * `REF:DOCUMENT [[REF:]DOCUMENT]`: two documents. By default the second one is the document of
      the same name in the work tree.

    `only`: more documents, folders, collections or patterns. Files of code are only counted, unless
    `names` has them or `code` is true. Raises the errors of these functions.
    """
    working_place = named_places.find_working_place(ws)
    if _is_document_elsewhere(ws, working_place, names):
        return _compare_documents(ws, names, detail)
    (old, new), rest = _split_names(ws, working_place, names)
    return diff_places(ws, old, new, [*rest, *only], detail=detail, code=code)


def diff_places(
    ws: Workspace, old: NamedPlace, new: NamedPlace, chosen: Sequence[str] = (), *, detail: Detail, code: bool = False
) -> WordDiff:
    """Return the differences of two places. `chosen`: names of documents; empty for all.

    If the stored documents of one place are missing here, only files are compared. `code`: as for
    `compare_places`.
    """
    if old.lacks_documents or new.lacks_documents:
        old = old._replace(at=None)
        new = new._replace(at=None)
    diff = stored_diff(ws, old.at, new.at)
    is_code = _make_code_filter(old.tree, new.tree)
    if chosen:
        names = PlaceNames(ws, new, old)
        selection = document_names.select_named(names.rows, names.places, chosen)
        keys = {document.key for document in selection.documents}
        diff = _add_files(diff.narrow_to(selection), old, new, shown=lambda key: key in keys, counted=lambda _: False)
    else:
        diff = _add_files(diff, old, new, shown=lambda key: code or not is_code(key), counted=is_code)
    return WordDiff(get_diff_texts(ws, diff, old, new), diff, detail)


def stored_diff(ws: Workspace, old: At | None, new: At | None) -> Diff:
    """Return the differences of the stored documents. None: there are no documents yet."""
    if old is None and new is None:
        return Diff(None, "", (), ())
    return diffs.diff_documents(ws.engine, old, read_root(ws.engine) if new is None else new)


def get_diff_texts(ws: Workspace, diff: Diff, old: NamedPlace, new: NamedPlace) -> DiffTexts:
    """Return an object that reads the documents of a diff, before and after."""
    if old.at is None and new.at is None:
        stored = DiffTexts(lambda _: {}, lambda _: {})
    else:
        stored = diffs.stored_texts(ws.engine, diff.old, diff.new)
    return DiffTexts(_read_both(stored.before, old.tree), _read_both(stored.after, new.tree))


def _split_names(ws: Workspace, working_place: NamedPlace, names: Sequence[str]) -> tuple[DiffEnds, Sequence[str]]:
    """Return the places to compare, and the remaining names, which are documents.

    A name means a document if a place has it. Otherwise the first names mean places.
    """
    committed = named_places.find_committed_place(ws, working_place)
    if not names or PlaceNames(ws, working_place, committed).has_name(names[0]):
        return DiffEnds(committed, working_place), names
    if ranges.is_range(names[0]):
        return named_places.find_diff_ends(ws, names[:1]), names[1:]
    old = named_places.find_named_place(ws, names[0])
    if len(names) == 1 or PlaceNames(ws, working_place, committed, old).has_name(names[1]):
        return DiffEnds(old, working_place), names[1:]
    _, new = ranges.split_range(ws, names[:_MAX_PLACES])  # refuses a range here
    return DiffEnds(old, named_places.find_named_place(ws, new or WORKING)), names[_MAX_PLACES:]


def _is_document_elsewhere(ws: Workspace, working_place: NamedPlace, names: Sequence[str]) -> bool:
    """Return whether the first name is `REF:DOCUMENT`, not a git expression with a colon."""
    if not names or ":" not in names[0] or PlaceNames(ws, working_place).has_name(names[0]):
        return False
    try:
        named_places.find_diff_ends(ws, names[:1])
    except GitReferenceMissing:
        return True
    except (NotInitialized, PinMissing):
        return False
    return False


class _ComparedDocument(NamedTuple):
    """A single document to compare."""

    document: Document
    at: At
    """From where it was read; empty for a file."""
    code: str = ""
    """For a file, the commit or `WORKING` (`NamedPlace.code`)."""


def _compare_documents(ws: Workspace, names: Sequence[str], detail: Detail) -> WordDiff:
    """Compare two documents. Raises the errors of `document_names.find_at`."""
    if len(names) > _MAX_PLACES:
        raise UsageInvalid(
            "vmrag diff compares at most two documents.",
            hint="name two, as in 'vmrag diff v1:guide/faq.md v2:guide/faq.md'",
        )
    old = _find_compared(ws, names[0])
    new = _find_compared(ws, names[1] if len(names) == _MAX_PLACES else f"{WORKING}:{'/'.join(old.document.key)}")
    before = header_of(old.document)
    after = header_of(new.document)
    renamed = msgspec.structs.replace(before, collection=after.collection, doc_id=after.doc_id)
    changes = () if renamed == after else (HeaderChange("modified", before, after),)
    texts = DiffTexts(lambda _: {before.key: old.document}, lambda _: {after.key: new.document})
    sources = frozenset(side.document.collection for side in (old, new) if side.code)
    return WordDiff(texts, Diff(old.at, new.at, changes, (), commits=(old.code, new.code), sources=sources), detail)


def _find_compared(ws: Workspace, name: str) -> _ComparedDocument:
    """Return the file or stored document with this name, which may begin with `REF:`."""
    file = named_places.find_file(ws, name)
    if file and (document := file.tree.read_documents([file.name.key]).get(file.name.key)):
        return _ComparedDocument(document, "", file.tree.commit or WORKING)
    with named_places.explain_missing_file(ws, name):
        place, document_name = document_names.find_at(ws, name)
    stored = ws.engine.find_document(place.at, *document_name.key)
    if stored is None:  # another process removed it after the search
        raise document_names.no_document(ws.engine, place.at, *document_name.key)
    return _ComparedDocument(stored, place.at)


def _add_files(diff: Diff, old: NamedPlace, new: NamedPlace, *, shown: KeyFilter, counted: KeyFilter) -> Diff:
    """Add the differences of files to the differences of stored documents.

    `shown`: which files to compare. `counted`: which of the other files to count. Without files in
    one of the places, return the diff unchanged.
    """
    trees = [tree for tree in (old.tree, new.tree) if tree]
    if not (old.code and new.code and trees):
        return diff
    missing = {path for tree in trees for path in tree.listing.missing}
    missing_submodules = tuple(path for path in missing if path.endswith("/"))
    compared: list[Key] = []
    counted_kinds: dict[Key, ChangeKind] = {}
    for key, kind in _list_differences(old.tree, new.tree):
        if key[1] in missing or key[1].startswith(missing_submodules):
            continue
        if shown(key):
            compared.append(key)
        elif counted(key):
            counted_kinds[key] = kind
    file_changes = list(_list_file_changes(old.tree, new.tree, compared))
    return msgspec.structs.replace(
        diff,
        documents=tuple(_merge_changes(diff.documents, file_changes)),
        commits=(old.code, new.code),
        files=tuple(_count_files(counted_kinds)),
        missing=tuple(sorted(missing)),
        sources=frozenset(source.collection for tree in trees for source in tree.sources if not source.write),
    )


def _make_code_filter(old: SourceTree | None, new: SourceTree | None) -> KeyFilter:
    """Return a filter for files of code. The new place decides if a collection changed its kind."""

    def is_code_file(key: Key) -> bool:
        collection = key[0]
        source = new.find_source(collection) if new else None
        if source is None and old:
            source = old.find_source(collection)
        return source is not None and source.kind == "code"

    return is_code_file


def change_of(before: DocumentHeader | None, after: DocumentHeader | None) -> HeaderChange:
    """Return the change from one header to another. None for a document that does not exist."""
    return HeaderChange(_name_kind(before, after), before, after)


def _name_kind(before: object, after: object) -> ChangeKind:
    if before and after:
        return "modified"
    return "added" if after else "removed"


def header_of(document: Document) -> DocumentHeader:
    """Return the header of a document."""
    return DocumentHeader(
        document.collection, document.doc_id, document.title, document.content_hash, document.metadata
    )


def _read_both(stored: TextReader, tree: SourceTree | None) -> TextReader:
    """Return a reader of files in a tree and of stored documents, which `stored` reads."""
    if tree is None:
        return stored

    def read_documents(headers: Sequence[DocumentHeader]) -> Mapping[Key, Document]:
        files = [header.key for header in headers if header.key in tree.files]
        others = [header for header in headers if header.key not in tree.files]
        return {**(stored(others) if others else {}), **tree.read_documents(files)}

    return read_documents


def _list_differences(old: SourceTree | None, new: SourceTree | None) -> Iterator[tuple[Key, ChangeKind]]:
    """Yield the keys of files whose blobs or rules differ, each with the kind of the change."""
    keys = {*(old.files if old else ()), *(new.files if new else ())}
    for key in sorted(keys):
        old_tag = old.get_tag(key) if old else None
        new_tag = new.get_tag(key) if new else None
        if old_tag != new_tag:
            yield key, _name_kind(old_tag, new_tag)


def _list_file_changes(old: SourceTree | None, new: SourceTree | None, keys: Iterable[Key]) -> Iterator[HeaderChange]:
    """Yield the changed files as documents. Files that differ may be equal documents."""
    remaining = iter(keys)
    while batch := list(islice(remaining, _BATCH_FILES)):
        old_documents = old.read_documents(batch) if old else {}
        new_documents = new.read_documents(batch) if new else {}
        for key in batch:
            before = header_of(old_documents[key]) if key in old_documents else None
            after = header_of(new_documents[key]) if key in new_documents else None
            if before != after:
                yield change_of(before, after)


def _merge_changes(stored: Iterable[HeaderChange], files: Iterable[HeaderChange]) -> list[HeaderChange]:
    """Join the changes of stored documents and of files by name.

    A stored document that is now a file of the same name is modified, or equal.
    """
    changes = {change.key: change for change in stored}
    for file in files:
        if twin := changes.pop(file.key, None):
            before = file.before or twin.before
            after = file.after or twin.after
            if before != after:
                changes[file.key] = change_of(before, after)
        else:
            changes[file.key] = file
    return [changes[key] for key in sorted(changes)]


def _count_files(kinds: Mapping[Key, ChangeKind]) -> Iterator[FileCounts]:
    """Yield the numbers of changed files of each collection."""
    by_collection: dict[str, Counter[str]] = {}
    for (collection, _), kind in kinds.items():
        by_collection.setdefault(collection, Counter())[kind] += 1
    for name, numbers in sorted(by_collection.items()):
        yield FileCounts(name, numbers["added"], numbers["modified"], numbers["removed"])
