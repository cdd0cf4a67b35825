"""Which commit each line of a file comes from, as `git blame` has it."""

from __future__ import annotations

import ast
import os
import shlex
from typing import NamedTuple

from vmrag_link.errors import GitFailed, HistoryMissing
from vmrag_link.git.beside import look
from vmrag_link.git.file_log import CommitInfo, iso
from vmrag_link.paths import Places

_OPTIONS = ("--porcelain", "--no-textconv", "--no-progress", "--encoding=UTF-8")


class FileLine(NamedTuple):
    """`commit` is None for a line that is not committed; there the file was at `path`, and the line
    its `number`th, from 1.
    """

    text: str
    commit: str | None
    path: str
    number: int


class BlamedFile(NamedTuple):
    """`commits`: those that the lines name, by hash, without their parents."""

    lines: list[FileLine]
    commits: dict[str, CommitInfo]


def file_blame(places: Places, path: str, commit: str | None) -> BlamedFile:
    """Of the file at a commit, by its full hash, or (None) as it stands in the work tree. Commits
    that git's configuration ignores are ignored.

    Raises as `beside.look`; so also where git does not track the file. In a partial clone
    `HistoryMissing`, where an earlier version of the file is not here.
    """
    named = (*([commit] if commit else []), "--", path)
    try:
        said = look(places, "blame", *_OPTIONS, *named).stdout
    except GitFailed as error:
        if _NOT_HERE not in error.message:
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
            lines.append(FileLine(_text(line[1:]).removesuffix("\r"), name, found["filename"], number))
            continue
        key, _, value = line.partition(b" ")
        if len(key) in _HASHES and value[:1].isdigit():
            commit_name, number = key.decode(), int(value.split(b" ")[0])
            facts.setdefault(commit_name, {})
        elif key:
            facts[commit_name][key.decode()] = _path(value) if key == b"filename" else _text(value)
    return BlamedFile(lines, {name: _info(name, each) for name, each in facts.items() if name.strip("0")})


_HASHES = (40, 64)
_NOT_HERE = "promisor remote"


def _info(name: str, facts: dict[str, str]) -> CommitInfo:
    author = f"{facts['author']} {facts['author-mail']}"
    return CommitInfo(name, (), facts["summary"], author, iso(facts["author-time"]))


def _path(value: bytes) -> str:
    """As git quotes names: like bytes of C."""
    if not value.startswith(b'"'):
        return os.fsdecode(value)
    return os.fsdecode(ast.literal_eval(f"b{value.decode('ascii', 'replace')}"))


def _text(field: bytes) -> str:
    return field.decode(errors="replace")
