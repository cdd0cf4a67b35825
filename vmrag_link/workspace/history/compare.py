"""`vmrag diff`: what differs between two places, or between two documents.

Documents of sources are compared by the blobs of their files, and only those that differ are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from vmrag_link.engines.base import read_root
from vmrag_link.errors import GitReferenceMissing, NotInitialized, PinMissing, UsageInvalid
from vmrag_link.models import At, ChangeKind, Document, DocumentHeader, HeaderChange
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import diff as diffs
from vmrag_link.workspace.history import document_names, known, ranges
from vmrag_link.workspace.history.diff import Diff, DiffTexts, FileCounts, TextReader
from vmrag_link.workspace.history.known import DiffEnds, NamedPlace, PlaceNames
from vmrag_link.workspace.history.revparse import WORKING
from vmrag_link.workspace.history.word_diff import Detail, WordDiff
from vmrag_link.workspace.source_tree import Key, SourceTree

_BOTH = 2
_AT_ONCE = 250
"""Files whose texts are in memory at the same time."""

KeyFilter = Callable[[Key], bool]


def compare_places(
    ws: Workspace, names: Sequence[str], *, only: Sequence[str] = (), detail: Detail = "text", code: bool = False
) -> WordDiff:
    """What turns one place into another one: `[OLD [NEW]]` or a range, as `ranges.ends` takes
    them, and after that the documents to compare, as `document_names.select` does.

    `REF:DOCUMENT [[REF:]DOCUMENT]`: two documents; by default the second is that of the same name
    here. `only`: more documents, folders, collections or patterns. Files of code are counted, and
    compared where they are named, or with `code`. Raises as they do.
    """
    here = known.find_working_place(ws)
    if _is_document_elsewhere(ws, here, names):
        return _of_documents(ws, names, detail)
    (old, new), rest = _ends(ws, here, names)
    return diff_places(ws, old, new, [*rest, *only], detail=detail, code=code)


def diff_places(
    ws: Workspace, old: NamedPlace, new: NamedPlace, chosen: Sequence[str] = (), *, detail: Detail, code: bool = False
) -> WordDiff:
    """As `compare`. `chosen`: names of documents; empty for all.

    If the stored documents of one place are missing here, only files are compared.
    """
    if old.lacks_documents or new.lacks_documents:
        old, new = old._replace(at=None), new._replace(at=None)
    found = stored_diff(ws, old.at, new.at)
    is_code = _code_filter(old.tree, new.tree)
    if chosen:
        names = PlaceNames(ws, new, old)
        selection = document_names.select_named(names.rows, names.places, chosen)
        keys = {document.key for document in selection.documents}
        found = _with_files(
            found.narrow_to(selection), old, new, shown=lambda key: key in keys, counted=lambda _: False
        )
    else:
        found = _with_files(found, old, new, shown=lambda key: code or not is_code(key), counted=is_code)
    return WordDiff(get_diff_texts(ws, found, old, new), found, detail)


def stored_diff(ws: Workspace, old: At | None, new: At | None) -> Diff:
    """Of the knowledge bases; None is the one before its first document."""
    if old is None and new is None:
        return Diff(None, "", (), ())
    return diffs.diff_documents(ws.engine, old, read_root(ws.engine) if new is None else new)


def get_diff_texts(ws: Workspace, found: Diff, old: NamedPlace, new: NamedPlace) -> DiffTexts:
    """What reads the documents of a diff."""
    if old.at is None and new.at is None:
        stored = DiffTexts(lambda _: {}, lambda _: {})
    else:
        stored = diffs.stored_texts(ws.engine, found.old, found.new)
    return _texts_of_both(stored, old.tree, new.tree)


def _ends(ws: Workspace, here: NamedPlace, names: Sequence[str]) -> tuple[DiffEnds, Sequence[str]]:
    """The places, and the names behind them, which are documents: one that some place has, and
    what stands behind a range or two places.
    """
    committed = known.find_committed_place(ws, here)
    if not names or PlaceNames(ws, here, committed).has_name(names[0]):
        return DiffEnds(committed, here), names
    if ranges.is_range(names[0]):
        return known.find_diff_ends(ws, names[:1]), names[1:]
    old = known.find_named_place(ws, names[0])
    if len(names) == 1 or PlaceNames(ws, here, committed, old).has_name(names[1]):
        return DiffEnds(old, here), names[1:]
    _, new = ranges.split_range(ws, names[:_BOTH])  # refuses a range here
    return DiffEnds(old, known.find_named_place(ws, new or WORKING)), names[_BOTH:]


def _is_document_elsewhere(ws: Workspace, here: NamedPlace, names: Sequence[str]) -> bool:
    """Whether the first name is `REF:DOCUMENT`, and no expression of git's with a colon."""
    if not names or ":" not in names[0] or PlaceNames(ws, here).has_name(names[0]):
        return False
    try:
        known.find_diff_ends(ws, names[:1])
    except GitReferenceMissing:
        return True
    except (NotInitialized, PinMissing):
        return False
    return False


class _ComparedDocument(NamedTuple):
    """`code`: as in `KnownPlace`, of a file."""

    document: Document
    at: At
    code: str = ""


def _of_documents(ws: Workspace, names: Sequence[str], detail: Detail) -> WordDiff:
    """Raises as `document_names.find_at`."""
    if len(names) > _BOTH:
        raise UsageInvalid("Two documents can be compared at once.", hint="vmrag diff v1:guide/faq.md v2:guide/faq.md")
    old = _document(ws, names[0])
    new = _document(ws, names[1] if len(names) == _BOTH else f"{WORKING}:{'/'.join(old.document.key)}")
    before, after = header_of(old.document), header_of(new.document)
    alike = msgspec.structs.astuple(before)[2:] == msgspec.structs.astuple(after)[2:]  # all but the names
    changes = () if alike else (HeaderChange("modified", before, after),)
    read = DiffTexts(lambda _: {before.key: old.document}, lambda _: {after.key: new.document})
    files = frozenset(side.document.collection for side in (old, new) if side.code)
    return WordDiff(read, Diff(old.at, new.at, changes, (), commits=(old.code, new.code), sources=files), detail)


def _document(ws: Workspace, name: str) -> _ComparedDocument:
    file = known.find_file(ws, name)
    if file and (document := file.tree.read_documents([file.name.key]).get(file.name.key)):
        return _ComparedDocument(document, "", file.tree.commit or WORKING)
    with known.explain_missing_file(ws, name):
        place, found = document_names.find_at(ws, name)
    stored = ws.engine.find_document(place.at, *found.key)
    if stored is None:  # removed since it was looked up
        raise document_names.no_document(ws.engine, place.at, *found.key)
    return _ComparedDocument(stored, place.at)


def _with_files(found: Diff, old: NamedPlace, new: NamedPlace, *, shown: KeyFilter, counted: KeyFilter) -> Diff:
    """The differences of the knowledge bases at two places, with those of their files; nothing is
    added where one of them has no files.

    `shown`: which files become changes; `counted`: which others are counted.
    """
    if not (old.code and new.code) or not (old.tree or new.tree):
        return found
    missing = {path for tree in (old.tree, new.tree) if tree for path in tree.listing.missing}
    absent = tuple(path for path in missing if path.endswith("/"))  # submodules
    kinds = {
        key: kind
        for key, kind in _differences(old.tree, new.tree)
        if key[1] not in missing and not key[1].startswith(absent)
    }
    read = list(_file_changes(old.tree, new.tree, [key for key in kinds if shown(key)]))
    return msgspec.structs.replace(
        found,
        documents=tuple(_merge(found.documents, read)),
        commits=(old.code, new.code),
        files=tuple(_count_files({key: kind for key, kind in kinds.items() if not shown(key) and counted(key)})),
        missing=tuple(sorted(missing)),
        sources=frozenset(
            source.collection for tree in (old.tree, new.tree) if tree for source in tree.sources if not source.write
        ),
    )


def _texts_of_both(stored: DiffTexts, old: SourceTree | None, new: SourceTree | None) -> DiffTexts:
    """Reads both kinds of documents."""
    return DiffTexts(_read_both(stored.before, old), _read_both(stored.after, new))


def _code_filter(old: SourceTree | None, new: SourceTree | None) -> KeyFilter:
    """Whether a file is of a collection of code; of what was one kind and is another, as it is."""

    def code(key: Key) -> bool:
        tree = new if new and new.find_source(key[0]) else old
        return bool(tree and (source := tree.find_source(key[0])) and source.kind == "code")

    return code


def change_of(before: DocumentHeader | None, after: DocumentHeader | None) -> HeaderChange:
    kind: ChangeKind = "modified" if before and after else "added" if after else "removed"
    return HeaderChange(kind, before, after)


def header_of(document: Document) -> DocumentHeader:
    return DocumentHeader(
        document.collection, document.doc_id, document.title, document.content_hash, document.metadata
    )


def _read_both(stored: TextReader, tree: SourceTree | None) -> TextReader:
    if tree is None:
        return stored

    def read(headers: Sequence[DocumentHeader]) -> Mapping[Key, Document]:
        files = [header.key for header in headers if header.key in tree.files]
        others = [header for header in headers if header.key not in tree.files]
        return {**(stored(others) if others else {}), **tree.read_documents(files)}

    return read


def _differences(old: SourceTree | None, new: SourceTree | None) -> Iterator[tuple[Key, ChangeKind]]:
    before, after = (tree.files if tree else {} for tree in (old, new))
    for key in sorted(before.keys() | after.keys()):
        was, now = (tree.get_tag(key) if tree else None for tree in (old, new))
        if was != now:
            yield key, "modified" if was and now else "added" if now else "removed"


def _file_changes(old: SourceTree | None, new: SourceTree | None, keys: Iterable[Key]) -> Iterator[HeaderChange]:
    """The files as documents, where they are some: a file may differ that says the same."""
    some = iter(keys)
    while batch := list(islice(some, _AT_ONCE)):
        before, after = (tree.read_documents(batch) if tree else {} for tree in (old, new))
        for key in batch:
            was, now = (header_of(found[key]) if key in found else None for found in (before, after))
            if was != now:
                yield change_of(was, now)


def _merge(stored: Iterable[HeaderChange], files: Iterable[HeaderChange]) -> list[HeaderChange]:
    """By name. What was stored and is a file of the same name now is modified, or is the same."""
    found = {each.key: each for each in stored}
    for file in files:
        if twin := found.pop(file.key, None):
            before, after = file.before or twin.before, file.after or twin.after
            if before != after:
                found[file.key] = change_of(before, after)
        else:
            found[file.key] = file
    return [found[key] for key in sorted(found)]


def _count_files(kinds: Mapping[Key, ChangeKind]) -> Iterator[FileCounts]:
    by_collection: dict[str, Counter[str]] = {}
    for (collection, _), kind in kinds.items():
        by_collection.setdefault(collection, Counter())[kind] += 1
    for name, each in sorted(by_collection.items()):
        yield FileCounts(name, each["added"], each["modified"], each["removed"])
