"""Which documents of sources differ between two places. Files are compared by their blobs, and only
those that differ are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.models import ChangeKind, Document, DocumentHeader, HeaderChange
from vmrag_link.ops.history.diff import Diff, DiffTexts, FileCounts, TextReader
from vmrag_link.workspace.source_tree import Key, SourceTree

if TYPE_CHECKING:
    from vmrag_link.ops.history.known import KnownPlace

_AT_ONCE = 250
"""Files whose texts are in memory at the same time."""

Shown = Callable[[Key], bool]


def with_files(found: Diff, old: KnownPlace, new: KnownPlace, *, shown: Shown, counted: Shown) -> Diff:
    """The differences of the knowledge bases at two places, with those of their files; nothing is
    added where one of them has no files.

    `shown`: which files become changes; `counted`: which others are counted.
    """
    if not (old.code and new.code) or not (old.tree or new.tree):
        return found
    missing = {path for tree in (old.tree, new.tree) if tree for path in tree.listing.missing}
    kinds = {key: kind for key, kind in _differing(old.tree, new.tree) if key[1] not in missing}
    read = list(_read(old.tree, new.tree, [key for key in kinds if shown(key)]))
    return msgspec.structs.replace(
        found,
        documents=tuple(_merged(found.documents, read)),
        commits=(old.code, new.code),
        files=tuple(_counts({key: kind for key, kind in kinds.items() if not shown(key) and counted(key)})),
        missing=tuple(sorted(missing)),
    )


def texts(stored: DiffTexts, old: SourceTree | None, new: SourceTree | None) -> DiffTexts:
    """Reads both kinds of documents."""
    return DiffTexts(_both(stored.before, old), _both(stored.after, new))


def is_code(old: SourceTree | None, new: SourceTree | None) -> Shown:
    """Whether a file is of a collection of code; of what was one kind and is another, as it is."""

    def code(key: Key) -> bool:
        tree = new if new and new.source(key[0]) else old
        return bool(tree and (source := tree.source(key[0])) and source.kind == "code")

    return code


def change_of(before: DocumentHeader | None, after: DocumentHeader | None) -> HeaderChange:
    kind: ChangeKind = "modified" if before and after else "added" if after else "removed"
    return HeaderChange(kind, before, after)


def header_of(document: Document) -> DocumentHeader:
    return DocumentHeader(
        document.collection, document.doc_id, document.title, document.content_hash, document.metadata
    )


def _both(stored: TextReader, tree: SourceTree | None) -> TextReader:
    if tree is None:
        return stored

    def read(headers: Sequence[DocumentHeader]) -> Mapping[Key, Document]:
        files = [each.key for each in headers if each.key in tree.files]
        others = [each for each in headers if each.key not in tree.files]
        return {**(stored(others) if others else {}), **tree.documents(files)}

    return read


def _differing(old: SourceTree | None, new: SourceTree | None) -> Iterator[tuple[Key, ChangeKind]]:
    before, after = (tree.files if tree else {} for tree in (old, new))
    for key in sorted(before.keys() | after.keys()):
        was, now = (tree.decisive(key) if tree else None for tree in (old, new))
        if was != now:
            yield key, "modified" if was and now else "added" if now else "removed"


def _read(old: SourceTree | None, new: SourceTree | None, keys: Iterable[Key]) -> Iterator[HeaderChange]:
    """The files as documents, where they are some: a file may differ that says the same."""
    some = iter(keys)
    while batch := list(islice(some, _AT_ONCE)):
        before, after = (tree.documents(batch) if tree else {} for tree in (old, new))
        for key in batch:
            was, now = (header_of(found[key]) if key in found else None for found in (before, after))
            if was != now:
                yield change_of(was, now)


def _merged(stored: Iterable[HeaderChange], files: Iterable[HeaderChange]) -> list[HeaderChange]:
    """By name. What was stored and is a file of the same name now is modified, or is the same."""
    found = {each.key: each for each in stored}
    for each in files:
        if twin := found.pop(each.key, None):
            before, after = each.before or twin.before, each.after or twin.after
            if before != after:
                found[each.key] = change_of(before, after)
        else:
            found[each.key] = each
    return [found[key] for key in sorted(found)]


def _counts(kinds: Mapping[Key, ChangeKind]) -> Iterator[FileCounts]:
    by_collection: dict[str, Counter[str]] = {}
    for (collection, _), kind in kinds.items():
        by_collection.setdefault(collection, Counter())[kind] += 1
    for name, each in sorted(by_collection.items()):
        yield FileCounts(name, each["added"], each["modified"], each["removed"])
