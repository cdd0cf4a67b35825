"""Find the lines of documents and tracked files that a pattern matches (`vmrag grep`)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, TypedDict, Unpack

from msgspec.structs import replace

from vmrag_link import terminal_text
from vmrag_link.errors import NO_DOCUMENTS, FilterInvalid, UsageInvalid, first_of, plural, quoted
from vmrag_link.git import plumbing
from vmrag_link.models import At, Record
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.listings import LeftOutFile
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.documents.reading import TextSource, collection_names, read_stored
from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock, find_git_origin
from vmrag_link.workspace.history import named_places, revparse
from vmrag_link.workspace.source_tree import SourceTree

if TYPE_CHECKING:  # a list searches no files
    from vmrag_link.sources.tracked_texts import TrackedTexts

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
                error.message, hint="pass 'fixed=true' to find the text itself", parameter="pattern"
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
                hint=f"run 'vmrag grep -F -- {quoted(self.text)}' to find the text itself",
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
    `ref`: a name for `reading.read_at`. `path`: part of a path or of an id, or a glob.
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
            return read_stored(ws, ref, search_stored)
        except NO_DOCUMENTS as error:
            if not files.texts or {*collections} - {*files.collections}:
                raise
            matched, origin = files.name_documents(in_files, None, ""), find_git_origin(ws, error)
            return GrepReport(matched, origin.kb, origin.notes, tuple(skipped))


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
        """Open the files of a place. `ref`: as for `reading.read_at`."""
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
