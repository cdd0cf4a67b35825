"""The text of a document, a file or a symbol, here or at a git ref, whole or some lines of it."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link import terminal_text
from vmrag_link.errors import CollectionMissing, DocumentMissing, NotInitialized, PinMissing, UsageInvalid
from vmrag_link.git import beside, plumbing
from vmrag_link.models import Document, Record
from vmrag_link.ops.documents import listing
from vmrag_link.ops.documents.listing import ShowReport
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import Standing, standing
from vmrag_link.ops.history import document_names, known
from vmrag_link.ops.history.document_names import DocumentName
from vmrag_link.ops.history.known import FoundFile
from vmrag_link.ops.index.passage_places import PassagePlaces
from vmrag_link.ops.system import stores
from vmrag_link.toolsets.essential import pages
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.source_tree import FileNames, Key, SourceTree

FIND = "search finds it by what it says, grep by an exact text"
"""The hint for a name that means nothing."""

_ANCHOR = re.compile(r"#L(?P<first>\d{1,9})(?:C\d{1,9})?(?:-L?(?P<last>\d{1,9})(?:C\d{1,9})?)?\Z")
_COLUMN = re.compile(r":(?P<line>\d{1,9}):\d{1,9}\Z")
_LINES = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{0,9}))?")


class Text(Record, frozen=True):
    """`name`: of a file its path, else `COLLECTION/ID`. `above`: so many lines of the file stand
    before the text (front matter). `commit` of git or `revision` that it is of; both empty: as it
    stands here. `uncommitted`: how the file differs from the commit. `key`: of a stored document.
    """

    name: str
    content: str
    above: int
    standing: Standing
    commit: str = ""
    revision: str = ""
    uncommitted: str = ""
    key: tuple[str, str] | None = None


class TextLines(NamedTuple):
    """A page of lines, counted from 1 as in the file."""

    first: int
    last: int
    end: int
    """The last line that was asked for."""
    total: int
    """The number of the last line."""
    text: str
    cut: bool = False
    """Whether the page holds only the beginning of its line."""


def normalize_place(ws: Workspace, name: str) -> str:
    """Return a place as models write it in the form that answers have: `src/a.py:10-20`.

    It may be an absolute path inside the repository, begin with `./`, and end with `#L10-L20` or
    `:10:5`.
    """
    top = os.path.realpath(ws.places.top)
    if name.startswith((f"{top}/", f"{ws.places.top}/")):
        name = name.removeprefix(f"{top}/").removeprefix(f"{ws.places.top}/")
    if name.startswith("./"):
        name = posixpath.normpath(name)
    if match := _ANCHOR.search(name):
        last = f"-{match['last']}" if match["last"] else ""
        return f"{name[: match.start()]}:{match['first']}{last}"
    if match := _COLUMN.search(name):
        return f"{name[: match.start()]}:{match['line']}"
    return name


def split_place(name: str) -> tuple[str, str]:
    """A place as an answer shows it, `src/session.py:10-42`: the name, and the lines."""
    bare = document_names.without_line(name)
    return bare, name[len(bare) + 1 :]


def find(ws: Workspace, name: str, ref: str) -> Text:
    """Raises as `listing.show`; `DocumentMissing` for the name of a revision, too."""
    try:
        return _find(ws, name, ref)
    except (CollectionMissing, DocumentMissing) as error:
        if not ref and (file := _find_by_file_name(ws, name)):
            return _of_file(ws, file)
        if ref:
            raise DocumentMissing(
                f"There is no document {name!r} at {ref}.", hint=f"history says since when there is one. {FIND}"
            ) from None
        if isinstance(error, CollectionMissing) and "Is it" not in error.message:
            raise DocumentMissing(
                f"There is no document {name!r} here, and no file of that path that sources name.",
                hint=FIND,
                doc_id=name,
            ) from None
        error.hint = FIND
        raise


def _find(ws: Workspace, name: str, ref: str) -> Text:
    full = f"{ref}:{name}" if ref else name
    if file := known.find_file(ws, full):
        return _of_file(ws, file)
    store = stores.store_of(ws, name.partition("/")[0])
    if store is not ws:
        shown = listing.show_stored(store, name)
        return Text(f"{shown.collection}/{shown.doc_id}", shown.content, 0, standing(store))
    found = listing.show(ws, full)
    if not isinstance(found, ShowReport):
        raise DocumentMissing(f"No collection has a document {name!r}.", hint="vmrag list", doc_id=name)
    at = here(ws)
    if ref:
        kb = msgspec.structs.replace(
            at.kb, git_head=None, commit=found.revision, branch=None, dirty=False, in_sync=True
        )
        at = Standing(found.revision, found.revision, kb, ())
    key = (found.collection, found.doc_id)
    return Text("/".join(key), found.content, 0, at, revision=found.revision if ref else "", key=None if ref else key)


def _find_by_file_name(ws: Workspace, name: str) -> FoundFile | None:
    """Return the only file of this name, in whatever folder it is; None for none or several."""
    is_file_name = "/" not in name and "." in name
    tree = source_tree.in_work_tree(ws) if is_file_name and ws.sources.configured else None
    keys = [key for key, file in tree.files.items() if posixpath.basename(file.path) == name] if tree else []
    return FoundFile(tree, DocumentName(*keys[0])) if tree and len(keys) == 1 else None


def _of_file(ws: Workspace, file: FoundFile) -> Text:
    tree, name = file
    document = tree.documents([name.key]).get(name.key)
    if document is None:
        raise DocumentMissing(f"The file {name.doc_id!r} holds no text.", hint="vmrag sources -v", doc_id=name.doc_id)
    at = here(ws)
    if tree.commit:
        at = msgspec.structs.replace(at, kb=msgspec.structs.replace(at.kb, git_head=tree.commit, commit=""))
    return Text(
        document.source,
        document.content,
        _above(ws, tree, [document])[name.key],
        at,
        commit=tree.commit or "",
        uncommitted=tree.files[name.key].uncommitted,
    )


def lines_above(ws: Workspace, keys: Sequence[Key], ref: str) -> Mapping[Key, int]:
    """So many lines of these files stand before what is their text."""
    tree = _tree_at(ws, ref)
    return _above(ws, tree, list(tree.documents(keys).values())) if tree else {}


def file_paths(ws: Workspace, ref: str) -> Mapping[Key, str]:
    """Return the paths of the files that are documents, which notes do not have as ids."""
    tree = _tree_at(ws, ref)
    return {key: file.path for key, file in tree.files.items()} if tree else {}


def _tree_at(ws: Workspace, ref: str) -> SourceTree | None:
    return source_tree.at_commit(ws, plumbing.resolve(ws.places, ref)) if ref else source_tree.in_work_tree(ws)


def _above(ws: Workspace, tree: SourceTree, documents: Sequence[Document]) -> dict[Key, int]:
    blobs = {each.key: tree.files[each.key].blob for each in documents}
    committed = beside.contents(ws.places, blobs.values()) if tree.commit else {}
    rows = {each.name: each for each in FileNames(tree).collections("")}
    return {
        each.key: PassagePlaces(
            ws, rows[each.collection], each, committed.get(blobs[each.key], b"") if tree.commit else None
        ).lines_above()
        or 0
        for each in documents
    }


def here(ws: Workspace) -> Standing:
    """Where the workspace stands; where there is no knowledge base, where its files do."""
    try:
        return read_consistently(ws, lambda: standing(ws), index=False)
    except (NotInitialized, PinMissing):
        if not ws.sources.configured:
            raise
        ws.files.refreshed()
        return standing(ws.files)


def lines_of(text: Text, asked: str, most: int) -> TextLines:
    """Return the first page of the lines that are asked for (`10`, `10-42`, `10-`), or of all.

    A page has at most `most` characters and `pages.MOST_TOKENS`, and at least one line. Raises
    `UsageInvalid` if the text does not have the lines.
    """
    there = terminal_text.lines(text.content)
    total = text.above + len(there)
    first, last = _asked(asked) if asked else (text.above + 1, total)
    if asked and not (text.above < first <= min(last, total)):
        raise UsageInvalid(
            f"{text.name} has no lines {asked}: it has {text.above + 1} to {total}.",
            hint=f"lines={text.above + 1}-{total}, or leave lines out",
            parameter="lines",
            value=asked,
        )
    chosen = there[first - text.above - 1 : min(last, total) - text.above]
    end = first + len(chosen) - 1
    count = pages.fit_lines(chosen, most)
    if chosen and not count:
        return TextLines(first, first, end, total, pages.fit_characters(chosen[0], most), cut=True)
    return TextLines(first, first + max(count, 1) - 1, end, total, "\n".join(chosen[:count]))


def first_line(lines: str) -> int:
    """Return the first of the lines that are asked for; 1 for all."""
    return _asked(lines)[0] if lines else 1


def _asked(lines: str) -> tuple[int, int]:
    found = _LINES.fullmatch(lines.strip())
    if not found:
        raise UsageInvalid(
            f"{lines!r:.80} are no lines.", hint="lines=10-42, or lines=10", parameter="lines", value=lines[:80]
        )
    first = int(found["first"])
    if found["last"] is None:
        return first, first
    return first, int(found["last"] or 10**9)
