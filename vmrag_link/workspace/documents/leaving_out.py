"""What an import leaves out of the folders that a person names: what git ignores, what is excluded
or generated, and files that are documents of sources, of which none has to be stored.
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
"""Generated files that are tracked, of formats that an import reads: of npm and NuGet."""


Derived = Callable[[Sequence[Path]], Mapping[Path, str]]
"""Which of these files are documents already, without being stored, with the reasons."""
_CACHE = "derived"
"""Of what was seen of the files, beside that of `workspace.sources`, which lists fewer sources."""


class ImportFilter:
    """A `LeaveOut` for one import, whose patterns count from `origin`.

    What a person names is taken, even if git ignores it or it is generated, unless `exclude` names
    it: `named_ignored`. All in such a folder is taken, because git has no rules below one that it
    ignores. What is `derived` is left out even if it is named. Raises
    `UsageInvalid` for what is no pattern.
    """

    def __init__(
        self, places: Places, selection: FileSelection, origin: Path, *, derived: Derived | None = None
    ) -> None:
        from vmrag_link.git.listing import Repositories

        self._excluded = _patterns(selection.exclude) if selection.exclude else None
        self._selection = selection
        self._derived = derived
        self._origin = origin
        self._repositories = Repositories(places)
        self._unasked: list[Path] = []
        self._named_ignored: set[Path] = set()

    @property
    def named_ignored(self) -> set[Path]:
        """What a person named although git ignores it. Raises `GitFailed`."""
        self._find_ignored(())
        return self._named_ignored

    def __call__(self, folders: Sequence[Path], files: Sequence[Path], named: bool) -> Mapping[Path, str]:
        """Raises `GitFailed`."""
        found = dict.fromkeys(self._matched(folders, files), EXCLUDED)
        if self._derived:
            found |= self._derived([file for file in files if file not in found])
        rest = [folder for folder in (*folders, *files) if folder not in found]
        if named:
            self._unasked += [] if self._selection.include_ignored else rest
            return found
        found |= dict.fromkeys(self._find_ignored(rest), IGNORED)
        if not self._selection.include_generated:
            rest = [each for each in files if each not in found]
            marked = self._repositories.read_generated(rest)
            found |= {each: GENERATED for each in rest if marked.get(each, each.name in LOCK_FILES)}
        return found

    def _matched(self, folders: Sequence[Path], files: Sequence[Path]) -> Iterator[Path]:
        """What the patterns name."""
        if self._excluded is None:
            return
        for ending, paths in (("/", folders), ("", files)):
            for path in paths:
                name = path.relative_to(self._origin).as_posix()
                if path != self._origin and self._excluded.match_file(name + ending):
                    yield path

    def _find_ignored(self, paths: Sequence[Path]) -> list[Path]:
        """The paths that git ignores, but for those that a person named and what lies in them.

        git is asked about named paths together with what lies in them.
        """
        if self._selection.include_ignored:
            return []
        asked = [*self._unasked, *(path for path in paths if not self._is_taken(path))]
        ignored = self._repositories.find_ignored(asked)
        self._named_ignored.update(ignored.intersection(self._unasked))
        self._unasked = []
        return [path for path in paths if path in ignored and not self._is_taken(path)]

    def _is_taken(self, path: Path) -> bool:
        """Whether it was named, or lies in what was, although git ignores that."""
        return bool(self._named_ignored) and not self._named_ignored.isdisjoint((path, *path.parents))


def _patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise UsageInvalid(
            f"--exclude: {terminal_text.escape_line(str(error))}", hint="--exclude 'drafts/' --exclude '*.tmp.md'"
        ) from None


class DerivedFiles:
    """Which files of the work tree are documents of sources, as of the first call; also of sources
    that a stored collection of their name hides. Nothing is indexed.

    All methods raise as `sources.work_tree.in_work_tree`, and `ConfigInvalid`.
    """

    def __init__(self, ws: Workspace) -> None:
        self._ws = ws

    @cached_property
    def sources(self) -> tuple[SourceSettings, ...]:
        """Without code, where that cannot be cut here."""
        from vmrag_link.code import languages

        return tuple(
            each
            for each in self._ws.sources.configured
            if each.kind != "code" or not languages.find_source_problem(each.paths)
        )

    @cached_property
    def _listing(self) -> SourceListing:
        from vmrag_link.sources import work_tree

        config, places = self._ws.config, self._ws.places
        most, untracked = config.sources_max_bytes, config.searches_untracked
        cache = places.source_state / _CACHE
        list_files = work_tree.list_in_work_tree
        if config.sources_submodules:
            from vmrag_link.sources import submodule_files

            list_files = submodule_files.list_in_work_tree
        return list_files(places, self.sources, max_bytes=most, untracked=untracked, cache=cache)

    @property
    def paths(self) -> set[str]:
        """Of all files that may be documents, below the top; what is in them was not looked at."""
        if not self.sources:
            return set()
        return {file.path for files in self._listing.files.values() for file in files}

    def read_documents(self, paths: Collection[str]) -> dict[str, Document]:
        """The documents that these files are, by path; code is not cut."""
        from vmrag_link.sources import documents

        found: dict[str, Document] = {}
        for source in self.sources if paths else ():
            files = [each for each in self._listing.files[source.collection] if each.path in paths]
            places = self._ws.sources.get_reading_places(self._ws.sources.config, None)
            for file, text in documents.read_texts_in_work_tree(places, files):
                document = documents.build_document(source, file, text)
                if isinstance(document, Document):
                    found.setdefault(file.path, document)
        return found


@contextlib.contextmanager
def explain_source_files(
    ws: DocumentStore, names: Iterable[str], within: str | None, hint: Callable[[str], str]
) -> Iterator[None]:
    """For what changes stored documents: where the block finds none of a name, and a file of a
    source is meant, `SourceReadOnly` says so. `hint`: what to type instead for the file of a path;
    empty if there is no such file.
    """
    try:
        yield
    except (CollectionMissing, DocumentMissing, NotInitialized, PinMissing) as why:
        sources = ws.sources.configured if isinstance(ws, Workspace) else ()
        some = (possible_meaning for name in names for possible_meaning in _possible_meanings(sources, name, within))
        found = next((each for each in some if not each[1] or hint(each[1])), None)
        if found is None:
            if missing := _no_file(sources, names, why):
                raise missing from None
            raise
        error = source_read_only(*found)
        if found[1]:
            error.hint = hint(found[1])
        raise error from None


def _no_file(sources: Iterable[SourceSettings], names: Iterable[str], why: VmragError) -> DocumentMissing | None:
    """The error where a collection is missing that is a source's, and has no such file."""
    for source in sources if isinstance(why, CollectionMissing) else ():
        path = next((name.removeprefix(f"{source.collection}/") for name in names if _within(source, name)), "")
        if path:
            return DocumentMissing(
                f"The source {source.collection!r} (files of this repository) has no document {path!r}.",
                hint=f"vmrag list --collection {quoted(source.collection)}",
                collection_name=source.collection,
                doc_id=path,
            )
    return None


def _within(source: SourceSettings, name: str) -> bool:
    return name.startswith(f"{source.collection}/")


def _possible_meanings(sources: Iterable[SourceSettings], name: str, within: str | None) -> Iterator[tuple[str, str]]:
    """The collections and paths that a name may mean, as `document_names.select` takes names; a
    path is empty where the collection is meant.
    """
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
