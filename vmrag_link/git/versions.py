"""Files in commits and in the index: which exist, which differ, and their contents.

Nothing is fetched: blobs that a partial clone lacks count as missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from vmrag_link.git.run import build_failure, join_lines, run_git
from vmrag_link.paths import Places
from vmrag_link.proc import FinishedProcess

_MAX_BYTES = 64 << 20
"""Limit for all contents that are read at once."""

_FILES = ("100644", "100755")


def has_staged_changes(places: Places, *, index_file: Path | None = None) -> bool:
    """Return True if the index differs from HEAD."""
    return bool(
        _run_safely(places, "diff", "--cached", "--name-only", "-z", "--no-ext-diff", index_file=index_file).stdout
    )


def list_staged_files(places: Places) -> list[str]:
    """Return the paths of files that differ between HEAD and the index."""
    output = _run_safely(places, "diff", "--cached", "--name-only", "-z", "--no-ext-diff", "--no-renames").stdout
    return [os.fsdecode(path) for path in output.split(b"\0") if path]


def has_unstaged_changes(places: Places, path: str, *, index_file: Path | None = None) -> bool:
    """Return whether a file exists that differs from the index, or that git does not track."""
    listing = _run_safely(places, "ls-files", "--modified", "--others", "-z", "--", path, index_file=index_file)
    return bool(listing.stdout) and (places.top / path).is_file()


def read_staged_file(places: Places, path: str, *, index_file: Path | None = None) -> bytes | None:
    """Return the index's content of a file. None if it is missing or in conflict."""
    entries = _run_safely(places, "ls-files", "--stage", "-z", "--", path, index_file=index_file).stdout.split(b"\0")
    blobs = [entry.split()[1].decode() for entry in entries if entry.split()[2:3] == [b"0"]]
    return dict(read_blobs(places, blobs)).get(blobs[0]) if blobs else None


def list_tree_files(places: Places, commit: str) -> dict[str, str]:
    """Return the blobs of the files in a commit's tree, by path."""
    output = _run_safely(places, "ls-tree", "-r", "-z", "--full-tree", commit).stdout.split(b"\0")
    entries = (entry.partition(b"\t") for entry in output if entry)
    return {
        os.fsdecode(path): attributes.split()[2].decode()
        for attributes, _, path in entries
        if attributes[:6].decode() in _FILES
    }


def read_blobs(places: Places, blobs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the existing blobs with their contents, up to `_MAX_BYTES` together."""
    names = dict.fromkeys(blobs)
    sizes = _run_safely(places, "cat-file", "--batch-check", stdin=join_lines(names)).text.splitlines()
    remaining, selected = _MAX_BYTES, list[str]()
    for line in sizes:
        match line.split(" "):
            case [name, "blob", size] if int(size) <= remaining:
                remaining -= int(size)
                selected.append(name)
    answer = _run_safely(places, "cat-file", "--batch", stdin=join_lines(selected)).stdout
    position = 0
    for name in selected:
        start = answer.index(b"\n", position) + 1
        position = start + int(answer[position:start].split(b" ")[2])
        yield name, answer[start:position]
        position += 1


def _run_safely(
    places: Places, *arguments: str, stdin: bytes | None = None, index_file: Path | None = None
) -> FinishedProcess:
    # An untrusted repository must not name a program to run, as in core.fsmonitor.
    options = ("--literal-pathspecs", "--no-optional-locks", "-c", "core.fsmonitor=false")
    finished = run_git(
        places, *options, *arguments, stdin=stdin, index_file=index_file, extra={"GIT_NO_LAZY_FETCH": "1"}
    )
    if finished.returncode != 0:
        raise build_failure(arguments, finished)
    return finished
