"""What an import leaves out of the folders that a person names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link import terminal_text
from vmrag_link.documents.import_base import OUTSIDE, ROOT, ImportBase, is_in
from vmrag_link.documents.seen_files import FileSelection
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import listing
from vmrag_link.git.listing import Repositories
from vmrag_link.paths import Places

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORED = "is ignored by git"
EXCLUDED = "is excluded"
GENERATED = "is generated"
REASONS = (IGNORED, EXCLUDED, GENERATED)

LOCK_FILES = ("package-lock.json", "npm-shrinkwrap.json", "packages.lock.json")
"""Generated files that are tracked, of formats that an import reads: of npm and NuGet."""


Derived = Callable[[Sequence[Path]], Mapping[Path, str]]
"""Which of these files are documents already, without being stored, with the reasons."""


def _nothing(_files: Sequence[Path]) -> Mapping[Path, str]:
    return {}


class LeavingOut:
    """A `LeaveOut` for one import, whose patterns count from `origin`.

    What a person names is taken, even if git ignores it or it is generated, unless `exclude` names
    it: `named_ignored`. All in such a folder is taken, because git has no rules below one that it
    ignores. What is `derived` is left out even if it is named. Raises
    `UsageInvalid` for what is no pattern.
    """

    def __init__(self, places: Places, selection: FileSelection, origin: Path, *, derived: Derived = _nothing) -> None:
        self._excluded = _patterns(selection.exclude) if selection.exclude else None
        self._selection = selection
        self._derived = derived
        self._origin = origin
        self._repositories = Repositories(places)
        self.named_ignored: set[Path] = set()

    def __call__(self, folders: Sequence[Path], files: Sequence[Path], named: bool) -> Mapping[Path, str]:
        """Raises `GitFailed`."""
        found = dict.fromkeys(self._matched(folders, files), EXCLUDED)
        found |= self._derived([each for each in files if each not in found])
        rest = [each for each in (*folders, *files) if each not in found and not self._is_taken(each)]
        ignored = set() if self._selection.include_ignored else self._repositories.ignored(rest)
        if named:
            self.named_ignored |= ignored
            return found
        found |= dict.fromkeys(ignored, IGNORED)
        if not self._selection.include_generated:
            rest = [each for each in files if each not in found]
            marked = self._repositories.generated(rest)
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

    def _is_taken(self, path: Path) -> bool:
        """Whether it was named, or lies in what was, although git ignores that."""
        return bool(self.named_ignored) and not self.named_ignored.isdisjoint((path, *path.parents))


def _patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise UsageInvalid(
            f"--exclude: {terminal_text.one_line(str(error))}", hint="--exclude 'drafts/' --exclude '*.tmp.md'"
        ) from None


def private(
    places: Places, base: ImportBase, sources: Collection[str], folders: Mapping[str, FileSelection]
) -> set[str]:
    """Which of these files, though there are documents of that source, are taken only when a person
    names them: what git ignores, and hidden files that it does not track.

    A stranger may have written the source, and what is stored is pushed. `folders` were imported
    here: what a person took with them is not private. Raises `GitFailed`.
    """
    repositories = Repositories(places)
    paths = {base.origin / each: each for each in sources}
    ignored = {paths[each] for each in repositories.hidden(paths)} if paths else set()
    if ignored:
        named = repositories.hidden(base.top / each for each in folders)
        whole = [each for each, what in folders.items() if what.include_ignored or base.top / each in named]
        ignored = {each for each in ignored if not any(is_in(each, folder) for folder in whole)}
    hidden = {each for each in sources if _is_hidden(each)}
    if hidden and base.recorded != OUTSIDE:
        hidden -= listing.index(places).tracked
    taken = [each for each in folders if _is_hidden(each)]
    return ignored | {each for each in hidden if not any(is_in(each, folder) for folder in taken)}


def _is_hidden(path: str) -> bool:
    return (path.startswith(".") and path != ROOT) or "/." in path
