"""What an import leaves out of the folders that a person names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vmrag_link import terminal_text
from vmrag_link.documents.seen_files import FileSelection
from vmrag_link.errors import UsageInvalid
from vmrag_link.git.ignored import Repositories
from vmrag_link.paths import Places

IGNORED = "is ignored by git"
EXCLUDED = "is excluded"
GENERATED = "is generated"
REASONS = (IGNORED, EXCLUDED, GENERATED)

LOCK_FILES = ("package-lock.json", "npm-shrinkwrap.json", "packages.lock.json")
"""Generated files that are tracked, of formats that an import reads: of npm and NuGet."""


class LeavingOut:
    """A `LeaveOut` for one import, whose patterns count from `origin`.

    What a person names is taken, even if git ignores it or it is generated, unless `exclude` names
    it: `named_ignored`. All in such a folder is taken, because git has no rules below one that it
    ignores. Raises `UsageInvalid` for what is no pattern.
    """

    def __init__(self, places: Places, selection: FileSelection, origin: Path) -> None:
        from pathspec import GitIgnoreSpec  # only where files are imported

        try:
            self._excluded = GitIgnoreSpec.from_lines(selection.exclude)
        except ValueError as error:
            raise UsageInvalid(
                f"--exclude: {terminal_text.one_line(str(error))}", hint="--exclude 'drafts/' --exclude '*.tmp.md'"
            ) from None
        self._selection = selection
        self._origin = origin
        self._repositories = Repositories(places)
        self.named_ignored: set[Path] = set()

    def __call__(self, folders: Sequence[Path], files: Sequence[Path], named: bool) -> Mapping[Path, str]:
        """Raises `GitFailed`."""
        found = dict.fromkeys(self._matched(folders, files), EXCLUDED)
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
        for ending, paths in (("/", folders), ("", files)):
            for path in paths:
                name = path.relative_to(self._origin).as_posix()
                if path != self._origin and self._excluded.match_file(name + ending):
                    yield path

    def _is_taken(self, path: Path) -> bool:
        """Whether it was named, or lies in what was, although git ignores that."""
        return bool(self.named_ignored) and not self.named_ignored.isdisjoint((path, *path.parents))
