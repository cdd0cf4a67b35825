"""History of one file: the commits that changed it, as listed by `git log --follow`, and the commit
of each line, as listed by `git blame`.
"""

from __future__ import annotations

import ast
import datetime as dt
import os
import shlex
from collections.abc import Iterator, Sequence

from vmrag_link.errors import GitFailed, HistoryMissing
from vmrag_link.git.readonly import run_readonly
from vmrag_link.models import Record
from vmrag_link.paths import Places

_FORMAT = "%H%x00%P%x00%an <%ae>%x00%at%x00%D%x00%B%x00"

# Otherwise git could start diff drivers, or a program that checks signatures.
_HARMLESS = ("--no-ext-diff", "--no-textconv", "--no-show-signature", "--no-notes", "--no-color", "--encoding=UTF-8")
_BLAME_OPTIONS = ("--porcelain", "--no-textconv", "--no-progress", "--encoding=UTF-8")

_HASH_LENGTHS = (40, 64)

NOT_FETCHED = "promisor remote"
"""Part of the error message for an object that a partial clone lacks."""


class CommitInfo(Record, frozen=True):
    """A commit in a history.

    `author` includes the address, `date` is the author date, and `message` is complete. `refs` are
    the names that point to the commit, such as `HEAD`, `main`, `tag: v1`.
    """

    commit: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    refs: tuple[str, ...] = ()


class LoggedChange(Record, frozen=True):
    """How a commit changed the file.

    `status` is as in `RawChange`, or `R` for a renamed file. Modes and blobs are zeros if the file
    does not exist on that side.
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
    """Return at most `limit` changes of a file, newest first.

    `reached`: commits by full hash, with `^` before those whose history is excluded. In a partial
    clone, renames are found only if the content did not change, because git cannot compare missing
    texts. Raises `GitFailed` and `LimitExceeded`.
    """
    try:
        return list(_list_changes(places, reached, path, limit, renames="-M"))
    except GitFailed as error:
        try:
            return list(_list_changes(places, reached, path, limit, renames="-M100%"))
        except GitFailed:
            raise error from None


def read_commit_log(
    places: Places, reached: Sequence[str], pathspecs: Sequence[str], *, limit: int
) -> list[CommitInfo]:
    """Return at most `limit` commits that changed files of these pathspecs, newest first.

    `reached`: as in `read_file_log`. Raises `GitFailed`, `LimitExceeded`.
    """
    return _read_commits(places, limit, *reached, "--", *pathspecs)


def read_line_log(
    places: Places, reached: Sequence[str], path: str, lines: tuple[int, int], *, limit: int
) -> list[CommitInfo]:
    """Return at most `limit` commits that changed lines of a file, newest first.

    `lines`: the first and the last line at the end of the history. `reached`: as in
    `read_file_log`. Raises `GitFailed` if the file does not have the lines, and `LimitExceeded`.
    """
    return _read_commits(places, limit, "-s", f"-L{lines[0]},{lines[1]}:{path}", *reached)


def _read_commits(places: Places, limit: int, *arguments: str) -> list[CommitInfo]:
    options = ("-z", *_HARMLESS, f"--format={_FORMAT}", f"-{limit}")
    fields = iter(run_readonly(places, "log", *options, *arguments).stdout.split(b"\0"))
    return [_read_commit(commit, fields) for commit in fields if commit]


def format_time(seconds: str) -> str:
    """Return git's time in seconds as ISO 8601 UTC."""
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _list_changes(
    places: Places, reached: Sequence[str], path: str, limit: int, *, renames: str
) -> Iterator[LoggedChange]:
    options = ("-z", "--follow", renames, "--raw", "--no-abbrev", *_HARMLESS, f"--format={_FORMAT}", f"-{limit}")
    output = run_readonly(places, "--literal-pathspecs", "log", *options, *reached, "--", path).stdout
    fields = iter(output.split(b"\0"))
    for commit in fields:
        if not commit:
            continue
        info = _read_commit(commit, fields)
        described = _decode_field(next(fields)).removeprefix("\n").removeprefix(":")
        old_mode, mode, old_blob, blob, status = described.split(" ")
        old_path = new_path = os.fsdecode(next(fields))
        if status[0] in "RC":
            new_path = os.fsdecode(next(fields))
        yield LoggedChange(
            info=info,
            status=status[0],
            old_path=old_path,
            path=new_path,
            old_mode=old_mode,
            mode=mode,
            old_blob=old_blob,
            blob=blob,
        )


def _read_commit(commit: bytes, fields: Iterator[bytes]) -> CommitInfo:
    """Return the commit whose hash was read, from the fields that follow it."""
    parents, author, seconds, refs, message = (_decode_field(next(fields)) for _ in range(5))
    next(fields)  # the end of the message
    return CommitInfo(
        commit=_decode_field(commit),
        parents=tuple(parents.split()),
        message=message.strip(),
        author=author,
        date=format_time(seconds),
        refs=tuple(_split_refs(refs)),
    )


def _split_refs(decoration: str) -> Iterator[str]:
    """Yield the names of a decoration such as `HEAD -> main, tag: v1`."""
    for part in filter(None, decoration.split(", ")):
        yield from part.split(" -> ")


def _decode_field(field: bytes) -> str:
    return field.decode(errors="replace")


class FileLine(Record, frozen=True):
    """A line of a file.

    An uncommitted line has the `commit` None. `path` is the file's path in that commit, and
    `number` the line's number there, from 1.
    """

    text: str
    commit: str | None
    path: str
    number: int


class BlamedFile(Record, frozen=True):
    """A file with the commit of each line."""

    lines: list[FileLine]
    commits: dict[str, CommitInfo]
    """The commits of the lines, by hash, without their parents."""


def blame_file(places: Places, path: str, commit: str | None) -> BlamedFile:
    """Return the lines of the file at a commit, given by its full hash, or in the work tree without
    one.

    Commits that git's configuration ignores are ignored. Raises `GitFailed`, also if git does not
    track the file, and `LimitExceeded`. In a partial clone it raises `HistoryMissing` if an earlier
    version of the file is missing.
    """
    arguments = (*([commit] if commit else []), "--", path)
    try:
        output = run_readonly(places, "blame", *_BLAME_OPTIONS, *arguments).stdout
    except GitFailed as error:
        if NOT_FETCHED not in error.message:
            raise
        raise HistoryMissing(
            f"this partial clone lacks earlier versions of {path}, so the commits of its lines are unknown.",
            hint=f"run 'git blame {shlex.join(arguments)}' to fetch the versions, then run the command again",
            path=path,
        ) from error
    facts: dict[str, dict[str, str]] = {}  # by commit; git prints them before its first line
    lines = []
    commit_name, number = "", 0
    for line in output.split(b"\n"):
        key, _, value = line.partition(b" ")
        if line.startswith(b"\t"):
            committed = commit_name if commit_name.strip("0") else None
            text = _decode_field(line[1:]).removesuffix("\r")
            lines.append(FileLine(text, committed, facts[commit_name]["filename"], number))
        elif len(key) in _HASH_LENGTHS and value[:1].isdigit():
            commit_name, number = key.decode(), int(value.split(b" ")[0])
            facts.setdefault(commit_name, {})
        elif key:
            facts[commit_name][key.decode()] = unquote_path(value) if key == b"filename" else _decode_field(value)
    return BlamedFile(lines, {name: _build_commit_info(name, fact) for name, fact in facts.items() if name.strip("0")})


def _build_commit_info(name: str, facts: dict[str, str]) -> CommitInfo:
    author = f"{facts['author']} {facts['author-mail']}"
    return CommitInfo(name, (), facts["summary"], author, format_time(facts["author-time"]))


def unquote_path(value: bytes) -> str:
    """Return a path that git printed. git quotes unusual paths like strings in C."""
    if not value.startswith(b'"'):
        return os.fsdecode(value)
    return os.fsdecode(ast.literal_eval(f"b{value.decode('ascii', 'replace')}"))
