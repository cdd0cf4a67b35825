"""Paths in HEAD and the index, and differences between the work tree and a commit: files, and lines
of one file. Renames are followed. Paths and commits come from an agent, so git is read-only
(`readonly`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from vmrag_link.errors import GitFailed, HistoryMissing, LimitExceeded, quoted
from vmrag_link.git import readonly
from vmrag_link.git.file_log import NOT_FETCHED
from vmrag_link.git.raw_changes import MOST_FILES
from vmrag_link.models import Record
from vmrag_link.paths import Places

_MAX_PATCH_BYTES = 8 << 20
"""Limit of the patch of one file."""

CONTEXT = 2
"""Unchanged lines around the changed ones."""

_DIFF = (
    *("--raw", "-z", "-M", "--no-abbrev", "--no-relative", "--no-color", "--no-ext-diff", "--no-textconv"),
    "--ignore-submodules=dirty",
)
_PATCH = ("-p", f"-U{CONTEXT}", "--inter-hunk-context=0", "--diff-algorithm=histogram", "--submodule=short")
_KINDS = {"A": "added", "D": "removed", "R": "renamed"}
_FILE = re.compile(r"^diff --git ", re.MULTILINE)
"""The beginning of a file in a patch. Its lines begin with a blank, `+`, `-` or a backslash."""

_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(?P<start>\d+)(?:,(?P<count>\d+))? @@")


class PathChange(Record, frozen=True):
    """A changed file."""

    kind: str
    """Added, modified, removed or renamed."""
    path: str
    old_path: str = ""
    """The earlier path of a renamed file."""


class PatchHunk(Record, frozen=True):
    """Lines that differ, as in a unified diff. `start` and `end`: the lines of the new file."""

    start: int
    end: int
    lines: tuple[str, ...]


class FilePatch(Record, frozen=True):
    """Differences of one file. An equal file has the `change` None. A binary file has no
    `hunks`.
    """

    change: PathChange | None
    hunks: tuple[PatchHunk, ...]


def find_objects(places: Places, specs: Sequence[str]) -> list[tuple[str, str]]:
    """Return the hash and kind of each object, such as `HEAD:README.md`, or two empty texts if it
    does not exist.

    One git process reads all of them, except in a partial clone. Names with a line break are not
    found.
    """
    valid = [spec for spec in specs if "\n" not in spec and "\0" not in spec]
    if not valid:
        return [("", "")] * len(specs)
    query = b"".join(os.fsencode(spec) + b"\n" for spec in valid)
    try:
        lines = readonly.run_readonly(places, "cat-file", "--batch-check", stdin=query).stdout.splitlines()
    except GitFailed as error:
        if NOT_FETCHED not in error.message:
            raise
        return [_find_object(places, spec) if spec in valid else ("", "") for spec in specs]
    objects: dict[str, tuple[str, str]] = {}
    for spec, line in zip(valid, lines, strict=True):
        match line.decode(errors="replace").split(" "):
            case [name, kind, size] if size.isdecimal():
                objects[spec] = (name, kind)
    return [objects.get(spec, ("", "")) for spec in specs]


def _find_object(places: Places, spec: str) -> tuple[str, str]:
    """Return the hash and kind of an object in a partial clone, which lacks blobs alone."""
    verify = ("rev-parse", "--verify", "--quiet", "--end-of-options", spec)
    name = readonly.run_readonly(places, *verify, fine=(0, 1, 128)).text.strip()
    kind = readonly.run_readonly(places, "cat-file", "-t", name, fine=(0, 1, 128)).text.strip() if name else ""
    return name, kind or ("blob" if name else "")


def list_changes(places: Places, commit: str, pathspecs: Sequence[str] = ()) -> list[PathChange]:
    """Return how tracked files of the work tree differ from a commit, sorted by path.

    In a partial clone, renamed files are found if nothing else changed.
    """
    try:
        fields = readonly.list_fields(places, "diff", *_DIFF, commit, "--", *pathspecs, limit=4 * MOST_FILES)
    except GitFailed as error:
        if NOT_FETCHED not in error.message:
            raise
        fields = readonly.list_fields(places, "diff", *_DIFF, "-M100%", commit, "--", *pathspecs, limit=4 * MOST_FILES)
    return sorted(_read_changes(fields), key=lambda change: change.path)


def _read_changes(fields: Sequence[bytes]) -> Iterator[PathChange]:
    rest = iter(fields)
    for field in rest:
        status = field[field.rindex(b" ") + 1 :].decode()[:1]
        paths = [os.fsdecode(next(rest)) for _ in range(2 if status in "RC" else 1)]
        yield PathChange(_KINDS.get(status, "modified"), paths[-1], paths[0] if status == "R" else "")


def read_patch(places: Places, commit: str, paths: Sequence[str]) -> FilePatch:
    """Return how a file of the work tree differs from a commit. `paths`: its name, and its name in
    the commit if that differs.

    Raises `GitFailed`, `HistoryMissing` in a partial clone without the earlier text, and
    `LimitExceeded` after `readonly.SECONDS`. Lines beyond 8 MiB are missing.
    """
    parts: list[bytes] = []

    def take_part(part: bytes) -> bool:
        parts.append(part)
        return sum(map(len, parts)) < _MAX_PATCH_BYTES

    arguments = ("--literal-pathspecs", "diff", *_DIFF, *_PATCH, commit, "--", *paths)
    try:
        in_time = readonly.feed_output(places, *arguments, take=take_part, seconds=readonly.seconds_left(), extra={})
    except GitFailed as error:
        if NOT_FETCHED not in error.message:
            raise
        fetch = f"git diff {commit} -- {quoted(paths[-1])}"
        raise HistoryMissing(
            f"this partial clone lacks the earlier text of {paths[-1]}.",
            hint=f"run '{fetch}' to fetch it, then run the command again",
            path=paths[-1],
        ) from error
    if not in_time:
        raise LimitExceeded("git diff took too long.", hint=f"run 'git diff --stat {commit}' to list the changed files")
    raw, _, patch = b"".join(parts).partition(b"\0\0")
    changes = list(_read_changes(raw.removesuffix(b"\0").split(b"\0") if raw else []))
    patches = _FILE.split(patch.decode(errors="replace"))[1:]  # in the order of `changes`, unless cut off
    for number, change in enumerate(changes):
        if change.path == paths[0]:
            return FilePatch(change, tuple(_read_hunks(patches[number] if number < len(patches) else "")))
    return FilePatch(None, ())


def _read_hunks(patch: str) -> Iterator[PatchHunk]:
    """Yield the hunks of one file."""
    start = end = 0
    lines: list[str] = []
    for line in patch.removesuffix("\n").split("\n"):
        if match := _HUNK.match(line):
            if lines:
                yield PatchHunk(start, end, tuple(lines))
            start, count, lines = int(match["start"]), int(match["count"] or 1), [match[0]]
            end = start + max(count, 1) - 1
        elif lines:
            lines.append(line.removesuffix("\r"))
    if lines:
        yield PatchHunk(start, end, tuple(lines))
