"""Find the lines of documents and tracked files that match a pattern: `vmrag grep`.

All tracked text files are searched, also those that are not documents of a source, and stored
documents without an index. A pattern of an agent is compiled by Rust's `regex`, because Python's
`re` can take exponential time.
"""

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
    """The functions that search one line."""

    passes: Callable[[str], object]
    """Return a true value if the line matches."""
    spans: Callable[[str], Spans]
    """Return the matches in the line. Empty if the pattern cannot report them."""


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
        """Return functions that search a line. Raises `UsageInvalid` for an invalid pattern."""
        if self.linear and (self.ignore_case or not self.fixed):
            return Finder(self._compile_linear(""), lambda _: ())
        compiled = self._compile_pattern()

        def find_spans(line: str) -> Spans:
            return tuple(match.span() for match in compiled.finditer(line) if match.end() > match.start())

        return Finder(compiled.search, find_spans)

    def text_filter(self) -> Callable[[str], bool]:
        """Return a fast test of a whole text. Every text with a matching line passes it."""
        if self.fixed and not self.ignore_case:
            return lambda text: self.text in text
        if self.linear and (self.fixed or not _OTHER_LINES.search(self.text)):
            # It also takes linear time for a whole text, and finds every match in a line.
            return self._compile_linear("(?m)")
        return lambda _: True

    def _compile_linear(self, flags: str) -> Callable[[str], bool]:
        from vmrag_link.retrieval.filters import compile_pattern  # users' patterns do not need it

        text = re.escape(self.text) if self.fixed else self.text
        if self.ignore_case:
            flags += "(?i)"
        try:
            return compile_pattern(f"{flags}{text}", place="")
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

    If a file does not belong to a source, its collection is empty and its `doc_id` is its path.
    """

    collection: str
    doc_id: str
    title: str
    count: int
    """Number of matching lines."""
    lines: list[MatchedLine]
    """The matching lines, and the requested context."""
    name: str = ""
    """The printed name (`shown_names`)."""

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
    from vmrag_link.retrieval.narrowing import compile_path

    collections = narrowed.get("collections", ())
    ref = narrowed.get("ref")
    path = narrowed.get("path", "")
    search = _Search(pattern, context, limit)
    matched_files: list[MatchedDocument] = []
    skipped: list[LeftOutFile] = []
    files = SearchedFiles.open(ws, ref, collections)
    paths = files.list_paths(collections, path)
    with ws.progress.task("searching", len(paths)) as task:
        for file in files.texts.read_texts(paths) if files.texts else ():
            if hits := search.match(file.text or ""):
                matched_files.append(MatchedDocument(*files.find_key(file.path), "", *hits))
            elif file.is_skipped:
                skipped.append(LeftOutFile(terminal_text.escape_line(file.path), file.reason))
            task.advance()

    def search_stored(source: TextSource, origin: AnswerOrigin) -> GrepReport:
        names = collection_names(source, origin.at, collections, searched=True, of_files=files.collections)
        is_path_meant = compile_path(path.removeprefix("./")) if path else lambda _: True
        stored_search = _Search(pattern, context, search.left)
        matched = [*matched_files]
        total = sum(source.count_documents(origin.at, collection=name) for name in names)
        with ws.progress.task("searching", total) as task:
            for name in names:
                for document in source.read_documents(origin.at, collection=name):
                    text = document.content.replace("\r\n", "\n") if is_path_meant(document.doc_id) else ""
                    if hits := stored_search.match(text):
                        matched.append(MatchedDocument(*document.key, document.title, *hits))
                    task.advance()
        return GrepReport(files.name_documents(matched, source, origin.at), origin.kb, origin.notes, tuple(skipped))

    with named_places.explain_missing_collection(ws, collections):
        try:
            return read_stored(ws, ref, search_stored)
        except NO_DOCUMENTS as error:
            if not files.texts or {*collections} - {*files.collections}:
                raise
            origin = find_git_origin(ws, error)
            matched = files.name_documents(matched_files, None, "")
            return GrepReport(matched, origin.kb, origin.notes, tuple(skipped))


def count_without_case(ws: Workspace, pattern: Pattern, report: GrepReport, **narrowed: Unpack[GrepOptions]) -> int:
    """Return how many lines match if case is ignored. 0 if `report` has matches already."""
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
        """Open the files of the work tree, or of a git ref. `ref`: as for `reading.read_at`."""
        commit = ""
        if ref is not None and ref != revparse.WORKING:
            commit = named_places.git_commit(ws, ref)
            if not commit and not ws.is_initialized:
                plumbing.resolve_commit(ws.places, ref)  # raises, because no knowledge base can have the name
            if not commit:
                return cls(None)
        from vmrag_link.sources import rules
        from vmrag_link.sources.tracked_texts import TrackedTexts

        config = ws.sources.read_config_at(commit) if commit else ws.sources.config
        untracked = config.searches_untracked and not commit
        tree = None
        if collections or any(rules.searches_untracked(source, untracked=untracked) for source in config.sources):
            tree = source_tree.read_commit(ws, commit, config) if commit else source_tree.read_work_tree(ws)
        files = tree.files.values() if tree and not commit else ()
        submodules = ws.sources.find_submodules(config, commit or None)
        texts = TrackedTexts(ws.places, commit, untracked=(file.path for file in files), submodules=submodules)
        return cls(texts, tree.sources if tree else config.sources, tree)

    @property
    def collections(self) -> list[str]:
        """The collections of the sources."""
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

        is_meant = compile_path(path.removeprefix("./"))
        keys = self._keys or {}
        return [name for name in paths if is_meant(name) or (name in keys and is_meant(keys[name][1]))]

    def find_key(self, path: str) -> tuple[str, str]:
        """Return the key of the document of a path. Without a source, the collection is empty."""
        if self._keys is not None:
            return self._keys.get(path, ("", path))
        from vmrag_link.sources import rules

        source = rules.find_source(self._sources, path)
        return (source.collection if source else "", path)

    def name_documents(
        self, documents: Sequence[MatchedDocument], stored: TextSource | None, at: At
    ) -> list[MatchedDocument]:
        """Return the documents with their printed names.

        A name that is a path always means the file, so a stored document with the name of a file
        gets two slashes.
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
    """Search one text after the other.

    `context`: number of lines around a match. `limit`: maximum number of matching lines to return
    from all texts; further ones are only counted. `left`: the rest of the limit.
    """

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
        lines = text.removesuffix("\n").split("\n")
        hits = [number for number, line in enumerate(lines, 1) if self._finder.passes(line)]
        return (len(hits), self._form_lines(lines, hits)) if hits else None

    def _form_lines(self, lines: Sequence[str], hits: Sequence[int]) -> list[MatchedLine]:
        """Return the matching lines within the limit, with their context.

        `hits`: the numbers of the matching lines.
        """
        centers = hits[: self.left]
        if self.left is not None:
            self.left = max(self.left - len(hits), 0)
        numbers: set[int] = set()
        for center in centers:
            numbers.update(range(max(1, center - self._context), min(len(lines), center + self._context) + 1))
        matched = {*hits}  # the context may have matching lines beyond the limit
        matched_lines = []
        for number in sorted(numbers):
            line = lines[number - 1]
            is_match = number in matched
            matched_lines.append(MatchedLine(number, line, is_match, self._finder.spans(line) if is_match else ()))
        return matched_lines
