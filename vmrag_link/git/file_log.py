"""The commits that changed one file, followed through renames as `git log --follow` does."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmrag_link.errors import GitFailed
from vmrag_link.git.beside import look
from vmrag_link.paths import Places

_FORMAT = "%H%x00%P%x00%an <%ae>%x00%at%x00%D%x00%B%x00"

# What git would start otherwise: drivers of diffs, a program that checks signatures.
_HARMLESS = ("--no-ext-diff", "--no-textconv", "--no-show-signature", "--no-notes", "--no-color", "--encoding=UTF-8")
_EXACT = "-M100%"


class CommitInfo(NamedTuple):
    """`author` with the address, `date` when it was written, `message` whole; `refs`: what stands
    on the commit, as `HEAD`, `main`, `tag: v1`.
    """

    commit: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    refs: tuple[str, ...] = ()


class LoggedChange(NamedTuple):
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


def file_log(places: Places, reached: Sequence[str], path: str, *, limit: int) -> list[LoggedChange]:
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


def iso(seconds: str) -> str:
    """A time of git's as the records have it."""
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _changes(places: Places, reached: Sequence[str], path: str, limit: int, renames: str) -> Iterator[LoggedChange]:
    options = ("-z", "--follow", renames, "--raw", "--no-abbrev", *_HARMLESS, f"--format={_FORMAT}", f"-{limit}")
    said = look(places, "--literal-pathspecs", "log", *options, *reached, "--", path).stdout
    fields = iter(said.split(b"\0"))
    for commit in fields:
        if not commit:
            continue
        parents, author, seconds, refs, message = (_text(next(fields)) for _ in range(5))
        next(fields)  # the end of the message
        described = _text(next(fields)).removeprefix("\n").removeprefix(":")
        old_mode, mode, old_blob, blob, status = described.split(" ")
        old_path = new_path = os.fsdecode(next(fields))
        if status[0] in "RC":
            new_path = os.fsdecode(next(fields))
        info = CommitInfo(
            _text(commit), tuple(parents.split()), message.strip(), author, iso(seconds), tuple(_refs(refs))
        )
        yield LoggedChange(info, status[0], old_path, new_path, old_mode, mode, old_blob, blob)


def _refs(decoration: str) -> Iterator[str]:
    """`HEAD -> main, tag: v1` as names."""
    for each in filter(None, decoration.split(", ")):
        yield from each.split(" -> ")


def _text(field: bytes) -> str:
    return field.decode(errors="replace")
