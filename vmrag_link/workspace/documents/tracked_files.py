"""Find files that an import refuses, because a source can read them without storing a copy.

These are files that git tracks in this repository. A stored copy would become outdated when the
file changes. The option `--copy` of `vmrag import` stores it anyway.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from vmrag_link import hints
from vmrag_link.conversion import formats
from vmrag_link.documents import import_base
from vmrag_link.errors import LimitExceeded, SourceReadOnly, first_of, quoted
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.import_reports import command_here, path_from_here

COPY = "add --copy to store a copy that does not follow the file"
_MAX_LISTED_PATHS = 5


class TrackedFiles:
    """Find the files that one import refuses, and form the hint for all that were refused so far.

    The path, the attributes and the size decide whether a source can read a file. Installed extras
    do not matter. The methods raise `GitFailed` and `ConfigInvalid`.
    """

    def __init__(self, ws: Workspace, named: Sequence[Path], collection: str | None, *, texts: bool = False) -> None:
        """`named`: the paths that the user named, for hints.

        `collection`: where to store them. `texts`: files of unknown formats are also texts.
        """
        self._ws = ws
        self._named = named
        self._collection = collection
        self._texts = texts
        self._top = import_base.locate_path(ws.places.top)
        self._reasons: dict[Path, str] = {}
        """The refused files, each with the reason."""
        self._untracked: set[Path] = set()
        """The refused files that git does not track yet."""

    @property
    def hint(self) -> str:
        """The hint to make the refused files documents; empty if none was refused."""
        if not self._reasons:
            return ""
        refused = [self._path_from_top(path) or "" for path in self._reasons]
        if all(self._source_of(path) for path in refused):
            step = "edit the files" if refused[1:] else f"edit the file {quoted(refused[0])}"
            untracked = [path_from_here(self._ws, self._path_from_top(path) or "") for path in self._untracked]
            if untracked:
                step = hints.suggest_command(f"git add {' '.join(sorted(untracked)[:_MAX_LISTED_PATHS])}")
            return hints.join_alternatives(step, COPY)
        named = [
            path_from_here(self._ws, str(path))
            for path in self._named[:_MAX_LISTED_PATHS]
            if self._path_from_top(path) is not None
        ]
        kind = ["--kind", "code"] if all(formats.find_by_suffix(path) is None for path in refused) else []
        into = ["--collection", quoted(self._collection)] if self._collection else []
        return hints.join_alternatives(
            hints.suggest_command(command_here(self._ws, "sources add", [*named, *into, *kind])), COPY
        )

    def form_refusal(self) -> SourceReadOnly:
        """Return the error for the files that were refused, if nothing else can be stored."""
        names = [self._path_from_top(path) or str(path) for path in self._reasons]
        reason = next(iter(self._reasons.values()))
        path = names[0]
        if names[1:]:
            message = (
                f"{len(names)} files are not stored, because git tracks them: {first_of(names, _MAX_LISTED_PATHS)}."
            )
        else:
            message = f"{path} is not stored: it {reason}."
        return SourceReadOnly(message, hint=self.hint, path=path)

    def require_other(self, files: Sequence[Path]) -> None:
        """Raise `SourceReadOnly` if all these files are refused."""
        if files and len(self.find_reasons(files)) == len(files):
            raise self.form_refusal()

    def find_reasons(self, files: Sequence[Path]) -> Mapping[Path, str]:
        """Return the refused ones of these files, each with the reason.

        `files`: results of `import_base.locate_path`.
        """
        tracked: dict[Path, str] = {}
        untracked: dict[Path, str] = {}
        for file in files:
            path = self._path_from_top(file)
            if path and self._is_readable(path):
                (tracked if path in self._tracked else untracked)[file] = path
        unreadable = self._find_unreadable(tracked)
        reasons = {file: self._describe_reason(path) for file, path in tracked.items() if file not in unreadable}
        untracked_reasons = self._find_untracked(untracked)
        self._untracked |= untracked_reasons.keys()
        reasons |= untracked_reasons
        self._reasons |= reasons
        return reasons

    def _path_from_top(self, path: Path) -> str | None:
        """Return a path from the top, without symbolic links. None if it is outside."""
        real = Path(os.path.realpath(path)) if path.is_symlink() else path
        return real.relative_to(self._top).as_posix() if real.is_relative_to(self._top) else None

    @cached_property
    def _tracked(self) -> frozenset[str]:
        from vmrag_link.git import listing

        return frozenset(listing.list_tracked_files(self._ws.places))

    def _is_readable(self, path: str) -> bool:
        """Return whether a source can read a file of this name."""
        from vmrag_link.code import languages
        from vmrag_link.sources import rules

        if formats.find_by_suffix(path) is None:  # a source of the kind code reads any text
            return (self._texts or bool(languages.detect_language(path))) and not rules.find_name_flaw(path)
        return rules.can_read(path)

    def _find_unreadable(self, files: Mapping[Path, str]) -> set[Path]:
        """Return the files that sources leave out because of attributes, such as LFS, or size."""
        if not files:
            return set()
        from vmrag_link.git.listing import Repositories
        from vmrag_link.sources import attributes

        values = Repositories(self._ws.places).read_attributes(files, attributes.FOR_LISTING)
        max_bytes = self._ws.config.sources_max_bytes
        return {
            file
            for file in files
            if attributes.find_attribute_flaw(values.get(file, {}))
            or (file.exists() and file.stat().st_size > max_bytes)
        }

    def _source_of(self, path: str) -> SourceSettings | None:
        from vmrag_link.sources import rules

        return rules.find_source(self._ws.sources.configured, path)

    def _describe_reason(self, path: str) -> str:
        source = self._source_of(path)
        return f"is a document of the source {source.collection!r}" if source else "is tracked by git"

    def _find_untracked(self, files: Mapping[Path, str]) -> dict[Path, str]:
        """Return the reasons for files that a source reads as soon as git tracks them."""
        from vmrag_link.sources import rules

        sources = self._ws.config.sources if files else ()
        source_by_file = {file: rules.find_source(sources, path) for file, path in files.items()}
        if not any(source_by_file.values()):
            return {}
        from vmrag_link.sources.untracked import list_untracked_files

        untracked: set[str] = set()
        with suppress(LimitExceeded):  # too many untracked files to list
            untracked.update(*list_untracked_files(self._ws.places, sources))
        return {
            file: f"is a document of the source {source.collection!r} as soon as git tracks it; run 'git add'"
            for file, source in source_by_file.items()
            if source and files[file] in untracked
        }
