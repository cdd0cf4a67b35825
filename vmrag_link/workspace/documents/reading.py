"""Read documents at any place, or the lines of them that a pattern matches (`vmrag grep`)."""

from __future__ import annotations

import contextlib
import functools
import posixpath
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from vmrag_link import terminal_text
from vmrag_link.errors import (
    NO_DOCUMENTS,
    CollectionMissing,
    DocumentMissing,
    FilterInvalid,
    GitReferenceMissing,
    ServerUnreachable,
    UsageInvalid,
    first_of,
    no_collection,
    plural,
    quoted,
)
from vmrag_link.git import plumbing
from vmrag_link.models import SYSTEM, At, Collection, Document, DocumentHeader, Record
from vmrag_link.paths import FileStamp, Places, read_file_stamp
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.listings import LeftOutFile
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import (
    AnswerOrigin,
    KbBlock,
    add_sources,
    find_git_origin,
    find_origin,
    find_view_origin,
)
from vmrag_link.workspace.history import document_names, named_places, revparse
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.source_tree import SourceTree
from vmrag_link.workspace.worktree import OpenSources

if TYPE_CHECKING:  # a list searches no files
    from vmrag_link.git.submodules import Submodule
    from vmrag_link.sources.tracked_texts import TrackedTexts

T = TypeVar("T")

MOST_LINKS = 4
"""Maximum number of symbolic links to follow from link to link."""


def read_at(ws: Workspace, ref: str | None, read: Callable[[AnswerOrigin], T]) -> T:
    """Return the result of `read` for the work tree at its pin, or for `ref`
    (`revparse.resolve_at`).

    `read` may be called again if the pin moves while it runs.
    """
    if ref is None or ref == revparse.WORKING:
        return read_consistently(ws, lambda: read(find_origin(ws)), index=False)
    return read(_find_revision_origin(ws, revparse.resolve_rev(ws, ref)))


def _find_revision_origin(ws: Workspace, revision: str) -> AnswerOrigin:
    head = plumbing.read_head(ws.places).commit
    block = KbBlock(str(ws.places.top), head, None, revision, dirty=False, in_sync=True)
    return AnswerOrigin(revision, revision, block, ())


class TextSource(Protocol):
    """Reads whole documents of a knowledge base, or of an index of it."""

    def list_collections(self, at: At) -> list[Collection]: ...

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]: ...

    def count_documents(self, at: At, *, collection: str | None = None) -> int: ...

    def read_documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]: ...


class JoinedTexts:
    """Stored documents and documents of sources, as documents of one place."""

    def __init__(self, rows: TextSource, files: IndexedRows) -> None:
        self._rows, self._files = rows, files
        self._names = {collection.name for collection in files.list_collections("")}

    def list_collections(self, at: At) -> list[Collection]:
        stored = (row for row in self._rows.list_collections(at) if row.name not in self._names)
        return sorted([*stored, *self._files.list_collections(at)], key=lambda row: row.name)

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        requested = None if ids is None else list(ids)
        for rows in self._select_rows(collection):
            yield from rows.read_headers(at, collection=collection, ids=requested)

    def count_documents(self, at: At, *, collection: str | None = None) -> int:
        return sum(rows.count_documents(at, collection=collection) for rows in self._select_rows(collection))

    def read_documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]:
        for rows in self._select_rows(collection):
            yield from rows.read_documents(at, collection=collection)

    def _select_rows(self, collection: str | None) -> Sequence[TextSource]:
        if collection is None:
            return (self._rows, self._files)
        return (self._files,) if collection in self._names else (self._rows,)


def read_texts(ws: Workspace, ref: str | None, read: Callable[[TextSource, AnswerOrigin], T]) -> T:
    """Return the result of `read` for stored documents and documents of sources.

    Without a knowledge base, `read` gets the documents of sources only.
    """
    with files_at(ws, None if ref == revparse.WORKING else ref) as opened:
        if opened is None:
            return _read_stored(ws, ref, read)
        files = IndexedRows(opened.folder)
        try:
            return _read_stored(
                ws, ref, lambda rows, origin: read(JoinedTexts(rows, files), add_sources(origin, opened))
            )
        except NO_DOCUMENTS as error:
            origin = find_git_origin(ws, error)
            try:
                return read(files, add_sources(origin, opened))
            except CollectionMissing:
                if origin.notes:  # the collection may be among the missing stored documents
                    raise error from None
                raise


def _read_stored(ws: Workspace, ref: str | None, read: Callable[[TextSource, AnswerOrigin], T]) -> T:
    """Return the result of `read` for the stored documents.

    If a Dolt server does not answer, the local index is read, if it exists.
    """
    try:
        return read_at(ws, ref, lambda origin: read(ws.engine, origin))
    except ServerUnreachable:
        if ref is None or ref == revparse.WORKING:
            return read_consistently(
                ws, lambda: ws.reader.read(lambda view: read(IndexedRows(view.folder), find_view_origin(ws, view)))
            )
        origin = _find_revision_origin(ws, revparse.resolve_rev(ws, ref))
        with ws.reader.open_index(origin.revision) as folder:
            return read(IndexedRows(folder), origin)


@contextlib.contextmanager
def files_at(ws: Workspace, ref: str | None) -> Iterator[OpenSources | None]:
    """Open the documents of sources at a git ref, or in the work tree.

    None if no source has files, for example at a revision of the knowledge base.
    """
    if ref is None:
        with ws.source_index.open_work_tree(stored=ws.list_stored_collections()) as opened:
            yield opened
        return
    try:
        commit = plumbing.resolve_commit(ws.places, ref)
    except GitReferenceMissing:
        yield None
        return
    with ws.source_index.open_commit(commit, ws.sources.read_config_at(commit)) as opened:
        yield opened


def collection_names(
    source: TextSource, at: At, requested: Sequence[str], *, searched: bool = False, of_files: Sequence[str] = ()
) -> list[str]:
    """Return the requested collections that are stored.

    If none are requested, return all except those in which tools write, or all that are `searched`.
    `of_files`: other collections. Raises `CollectionMissing`.
    """
    stored = {row.name: row for row in source.list_collections(at)}
    for name in requested:
        if name not in stored and name not in of_files:
            raise no_collection(name, sorted({*stored, *of_files}))
    if requested:
        return sorted({*requested} - {*of_files})
    return sorted(
        name for name, row in stored.items() if row.kind != SYSTEM or (searched and row.is_searched_by_default)
    )


Spans = tuple[tuple[int, int], ...]


class Finder(NamedTuple):
    """`passes` searches a line. `spans` returns the matches in it, if the engine reports them."""

    passes: Callable[[str], object]
    spans: Callable[[str], Spans]


_OTHER_LINES = re.compile(r"\\[Az]|\(\?[a-zA-Z]*-?[a-zA-Z]*[mR]")
"""Parts of a pattern that change where a line ends."""


class Pattern(Record, frozen=True):
    """A text or pattern to search."""

    text: str
    """A regular expression of Python's `re`."""
    fixed: bool = False
    """True to search `text` as it is."""
    ignore_case: bool = False
    linear: bool = False
    """True for a pattern of Rust's `regex`, which takes time linear in the text, because an agent
    sent it. The report then has no `matches` in a line.
    """

    def build_finder(self) -> Finder:
        """Return the search of a line. Raises `UsageInvalid` for an invalid regular expression."""
        if self.linear and (self.ignore_case or not self.fixed):
            return Finder(self._compile_linear(""), lambda _: ())
        compiled = self._compile_pattern()

        def find_spans(line: str) -> Spans:
            return tuple(match.span() for match in compiled.finditer(line) if match.end() > match.start())

        return Finder(compiled.search, find_spans)

    def text_filter(self) -> Callable[[str], bool]:
        """Return a fast test that every text with a matching line passes, and few others."""
        if self.fixed and not self.ignore_case:
            return lambda text: self.text in text
        if self.linear and (self.fixed or not _OTHER_LINES.search(self.text)):
            # It also takes linear time for a whole text, and finds every match in a line.
            return self._compile_linear("(?m)")
        return lambda _: True

    def _compile_linear(self, flags: str) -> Callable[[str], bool]:
        from vmrag_link.retrieval.filters import compile_pattern  # users' patterns do not need it

        try:
            text = re.escape(self.text) if self.fixed else self.text
            return compile_pattern(f"{flags}{'(?i)' if self.ignore_case else ''}{text}", place="")
        except FilterInvalid as error:
            raise UsageInvalid(
                error.message, hint="fixed=true finds the text itself, as it is.", parameter="pattern"
            ) from None

    def _compile_pattern(self) -> re.Pattern[str]:
        flags = re.IGNORECASE if self.ignore_case else re.NOFLAG
        try:
            with warnings.catch_warnings():  # `[[` may mean another set in a later Python
                warnings.simplefilter("ignore")
                return re.compile(re.escape(self.text) if self.fixed else self.text, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageInvalid(
                f"invalid regular expression {self.text!r}: {error}.",
                hint=f"vmrag grep -F -- {quoted(self.text)}   (finds the text itself)",
                parameter="pattern",
            ) from None


class MatchedLine(Record, frozen=True):
    """A line that matches, or a line of the context."""

    number: int
    """Starts at 1."""
    text: str
    matched: bool
    matches: Spans
    """Characters of the line: start and end of each match."""


class MatchedDocument(Record, frozen=True):
    """A document with matching lines.

    A file of no source has no collection, and its path as `doc_id`.
    """

    collection: str
    doc_id: str
    title: str
    count: int
    """Number of matching lines."""
    lines: list[MatchedLine]
    """The matching lines, and the requested context."""
    name: str = ""
    """The name as in `shown_names`."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)


class GrepReport(Record, frozen=True):
    """The result of a search."""

    documents: list[MatchedDocument]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """Why the documents are not those of the pinned revision; empty if they are."""
    skipped: tuple[LeftOutFile, ...] = ()
    """Text files that could not be searched."""

    @property
    def count(self) -> int:
        """Number of matching lines."""
        return sum(document.count for document in self.documents)

    @property
    def warnings(self) -> list[str]:
        """A sentence about the files that could not be searched, if any."""
        if not self.skipped:
            return []
        names = first_of([f"{file.path} ({file.reason})" for file in self.skipped], 3)
        return [f"{plural(len(self.skipped), 'file')} could not be searched: {names}."]


class GrepOptions(TypedDict, total=False):
    """Options of a search.

    `collections`: by default all files, and all collections except those in which tools write.
    `ref`: a name for `revparse.resolve_at`. `path`: part of a path or of an id, or a glob.
    """

    collections: Sequence[str]
    ref: str | None
    path: str


def grep_texts(
    ws: Workspace, pattern: Pattern, *, context: int = 0, limit: int | None = None, **narrowed: Unpack[GrepOptions]
) -> GrepReport:
    """Search tracked text files and stored documents for lines that match.

    `limit`: the maximum number of lines to show; further ones are only counted. Raises
    `UsageInvalid` and `CollectionMissing`.
    """
    collections, ref, path = narrowed.get("collections", ()), narrowed.get("ref"), narrowed.get("path", "")
    from vmrag_link.retrieval.narrowing import compile_path

    search, in_files, skipped = _Search(pattern, context, limit), list[MatchedDocument](), list[LeftOutFile]()
    files = SearchedFiles.open(ws, ref, collections)
    paths = files.list_paths(collections, path)
    with ws.progress.task("searching", len(paths)) as task:
        for file in files.texts.read_texts(paths) if files.texts else ():
            if hits := search.match(file.text or ""):
                in_files.append(MatchedDocument(*files.find_key(file.path), "", *hits))
            elif file.is_skipped:
                skipped.append(LeftOutFile(terminal_text.escape_line(file.path), file.reason))
            task.advance()

    def search_stored(source: TextSource, origin: AnswerOrigin) -> GrepReport:
        names = collection_names(source, origin.at, collections, searched=True, of_files=files.collections)
        is_meant = compile_path(path.removeprefix("./")) if path else lambda _: True
        stored, matched = _Search(pattern, context, search.left), [*in_files]
        with ws.progress.task(
            "searching", sum(source.count_documents(origin.at, collection=name) for name in names)
        ) as task:
            for document in (row for name in names for row in source.read_documents(origin.at, collection=name)):
                text = document.content.replace("\r\n", "\n") if is_meant(document.doc_id) else ""
                if hits := stored.match(text):
                    matched.append(MatchedDocument(*document.key, document.title, *hits))
                task.advance()
        return GrepReport(files.name_documents(matched, source, origin.at), origin.kb, origin.notes, tuple(skipped))

    with named_places.explain_missing_collection(ws, collections):
        try:
            return _read_stored(ws, ref, search_stored)
        except NO_DOCUMENTS as error:
            if not files.texts or {*collections} - {*files.collections}:
                raise
            matched, origin = files.name_documents(in_files, None, ""), find_git_origin(ws, error)
            return GrepReport(matched, origin.kb, origin.notes, tuple(skipped))


def count_uncovered(ws: Workspace) -> int:
    """Return how many tracked text files of the work tree are in no source.

    The number is computed again if git's index or the sources change.
    """
    return _count_uncovered(ws.places, ws.sources.configured, read_file_stamp(ws.places.git_dir / "index"))


@functools.lru_cache(maxsize=8)
def _count_uncovered(places: Places, sources: tuple[SourceSettings, ...], _index: FileStamp | None) -> int:
    from vmrag_link.sources import rules, tracked_texts

    paths = tracked_texts.TrackedTexts(places).paths
    return tracked_texts.count_texts(places, [path for path in paths if not rules.find_source(sources, path)])


class TrackedFile(Record, frozen=True):
    """A tracked text file."""

    path: str
    text: str
    commit: str = ""
    """Full hash of the commit; empty for the work tree."""
    uncommitted: Literal["", "added", "modified"] = ""
    """How the file differs from HEAD."""


def find_named(ws: Workspace, name: str) -> TrackedFile | None:
    """Return the tracked text file that `[REF:]PATH[:LINE]` means."""
    parts = revparse.separate_ref(name)
    for ref, rest in (("", name), *([parts] if parts else [])):
        for path in dict.fromkeys((rest, document_names.without_line(rest))):
            if file := find_tracked(ws, path, ref):
                return file
    return None


def find_tracked(
    ws: Workspace, path: str, ref: str = "", *, is_document: bool = False, links: int = MOST_LINKS
) -> TrackedFile | None:
    """Return the tracked text file of a path, in the work tree or at a git ref.

    Return None if git does not track the file. `is_document`: a source has the file, even if git
    does not track it. `links`: maximum number of symbolic links to follow. Raises `DocumentMissing`
    if the file cannot be read as text, and the errors of `TrackedTexts`.
    """
    is_path = path and not path.startswith(("/", "../")) and posixpath.normpath(path) == path and "\0" not in path
    commit = named_places.git_commit(ws, ref) if ref not in ("", revparse.WORKING) else ""
    if not is_path or (ref not in ("", revparse.WORKING) and not commit):
        return None
    from vmrag_link.sources import tracked_texts

    untracked = [path] if is_document and not commit else []
    texts = tracked_texts.TrackedTexts(ws.places, commit, untracked=untracked, only=path)
    if target := texts.read_link_target(path):
        if links and (file := find_tracked(ws, target, ref, links=links - 1)):
            return file
        name, target = terminal_text.escape_line(path), terminal_text.escape_line(target)
        raise DocumentMissing(
            f"{name} is a symbolic link to {target}, which is not a tracked file.",
            hint=tracked_texts.OTHERWISE,
            doc_id=path,
        )
    if path not in texts:
        texts = tracked_texts.TrackedTexts(ws.places, commit, only=path, submodules=_list_submodules(ws, commit))
    if path not in texts:
        return None
    (tracked_text,) = texts.read_texts([path])
    if tracked_text.text is None:
        name, at = terminal_text.escape_line(path), f" at {ref}" if commit else ""
        hint = tracked_texts.HINTS.get(tracked_text.reason, tracked_texts.OTHERWISE)
        raise DocumentMissing(f"{name} {tracked_text.reason}{at}.", hint=hint, doc_id=path)
    state = "" if commit else _find_state(ws, path) if texts.is_tracked(path) else "added"
    return TrackedFile(path, tracked_text.text, commit, state)


def _list_submodules(ws: Workspace, commit: str) -> list[Submodule]:
    """Return the submodules that the sources read, of the work tree or of a commit."""
    return ws.sources.find_submodules(
        ws.sources.read_config_at(commit) if commit else ws.sources.config, commit or None
    )


def _find_state(ws: Workspace, path: str) -> Literal["", "added", "modified"]:
    """Return how a file of the work tree differs from HEAD."""
    if not plumbing.read_head(ws.places).commit:
        return "added"
    kinds = _find_changes(ws, [path]).values()
    return "" if not kinds else "added" if "added" in kinds else "modified"


def list_modified(ws: Workspace, paths: Sequence[str]) -> list[str]:
    """Return the paths whose files in the work tree differ from HEAD."""
    return [*_find_changes(ws, paths)] if paths else []


def _find_changes(ws: Workspace, paths: Sequence[str]) -> dict[str, str]:
    """Return the kind of change since HEAD for each path. Without a commit there are no changes."""
    from vmrag_link.git import path_changes

    kinds: dict[str, str] = {}
    for start, places, commit in _list_trees(ws):
        specs = [f":(top,literal){path[len(start) :]}" for path in paths if path.startswith(start)]
        if specs and commit:
            changes = path_changes.list_changes(places, commit, specs)
            kinds |= {start + change.path: change.kind for change in changes}
        elif specs and start:  # HEAD does not name this submodule
            kinds |= {path: "added" for path in paths if path.startswith(start)}
    return kinds


def _list_trees(ws: Workspace) -> Iterator[tuple[str, Places, str | None]]:
    """Yield where git compares files of the work tree: how their paths begin, and the commit."""
    yield "", ws.places, plumbing.read_head(ws.places).commit
    for submodule in _list_submodules(ws, ""):
        if submodule.places:
            yield f"{submodule.path}/", submodule.places, submodule.commit


def count_without_case(ws: Workspace, pattern: Pattern, report: GrepReport, **narrowed: Unpack[GrepOptions]) -> int:
    """Return how many lines match if case is ignored, after a search that found none."""
    if report.count or pattern.ignore_case:
        return 0
    return grep_texts(ws, replace(pattern, ignore_case=True), limit=0, **narrowed).count


class SearchedFiles:
    """The tracked files at one place. A revision of the knowledge base has no `texts`.

    `tree`: the documents of sources. It is listed only if untracked files or notes may be among
    them.
    """

    def __init__(
        self, texts: TrackedTexts | None, sources: Sequence[SourceSettings] = (), tree: SourceTree | None = None
    ) -> None:
        self.texts = texts
        self._sources = sources
        self._keys = {file.path: key for key, file in tree.files.items()} if tree else None
        self._with_paths_as_ids = {source.collection for source in sources if not source.write}

    @classmethod
    def open(cls, ws: Workspace, ref: str | None, collections: Sequence[str] = ()) -> Self:
        """Open the files of a place. `ref`: as for `read_at`."""
        commit = ""
        if ref is not None and ref != revparse.WORKING and not (commit := named_places.git_commit(ws, ref)):
            if not ws.is_initialized:
                plumbing.resolve_commit(ws.places, ref)  # raises, because no knowledge base can have the name
            return cls(None)
        from vmrag_link.sources import rules
        from vmrag_link.sources.tracked_texts import TrackedTexts

        config = ws.sources.read_config_at(commit) if commit else ws.sources.config
        tree, untracked = None, config.searches_untracked and not commit
        if collections or any(rules.searches_untracked(source, untracked=untracked) for source in config.sources):
            tree = source_tree.read_commit(ws, commit, config) if commit else source_tree.read_work_tree(ws)
        files = tree.files.values() if tree and not commit else ()
        submodules = ws.sources.find_submodules(config, commit or None)
        texts = TrackedTexts(ws.places, commit, untracked=(file.path for file in files), submodules=submodules)
        return cls(texts, tree.sources if tree else config.sources, tree)

    @property
    def collections(self) -> list[str]:
        return [source.collection for source in self._sources]

    def list_paths(self, collections: Sequence[str] = (), path: str = "") -> list[str]:
        """Return the paths of the files of these collections, or of all files.

        `path`: part of the path, or of the id of a note, or a glob.
        """
        paths = self.texts.paths if self.texts else []
        if collections:
            paths = [name for name in paths if self.find_key(name)[0] in collections]
        if not path:
            return paths
        from vmrag_link.retrieval.narrowing import compile_path

        is_meant, keys = compile_path(path.removeprefix("./")), self._keys or {}
        return [name for name in paths if is_meant(name) or (name in keys and is_meant(keys[name][1]))]

    def find_key(self, path: str) -> tuple[str, str]:
        """Return the key of the document of a path. A file of no source has no collection."""
        if self._keys is not None:
            return self._keys.get(path, ("", path))
        from vmrag_link.sources import rules

        source = rules.find_source(self._sources, path)
        return (source.collection if source else "", path)

    def name_documents(
        self, documents: Sequence[MatchedDocument], stored: TextSource | None, at: At
    ) -> list[MatchedDocument]:
        """Return the documents with their shown names.

        The path of a file always means that file.
        """
        paths = [document.doc_id for document in documents if document.collection in self._with_paths_as_ids]
        shared = {header.doc_id for header in stored.read_headers(at, ids=paths)} if stored and paths else set()

        def name(document: MatchedDocument) -> str:
            is_path = not document.collection or document.collection in self._with_paths_as_ids
            if is_path and document.doc_id not in shared:
                return document.doc_id
            full = "/".join(document.key)
            return "//".join(document.key) if self.texts and full in self.texts else full

        return [replace(document, name=name(document)) for document in documents]


class _Search:
    """Searches one text after the other. `left`: how many matches may still be shown."""

    def __init__(self, pattern: Pattern, context: int, limit: int | None) -> None:
        self._finder = pattern.build_finder()
        self._passes = pattern.text_filter()
        self._context = context
        self.left = limit

    def match(self, text: str) -> tuple[int, list[MatchedLine]] | None:
        """Return the number of matching lines and the lines to show, or None.

        `text`: its lines end with a line feed.
        """
        if not text or not self._passes(text):
            return None
        lines, passes = text.removesuffix("\n").split("\n"), self._finder.passes
        hits = [number for number, line in enumerate(lines, 1) if passes(line)]
        return (len(hits), self._form_lines(lines, hits)) if hits else None

    def _form_lines(self, lines: Sequence[str], hits: Sequence[int]) -> list[MatchedLine]:
        shown_hits = {*hits[: self.left]}
        if self.left is not None:
            self.left = max(self.left - len(hits), 0)
        around, last = self._context, len(lines)
        shown = {number for hit in shown_hits for number in range(max(1, hit - around), min(last, hit + around) + 1)}
        matched, texts = {*hits} if around else shown_hits, {number: lines[number - 1] for number in sorted(shown)}
        return [
            MatchedLine(number, text, number in matched, self._finder.spans(text) if number in matched else ())
            for number, text in texts.items()
        ]
