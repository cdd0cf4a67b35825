"""The history of one file: the commits that changed it, as `git log --follow` lists them, and the
commit that each line comes from, as `git blame` tells it.
"""

from __future__ import annotations

import ast
import datetime as dt
import os
import shlex
from collections.abc import Iterator, Sequence

from vmrag_link.errors import GitFailed, HistoryMissing
from vmrag_link.git.beside import run_readonly
from vmrag_link.models import Record
from vmrag_link.paths import Places

_FORMAT = "%H%x00%P%x00%an <%ae>%x00%at%x00%D%x00%B%x00"

# What git would start otherwise: drivers of diffs, a program that checks signatures.
_HARMLESS = ("--no-ext-diff", "--no-textconv", "--no-show-signature", "--no-notes", "--no-color", "--encoding=UTF-8")
_EXACT = "-M100%"


class CommitInfo(Record, frozen=True):
    """`author` with the address, `date` when it was written, `message` whole; `refs`: what stands
    on the commit, as `HEAD`, `main`, `tag: v1`.
    """

    commit: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    refs: tuple[str, ...] = ()


class LoggedChange(Record, frozen=True):
    """What a commit did to the file: `status` as in `RawChange`, or `R` for another name. Modes and
    blobs are zeros where there is no file.
    """

    info: CommitInfo
    status: str
    old_path: str
    path: str
    old_mode: str
    mode: str
    old_blob: str
    blob: str


def read_file_log(places: Places, reached: Sequence[str], path: str, *, limit: int) -> list[LoggedChange]:
    """At most `limit` changes of a file, newest first. `reached`: commits by full hash, with `^`
    before those whose history is left out.

    In a partial clone renames are found where nothing else changed: git compares no texts that are
    not here. Raises as `beside.look`.
    """
    try:
        return list(_changes(places, reached, path, limit, "-M"))
    except GitFailed as error:
        try:
            return list(_changes(places, reached, path, limit, _EXACT))
        except GitFailed:
            raise error from None


def read_commit_log(
    places: Places, reached: Sequence[str], pathspecs: Sequence[str], *, limit: int
) -> list[CommitInfo]:
    """Return at most `limit` commits that changed files which these pathspecs name, newest first.

    `reached`: as in `file_log`. Raises `GitFailed`, `LimitExceeded`.
    """
    options = ("-z", *_HARMLESS, f"--format={_FORMAT}", f"-{limit}")
    output = run_readonly(places, "log", *options, *reached, "--", *pathspecs).stdout
    fields = iter(output.split(b"\0"))
    return [_read_commit(commit, fields) for commit in fields if commit]


def read_line_log(
    places: Places, reached: Sequence[str], path: str, lines: tuple[int, int], *, limit: int
) -> list[CommitInfo]:
    """Return at most `limit` commits that changed lines of a file, newest first. `lines`: the first
    and the last one at the end of the history.

    `reached`: as in `file_log`. Raises `GitFailed` if the file does not have the lines, and
    `LimitExceeded`.
    """
    chosen = f"-L{lines[0]},{lines[1]}:{path}"
    output = run_readonly(
        places, "log", "-z", "-s", chosen, *_HARMLESS, f"--format={_FORMAT}", f"-{limit}", *reached
    ).stdout
    fields = iter(output.split(b"\0"))
    return [_read_commit(commit, fields) for commit in fields if commit]


def format_time(seconds: str) -> str:
    """A time of git's as the records have it."""
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _changes(places: Places, reached: Sequence[str], path: str, limit: int, renames: str) -> Iterator[LoggedChange]:
    options = ("-z", "--follow", renames, "--raw", "--no-abbrev", *_HARMLESS, f"--format={_FORMAT}", f"-{limit}")
    said = run_readonly(places, "--literal-pathspecs", "log", *options, *reached, "--", path).stdout
    fields = iter(said.split(b"\0"))
    for commit in fields:
        if not commit:
            continue
        info = _read_commit(commit, fields)
        described = _text(next(fields)).removeprefix("\n").removeprefix(":")
        old_mode, mode, old_blob, blob, status = described.split(" ")
        old_path = new_path = os.fsdecode(next(fields))
        if status[0] in "RC":
            new_path = os.fsdecode(next(fields))
        yield LoggedChange(info, status[0], old_path, new_path, old_mode, mode, old_blob, blob)


def _read_commit(commit: bytes, fields: Iterator[bytes]) -> CommitInfo:
    """Return the commit whose hash was read, from the fields that follow it."""
    parents, author, seconds, refs, message = (_text(next(fields)) for _ in range(5))
    next(fields)  # the end of the message
    return CommitInfo(
        _text(commit), tuple(parents.split()), message.strip(), author, format_time(seconds), tuple(_refs(refs))
    )


def _refs(decoration: str) -> Iterator[str]:
    """`HEAD -> main, tag: v1` as names."""
    for each in filter(None, decoration.split(", ")):
        yield from each.split(" -> ")


def _text(field: bytes) -> str:
    return field.decode(errors="replace")


_OPTIONS = ("--porcelain", "--no-textconv", "--no-progress", "--encoding=UTF-8")


class FileLine(Record, frozen=True):
    """`commit` is None for a line that is not committed; there the file was at `path`, and the line
    its `number`th, from 1.
    """

    text: str
    commit: str | None
    path: str
    number: int


class BlamedFile(Record, frozen=True):
    """`commits`: those that the lines name, by hash, without their parents."""

    lines: list[FileLine]
    commits: dict[str, CommitInfo]


def blame_file(places: Places, path: str, commit: str | None) -> BlamedFile:
    """The lines of the file at a commit, by its full hash, or (None) as it stands in the work tree.
    Commits that git's configuration ignores are ignored.

    Raises as `beside.look`; so also where git does not track the file. In a partial clone
    `HistoryMissing`, where an earlier version of the file is not here.
    """
    named = (*([commit] if commit else []), "--", path)
    try:
        said = run_readonly(places, "blame", *_OPTIONS, *named).stdout
    except GitFailed as error:
        if NOT_FETCHED not in error.message:
            raise
        raise HistoryMissing(
            f"This clone does not have each version of {path}, so nobody can say here which commit a line is of.",
            hint=f"git blame {shlex.join(named)}   (fetches them; then call again)",
            path=path,
        ) from error
    facts: dict[str, dict[str, str]] = {}
    lines = []
    commit_name, number = "", 0
    for line in said.split(b"\n"):
        if line.startswith(b"\t"):
            found = facts[commit_name]
            name = commit_name if commit_name.strip("0") else None
            lines.append(FileLine(_decode(line[1:]).removesuffix("\r"), name, found["filename"], number))
            continue
        key, _, value = line.partition(b" ")
        if len(key) in _HASHES and value[:1].isdigit():
            commit_name, number = key.decode(), int(value.split(b" ")[0])
            facts.setdefault(commit_name, {})
        elif key:
            facts[commit_name][key.decode()] = unquote_path(value) if key == b"filename" else _decode(value)
    return BlamedFile(lines, {name: _info(name, fact) for name, fact in facts.items() if name.strip("0")})


_HASHES = (40, 64)
NOT_FETCHED = "promisor remote"
"""The error of git for an object that a partial clone lacks has this text."""


def _info(name: str, facts: dict[str, str]) -> CommitInfo:
    author = f"{facts['author']} {facts['author-mail']}"
    return CommitInfo(name, (), facts["summary"], author, format_time(facts["author-time"]))


def unquote_path(value: bytes) -> str:
    """Return the path that git wrote, which quotes some names like strings of C."""
    if not value.startswith(b'"'):
        return os.fsdecode(value)
    return os.fsdecode(ast.literal_eval(f"b{value.decode('ascii', 'replace')}"))


def _decode(field: bytes) -> str:
    return field.decode(errors="replace")
