"""The lines that commits changed in some files, read from one `git log`.

`read_log` reads history commit by commit until its caller knows enough, `read_diff` compares two
commits, and `uncommitted_commit` makes the uncommitted content of files part of such a history.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link.errors import LimitExceeded
from vmrag_link.git.file_log import unquote_path
from vmrag_link.git.objects import ObjectWriter
from vmrag_link.git.readonly import feed_output
from vmrag_link.paths import Places

MAX_OUTPUT_BYTES = 64 << 20
"""Limit of the output of one git process."""

_LINE = re.compile(
    rb"^(?:commit (?P<commit>[0-9a-f]{40,64})(?P<parents>(?: [0-9a-f]{40,64})*)(?: \(from (?P<parent>[0-9a-f]+)\))?"
    rb"|:[0-7]+ [0-7]+ (?P<old>[0-9a-f]+) (?P<new>[0-9a-f]+) (?P<status>[A-Z])\t(?P<path>.+)"
    rb"|index (?P<blobs>[0-9a-f]+\.\.[0-9a-f]+)(?: [0-7]+)?"
    rb"|@@ -(?P<from>\d+)(?:,(?P<removed>\d+))? \+(?P<to>\d+)(?:,(?P<added>\d+))? @@.*"
    rb"|(?P<binary>Binary files) .*)$",
    re.MULTILINE,
)
"""Lines with the structure of the output. Lines of messages begin with a blank, and lines of files
with a blank, `+`, `-` or a backslash, so no text can imitate a structure line.
"""

# Settings and options that could change what git writes.
_SETTINGS = (*("-c", "core.quotePath=false"), *("-c", "log.showRoot=true"), *("-c", "log.follow=false"))
_DIFF = (
    *("--raw", "--no-abbrev", "-p", "-U0", "--full-index", "--no-renames", "--no-color", "--no-relative"),
    *("--inter-hunk-context=0", "--diff-algorithm=myers", "--no-indent-heuristic", "--ignore-cr-at-eol"),
    *("--submodule=short", "--ignore-submodules=none", "--no-ext-diff", "--no-textconv"),
)
_LOG = (
    *("--pretty=short", "--parents", "--no-abbrev-commit", "--no-decorate", "--no-notes", "--no-show-signature"),
    *("--full-history", "--sparse", "--diff-merges=separate"),
)

_ROOT = ""
"""Key for the missing parent of a root commit."""


class LineHunk(NamedTuple):
    """`removed` lines from line `start` on became `added` lines from `new_start` on.

    Lines are numbered from 0. If a number of lines is 0, the start is the line before which the
    others were.
    """

    start: int
    removed: int
    new_start: int
    added: int

    @property
    def end(self) -> int:
        return self.start + self.removed

    def swap_sides(self) -> LineHunk:
        return LineHunk(self.new_start, self.added, self.start, self.removed)


class LoggedFileChange(NamedTuple):
    """How a commit changed a file.

    `status` is git's, such as `M`. Binary files have the `hunks` None. A file whose mode or line
    ends alone differ has no change.
    """

    status: str
    old_blob: str
    new_blob: str
    hunks: tuple[LineHunk, ...] | None


class LoggedCommit(NamedTuple):
    """A commit of a log."""

    parents: tuple[str, ...]
    changes: dict[str, dict[str, LoggedFileChange]]
    """For each parent the changes by path. A root commit has the key `""`."""

    def compare_with(self, parent: str, path: str) -> LoggedFileChange | None:
        """Return how a file differs from a parent's, or None if it does not."""
        return self.changes.get(parent, {}).get(path)

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the keys of `changes`: the parents, or the empty tree."""
        return self.parents or (_ROOT,)


def read_log(
    places: Places,
    tip: str,
    paths: Sequence[str],
    wants_more: Callable[[Mapping[str, LoggedCommit], str], bool],
    *,
    seconds: float,
    objects: Path | None = None,
) -> dict[str, LoggedCommit]:
    """Return the commits that `tip` reaches, newest first, with the changes of these files.

    `wants_more` gets all commits that were read and the name of the latest one, and ends the walk
    by False. `objects` has objects that the repository lacks. Commits are missing if git took more
    than `seconds` or wrote more than `MAX_OUTPUT_BYTES`. Raises `GitFailed`.
    """
    parser = _LogParser()
    extra = {} if objects is None else _with_objects(places, objects)

    def take_part(part: bytes) -> bool:
        return all(wants_more(parser.commits, name) for name in parser.parse_part(part))

    arguments = ("--literal-pathspecs", "log", *_LOG, *_DIFF, "--end-of-options", tip, "--", *paths)
    with contextlib.suppress(LimitExceeded):
        if feed_output(places, *_SETTINGS, *arguments, take=take_part, seconds=seconds, extra=extra):
            for name in parser.finish_log():
                wants_more(parser.commits, name)
    return parser.commits


def read_diff(places: Places, start: str, end: str, *, seconds: float) -> dict[str, LoggedFileChange]:
    """Return how the files of two commits differ.

    Raises `GitFailed`, and `LimitExceeded` for more than `MAX_OUTPUT_BYTES` or `seconds`.
    """
    parser = _LogParser()

    def take_part(part: bytes) -> bool:
        return not list(parser.parse_part(part))

    take_part(b"commit %b\n" % end.encode())  # `git diff` prints no commit line
    arguments = ("diff", *_DIFF, "--end-of-options", start, end, "--")
    if not feed_output(places, *_SETTINGS, *arguments, take=take_part, seconds=seconds, extra={}):
        raise LimitExceeded(
            f"git diff took more than {seconds:.0f} seconds.",
            hint=f"run 'git diff --stat {start} {end}' to list the changed files",
        )
    parser.finish_log()
    return parser.commits[end].changes.get(_ROOT, {})


class _ListedFile(NamedTuple):
    """A file in the list that git prints before the patches of a commit."""

    path: str
    status: str
    old_blob: str
    new_blob: str


class _LogParser:
    """Parse the output of `git log`: `parse_part` for each part, and `finish_log` at its end.

    For each commit and parent, git prints a line with the commit, a list of files, and then a patch
    for each pair of blobs. So a commit is complete when the line of the next one arrives.
    """

    def __init__(self) -> None:
        self.commits: dict[str, LoggedCommit] = {}
        """The complete commits."""
        self._size = 0
        self._unread = b""
        """The beginning of a line that has not arrived completely."""
        self._name = ""
        self._commit = LoggedCommit((), {})
        self._parent = _ROOT
        self._files: list[_ListedFile] = []
        """The files in which the commit differs from this parent."""
        self._hunks: dict[str, list[LineHunk] | None] = {}
        """The hunks of these files by pair of blobs, None for binary files."""
        self._blobs = ""

    def parse_part(self, part: bytes) -> Iterator[str]:
        """Parse further output, and yield the name of each commit as soon as it is complete.

        Raises `LimitExceeded` for more than `MAX_OUTPUT_BYTES`.
        """
        self._size += len(part)
        if self._size > MAX_OUTPUT_BYTES:
            raise LimitExceeded(f"git log writes more than {MAX_OUTPUT_BYTES:,} bytes.", hint="name fewer files")
        lines, newline, rest = (self._unread + part).rpartition(b"\n")
        self._unread = rest
        for match in _LINE.finditer(lines + newline):
            if match["commit"]:
                yield from self._begin_side(match)
            else:
                self._parse_line(match)

    def finish_log(self) -> list[str]:
        """Complete the last commit after the end of the output, and return its name."""
        self._complete_side()
        return [self._complete_commit()] if self._name else []

    def _begin_side(self, match: re.Match[bytes]) -> list[str]:
        """Begin the comparison with another parent. Return the name of the commit before, if this
        is the first comparison of a commit.
        """
        self._complete_side()
        name = match["commit"].decode()
        completed: list[str] = []
        if name != self._name:
            completed = [self._complete_commit()] if self._name else []
            self._name = name
            self._commit = LoggedCommit(tuple(match["parents"].decode().split()), {})
        self._parent = match["parent"].decode() if match["parent"] else self._commit.sides[0]
        return completed

    def _parse_line(self, match: re.Match[bytes]) -> None:
        if match["path"]:
            status, old_blob, new_blob = (match[name].decode() for name in ("status", "old", "new"))
            self._files.append(_ListedFile(unquote_path(match["path"]), status, old_blob, new_blob))
        elif match["blobs"]:
            self._blobs = match["blobs"].decode()
            self._hunks[self._blobs] = []
        elif match["binary"]:
            self._hunks[self._blobs] = None
        elif (hunks := self._hunks.get(self._blobs)) is not None:
            hunks.append(_parse_hunk(match))

    def _complete_side(self) -> None:
        """Give the hunks to the files. Equal pairs of blobs have equal hunks."""
        changes: dict[str, LoggedFileChange] = {}
        for file in self._files:
            hunk_list = self._hunks.get(f"{file.old_blob}..{file.new_blob}", [])
            hunks = None if hunk_list is None else tuple(hunk_list)
            if file.status != "M" or hunks != ():
                changes[file.path] = LoggedFileChange(file.status, file.old_blob, file.new_blob, hunks)
        if self._files:
            self._commit.changes[self._parent] = changes
        self._files, self._hunks, self._blobs = [], {}, ""

    def _complete_commit(self) -> str:
        self.commits[self._name] = self._commit
        return self._name


def _parse_hunk(match: re.Match[bytes]) -> LineHunk:
    start, new_start = int(match["from"]), int(match["to"])
    removed, added = (1 if match[name] is None else int(match[name]) for name in ("removed", "added"))
    return LineHunk(start - (removed > 0), removed, new_start - (added > 0), added)


@contextlib.contextmanager
def uncommitted_commit(places: Places, parent: str, files: Mapping[str, bytes]) -> Iterator[tuple[str, Path]]:
    """Write a commit that has only these files, and yield its name and the folder of its objects.

    `git log` with the paths of these files compares them with the parent's. The folder is removed
    after the block. Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix="vmrag-") as folder:
        writer = ObjectWriter(places, Path(folder))
        blobs = {path: writer.write_blob(content) for path, content in files.items()}
        yield writer.write_commit(blobs, parent=parent, message="uncommitted", signature="vmrag <vmrag>"), Path(folder)


def _with_objects(places: Places, folder: Path) -> dict[str, str]:
    """Return the variables by which git reads objects from a folder and from the repository."""
    store = os.fspath(places.common / "objects").replace("\\", "\\\\").replace('"', '\\"')
    return {"GIT_OBJECT_DIRECTORY": os.fspath(folder), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{store}"'}
