"""Decide which files an import leaves out.

An import calls `ImportFilter` for the files and folders that the user named, and for the contents
of these folders. It leaves out files that git ignores, excluded and generated files, and files that
are documents of sources already (`DerivedFiles`). `explain_source_files` gives commands that change
stored documents a better error for such a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link import terminal_text
from vmrag_link.documents.importing import FileSelection
from vmrag_link.errors import (
    CollectionMissing,
    DocumentMissing,
    NotInitialized,
    PinMissing,
    UsageInvalid,
    VmragError,
    quoted,
)
from vmrag_link.models import Document
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.listings import SourceListing
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.collections import source_read_only

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from vmrag_link.workspace import DocumentStore

IGNORED = "is ignored by git"
EXCLUDED = "is excluded"
GENERATED = "is generated"
REASONS = (IGNORED, EXCLUDED, GENERATED)

LOCK_FILES = ("package-lock.json", "npm-shrinkwrap.json", "packages.lock.json")
"""Generated files of npm and NuGet, which are usually tracked."""

FindDerived = Callable[[Sequence[Path]], Mapping[Path, str]]
"""Return a reason for each file that is a document of a source."""

_CACHE_NAME = "derived"
"""Name of the cache for this listing. It has more sources than the cache of `workspace.sources`."""


class ImportFilter:
    """Decide which files one import leaves out.

    `origin`: the folder to which patterns in `selection` are relative. `derived`: finds files that
    are documents of sources; they are always left out.

    Files and folders that the user named are imported even if git ignores them or they are
    generated, unless a pattern excludes them. An ignored folder is imported whole, because git has
    no rules below it. Raises `UsageInvalid` for an invalid pattern.
    """

    def __init__(
        self, places: Places, selection: FileSelection, origin: Path, *, derived: FindDerived | None = None
    ) -> None:
        from vmrag_link.git.listing import Repositories

        self._excluded = _parse_patterns(selection.exclude) if selection.exclude else None
        self._selection = selection
        self._derived = derived
        self._origin = origin
        self._repositories = Repositories(places)
        self._unchecked: list[Path] = []
        """Named paths for which git was not called yet."""
        self._named_ignored: set[Path] = set()
        """Named paths that git ignores."""

    @property
    def named_ignored(self) -> set[Path]:
        """Paths that the user named although git ignores them. Raises `GitFailed`."""
        self._find_ignored(())
        return self._named_ignored

    def __call__(self, folders: Sequence[Path], files: Sequence[Path], named: bool) -> Mapping[Path, str]:
        """Return the paths to leave out, each with a reason. Raises `GitFailed`.

        `named`: True if the user named these paths.
        """
        reasons = dict.fromkeys(self._match_patterns(folders, files), EXCLUDED)
        if self._derived:
            reasons |= self._derived([file for file in files if file not in reasons])
        remaining = [path for path in (*folders, *files) if path not in reasons]
        if named:
            if not self._selection.include_ignored:
                self._unchecked += remaining
            return reasons
        reasons |= dict.fromkeys(self._find_ignored(remaining), IGNORED)
        if not self._selection.include_generated:
            remaining_files = [file for file in files if file not in reasons]
            is_generated = self._repositories.read_generated(remaining_files)
            for file in remaining_files:
                if is_generated.get(file, file.name in LOCK_FILES):
                    reasons[file] = GENERATED
        return reasons

    def _match_patterns(self, folders: Sequence[Path], files: Sequence[Path]) -> Iterator[Path]:
        """Yield the paths that the patterns match."""
        if self._excluded is None:
            return
        for ending, paths in (("/", folders), ("", files)):
            for path in paths:
                name = path.relative_to(self._origin).as_posix()
                if path != self._origin and self._excluded.match_file(name + ending):
                    yield path

    def _find_ignored(self, paths: Sequence[Path]) -> list[Path]:
        """Return those of the paths that git ignores, except the contents of named folders.

        The same call of git also checks the named paths (`_unchecked`).
        """
        if self._selection.include_ignored:
            return []
        unchecked = [*self._unchecked, *(path for path in paths if not self._is_named_ignored(path))]
        ignored = self._repositories.find_ignored(unchecked)
        self._named_ignored.update(ignored.intersection(self._unchecked))
        self._unchecked = []
        return [path for path in paths if path in ignored and not self._is_named_ignored(path)]

    def _is_named_ignored(self, path: Path) -> bool:
        """Return whether a path is an ignored path that the user named, or is inside one."""
        return bool(self._named_ignored) and not self._named_ignored.isdisjoint((path, *path.parents))


def _parse_patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    """Return patterns as in a `.gitignore`. Raises `UsageInvalid`."""
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise UsageInvalid(
            f"--exclude: {terminal_text.escape_line(str(error))}",
            hint="write patterns, such as '--exclude drafts/ --exclude \"*.tmp.md\"'",
        ) from None


class DerivedFiles:
    """Files of the work tree that are documents of sources. They are listed once, on first use.

    Sources that a stored collection of the same name hides are included. Nothing is indexed. The
    methods raise `GitFailed`, `LimitExceeded` and `ConfigInvalid`.
    """

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws

    @cached_property
    def sources(self) -> tuple[SourceSettings, ...]:
        """The configured sources, without sources of code if no parser is installed for them."""
        from vmrag_link.code import languages

        return tuple(
            source
            for source in self._ws.sources.configured
            if source.kind != "code" or not languages.find_source_problem(source.paths)
        )

    @cached_property
    def _listing(self) -> SourceListing:
        from vmrag_link.sources import work_tree

        config = self._ws.config
        list_files = work_tree.list_in_work_tree
        if config.sources_submodules:
            from vmrag_link.sources import submodule_files

            list_files = submodule_files.list_in_work_tree
        return list_files(
            self._ws.places,
            self.sources,
            max_bytes=config.sources_max_bytes,
            untracked=config.searches_untracked,
            cache=self._ws.places.source_state / _CACHE_NAME,
        )

    @property
    def paths(self) -> set[str]:
        """Paths of all files that may be documents, from the top.

        Their contents were not checked.
        """
        if not self.sources:
            return set()
        return {file.path for files in self._listing.files.values() for file in files}

    def read_documents(self, paths: Collection[str]) -> dict[str, Document]:
        """Return the documents of these files by path. Code is not cut into chunks."""
        from vmrag_link.sources import documents

        documents_by_path: dict[str, Document] = {}
        for source in self.sources if paths else ():
            files = [file for file in self._listing.files[source.collection] if file.path in paths]
            places = self._ws.sources.get_reading_places(self._ws.sources.config, None)
            for file, text in documents.read_texts_in_work_tree(places, files):
                document = documents.build_document(source, file, text)
                if isinstance(document, Document):
                    documents_by_path.setdefault(file.path, document)
        return documents_by_path


@contextlib.contextmanager
def explain_source_files(
    ws: DocumentStore, names: Iterable[str], within: str | None, hint: Callable[[str], str]
) -> Iterator[None]:
    """If the block does not find a document, raise `SourceReadOnly` for a name of a source's file.

    This is for commands that change stored documents. `names`, `within`: as for
    `document_names.select_named`. `hint`: returns the hint for a file, or "" if it does not exist.
    """
    try:
        yield
    except (CollectionMissing, DocumentMissing, NotInitialized, PinMissing) as error:
        sources = ws.sources.configured if isinstance(ws, Workspace) else ()
        for name in names:
            for collection, path in _possible_meanings(sources, name, within):
                if not path:
                    raise source_read_only(collection) from None
                if path_hint := hint(path):
                    refusal = source_read_only(collection, path)
                    refusal.hint = path_hint
                    raise refusal from None
        if missing := _missing_in_source(sources, names, error):
            raise missing from None
        raise


def _missing_in_source(
    sources: Iterable[SourceSettings], names: Iterable[str], error: VmragError
) -> DocumentMissing | None:
    """Return the error if the missing collection is a source that has no such file, or None."""
    for source in sources if isinstance(error, CollectionMissing) else ():
        prefix = f"{source.collection}/"
        path = next((name.removeprefix(prefix) for name in names if name.startswith(prefix)), "")
        if path:
            return DocumentMissing(
                f"the source {source.collection!r} (files of this repository) has no document {path!r}.",
                hint=f"run 'vmrag list --collection {quoted(source.collection)}' to list its documents",
                collection_name=source.collection,
                doc_id=path,
            )
    return None


def _possible_meanings(sources: Iterable[SourceSettings], name: str, within: str | None) -> Iterator[tuple[str, str]]:
    """Yield the pairs (collection, path) that a name may mean. "" is the path of a collection."""
    from vmrag_link.sources import rules

    for source in sources:
        collection = source.collection
        if within is None and name.rstrip("/") == collection:
            yield collection, ""
            continue
        paths = [name] if within in (None, collection) else []
        if within is None and name.startswith(f"{collection}/"):
            paths.insert(0, name.removeprefix(f"{collection}/").lstrip("/"))
        yield from ((collection, path) for path in paths if path and rules.find_source([source], path))
