"""The lines that commits changed in some files, read from one `git log`, and the uncommitted state
of these files as a commit without a ref.
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

MOST_BYTES = 64 << 20
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
_SETTINGS = (
    *("-c", "core.quotePath=false"),
    *("-c", "log.showRoot=true"),
    *("-c", "log.follow=false"),
)
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
    """The changes by path, for each parent. A root commit has the key `""`."""

    def compare_with(self, parent: str, path: str) -> LoggedFileChange | None:
        """Return how a file differs from a parent's, or None if it does not."""
        return self.changes.get(parent, {}).get(path)

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the keys of `changes`: the parents, or the empty tree."""
        return self.parents or (_ROOT,)


class LogReader:
    """Read the output of `git log` part by part. `commits` contains the complete ones."""

    def __init__(self) -> None:
        self.commits: dict[str, LoggedCommit] = {}
        self._name = ""
        self._commit = LoggedCommit((), {})
        self._side = _ROOT
        self._listed: list[tuple[str, str, str, str]] = []
        self._hunks: dict[str, list[LineHunk] | None] = {}
        self._blobs = ""
        self._size = 0
        self._rest = b""

    def read_part(self, part: bytes) -> Iterator[str]:
        """Read further output, and yield each commit as soon as it is complete: later ones are not
        in `commits` yet.

        Raises `LimitExceeded` for more than `MOST_BYTES`.
        """
        self._size += len(part)
        if self._size > MOST_BYTES:
            raise LimitExceeded(f"git log writes more than {MOST_BYTES:,} bytes.", hint="name fewer files")
        end = part.rfind(b"\n") + 1
        if not end:
            self._rest += part
            return
        text, self._rest = self._rest + part[:end], part[end:]
        yield from filter(None, map(self._read_line, _LINE.finditer(text)))

    def finish_log(self) -> list[str]:
        """Complete the last commit after the end of the output."""
        self._finish_side()
        return [self._finish_commit()] if self._name else []

    def _read_line(self, match: re.Match[bytes]) -> str:
        """Return the commit that ends with this line, if one does."""
        if match["commit"]:
            self._finish_side()
            name, complete = match["commit"].decode(), ""
            if name != self._name:
                complete = self._finish_commit() if self._name else ""
                self._name, self._commit = name, LoggedCommit(tuple(match["parents"].decode().split()), {})
            self._side = match["parent"].decode() if match["parent"] else self._commit.sides[0]
            return complete
        if match["path"]:
            old, new, status = (match[name].decode() for name in ("old", "new", "status"))
            self._listed.append((unquote_path(match["path"]), status, old, new))
        elif match["blobs"]:
            self._blobs = match["blobs"].decode()
            self._hunks[self._blobs] = []
        elif match["binary"]:
            self._hunks[self._blobs] = None
        elif (hunks := self._hunks.get(self._blobs)) is not None:
            hunks.append(_read_hunk(match))
        return ""

    def _finish_side(self) -> None:
        """Give the hunks to the files. Equal pairs of blobs have equal hunks."""
        changes = {
            path: LoggedFileChange(status, old, new, _freeze_hunks(self._hunks.get(f"{old}..{new}", [])))
            for path, status, old, new in self._listed
        }
        if changes:
            kept = {path: change for path, change in changes.items() if change.status != "M" or change.hunks != ()}
            self._commit.changes[self._side] = kept
        self._listed, self._hunks, self._blobs = [], {}, ""

    def _finish_commit(self) -> str:
        self.commits[self._name] = self._commit
        return self._name


def _read_hunk(match: re.Match[bytes]) -> LineHunk:
    start, new_start = int(match["from"]), int(match["to"])
    removed, added = (1 if match[name] is None else int(match[name]) for name in ("removed", "added"))
    return LineHunk(start - (removed > 0), removed, new_start - (added > 0), added)


def _freeze_hunks(hunks: list[LineHunk] | None) -> tuple[LineHunk, ...] | None:
    return None if hunks is None else tuple(hunks)


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

    `wants_more` gets all complete commits and the name of the latest one, and ends the walk by
    False. `objects` has objects that the repository lacks. Commits are missing if git took more
    than `seconds` or wrote more than `MOST_BYTES`. Raises `GitFailed`.
    """
    reader = LogReader()
    extra = {} if objects is None else _with_objects(places, objects)

    def take_part(part: bytes) -> bool:
        return all(wants_more(reader.commits, name) for name in reader.read_part(part))

    arguments = ("--literal-pathspecs", "log", *_LOG, *_DIFF, "--end-of-options", tip, "--", *paths)
    with contextlib.suppress(LimitExceeded):
        if feed_output(places, *_SETTINGS, *arguments, take=take_part, seconds=seconds, extra=extra):
            for name in reader.finish_log():
                wants_more(reader.commits, name)
    return reader.commits


def read_diff(places: Places, start: str, end: str, *, seconds: float) -> dict[str, LoggedFileChange]:
    """Return how the files of two commits differ.

    Raises `GitFailed`, and `LimitExceeded` for more than `MOST_BYTES` or `seconds`.
    """
    reader = LogReader()

    def take_part(part: bytes) -> bool:
        return not list(reader.read_part(part))

    take_part(b"commit %b\n" % end.encode())  # `git diff` prints no commit line

    arguments = ("diff", *_DIFF, "--end-of-options", start, end, "--")
    if not feed_output(places, *_SETTINGS, *arguments, take=take_part, seconds=seconds, extra={}):
        raise LimitExceeded(
            f"git diff took more than {seconds:.0f} seconds.",
            hint=f"run 'git diff --stat {start} {end}' to list the changed files",
        )
    reader.finish_log()
    return reader.commits[end].changes.get(_ROOT, {})


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
