"""The text of a document, a file or a symbol, here or at a git ref, whole or in part."""

from __future__ import annotations

import contextlib
import difflib
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link import terminal_text
from vmrag_link.errors import (
    NO_DOCUMENTS,
    CollectionMissing,
    DocumentAmbiguous,
    DocumentMissing,
    GitReferenceMissing,
    UsageInvalid,
    VmragError,
    closest,
    shortened,
)
from vmrag_link.models import Document, Record
from vmrag_link.ops import show
from vmrag_link.ops.stores import stores
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import documents
from vmrag_link.sources.listings import TreeFile
from vmrag_link.sources.readable import SourceText
from vmrag_link.toolsets.essential import pages
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import file_texts, grep
from vmrag_link.workspace.documents.file_texts import TrackedFile
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_git_origin, find_origin
from vmrag_link.workspace.history import document_names, named_places

MAX_CLOSEST_NAMES = 3
"""Maximum number of names that an error lists."""

_MIN_SIMILARITY = 0.4
"""Minimum similarity of a listed ref. It is low, because refs are short."""

HOW_TO_FIND = "use search to find a text by its meaning, or grep to find it by its words"
"""The hint for an unknown name."""

_ANCHOR = re.compile(r"#L(?P<first>\d{1,9})(?:C\d{1,9})?(?:-L?(?P<last>\d{1,9})(?:C\d{1,9})?)?\Z")
_COLUMN = re.compile(r":(?P<line>\d{1,9}):\d{1,9}\Z")
_LINES = re.compile(r"L?(?P<first>\d{1,9})(?:[-:,]L?(?P<last>\d{0,9}))?")
_SYMBOL = re.compile(r"[^\W\d]\w*(?:(?:\.|::|#)\w+)*(?:\(\))?")


class Text(Record, frozen=True):
    """The text of a file or a stored document, with its version.

    `name` is the path of a file, or else `COLLECTION/ID`. `above` is the number of lines of front
    matter, which are hidden for a note. `commit` or `revision` names the version in git or the
    knowledge base; both are empty for the current text. `uncommitted` describes how the file
    differs from the commit. `key` is the key of a stored document.
    """

    name: str
    content: str
    origin: AnswerOrigin
    above: int = 0
    commit: str = ""
    revision: str = ""
    uncommitted: str = ""
    key: tuple[str, str] | None = None


class TextLines(NamedTuple):
    """A page of lines, counted from 1 as in the file."""

    first: int
    last: int
    end: int
    """The last requested line."""
    total: int
    """The number of the last line."""
    text: str
    cut: bool = False
    """True if the page has only the beginning of its line."""


def normalize_place(ws: Workspace, name: str) -> str:
    """Return a place in the form of answers, `src/a.py:10-20`.

    Models also write an absolute path inside the repository, a path that begins with `./`, and the
    ends `#L10-L20` and `:10:5`.
    """
    name = relative_path(ws, name)
    anchor = _ANCHOR.search(name)
    if anchor:
        last = f"-{anchor['last']}" if anchor["last"] else ""
        return f"{name[: anchor.start()]}:{anchor['first']}{last}"
    return _COLUMN.sub(r":\g<line>", name)


def relative_path(ws: Workspace, path: str) -> str:
    """Return the path relative to the top of the repository for an absolute path or a path with `.`
    and `..`.
    """
    for top in (os.path.realpath(ws.places.top), str(ws.places.top)):
        if f"{path}/".startswith(f"{top}/"):
            path = path[len(top) + 1 :] or "."
            break
    plain = path.partition(":")[0]  # REF:PATH keeps its form
    if path.startswith(("./", "../")) or "/../" in plain or "/./" in plain:
        folder = "/" if path.endswith("/") else ""
        path = f"{posixpath.normpath(path)}{folder}"
    return path


@contextlib.contextmanager
def naming_refs(ws: Workspace) -> Iterator[None]:
    """Add the closest refs to the error for an unknown ref."""
    try:
        yield
    except GitReferenceMissing as error:
        raise unknown_ref(ws, error.details.get("ref", "")) from None


def unknown_ref(ws: Workspace, ref: str) -> GitReferenceMissing:
    """Return the error for an unknown ref, with the closest branches and tags."""
    from vmrag_link.git import refs

    names = [name.removeprefix("tag: ") for name in refs.list_tips(ws.places)]
    longer = [name for name in names if ref and name.removeprefix("v").startswith(ref.removeprefix("v"))]
    near = [
        *sorted(longer, key=len),
        *difflib.get_close_matches(ref, names, n=MAX_CLOSEST_NAMES, cutoff=_MIN_SIMILARITY),
    ]
    shown = ", ".join([*dict.fromkeys(near)][:MAX_CLOSEST_NAMES])
    return GitReferenceMissing(
        f"{shortened(repr(ref))} is not a branch, a tag or a commit.",
        hint=f"use one of the closest names: {terminal_text.escape_line(shown)}"
        if shown
        else "use history without since to list commits",
        ref=ref,
    )


def split_place(name: str) -> tuple[str, str]:
    """Return the name and the lines of a place, such as `src/session.py:10-42`."""
    bare = document_names.without_line(name)
    return bare, name[len(bare) + 1 :]


def find_text(ws: Workspace, name: str, ref: str) -> Text:
    """Return the tracked file of a path, or the document of a name.

    Raises `DocumentMissing` with the closest names, and `UsageInvalid` for a collection.
    """
    file = file_texts.find_tracked(ws, name, ref) if ref else file_texts.find_named(ws, name)
    if file:
        return _build_file_text(ws, file)
    source_file = named_places.find_file(ws, f"{ref}:{name}" if ref else name)
    if source_file:
        path = source_file.tree.files[source_file.name.key].path
        file = file_texts.find_tracked(ws, path, source_file.tree.commit or "", is_document=True)
        if file:
            return _build_file_text(ws, file)
    try:
        return _find_stored(ws, name, ref)
    except DocumentAmbiguous:
        raise
    except (CollectionMissing, DocumentMissing, *NO_DOCUMENTS) as error:
        paths = grep.SearchedFiles.open(ws, ref or None).list_paths()
        same = _paths_ending(name, paths)
        if len(same) == 1 and (file := file_texts.find_tracked(ws, same[0], ref)):
            return _build_file_text(ws, file)
        if isinstance(error, NO_DOCUMENTS) and not ws.stores_nothing:
            raise
        raise _build_missing(ws, name, ref, paths, error) from None


def _paths_ending(name: str, paths: Sequence[str]) -> list[str]:
    """Return the paths that end with a name, or else those that do so without their suffix."""
    end = f"/{name.lstrip('/')}"
    whole = [path for path in paths if f"/{path}".endswith(end)]
    return whole or [path for path in paths if f"/{posixpath.splitext(path)[0]}".endswith(end)]


def _find_stored(ws: Workspace, name: str, ref: str) -> Text:
    store = stores.find_store(ws, name.partition("/")[0])
    if store is not ws:
        stored = show.show_stored(store, name)
        return Text(f"{stored.collection}/{stored.doc_id}", stored.content, find_origin(store))
    document = show.show_stored(ws, f"{ref}:{name}" if ref else name)
    key = (document.collection, document.doc_id)
    origin = find_current_origin(ws)
    if not ref:
        return Text("/".join(key), document.content, origin, key=key)
    kb = msgspec.structs.replace(
        origin.kb, git_head=None, commit=document.revision, branch=None, dirty=False, in_sync=True
    )
    origin = AnswerOrigin(document.revision, document.revision, kb, ())
    return Text("/".join(key), document.content, origin, revision=document.revision)


def _build_missing(ws: Workspace, name: str, ref: str, paths: Sequence[str], error: VmragError) -> DocumentMissing:
    """Return the error for an unknown name, with the closest names."""
    stored: list[str] = []
    with contextlib.suppress(*NO_DOCUMENTS):
        place, _ = document_names.split_ref(ws, f"{ref}:{name}" if ref else name)
        stored = ["/".join(header.key) for header in ws.engine.read_headers(place.at)]
    near = closest(name, [*paths, *stored])
    hint = f"pass 'symbol={name}' to read a class or function" if _SYMBOL.fullmatch(name) else HOW_TO_FIND
    if near:
        hint = f"use one of the closest names: {', '.join(map(terminal_text.escape_line, near))}"
    at = f"at {ref}; history lists when it changed" if ref else "here"
    message = f"no file or document {name!r} {at}."
    if isinstance(error, DocumentMissing) and not ref:  # it may have been removed
        message = error.message
    return DocumentMissing(message, hint=hint, doc_id=name)


def _build_file_text(ws: Workspace, file: TrackedFile) -> Text:
    source = next((row for row in ws.sources.configured if row.write and file.path.startswith(f"{row.folder}/")), None)
    above = _count_front_matter(source, file) if source else 0
    origin = find_current_origin(ws)
    if file.commit:
        origin = msgspec.structs.replace(origin, kb=msgspec.structs.replace(origin.kb, git_head=file.commit, commit=""))
    return Text(file.path, file.text, origin, above, commit=file.commit, uncommitted=file.uncommitted)


def _count_front_matter(source: SourceSettings, file: TrackedFile) -> int:
    """Return the number of lines of a note above its text."""
    document = documents.build_document(source, TreeFile(file.path, "", 0), SourceText(file.text))
    lines = terminal_text.split_lines(file.text)
    text = terminal_text.split_lines(document.content) if isinstance(document, Document) else lines
    return len(lines) - len(text) if lines[len(lines) - len(text) :] == text else 0


def find_current_origin(ws: Workspace) -> AnswerOrigin:
    """Return the origin of the workspace; without a knowledge base, the origin in git."""
    try:
        return read_consistently(ws, lambda: find_origin(ws), index=False)
    except NO_DOCUMENTS as why:
        return find_git_origin(ws, why)


def lines_of(text: Text, selection: str, max_characters: int) -> TextLines:
    """Return the first page of the selected lines (`10`, `10-42`, `10-`), or of all lines.

    A page has at most `max_characters` and `pages.MAX_PAGE_TOKENS`, and at least one line. Raises
    `UsageInvalid` if the text does not have the lines.
    """
    content = terminal_text.split_lines(text.content)
    total = len(content)
    first, last = _parse_lines(selection) if selection else (text.above + 1, total)
    if selection and not (0 < first <= min(last, total)):
        raise UsageInvalid(
            f"{text.name} has no lines {selection}: it has 1 to {total}.",
            hint=f"pass 'lines=1-{total}', or leave lines out",
            parameter="lines",
            value=selection,
        )
    chosen = content[first - 1 : min(last, total)]
    end = first + len(chosen) - 1
    count = pages.fit_lines(chosen, max_characters)
    if chosen and not count:
        return TextLines(first, first, end, total, pages.fit_characters(chosen[0], max_characters), cut=True)
    return TextLines(first, first + max(count, 1) - 1, end, total, "\n".join(chosen[:count]))


def first_line(lines: str) -> int:
    """Return the first selected line; 1 for all lines."""
    return _parse_lines(lines)[0] if lines else 1


def _parse_lines(lines: str) -> tuple[int, int]:
    match = _LINES.fullmatch(lines.strip())
    if not match:
        raise UsageInvalid(
            f"invalid lines: {lines!r:.80}.",
            hint="pass 'lines=10-42' or 'lines=10'",
            parameter="lines",
            value=lines[:80],
        )
    first = int(match["first"])
    if match["last"] is None:
        return first, first
    return first, int(match["last"] or 10**9)
