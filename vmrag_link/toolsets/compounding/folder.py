"""The Markdown files below a folder of the work tree, and stamps of their versions.

The folder can be untrusted: links are not followed, and only regular files are read.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vmrag_link import terminal_text
from vmrag_link.documents.import_base import find_id_problem
from vmrag_link.errors import FileFailed, LimitExceeded, quoted
from vmrag_link.git.listing import build_ignored_error
from vmrag_link.models import Record

MAX_FILES = 20_000
_TRACK = "name another folder in the project's configuration, or run 'git add --force FILE' to share the file"
SUFFIX = ".md"


class Stamp(NamedTuple):
    """Time in nanoseconds, size and inode. It differs between two versions of a file."""

    modified: int
    size: int
    inode: int


class SkippedDoc(Record, frozen=True):
    """A skipped file, and the reason: the end of a sentence that begins with its path."""

    path: str
    reason: str


class Files(NamedTuple):
    """Files by path relative to the folder, sorted."""

    stamps: Mapping[str, Stamp]
    skipped: tuple[SkippedDoc, ...]


class Patterns(Record, frozen=True):
    """Patterns of paths. A path must match one of `include` and none of `exclude`.

    `**` stands for any folders, `*` and `?` for characters between two slashes.
    """

    include: tuple[str, ...] = (f"**/*{SUFFIX}",)
    exclude: tuple[str, ...] = ()

    def match_path(self, path: str) -> bool:
        parts = tuple(path.split("/"))
        return any(_match_parts(_split_parts(pattern), parts) for pattern in self.include) and not any(
            _match_parts(_split_parts(pattern), parts) for pattern in self.exclude
        )


def scan_folder(folder: Path, patterns: Patterns, ignored: Callable[[Iterable[Path]], set[Path]]) -> Files:
    """Return the Markdown files below a folder; none for a missing folder.

    Hidden files and folders are skipped, and files that git ignores (`ignored` of paths), because
    documents are pushed. Raises `AccessDenied` for an ignored folder without tracked files,
    `FileFailed` for unreadable files, and `LimitExceeded` for more than `MAX_FILES` files.
    """
    stamps: dict[str, Stamp] = {}
    skipped: list[SkippedDoc] = []
    for path, entry in _list_entries(folder):
        if not patterns.match_path(path):
            continue
        if entry.is_symlink():
            skipped.append(SkippedDoc(terminal_text.escape_line(path), "is a symbolic link"))
        elif why := find_id_problem(path):
            skipped.append(SkippedDoc(terminal_text.escape_line(path), f"its path {why}"))
        else:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(status.st_mode):
                skipped.append(SkippedDoc(terminal_text.escape_line(path), "is not a regular file"))
                continue
            stamps[path] = Stamp(status.st_mtime_ns, status.st_size, status.st_ino)
        if len(stamps) + len(skipped) > MAX_FILES:
            raise LimitExceeded(
                f"{folder} holds more than {MAX_FILES:,} documents.",
                hint="move some elsewhere, or leave them out with external_docs.exclude_patterns",
                path=str(folder),
            )
    hidden = ignored([folder, *(folder / path for path in stamps)]) if stamps else set()
    if len(hidden) > len(stamps):
        raise build_ignored_error(folder, hint=_TRACK)
    skipped += [SkippedDoc(path, "is ignored by git") for path in stamps if folder / path in hidden]
    return Files(
        {path: stamps[path] for path in sorted(stamps) if folder / path not in hidden},
        tuple(sorted(skipped, key=lambda skipped_file: skipped_file.path)),
    )


def _list_entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    waiting = [""]
    while waiting:
        current = waiting.pop()
        try:
            with os.scandir(folder / current) as listing:
                entries = list(listing)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FileFailed(
                f"{folder / current} cannot be read: {error.strerror}.",
                hint=f"run 'ls -la {quoted(folder / current)}' to check its permissions",
                path=str(folder / current),
            ) from error
        for entry in entries:
            path = f"{current}/{entry.name}" if current else entry.name
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                yield path, entry


def _match_parts(pattern: Sequence[str], path: tuple[str, ...]) -> bool:
    """Return whether a path matches, part by part.

    The cost is at most the product of both numbers of parts.
    """
    matched = {0}  # numbers of the first parts of the path that the pattern matches until now
    for part in pattern:
        if part == "**":
            matched = set(range(min(matched), len(path) + 1)) if matched else matched
        else:
            matched = {count + 1 for count in matched if count < len(path) and fnmatch.fnmatchcase(path[count], part)}
    return len(path) in matched


@cache
def _split_parts(pattern: str) -> tuple[str, ...]:
    return tuple(part for part in pattern.split("/") if part not in ("", "."))
