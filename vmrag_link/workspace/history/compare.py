"""Compare two places, or two documents: `vmrag diff`.

Documents of sources are compared by the blobs of their files. Only files that differ are read.
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
from vmrag_link.workspace.history import document_names, named_places, ranges
from vmrag_link.workspace.history.diff import Diff, DiffTexts, FileCounts, TextReader
from vmrag_link.workspace.history.named_places import DiffEnds, NamedPlace, PlaceNames
from vmrag_link.workspace.history.revparse import WORKING
from vmrag_link.workspace.history.word_diff import Detail, WordDiff
from vmrag_link.workspace.source_tree import Key, SourceTree

_BOTH = 2
_AT_ONCE = 250
"""Number of files whose texts are in memory at the same time."""

KeyFilter = Callable[[Key], bool]


def compare_places(
    ws: Workspace, names: Sequence[str], *, only: Sequence[str] = (), detail: Detail = "text", code: bool = False
) -> WordDiff:
    """Return what turns one place into another.

    `names`: `[OLD [NEW]]` or a range (`ranges.split_range`), then the documents to compare
    (`document_names.select_named`). Or `REF:DOCUMENT [[REF:]DOCUMENT]`: two documents; by default
    the second is the document of the same name in the work tree. `only`: more documents, folders,
    collections or patterns. Files of code are counted. They are compared only if `names` has them,
    or with `code`.

    Raises the errors of these functions.
    """
    working_place = named_places.find_working_place(ws)
    if _is_document_elsewhere(ws, working_place, names):
        return _compare_documents(ws, names, detail)
    (old, new), rest = _split_names(ws, working_place, names)
    return diff_places(ws, old, new, [*rest, *only], detail=detail, code=code)


def diff_places(
    ws: Workspace, old: NamedPlace, new: NamedPlace, chosen: Sequence[str] = (), *, detail: Detail, code: bool = False
) -> WordDiff:
    """Return what turns one place into another. `chosen`: names of documents; empty for all.

    If the stored documents of one place are missing here, only files are compared.
    """
    if old.lacks_documents or new.lacks_documents:
        old, new = old._replace(at=None), new._replace(at=None)
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
    """Return the differences of the stored documents.

    None is the place before the first document.
    """
    if old is None and new is None:
        return Diff(None, "", (), ())
    return diffs.diff_documents(ws.engine, old, read_root(ws.engine) if new is None else new)


def get_diff_texts(ws: Workspace, diff: Diff, old: NamedPlace, new: NamedPlace) -> DiffTexts:
    """Return the reader of the documents of a diff."""
    if old.at is None and new.at is None:
        stored = DiffTexts(lambda _: {}, lambda _: {})
    else:
        stored = diffs.stored_texts(ws.engine, diff.old, diff.new)
    return DiffTexts(_read_both(stored.before, old.tree), _read_both(stored.after, new.tree))


def _split_names(ws: Workspace, working_place: NamedPlace, names: Sequence[str]) -> tuple[DiffEnds, Sequence[str]]:
    """Return the places to compare, and the other names, which are documents.

    A name is a document if a place has it, or if it follows a range or two places.
    """
    committed = named_places.find_committed_place(ws, working_place)
    if not names or PlaceNames(ws, working_place, committed).has_name(names[0]):
        return DiffEnds(committed, working_place), names
    if ranges.is_range(names[0]):
        return named_places.find_diff_ends(ws, names[:1]), names[1:]
    old = named_places.find_named_place(ws, names[0])
    if len(names) == 1 or PlaceNames(ws, working_place, committed, old).has_name(names[1]):
        return DiffEnds(old, working_place), names[1:]
    _, new = ranges.split_range(ws, names[:_BOTH])  # refuses a range here
    return DiffEnds(old, named_places.find_named_place(ws, new or WORKING)), names[_BOTH:]


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
    """A document to compare. `code`: for a file, as in `NamedPlace`."""

    document: Document
    at: At
    code: str = ""


def _compare_documents(ws: Workspace, names: Sequence[str], detail: Detail) -> WordDiff:
    """Compare two documents. Raises the errors of `document_names.find_at`."""
    if len(names) > _BOTH:
        raise UsageInvalid(
            "vmrag diff compares at most two documents.",
            hint="name two, as in 'vmrag diff v1:guide/faq.md v2:guide/faq.md'",
        )
    old = _find_compared(ws, names[0])
    new = _find_compared(ws, names[1] if len(names) == _BOTH else f"{WORKING}:{'/'.join(old.document.key)}")
    before, after = header_of(old.document), header_of(new.document)
    alike = msgspec.structs.astuple(before)[2:] == msgspec.structs.astuple(after)[2:]  # all but the names
    changes = () if alike else (HeaderChange("modified", before, after),)
    texts = DiffTexts(lambda _: {before.key: old.document}, lambda _: {after.key: new.document})
    files = frozenset(side.document.collection for side in (old, new) if side.code)
    return WordDiff(texts, Diff(old.at, new.at, changes, (), commits=(old.code, new.code), sources=files), detail)


def _find_compared(ws: Workspace, name: str) -> _ComparedDocument:
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
    """Add the differences of files to those of the stored documents, if both places have files.

    `shown`: the files that become changes. `counted`: other files to count.
    """
    if not (old.code and new.code) or not (old.tree or new.tree):
        return diff
    missing = {path for tree in (old.tree, new.tree) if tree for path in tree.listing.missing}
    absent = tuple(path for path in missing if path.endswith("/"))  # submodules
    kinds = {
        key: kind
        for key, kind in _list_differences(old.tree, new.tree)
        if key[1] not in missing and not key[1].startswith(absent)
    }
    file_changes = list(_list_file_changes(old.tree, new.tree, [key for key in kinds if shown(key)]))
    return msgspec.structs.replace(
        diff,
        documents=tuple(_merge_changes(diff.documents, file_changes)),
        commits=(old.code, new.code),
        files=tuple(_count_files({key: kind for key, kind in kinds.items() if not shown(key) and counted(key)})),
        missing=tuple(sorted(missing)),
        sources=frozenset(
            source.collection for tree in (old.tree, new.tree) if tree for source in tree.sources if not source.write
        ),
    )


def _make_code_filter(old: SourceTree | None, new: SourceTree | None) -> KeyFilter:
    """Return a filter for files of code. The new place decides if a collection changed its kind."""

    def is_code_file(key: Key) -> bool:
        tree = new if new and new.find_source(key[0]) else old
        return bool(tree and (source := tree.find_source(key[0])) and source.kind == "code")

    return is_code_file


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

    def read_documents(headers: Sequence[DocumentHeader]) -> Mapping[Key, Document]:
        files = [header.key for header in headers if header.key in tree.files]
        others = [header for header in headers if header.key not in tree.files]
        return {**(stored(others) if others else {}), **tree.read_documents(files)}

    return read_documents


def _list_differences(old: SourceTree | None, new: SourceTree | None) -> Iterator[tuple[Key, ChangeKind]]:
    before, after = (tree.files if tree else {} for tree in (old, new))
    for key in sorted(before.keys() | after.keys()):
        was, now = (tree.get_tag(key) if tree else None for tree in (old, new))
        if was != now:
            yield key, "modified" if was and now else "added" if now else "removed"


def _list_file_changes(old: SourceTree | None, new: SourceTree | None, keys: Iterable[Key]) -> Iterator[HeaderChange]:
    """Yield the changed files as documents. Files that differ may be equal documents."""
    some = iter(keys)
    while batch := list(islice(some, _AT_ONCE)):
        before, after = (tree.read_documents(batch) if tree else {} for tree in (old, new))
        for key in batch:
            was, now = (header_of(documents[key]) if key in documents else None for documents in (before, after))
            if was != now:
                yield change_of(was, now)


def _merge_changes(stored: Iterable[HeaderChange], files: Iterable[HeaderChange]) -> list[HeaderChange]:
    """Join changes by name.

    A stored document that is now a file of the same name is modified, or equal.
    """
    changes = {change.key: change for change in stored}
    for file in files:
        if twin := changes.pop(file.key, None):
            before, after = file.before or twin.before, file.after or twin.after
            if before != after:
                changes[file.key] = change_of(before, after)
        else:
            changes[file.key] = file
    return [changes[key] for key in sorted(changes)]


def _count_files(kinds: Mapping[Key, ChangeKind]) -> Iterator[FileCounts]:
    by_collection: dict[str, Counter[str]] = {}
    for (collection, _), kind in kinds.items():
        by_collection.setdefault(collection, Counter())[kind] += 1
    for name, numbers in sorted(by_collection.items()):
        yield FileCounts(name, numbers["added"], numbers["modified"], numbers["removed"])
